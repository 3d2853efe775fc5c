package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForeignShard(register func(...Attack)) {
	register(Attack{
		ID: "A3", Via: API, Kind: "shard",
		Kinds:      []string{"Kustomization"},
		Title:      "uses the controllers of another shard or of the platform",
		Controls:   []string{"policy that holds Flux objects to the shard of their namespace"},
		References: []string{"Flux: sharding and horizontal scaling"},
		Fix:        Fix{Advice: "demand of Flux objects in tenants' namespaces that their label " + v1alpha1.LabelShard + " is that of the namespace, with a ValidatingAdmissionPolicy"},
		Run:        leavesItsShard,
	})
}

// leavesItsShard creates and changes an object of the tenant with the label of each foreign shard. The
// label in the response decides, since a policy may replace it by the label of the namespace's shard.
func leavesItsShard(ctx context.Context, e *Scenario) Finding {
	own, others, err := e.shards(ctx)
	if err != nil {
		return notProven("cannot read the namespaces: " + firstLine(err.Error()))
	}
	// Without shards there is no other controller whose time the tenant could use. The attack still tries
	// the rule.
	none := len(others) == 0
	if none {
		others = []string{name("shard")}
	}
	there := inShard(e, "a3-own", own)
	if err := e.create(ctx, there); err != nil {
		if f := judge(err, ""); f.Outcome == Stopped {
			return e.withPositiveControl(ctx, f)
		}
		return notProven("the tenant cannot make an object in its own shard either: " + firstLine(err.Error()))
	}
	defer e.remove(there)
	var refused Finding
	for _, shard := range others {
		made, changed := inShard(e, "a3-shard", shard), there.DeepCopy()
		tries := []struct {
			u   *unstructured.Unstructured
			err error
		}{
			{made, e.As.Create(ctx, made, client.DryRunAll)},
			{changed, e.As.Patch(ctx, changed, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+v1alpha1.LabelShard+`":`+jsonShard(shard)+`}}}`)), client.DryRunAll)},
		}
		for _, try := range tries {
			landed := try.u.GetLabels()[v1alpha1.LabelShard]
			switch f := judge(try.err, ""); {
			case try.err == nil && landed == own:
				// A policy wrote the label of the own shard, which stops the attack as a refusal does.
				refused = stopped("policy that writes the label "+v1alpha1.LabelShard, "the object is in "+inWords(own))
			case try.err == nil && none:
				return stopped(noShards, "no namespace is in a shard")
			case try.err == nil:
				return gotThrough(fmt.Sprintf("the controllers of %s would work on an object of namespace %s, which is in %s", inWords(landed), e.Namespace, inWords(own)))
			case f.Outcome != Stopped:
				return f
			case refused.Outcome == "":
				refused = f
			}
		}
	}
	return refused
}

// inShard returns a suspended Kustomization of the tenant in a shard, or in none.
func inShard(e *Scenario, id, shard string) *unstructured.Unstructured {
	u := e.suspended(id, nil)
	if shard != "" {
		u.SetLabels(map[string]string{v1alpha1.LabelShard: shard})
	}
	return u
}

// jsonShard returns the JSON value of the label that puts an object into a shard, or into none.
func jsonShard(shard string) string {
	if shard == "" {
		return "null"
	}
	return `"` + shard + `"`
}

func inWords(shard string) string {
	if shard == "" {
		return "no shard"
	}
	return "shard " + shard
}

// shards returns the shard of the tenant's namespace and the sorted other shards. "" stands
// for the controllers without a shard; it is not among the other shards if the tenant's
// namespace has no shard.
func (e *Scenario) shards(ctx context.Context) (own string, others []string, err error) {
	var all corev1.NamespaceList
	if err := e.Admin.List(ctx, &all); err != nil {
		return "", nil, err
	}
	for _, ns := range all.Items {
		shard := ns.Labels[v1alpha1.LabelShard]
		if ns.Name == e.Namespace {
			own = shard
		}
		others = append(others, shard)
	}
	slices.Sort(others)
	return own, slices.DeleteFunc(slices.Compact(others), func(shard string) bool { return shard == own }), nil
}
