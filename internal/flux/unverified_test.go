package flux

import (
	"context"
	"fmt"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestSkipVerification stands in for the API server: creations as a dry run come back without
// spec.verify once the policy is there.
func TestSkipVerification(t *testing.T) {
	t.Parallel()
	probes := 0
	c := newFake().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			source, ok := obj.(*sourcev1.OCIRepository)
			if !ok {
				return c.Create(ctx, obj, opts...)
			}
			if probes++; probes == 3 {
				source.Spec.Verify = nil
			}
			return nil
		},
	}).Build()
	const address = "oci://registry.example.com/manifests"
	var refs []Ref
	for range 2 { // another source fails later
		refs = append(refs, Ref{GitRepository, "team", fmt.Sprintf("source-%d", len(refs))})
		probes = 0
		if err := SkipVerification(t.Context(), c, []string{address}, refs); err != nil {
			t.Fatal(err)
		}
		if probes != 3 {
			t.Errorf("returned after %d probes, want 3: it must wait until the policy is in effect", probes)
		}
	}
	var policy admissionv1.MutatingAdmissionPolicy
	if err := c.Get(t.Context(), client.ObjectKey{Name: unverifiedPolicy}, &policy); err != nil {
		t.Fatal(err)
	}
	got := policy.Spec.MatchConditions[0].Expression
	for _, part := range []string{`object.spec.url in ["` + address + `"]`, `"GitRepository/team/source-0"`, `"GitRepository/team/source-1"`} {
		if !strings.Contains(got, part) {
			t.Errorf("the policy does not name %s: %s", part, got)
		}
	}
}
