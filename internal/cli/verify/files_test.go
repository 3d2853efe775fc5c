package verify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// repository creates files in a Git work tree, and returns the fleet in its folder platform.
func repository(t *testing.T, content map[string]string) *layout.Fleet {
	t.Helper()
	top := t.TempDir()
	content[".git/HEAD"] = ""
	for name, text := range content {
		file := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &layout.Fleet{Dir: filepath.Join(top, "platform"), Path: "clusters/staging", System: "clusters/staging/flux-system"}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	f := repository(t, map[string]string{
		"platform/clusters/staging/flux-system/kustomization.yaml": "",
		"platform/broken.yaml":       "kind: [",
		"platform/base/tenants.yaml": "# ours\nkind: Namespace\nmetadata: {name: other}\n---\n\nkind: Namespace\nmetadata:\n  name: a\n---\nkind: RoleBinding\nmetadata: {name: reconciler}\nsubjects: [{kind: ServiceAccount, name: team, namespace: a}]\n",
		"platform/base/other.yaml":   "kind: RoleBinding\nmetadata: {name: reconciler, namespace: other}\nsubjects: [{kind: ServiceAccount, name: team, namespace: a}]\n",
	})
	a := discovery.Tenant{Name: "a", Namespaces: []string{"a"}, Accounts: []discovery.Account{{Namespace: "a", Name: "team"}}}
	all := readFiles(f)
	for _, tc := range []struct {
		reason string
		fix    catalog.Fix
		tenant string
		want   location
	}{
		{"flags are set in Flux's kustomization", catalog.Fix{Flags: []catalog.Flag{{}}}, "a", location{"platform/clusters/staging/flux-system/kustomization.yaml", 1}},
		{"labels at the Namespace, at the line of its document", catalog.Fix{Labels: map[string]string{"l": "v"}}, "a", location{"platform/base/tenants.yaml", 5}},
		{"rights at the binding of that namespace, whichever file comes first", catalog.Fix{Rights: true}, "a", location{"platform/base/tenants.yaml", 10}},
		{"advice has no place", catalog.Fix{Advice: "think"}, "a", location{}},
		{"nobody has no place", catalog.Fix{Rights: true}, "b", location{}},
	} {
		got := all.of(catalog.Result{Attack: catalog.Attack{Fix: tc.fix}, Tenant: tc.tenant}, []discovery.Tenant{a})
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(location{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
	further := catalog.Finding{Further: []discovery.Right{{Binding: "RoleBinding other/reconciler"}}}
	if got, want := all.of(catalog.Result{Attack: catalog.Attack{Fix: catalog.Fix{Flags: []catalog.Flag{{}}}}, Tenant: "a", Finding: further}, []discovery.Tenant{a}), (location{"platform/base/other.yaml", 1}); got != want {
		t.Errorf("the binding of a further identity is at %v, want %v", got, want)
	}
	f.Instance, f.InstanceFile = &unstructured.Unstructured{}, "clusters/staging/flux.yaml"
	if got, want := readFiles(f).of(catalog.Result{Attack: catalog.Attack{Fix: catalog.Fix{Flags: []catalog.Flag{{}}}}, Tenant: "a"}, []discovery.Tenant{a}), (location{"platform/clusters/staging/flux.yaml", 1}); got != want {
		t.Errorf("flags of a FluxInstance are set at %v, want %v", got, want)
	}
	if got, want := all.root(f.Path), (location{"platform/clusters/staging/flux-system/kustomization.yaml", 1}); got != want {
		t.Errorf("what has no place is shown at %v, want %v", got, want)
	}
	if got, want := readFiles(nil).root("./clusters/staging"), (location{"clusters/staging/kustomization.yaml", 1}); got != want {
		t.Errorf("without a fleet it is shown at %v, want %v", got, want)
	}
}

// TestFixOfInstance checks that the report says where a fleet that flux-operator runs has the flags.
func TestFixOfInstance(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.GotThrough)
	f.attacks.Results[0].Attack.Fix.Flags = []catalog.Flag{{}}
	f.fleet = &layout.Fleet{Dir: t.TempDir()}
	for _, instance := range []*unstructured.Unstructured{nil, {}} {
		f.fleet.Instance = instance
		var fixes []string
		for _, a := range (judgement{}).cluster(f).Attacks {
			fixes = append(fixes, a.Fix)
		}
		want := []string{"do something", "do something"}
		if instance != nil {
			want[0] += fixOfInstance
		}
		if diff := cmp.Diff(want, fixes); diff != "" {
			t.Errorf("with a FluxInstance: %t (-want +got):\n%s", instance != nil, diff)
		}
	}
}

// TestFilesOfThisCluster checks that the report shows the RoleBinding of the cluster that ran,
// and not the RoleBinding of another cluster.
func TestFilesOfThisCluster(t *testing.T) {
	t.Parallel()
	const namespace = "kind: Namespace\nmetadata: {name: a}\n"
	f := repository(t, map[string]string{
		"platform/clusters/production/a.yaml": namespace,
		"platform/clusters/staging/a.yaml":    namespace,
	})
	a := discovery.Tenant{Name: "a", Namespaces: []string{"a"}}
	got := readFiles(f).of(catalog.Result{Attack: catalog.Attack{Fix: catalog.Fix{Labels: map[string]string{"l": "v"}}}, Tenant: "a"}, []discovery.Tenant{a})
	if want := (location{"platform/clusters/staging/a.yaml", 1}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
