package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shardLabels are the labels of a shard; none of no shard.
func shardLabels(shard string) map[string]any {
	if shard == "" {
		return nil
	}
	return map[string]any{v1alpha1.LabelShard: shard}
}

// inShard is a Kustomization of a namespace's tenant with the label of a shard.
func inShard(t *testing.T, namespace, name, shard string) *unstructured.Unstructured {
	t.Helper()
	u := parse(t, fmt.Sprintf("{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: %s, namespace: %s}, "+
		"spec: {interval: 1h, prune: true, serviceAccountName: %s, sourceRef: {kind: GitRepository, name: x}}}", name, namespace, namespace))
	if labels := shardLabels(shard); labels != nil {
		u.Object["metadata"].(map[string]any)["labels"] = labels
	}
	return u
}

// The rule and the policy that writes the label are two: where Kubernetes does not
// have the second, the first holds all the same.
func TestShards(t *testing.T) {
	admin, _, restConfig := cluster(t)
	for name, shard := range map[string]string{"sharded": "gold", "unsharded": "", "moving": ""} {
		ns := parse(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name))
		switch {
		case shard != "":
			ns.SetLabels(map[string]string{v1alpha1.LabelTenant: name, v1alpha1.LabelShard: shard})
		case name != "moving":
			ns.SetLabels(map[string]string{v1alpha1.LabelTenant: name})
		}
		if err := admin.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		binding := parse(t, fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all, namespace: %[1]s}, "+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: %[1]s}]}", name))
		if err := admin.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	as := func(name string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}})
	}
	for _, name := range []string{"sharded", "unsharded", "moving"} {
		testwait.For(t, "the API server to know the right of user "+name, patience, func() (bool, string) {
			config := parse(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: %s}}", name))
			err := as(name).Create(t.Context(), config, client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		})
	}
	testwait.For(t, "the rule to see the namespaces", patience, func() (bool, string) {
		err := as("unsharded").Create(t.Context(), inShard(t, "unsharded", "x", "gold"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "tenure-shards"), fmt.Sprint(err)
	})
	const leave, give = "Kustomization x must be in the shard of its namespace: leave the label sharding.fluxcd.io/key out", "give it the label sharding.fluxcd.io/key: gold"
	for _, tc := range []struct{ reason, namespace, shard, want string }{
		{"nobody's shard in a namespace without one", "unsharded", "", ""},
		{"another tenant's shard", "unsharded", "gold", leave},
		{"a shard that nobody has", "unsharded", "none", leave},
		{"the namespace's own shard", "sharded", "gold", ""},
		{"another shard than the namespace's", "sharded", "silver", give},
		{"without the label, and nothing that writes it", "sharded", "", give},
	} {
		check(t, as(tc.namespace).Create(t.Context(), inShard(t, tc.namespace, "x", tc.shard), client.DryRunAll), tc.want)
		if t.Failed() {
			t.Fatalf("case: %s", tc.reason)
		}
	}
	r := requester{admin: admin, account: as("sharded"), namespace: "sharded", reconciler: "sharded", labels: map[string]string{v1alpha1.LabelShard: "gold"}}
	for _, kind := range []string{kustomizationKind, releaseKind, gitKind, chartHostKind, chartKind, ociKind, bucketKind} {
		t.Run(kind, func(t *testing.T) {
			r.breaks(t, "tenure-shards", kind, `{"metadata":{"labels":{"sharding.fluxcd.io/key":"silver"}}}`)
		})
	}
	writesLabel(t, admin, restConfig, as)
}

// writesLabel shows what the policy that writes the label does.
func writesLabel(t *testing.T, admin client.Client, restConfig *rest.Config, as func(string) client.Client) {
	t.Helper()
	patch := func(c client.Client, o client.Object, body string) error {
		return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(body)))
	}
	// Two are older than their namespaces' shards, and one of them is not as the rules
	// want it today: it must go on to be worked on all the same.
	old, odd := inShard(t, "moving", "old", ""), inShard(t, "moving", "odd", "")
	unstructured.RemoveNestedField(odd.Object, "spec", "serviceAccountName")
	for _, u := range []*unstructured.Unstructured{old, odd} {
		if err := as("moving").Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if err := patch(admin, parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: moving}}"), `{"metadata":{"labels":{"tenure.dev/tenant":"moving"}}}`); err != nil {
		t.Fatal(err)
	}
	manifests, err := flux.ReadObjects(config.Shards())
	if err != nil {
		t.Fatal(err)
	}
	if err := flux.ApplyManifests(t.Context(), restConfig, manifests); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the label to be written", patience, func() (bool, string) {
		u := inShard(t, "sharded", "x", "")
		err := as("sharded").Create(t.Context(), u, client.DryRunAll)
		return err == nil && u.GetLabels()[v1alpha1.LabelShard] == "gold", fmt.Sprint(err)
	})
	for reason, u := range map[string]*unstructured.Unstructured{
		"a wrong label is not corrected in silence": inShard(t, "sharded", "x", "silver"),
		"nor is one in a namespace without shard":   inShard(t, "unsharded", "x", "gold"),
	} {
		if err := as(u.GetNamespace()).Create(t.Context(), u, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "tenure-shards") {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	chart := parse(t, "{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmChart, metadata: {name: x, namespace: sharded, labels: {a: b}}, spec: {interval: 1h, chart: x, sourceRef: {kind: HelmRepository, name: x}}}")
	if err := admin.Create(t.Context(), chart, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "b", v1alpha1.LabelShard: "gold"}, chart.GetLabels()); diff != "" {
		t.Errorf("the labels of a HelmChart (-want +got):\n%s", diff)
	}
	// This is an apply, as Flux sends it. No field manager owns the label, so it stays, and later applies
	// change nothing.
	var versions []string
	for range 3 {
		u := inShard(t, "sharded", "applied", "")
		if err := as("sharded").Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kustomize-controller"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, u.GetResourceVersion()+" in "+u.GetLabels()[v1alpha1.LabelShard])
	}
	if versions[1] != versions[2] || !strings.HasSuffix(versions[0], " in gold") {
		t.Errorf("the same applied again changes something: %q", versions)
	}
	for _, step := range []struct{ reason, labels, want string }{
		{"the namespace gets a shard", `{"metadata":{"labels":{"sharding.fluxcd.io/key":"gold"}}}`, "gold"},
		{"it gets another one", `{"metadata":{"labels":{"sharding.fluxcd.io/key":"silver"}}}`, "silver"},
		{"it has none any more", `{"metadata":{"labels":{"sharding.fluxcd.io/key":null}}}`, ""},
	} {
		if err := patch(admin, parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: moving}}"), step.labels); err != nil {
			t.Fatal(err)
		}
		n := 0
		testwait.For(t, "old objects to follow when "+step.reason, patience, func() (bool, string) {
			n++
			for _, u := range []*unstructured.Unstructured{old, odd} {
				// What Flux and anybody who asks for a reconciliation does.
				if err := patch(as("moving"), u, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, n)); err != nil {
					return false, err.Error()
				}
			}
			return old.GetLabels()[v1alpha1.LabelShard] == step.want && odd.GetLabels()[v1alpha1.LabelShard] == step.want, fmt.Sprint(old.GetLabels())
		})
	}
	if err := patch(as("moving"), old, `{"metadata":{"labels":{"sharding.fluxcd.io/key":"gold"}}}`); err == nil || !strings.Contains(err.Error(), "leave the label sharding.fluxcd.io/key out") {
		t.Errorf("a tenant moves an object into a shard: %v", err)
	}
}
