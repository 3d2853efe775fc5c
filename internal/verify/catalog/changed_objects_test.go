package catalog

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A policy counts only if it refuses the change of an allowed object as well.
func TestRequestsByChange(t *testing.T) {
	t.Parallel()
	const (
		policy  = "ValidatingAdmissionPolicy 'data' with binding 'data' denied request: no such data"
		noPatch = `User "team" cannot patch resource "configmaps"`
	)
	makes := func(value string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("v1", "ConfigMap", e.Namespace, name("x"), map[string]any{"data": map[string]any{"key": value}})
		}
	}
	refuses := func(o client.Object, message string) error {
		value, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "data", "key")
		if value == "forbidden" && message != "" {
			return forbidden(message)
		}
		return nil
	}
	for _, tc := range []struct {
		reason                string
		create, patch, update string
		others                bool
		want                  Outcome
	}{
		{"the policy matches CREATE and UPDATE", policy, policy, policy, false, Stopped},
		{"the policy does not match UPDATE", policy, "", "", false, GotThrough},
		{"the tenant has the verb update alone", policy, noPatch, "", false, GotThrough},
		{"the tenant has neither verb", policy, noPatch, `User "team" cannot update resource "configmaps"`, false, Stopped},
		{"the change fails for another reason", policy, "etcdserver: request timed out", "", false, NotProven},
		{"RBAC refuses the creation", `User "team" cannot create resource "configmaps"`, "", "", false, Stopped},
		{"another tenant of the shape changes objects", policy, "", "", true, Stopped},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if err := refuses(o, tc.create); err != nil {
						return err
					}
					return c.Create(ctx, o, opts...)
				},
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
					return refuses(o, tc.patch)
				},
				Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
					return refuses(o, tc.update)
				},
			})
			e.inFull = !tc.others
			f := requests(request{what: "do it", aimed: creating(makes("forbidden"), makes("allowed")), own: creating(makes("allowed"))})(t.Context(), e)
			if f.Outcome != tc.want || f.InFull != (tc.want == GotThrough) {
				t.Errorf("got %+v, want %s", f, tc.want)
			}
			var left unstructured.UnstructuredList
			left.SetGroupVersionKind(configMap("", "").GroupVersionKind())
			if err := e.Admin.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
				t.Errorf("%d objects are left, %v", len(left.Items), err)
			}
		})
	}
}

// A policy that refuses the creation of an object and not a change into it is a missing layer.
func TestAdmissionLayer(t *testing.T) {
	t.Parallel()
	const policy = "ValidatingAdmissionPolicy 'data' with binding 'data' denied request: no such account"
	refuses := func(o client.Object, message string) error {
		u, _ := o.(*unstructured.Unstructured)
		if account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName"); account == "other" && message != "" {
			return forbidden(message)
		}
		return nil
	}
	layer := admissionLayer("policy", func(e *Scenario) *unstructured.Unstructured { return e.suspended("x", asAnother("other")) })
	for _, tc := range []struct {
		reason         string
		create, change string
		want           bool
	}{
		{"the policy matches CREATE and UPDATE", policy, policy, true},
		{"the policy does not match UPDATE", policy, "", false},
		{"there is no policy", "", "", false},
		{"RBAC refuses the creation", `User "team" cannot create resource "kustomizations"`, "", true},
	} {
		e := newFakeEnv(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := refuses(o, tc.create); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
				return refuses(o, tc.change)
			},
		})
		e.inFull = true
		if holds, err := layer.Holds(t.Context(), e); err != nil || holds != tc.want {
			t.Errorf("%s: got %t, %v", tc.reason, holds, err)
		}
	}
}

// What gets through by a change gets through for every tenant of the shape.
func TestShareChanges(t *testing.T) {
	t.Parallel()
	attack := Attack{ID: "S9", Via: API}
	through := gotThrough("it could do it")
	through.InFull = true
	r := Report{Like: map[string]string{"second": "first"}, Results: []Result{
		{Attack: attack, Tenant: "first", Finding: through},
		{Attack: attack, Tenant: "second", Finding: stopped("policy sources", "no")},
		{Attack: attack, Tenant: "third", Finding: stopped("policy sources", "no")},
		{Attack: Attack{ID: "N3", Via: API}, Tenant: "second", Finding: stopped("policy receivers", "no")},
	}}
	// A policy that is not here leaves the change unproven, for both tenants.
	policy := Attack{ID: "I13", Via: API, Controls: []string{"policy on spec.kubeConfig"}}
	doubtful := (&Scenario{doubts: []string{"Kustomization/x/y (assumed)"}}).withDoubts(policy, through)
	r.Results = append(r.Results, Result{Attack: policy, Tenant: "first", Finding: doubtful},
		Result{Attack: policy, Tenant: "second", Finding: stopped("policy kubeconfigs", "no")})
	r.shareChanges()
	for i, want := range []Outcome{GotThrough, GotThrough, Stopped, Stopped, NotProven, NotProven} {
		if got := r.Results[i].Finding.Outcome; got != want {
			t.Errorf("%s of %s: got %s, want %s", r.Results[i].Attack.Key(), r.Results[i].Tenant, got, want)
		}
	}
}

// A request that was interrupted, or whose deadline passed, has no answer: it did not get through.
func TestInterruptedRequests(t *testing.T) {
	t.Parallel()
	own := configMap("team", "own")
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		e := newFakeEnv(interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return cause },
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return forbidden(`User "team" cannot patch resource "configmaps"`)
			},
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return cause },
		}, own)
		for what, err := range map[string]error{
			"a creation":                createWithRetry(t.Context(), e.As, configMap("team", "x")),
			"a change":                  e.change(t.Context(), own, configMap("team", "x"), true),
			"a change of single values": changing(own, `{"data":{"key":"value"}}`)(t.Context(), e),
		} {
			if f := judge(err, "it could do it"); f.Outcome != NotProven {
				t.Errorf("%s that ends with %v: got %+v, want %s", what, cause, f, NotProven)
			}
		}
	}
}
