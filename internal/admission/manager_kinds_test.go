package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestManagerKinds checks that the rule about the manager's requests matches every kind that the
// manager's roles let it write, with and without Capsule.
func TestManagerKinds(t *testing.T) {
	t.Parallel()
	// These kinds give neither rights nor volumes, so no rule has to limit them.
	harmless := []string{
		"/events", "events.k8s.io/events", "coordination.k8s.io/leases",
		"tenure.dev/tenantnamespaces",                                                                                                                     // a right that reviews ask for: no API server serves the kind
		"capsule.clastix.io/tenants", "capsule.clastix.io/tenantresources", "capsule.clastix.io/globaltenantresources", "capsule.clastix.io/rulestatuses", // what they say, the manager does within this rule
	}
	matched := map[string]bool{}
	for _, r := range managerRequests().resources {
		for _, resource := range r.Resources {
			matched[r.APIGroups[0]+"/"+resource] = len(r.Operations) == len(all)
		}
	}
	reads := []string{"get", "list", "watch"}
	for _, manifests := range [][]byte{config.Manager(), config.CapsuleRoles()} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			var role rbacv1.ClusterRole
			if !strings.HasSuffix(o.GetKind(), "Role") {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(reads, verb) }) {
					continue
				}
				for _, resource := range rule.Resources {
					kind := rule.APIGroups[0] + "/" + resource
					if !matched[kind] && !slices.Contains(harmless, kind) && !strings.HasSuffix(kind, "/status") {
						t.Errorf("role %s lets the manager write %s, which the rule does not match", role.Name, kind)
					}
				}
			}
		}
	}
}
