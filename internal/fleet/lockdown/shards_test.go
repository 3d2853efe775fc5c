package lockdown_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// manifests returns Flux's manifests of the staging cluster as Flux would apply them.
func manifests(t *testing.T, dir string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := flux.Build(dir, dir+"/clusters/staging/flux-system")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		all[o.GetKind()+"/"+o.GetName()] = o
	}
	return all
}

func args(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	if o == nil {
		t.Fatal("it is missing")
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	list, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	return list
}

// selectors returns the arguments that select the objects of a controller.
func selectors(args []string) []string {
	return slices.DeleteFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "--watch-label-selector") })
}

// label moves the namespace of a tenant to a shard; an empty shard means none.
func label(t *testing.T, dir, shard string) {
	t.Helper()
	const file, end = "tenants/base/dev-team/namespace.yaml", "  labels:\n"
	before, after, _ := strings.Cut(read(t, dir)[file], end)
	if shard != "" {
		after = "    sharding.fluxcd.io/key: " + shard + "\n" + after
	} else {
		_, after, _ = strings.Cut(after, "\n")
	}
	write(t, dir, file, before+end+after)
}

// tenant adds a Tenant with these fields of its spec to the fleet.
func tenant(t *testing.T, dir, version, spec string) {
	t.Helper()
	const file = "tenants/base/dev-team/namespace.yaml"
	write(t, dir, file, read(t, dir)[file]+"---\napiVersion: "+version+"\nkind: Tenant\nmetadata: {name: shop}\nspec: {"+spec+"}\n")
}

func TestShards(t *testing.T) {
	t.Parallel()
	dir := example(t)
	before := manifests(t, dir)
	label(t, dir, "gold")
	apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Allow: allow, Shards: []string{"silver", "gold", "gold"}})
	label(t, dir, "")
	compare(t, "shard.yaml", read(t, dir)["clusters/staging/flux-system/tenure/shard-gold/kustomization.yaml"])

	after := manifests(t, dir)
	var added []string
	for name := range after {
		if _, was := before[name]; !was && (strings.HasSuffix(name, "-gold") || strings.HasPrefix(name, "Mutating")) {
			added = append(added, name)
		}
	}
	slices.Sort(added)
	if diff := cmp.Diff([]string{
		"Deployment/helm-controller-gold", "Deployment/kustomize-controller-gold", "Deployment/source-controller-gold",
		"MutatingAdmissionPolicy/tenure-sharding", "MutatingAdmissionPolicyBinding/tenure-sharding-capsule",
		"MutatingAdmissionPolicyBinding/tenure-sharding-flux", "MutatingAdmissionPolicyBinding/tenure-sharding-tenure",
		"Service/source-controller-gold",
	}, added); diff != "" {
		t.Errorf("what a shard is (-want +got):\n%s", diff)
	}
	for _, name := range []string{"source-controller", "kustomize-controller", "helm-controller"} {
		shard := after["Deployment/"+name+"-gold"]
		if got := selectors(args(t, after["Deployment/"+name])); !cmp.Equal(got, []string{"--watch-label-selector=!sharding.fluxcd.io/key"}) {
			t.Errorf("%s works on what is in a shard: %q", name, got)
		}
		if got := selectors(args(t, shard)); !cmp.Equal(got, []string{"--watch-label-selector=sharding.fluxcd.io/key=gold"}) {
			t.Errorf("the copy of %s works on what is not in its shard: %q", name, got)
		}
		for _, path := range [][]string{{"spec", "selector", "matchLabels", "app"}, {"spec", "template", "metadata", "labels", "app"}} {
			if got, _, _ := unstructured.NestedString(shard.Object, path...); got != name+"-gold" {
				t.Errorf("%s is %q: the Pods would be those of another Deployment", strings.Join(path, "."), got)
			}
		}
		if got, _, _ := unstructured.NestedString(shard.Object, "spec", "template", "spec", "serviceAccountName"); got != name {
			t.Errorf("the account is %q: it has no rights", got)
		}
	}
	if got, _, _ := unstructured.NestedString(after["Service/source-controller-gold"].Object, "spec", "selector", "app"); got != "source-controller-gold" {
		t.Errorf("the artifacts of the shard are looked for at %q", got)
	}
	locked := lockdown.FlagStates(slices.Collect(maps.Values(after)))
	for _, name := range []string{"kustomize-controller-gold", "helm-controller-silver"} {
		if !slices.ContainsFunc(locked, func(s lockdown.FlagState) bool { return s.Deployment == name }) {
			t.Errorf("the flags of %s are not looked at", name)
		}
	}
	for _, s := range locked {
		if !s.OK() {
			t.Errorf("%s %s: %s", s.Deployment, s.Name, s)
		}
	}
	if again := apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true}); len(again.Changes) > 0 {
		t.Errorf("again it changes\n%s", again.Diff())
	}
	apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Shards: []string{}})
	for name, content := range read(t, dir) {
		if strings.HasPrefix(name, "clusters/staging/flux-system/") && strings.Contains(name+content, "shard") {
			t.Errorf("not all was taken out: %s", name)
		}
	}
}

func TestShardsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		shards []string
		edit   func(t *testing.T, dir string)
		want   string
	}{
		"name": {"a name that no label or Deployment can have", []string{"Gold!"}, nil, `cannot make a shard "Gold!"`},
		"long": {"controllers' names get too long", []string{strings.Repeat("x", 21)}, nil, "at most 20"},
		"gone": {"nobody would work on a tenant's objects", []string{"gold"}, func(t *testing.T, dir string) { label(t, dir, "silver") }, "Namespace apps: it has the label sharding.fluxcd.io/key: silver, and no helm-controller works on that shard"},
		"Tenant": {"nobody would work on the objects of a Tenant's namespaces", []string{}, func(t *testing.T, dir string) {
			tenant(t, dir, "tenure.dev/v1alpha1", "namespaces: {labels: {sharding.fluxcd.io/key: gold}}")
		}, "Tenant shop: its namespaces get the label sharding.fluxcd.io/key: gold, and no helm-controller works on that shard"},
		"selected": {"nobody would work on the objects of some namespaces of a Tenant", []string{"silver"}, func(t *testing.T, dir string) {
			tenant(t, dir, "tenure.dev/v1alpha1", "namespaces: {selected: [{selector: {}, labels: {sharding.fluxcd.io/key: gold}}]}")
		}, "Tenant shop: its namespaces get the label sharding.fluxcd.io/key: gold"},
		"Capsule": {"nobody would work on the objects of a Tenant of Capsule", []string{}, func(t *testing.T, dir string) {
			tenant(t, dir, "capsule.clastix.io/v1beta2", "namespaceOptions: {additionalMetadata: {labels: {sharding.fluxcd.io/key: gold}}}")
		}, "Tenant shop: its namespaces get the label sharding.fluxcd.io/key: gold"},
		"Capsule's list": {"nobody would work on the objects of some namespaces of a Tenant of Capsule", []string{}, func(t *testing.T, dir string) {
			tenant(t, dir, "capsule.clastix.io/v1beta2", "namespaceOptions: {additionalMetadataList: [{namespaceSelector: {}, labels: {sharding.fluxcd.io/key: gold}}]}")
		}, "Tenant shop: its namespaces get the label sharding.fluxcd.io/key: gold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := example(t)
			if tc.edit != nil {
				tc.edit(t, dir)
			}
			_, err := lockdown.Make(load(t, dir, "clusters/staging"), lockdown.Options{Tenants: true, Allow: allow, Shards: tc.shards})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}
