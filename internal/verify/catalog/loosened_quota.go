package catalog

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addLoosenedQuota(register func(...Attack)) {
	register(Attack{
		ID: "W1", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"LimitRange", "NetworkPolicy", "ResourceQuota", "ResourceQuota/status"},
		Title:      "changes or deletes the platform's quota, limit range or network policy, by name or with all objects of the kind",
		Controls:   []string{"RBAC", "policy on platform-managed objects"},
		References: []string{"MTB TI-1", "MTB CPI-2"},
		Fix:        Fix{Advice: "give the tenant's role no write verb on resourcequotas, limitranges and networkpolicies, or refuse changes of the platform's with a ValidatingAdmissionPolicy", Rights: true},
		Slow:       true,
		Run:        loosensItsBounds,
	})
}

// boundingKinds are the kinds that limit the resources and the network of a namespace.
var boundingKinds = []string{"ResourceQuota", "LimitRange", "NetworkPolicy"}

func loosensItsBounds(ctx context.Context, e *Scenario) Finding {
	objects, err := e.guardrails(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	objects = slices.DeleteFunc(objects, func(u unstructured.Unstructured) bool { return !slices.Contains(boundingKinds, u.GetKind()) })
	ofPlugins := e.pluginPolicies()
	if len(objects)+len(ofPlugins) == 0 {
		return e.nothingThere(ctx, noGuardrails, "the platform has put no quota, limit range or network policy into namespace "+e.Namespace)
	}
	var all []request
	for _, u := range objects {
		which := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		all = append(all,
			request{what: "change " + which, aimed: merging(&u, `{"spec":null}`)},
			request{what: "delete " + which, aimed: func(ctx context.Context, e *Scenario) error { return e.As.Delete(ctx, u.DeepCopy(), client.DryRunAll) }},
			emptying(u),
		)
		if u.GetKind() == "ResourceQuota" {
			// The API server enforces the limits in the status.
			all = append(all, request{what: "change the status of " + which, aimed: func(ctx context.Context, e *Scenario) error {
				return e.patchStatusWith(ctx, &u, `{"status":{"hard":null}}`)
			}})
		}
	}
	for _, u := range ofPlugins {
		which := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		all = append(all,
			request{what: "change " + which, aimed: merging(&u, `{"metadata":{"annotations":{"tenure.dev/attack":"w1"}}}`)},
			request{what: "delete " + which, aimed: func(ctx context.Context, e *Scenario) error { return e.As.Delete(ctx, u.DeepCopy(), client.DryRunAll) }},
			emptying(u),
		)
	}
	return requests(all...)(ctx, e)
}

// pluginPolicies returns the policies of network plugins, such as Cilium's, that the platform put into the
// namespace.
func (e *Scenario) pluginPolicies() []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, u := range e.networkDoubts {
		if u.policy.GetNamespace() == e.Namespace && e.platforms(u.policy.GetLabels()) {
			all = append(all, u.policy)
		}
	}
	return all
}

// emptying returns a dry run that deletes all objects of the same kind in an object's namespace.
func emptying(u unstructured.Unstructured) request {
	return request{
		what: fmt.Sprintf("delete all objects of kind %s in namespace %s, and %s with them", u.GetKind(), u.GetNamespace(), u.GetName()),
		aimed: func(ctx context.Context, e *Scenario) error {
			return e.As.DeleteAllOf(ctx, u.DeepCopy(), client.InNamespace(u.GetNamespace()), client.DryRunAll)
		},
	}
}
