package attack

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func init() {
	register(Attack{
		ID: "W1", Via: API, Owners: OwnersWithin,
		Title:      "changes or deletes its quota, limit range or network policy",
		Controls:   []string{"RBAC", "policy on platform-managed objects"},
		References: []string{"MTB TI-1", "MTB CPI-2"},
		Fix:        Fix{Advice: "give the tenant's role no write verb on resourcequotas, limitranges and networkpolicies, or refuse changes of the platform's with a ValidatingAdmissionPolicy", Rights: true},
		Run:        loosensItsBounds,
	})
}

// boundingKinds are those of the objects that bound what a namespace may use and
// reach.
var boundingKinds = []string{"ResourceQuota", "LimitRange", "NetworkPolicy"}

func loosensItsBounds(ctx context.Context, e *Env) Finding {
	objects, err := e.guardrails(ctx)
	if err != nil {
		return unproven(firstLine(err.Error()))
	}
	objects = slices.DeleteFunc(objects, func(u unstructured.Unstructured) bool { return !slices.Contains(boundingKinds, u.GetKind()) })
	if len(objects) == 0 {
		return e.nothingThere(ctx, noGuardrails, "the platform has put no quota, limit range or network policy into namespace "+e.Namespace)
	}
	var all []request
	for _, u := range objects {
		which := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		all = append(all,
			request{what: "change " + which, aimed: merging(&u, `{"spec":null}`)},
			request{what: "delete " + which, aimed: func(ctx context.Context, e *Env) error { return e.As.Delete(ctx, u.DeepCopy(), client.DryRunAll) }},
		)
	}
	return requests(all...)(ctx, e)
}
