package admission_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestEveryVersion checks that the policies and webhooks match their resources in every version. An API server may serve
// more versions of a kind than the tests know, such as those of an older Flux, and a tenant chooses the version. The API server
// finds equal resources in other versions only for kinds that one definition serves, and it hands an object to the rules in the version of
// the request if the rules name all versions.
func TestEveryVersion(t *testing.T) {
	t.Parallel()
	// Kubernetes has one version of these resources of its core, and of Ingresses.
	only := []string{"namespaces", "pods", "pods/ephemeralcontainers", "pods/resize", "persistentvolumeclaims", "services"}
	kinds := map[string]int{}
	for name, manifests := range map[string][]byte{
		"policies": config.Policies(), "warnings": config.WarnPolicies(), "defaults": config.Defaults(), "shards": config.Shards(),
		"Capsule": config.CapsulePolicies(), "manager": config.Manager(),
	} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			var rules []any
			for _, path := range [][]string{
				{"spec", "matchConstraints", "resourceRules"}, {"spec", "matchConstraints", "excludeResourceRules"},
				{"spec", "matchResources", "resourceRules"}, {"spec", "matchResources", "excludeResourceRules"},
			} {
				found, _, _ := unstructured.NestedSlice(o.Object, path...)
				rules = append(rules, found...)
			}
			webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			for _, w := range webhooks {
				found, _, _ := unstructured.NestedSlice(w.(map[string]any), "rules")
				rules = append(rules, found...)
			}
			for _, rule := range rules {
				groups, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "apiGroups")
				versions, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "apiVersions")
				resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
				kinds[o.GetKind()]++
				one := slices.Equal(groups, []string{""}) && !slices.ContainsFunc(resources, func(r string) bool { return !slices.Contains(only, r) })
				one = one || slices.Equal(groups, []string{"networking.k8s.io"}) && slices.Equal(resources, []string{"ingresses"})
				if one && slices.Equal(versions, []string{"v1"}) {
					continue
				}
				if diff := cmp.Diff([]string{"*"}, versions); diff != "" {
					t.Errorf("%s: %s %s matches %v of %v in some versions only (-want, +got):\n%s", name, o.GetKind(), o.GetName(), resources, groups, diff)
				}
			}
		}
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		if kinds[kind] == 0 {
			t.Errorf("the test has read no rules of a %s", kind)
		}
	}
}
