package catalog

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestStatusOfRefusedKind checks that a kind of which nobody can make an object is none that a tenant could write
// the status of, and that a kind which the tenant can make is not proven.
func TestStatusOfRefusedKind(t *testing.T) {
	t.Parallel()
	policy := apierrors.NewForbidden(schema.GroupResource{Group: "source.toolkit.fluxcd.io", Resource: "helmrepositories"}, "a",
		errors.New("ValidatingAdmissionPolicy 'addresses' with binding 'addresses' denied request: no address is allowed"))
	refuse := func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return policy }
	absent := func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "helmrepositories"}, "a")
	}
	for name, tc := range map[string]struct {
		tenant  interceptor.Funcs
		outcome Outcome
		control string
	}{
		"nobody can":   {interceptor.Funcs{Create: refuse, SubResourcePatch: absent}, Stopped, notInstalled},
		"a tenant can": {interceptor.Funcs{SubResourcePatch: absent}, NotProven, ""},
	} {
		e := newFakeEnv(tc.tenant)
		e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{Create: refuse})
		f := judge(e.writeStatus(t.Context(), sourceAPI, "HelmRepository"), "it could")
		if f.Outcome != tc.outcome || f.Control != tc.control {
			t.Errorf("%s: got %s by %q: %s", name, f.Outcome, f.Control, f.Message+f.Reason+f.Evidence)
		}
	}
}
