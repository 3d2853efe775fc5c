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

// asRecommended are the requests of a client that repeats a write of an object of Flux with the recommended fields if a
// policy refuses it: a policy that only demands these fields stops no tenant. The error is the refusal of the repeated
// request, since a policy on these fields may hide another one.
func asRecommended() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return repeatComplete(o, func(o client.Object) error { return createWithRetry(ctx, c, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return repeatComplete(o, func(o client.Object) error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if full := withRecommendedFields(o); full != nil && samePatch(p, o, full) {
				return c.Patch(ctx, o, p, opts...)
			}
			return repeatComplete(o, func(o client.Object) error { return c.Patch(ctx, o, p, opts...) })
		},
	}
}

// samePatch reports whether a patch does not depend on the object, as a patch that was written as text.
func samePatch(p client.Patch, o, other client.Object) bool {
	a, err := p.Data(o)
	b, otherErr := p.Data(other)
	return err == nil && otherErr == nil && bytes.Equal(a, b)
}

func repeatComplete(o client.Object, request func(client.Object) error) error {
	full := withRecommendedFields(o)
	refusal := request(o)
	if full == nil || !refusedByPolicy(refusal) {
		return refusal
	}
	switch err := request(full); {
	case err == nil:
		full.DeepCopyInto(o.(*unstructured.Unstructured)) // withRecommendedFields has checked the type
		return nil
	case refusedByPolicy(err):
		return err
	}
	return refusal
}
