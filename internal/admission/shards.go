package admission

import (
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sharding is the name of the policy that puts the objects of a tenant's namespace
// into the namespace's shard.
const Sharding = Prefix + "sharding"

// shardedKinds returns the kinds of the controllers that `tenure profile --shard` copies: the kinds in
// Flux's documentation about sharding.
func shardedKinds() []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{
		on(writes, groupKustomize, kustomizations...), on(writes, groupHelm, helmReleases...), on(writes, groupSource, sourceKinds...),
	}
}

// shardOf returns CEL for the shard of an object, or for the empty text if the object is in no shard.
func shardOf(object string) string {
	return fmt.Sprintf("(has(%[1]s.metadata.labels) && '%[2]s' in %[1]s.metadata.labels ? %[1]s.metadata.labels['%[2]s'] : '')", object, v1alpha1.LabelShard)
}

// shardMoved is CEL that is true if a request moves an object to a shard, or to another shard.
var shardMoved = "(oldObject == null || " + shardOf("object") + " != " + shardOf("oldObject") + ")"

// shards returns the rule that the controllers which the platform chose for a tenant process the tenant's
// objects. Otherwise the objects would use the time of the controllers of another tenant, or of the
// platform.
func shards() Rule {
	of := shardOf("namespaceObject")
	return Rule{
		Name: Prefix + "shards", Rows: []string{"A3"},
		Title:     "Flux objects are in the shard of their namespace",
		resources: shardedKinds(),
		sharded:   true,
		// An update that keeps the object's shard is allowed, also after the namespace has
		// moved to another shard.
		conditions: []string{shardMoved},
		validations: []validation{{
			shardOf("object") + " == " + of,
			objectPhrase + " + 'must be in the shard of its namespace: ' + (" + of + " == '' ? 'leave the label " + v1alpha1.LabelShard + " out' : 'give it the label " + v1alpha1.LabelShard + ": ' + " + of + ")",
		}},
	}
}

// ShardPolicy returns the policy, and its bindings, that adds the label of the namespace's shard to
// tenants' Flux objects. So neither the tenant nor helm-controller, which creates HelmCharts, has to set
// the label. The policy needs Kubernetes 1.36, where MutatingAdmissionPolicies are stable. It keeps a shard
// label in the request, which the rule tenure-shards may refuse.
//
// An object that is older than the shard, or whose namespace has moved to another shard, gets the label
// with its next change.
func ShardPolicy() (*admissionregistrationv1.MutatingAdmissionPolicy, []admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	const (
		add   = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]"
		key   = "'/metadata/labels/' + jsonpatch.escapeKey('" + v1alpha1.LabelShard + "')"
		patch = "(has(object.metadata.labels) ? [] : " + add + ") + [JSONPatch{op: 'add', path: " + key + ", value: variables.shard}]"
		// The object has the label of the namespace's former shard.
		remove = "[JSONPatch{op: 'remove', path: " + key + "}]"
	)
	said := "(request.operation == 'CREATE' && variables.now != '' || oldObject != null && variables.now != '' && variables.now != " + shardOf("oldObject") + ")"
	fail, never := admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: Sharding, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "Flux objects come into the shard of their namespace",
		}},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      &fail,
			ReinvocationPolicy: never,
			MatchConstraints:   &admissionregistrationv1.MatchResources{ResourceRules: shardedKinds()},
			Variables: []admissionregistrationv1.Variable{
				{Name: "shard", Expression: shardOf("namespaceObject")},
				{Name: "now", Expression: shardOf("object")},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{
					Expression: "variables.now == variables.shard || " + said + " ? [] :\n(variables.shard == '' ? " + remove + " :\n" + patch + ")",
				},
			}},
		},
	}
	var bindings []admissionregistrationv1.MutatingAdmissionPolicyBinding
	for i := range tenantLabels {
		bindings = append(bindings, admissionregistrationv1.MutatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: Sharding + "-" + bindingNames[i], Labels: labels()},
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName:     Sharding,
				MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: ofTenants(i)},
			},
		})
	}
	return policy, bindings
}

// ofTenants returns a selector of the namespaces that have the tenant label with this index, and none of
// the labels before it.
func ofTenants(i int) *metav1.LabelSelector {
	selector := where(metav1.LabelSelectorOpExists, tenantLabels[i])
	selector.MatchExpressions = append(selector.MatchExpressions, where(metav1.LabelSelectorOpDoesNotExist, tenantLabels[:i]...).MatchExpressions...)
	return selector
}
