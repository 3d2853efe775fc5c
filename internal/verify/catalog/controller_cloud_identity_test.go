package catalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// With the gate, Flux decrypts as each account of the namespace that a Kustomization names, so a
// policy has to keep a tenant from naming an account with a cloud identity that is not its own.
func TestDecryptsAsAnother(t *testing.T) {
	t.Parallel()
	const gate = "--feature-gates=" + objectIdentity + "=true"
	account := func(name, annotation, by string) client.Object {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, Annotations: map[string]string{annotation: "any"},
			Labels: map[string]string{"kustomize.toolkit.fluxcd.io/namespace": by, "kustomize.toolkit.fluxcd.io/name": "any"},
		}}
	}
	const cloud = "eks.amazonaws.com/role-arn"
	// policy refuses the account that a Kustomization names.
	policy := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		u, _ := o.(*unstructured.Unstructured)
		if named, _, _ := unstructured.NestedString(u.Object, "spec", "decryption", "serviceAccountName"); named != "" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "kustomizations"}, o.GetName(), fmt.Errorf("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: must not decrypt as another account"))
		}
		return c.Create(ctx, o, opts...)
	}}
	for reason, tc := range map[string]struct {
		gate   string
		policy interceptor.Funcs
		who    client.Object
		want   Outcome
	}{
		"an account of the platform":                  {gate, interceptor.Funcs{}, account("database", cloud, "flux-system"), GotThrough},
		"an account of Azure":                         {gate, interceptor.Funcs{}, account("database", "azure.workload.identity/client-id", ""), GotThrough},
		"a policy refuses it":                         {gate, policy, account("database", cloud, "flux-system"), Stopped},
		"Flux refuses every account without the gate": {"", interceptor.Funcs{}, account("database", cloud, "flux-system"), Stopped},
		"the tenant's own account":                    {gate, interceptor.Funcs{}, account("team", cloud, "flux-system"), Stopped},
		"an account that the tenant applied":          {gate, interceptor.Funcs{}, account("web", cloud, "team"), Stopped},
		"an account without a cloud identity":         {gate, interceptor.Funcs{}, account("database", "note", "flux-system"), Stopped},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "kustomize-controller"}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{tc.gate}}}
		f := decryptsAsAnother(t.Context(), newFakeEnv(tc.policy, d, tc.who), stopped("before", ""))
		if f.Outcome != tc.want || tc.want == GotThrough && !strings.Contains(f.Evidence, "team/database") {
			t.Errorf("%s: got %s %s %s", reason, f.Outcome, f.Reason, f.Evidence)
		}
	}
}
