package catalog

import (
	"bytes"
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// recommendedFields are the fields of the spec that Flux's documentation recommends and that policies of fleets demand,
// by kind. The objects of attacks lack them, since they would only make an attack slower.
var recommendedFields = map[string]map[string]any{
	"Kustomization": {"retryInterval": "1h", "timeout": "20s", "prune": true, "wait": true},
	"HelmRelease": {
		"timeout": "20s",
		"install": map[string]any{"remediation": map[string]any{"retries": int64(1)}},
		"upgrade": map[string]any{"remediation": map[string]any{"retries": int64(1), "remediateLastFailure": true}},
	},
}

// withRecommendedFields returns a copy of an object of Flux with the recommended fields that it lacks, or nil if it
// lacks none.
func withRecommendedFields(o client.Object) *unstructured.Unstructured {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || recommendedFields[u.GetKind()] == nil {
		return nil
	}
	u = u.DeepCopy()
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok || !addMissing(spec, recommendedFields[u.GetKind()]) {
		return nil
	}
	return u
}

// addMissing adds the fields that an object lacks, and reports whether there are any.
func addMissing(to, fields map[string]any) bool {
	added := false
	for field, value := range fields {
		inner, nested := value.(map[string]any)
		there, found := to[field]
		switch into, ok := there.(map[string]any); {
		case !found && nested:
			into = map[string]any{}
			to[field], added = into, addMissing(into, inner)
		case !found:
			to[field], added = value, true
		case nested && ok:
			added = addMissing(into, inner) || added
		}
	}
	return added
}

// asRecommended are the requests of a client that repeats a write if a policy refuses it: an object of Flux with the
// recommended fields, and any object with the labels that the fleet demands. A policy that only demands these stops no
// tenant. The error is the refusal of the last request, since a policy on fields or labels may hide another one.
func asRecommended(with *customs) interceptor.Funcs {
	labelled := func(ctx context.Context, c client.Client) func(*unstructured.Unstructured, error) *unstructured.Unstructured {
		return func(u *unstructured.Unstructured, refusal error) *unstructured.Unstructured {
			return with.complete(ctx, u, refusal, func(o client.Object) error { return createWithRetry(ctx, c, o, client.DryRunAll) })
		}
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return repeatComplete(o, labelled(ctx, c), func(o client.Object) error { return createWithRetry(ctx, c, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return repeatComplete(o, labelled(ctx, c), func(o client.Object) error {
				return retryIfLate(ctx, func() error { return c.Update(ctx, o, opts...) })
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if u, ok := o.(*unstructured.Unstructured); ok && samePatch(p, o, withAnyLabel(u)) {
				return c.Patch(ctx, o, p, opts...)
			}
			return repeatComplete(o, labelled(ctx, c), func(o client.Object) error {
				return retryIfLate(ctx, func() error { return c.Patch(ctx, o, p, opts...) })
			})
		},
	}
}

// samePatch reports whether a patch does not depend on the object, as a patch that was written as text.
func samePatch(p client.Patch, o, other client.Object) bool {
	a, err := p.Data(o)
	b, otherErr := p.Data(other)
	return err == nil && otherErr == nil && bytes.Equal(a, b)
}

// withAnyLabel returns a copy of an object with a further label.
func withAnyLabel(u *unstructured.Unstructured) *unstructured.Unstructured {
	return mark{name("label"), "any"}.on(u)
}

// repeatComplete sends a request, and repeats it with what policies demand of the object. labelled returns a copy of the
// object with the labels that it lacks; nil if it lacks none.
func repeatComplete(o client.Object, labelled func(*unstructured.Unstructured, error) *unstructured.Unstructured, request func(client.Object) error) error {
	refusal := request(o)
	u, ok := o.(*unstructured.Unstructured)
	if !ok || !refusedByPolicy(refusal) {
		return refusal
	}
	complete := u
	for _, demanded := range []func() *unstructured.Unstructured{
		func() *unstructured.Unstructured { return labelled(complete, refusal) },
		// With these fields, Flux waits for the health of what it applies.
		func() *unstructured.Unstructured { return withRecommendedFields(complete) },
	} {
		full := demanded()
		if full == nil {
			continue
		}
		switch err := request(full); {
		case err == nil:
			full.DeepCopyInto(u)
			return nil
		case refusedByPolicy(err):
			complete, refusal = full, err
		}
	}
	return refusal
}
