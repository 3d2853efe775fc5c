package catalog

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestLookalikes(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]string{
		"https://git.example.com/acme/app":   {"https://git.example.com.unapproved.example.net/acme/app", "https://git.example.com@git.unapproved.example.net/acme/app"},
		"ssh://git@git.example.com:2222/app": {"ssh://git@git.example.com.unapproved.example.net/app", "ssh://git.example.com@git.unapproved.example.net/app"},
		"":                                   nil,
	} {
		if diff := cmp.Diff(want, lookalikes(address)); diff != "" {
			t.Errorf("of %q (-want +got):\n%s", address, diff)
		}
	}
}

// A field that the API server drops proves nothing about policies.
func TestIfServed(t *testing.T) {
	t.Parallel()
	make := func(e *Scenario) *unstructured.Unstructured {
		return object("v1", "ConfigMap", e.Namespace, name("x"), map[string]any{"spec": map[string]any{"field": "value"}})
	}
	for _, tc := range []struct {
		reason, refusal string
		dropped         bool
		want            Outcome
		control         string
	}{
		{"no policy refuses the field", "", false, GotThrough, ""},
		{"a policy refuses it", "ValidatingAdmissionPolicy 'field' with binding 'field' denied request: no", false, Stopped, "policy field"},
		{"the field is not served", "", true, Stopped, notInstalled},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			accept := func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if tc.dropped {
					unstructured.RemoveNestedField(o.(*unstructured.Unstructured).Object, "spec", "field")
				}
				return nil
			}
			e := newFakeEnv(interceptor.Funcs{})
			e.As = interceptor.NewClient(e.Admin, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if tc.refusal != "" {
					return forbidden(tc.refusal)
				}
				return accept(ctx, c, o, opts...)
			}})
			e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{Create: accept})
			f := requests(request{what: "do it", aimed: ifServed("field", make), own: creating(make)})(t.Context(), e)
			if tc.refusal != "" {
				f = judge(ifServed("field", make)(t.Context(), e), "it could do it")
			}
			if f.Outcome != tc.want || f.Control != tc.control {
				t.Errorf("got %+v, want %s by %q", f, tc.want, tc.control)
			}
		})
	}
}
