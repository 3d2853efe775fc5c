package lockdown_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDefaults adds the policy that fills in defaults to a fleet, keeps it, and removes it.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const file, list = "infrastructure/tenure/defaults.yaml", "infrastructure/tenure/kustomization.yaml"
	dir := small(t, nil)
	yes, no := true, false
	for _, step := range []struct {
		reason string
		wanted *bool
		there  bool
	}{
		{"older clusters do not serve the kind", nil, false},
		{"chosen", &yes, true},
		{"the fleet's choice stays", nil, true},
		{"chosen otherwise", &no, false},
	} {
		apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Defaults: step.wanted})
		files := read(t, dir)
		if got := files[file] == string(config.Defaults()); got != step.there {
			t.Errorf("%s: the policy is there: %t, want %t", step.reason, got, step.there)
		}
		if got := strings.Contains(files[list], "- defaults.yaml"); got != step.there {
			t.Errorf("%s: the policy is applied: %t, want %t", step.reason, got, step.there)
		}
	}
}

// TestObjectsWarn checks that in warn mode the bindings of rules only warn, except those of the
// rules that always deny, and that the only further objects are the policies and the bindings of
// those rules that otherwise share a policy with rules which warn.
func TestObjectsWarn(t *testing.T) {
	t.Parallel()
	yes := true
	actions := func(warn bool) (map[string][]string, int) {
		manifests, err := lockdown.Objects("gitops", lockdown.Options{Warn: &warn, Proxy: &yes, Capsule: &yes, Defaults: &yes, Shards: []string{"gold"}})
		if err != nil {
			t.Fatal(err)
		}
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string][]string{}
		for _, o := range objects {
			if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
				is, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "validationActions")
				all[o.GetLabels()["app.kubernetes.io/component"]+" "+o.GetName()] = is
			}
		}
		return all, len(objects)
	}
	warns, n := actions(true)
	denies, m := actions(false)
	const added = "admission-always tenure-objects-always"
	further := 0
	for binding, is := range warns {
		want := []string{"Deny"}
		if strings.HasPrefix(binding, "admission ") || strings.HasPrefix(binding, "admission-objects ") {
			want = []string{"Warn", "Audit"}
		}
		if !slices.Equal(is, want) {
			t.Errorf("%s: in warn mode %q, want %q", binding, is, want)
		}
		if strings.HasPrefix(binding, added) {
			further++
			continue
		}
		if !slices.Equal(denies[binding], []string{"Deny"}) {
			t.Errorf("%s: in enforce mode %q, want Deny", binding, denies[binding])
		}
	}
	// Four policies: one for namespaces without parameters, with three bindings, and three with two bindings each.
	if further != 9 || n != m+further+4 || len(warns) != len(denies)+further || len(denies) < 20 {
		t.Errorf("warn mode has %d objects, %d bindings, %d of %s; enforce has %d objects, %d bindings", n, len(warns), further, added, m, len(denies))
	}
}
