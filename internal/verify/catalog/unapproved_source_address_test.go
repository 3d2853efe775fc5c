package catalog

import (
	"context"
	"fmt"
	"strings"
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

// TestFetchesFromAnywhere lets policies of several kinds refuse sources: only a refusal of the address counts.
func TestFetchesFromAnywhere(t *testing.T) {
	t.Parallel()
	const sources, signatures = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no (rule tenure-sources)", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no (rule tenure-signatures)"
	profile := object("tenure.dev/v1alpha1", "TenancyProfile", "", "default", map[string]any{"spec": map[string]any{"tenants": map[string]any{
		"sources":    map[string]any{"git": []any{"https://git.example.com/acme/*"}, "oci": []any{"oci://images.example.com/*"}},
		"signatures": map[string]any{"git": map[string]any{"mode": "HEAD"}},
	}}})
	unapproved := func(u *unstructured.Unstructured) bool {
		return strings.Contains(fmt.Sprint(u.Object["spec"]), "unapproved") || strings.Contains(fmt.Sprint(u.Object["spec"]), "svc.cluster.local")
	}
	unsigned := func(u *unstructured.Unstructured) bool {
		spec, _ := u.Object["spec"].(map[string]any)
		return u.GetKind() == "Bucket" || u.GetKind() == "GitRepository" && spec["verify"] == nil
	}
	own := func(u *unstructured.Unstructured) bool {
		spec, _ := u.Object["spec"].(map[string]any)
		return spec["proxySecretRef"] != nil || spec["recurseSubmodules"] != nil || spec["sts"] != nil
	}
	for _, tc := range []struct {
		reason string
		answer func(*unstructured.Unstructured) string
		want   Outcome
		words  string
	}{
		{"the rule about addresses refuses them, and one about signatures all Buckets", func(u *unstructured.Unstructured) string {
			switch {
			case unsigned(u):
				return signatures
			case unapproved(u), own(u):
				return sources
			}
			return ""
		}, Stopped, "policy p"},
		{"only unsigned sources are refused", func(u *unstructured.Unstructured) string {
			if unsigned(u) {
				return signatures
			}
			return ""
		}, GotThrough, "GitRepository fetch from an address that is not approved"},
		{"a policy refuses every GitRepository, also approved ones", func(u *unstructured.Unstructured) string {
			if u.GetKind() == "GitRepository" || unapproved(u) || own(u) {
				return sources
			}
			return ""
		}, NotProven, "the tenant cannot do it to its own objects either"},
		{"another rule refuses every source", func(*unstructured.Unstructured) string { return signatures }, NotProven, "rule tenure-signatures refuses it"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{}, profile.DeepCopy())
			e.Platform = "flux-system"
			e.As = interceptor.NewClient(e.Admin, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				u, ok := o.(*unstructured.Unstructured)
				if !ok || u.GetKind() == "ConfigMap" {
					return nil
				}
				if refusal := tc.answer(u); refusal != "" {
					return forbidden(refusal)
				}
				return nil
			}})
			f := fetchesFromAnywhere(withAttack(t.Context(), Attack{ID: "S9"}), e)
			if said := f.Control + f.Evidence + f.Reason; f.Outcome != tc.want || !strings.Contains(said, tc.words) {
				t.Errorf("got %+v, want %s with %q", f, tc.want, tc.words)
			}
		})
	}
}
