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

// A key in a Secret does not keep kustomize-controller from its own cloud identity: Flux tries it for each
// key service that a file names.
func TestDecryptsAsController(t *testing.T) {
	t.Parallel()
	const gate, account = "--feature-gates=" + objectIdentity + "=true", "--default-decryption-service-account=default"
	// policy demands a key.
	policy := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		u, _ := o.(*unstructured.Unstructured)
		decryption, decrypts, _ := unstructured.NestedMap(u.Object, "spec", "decryption")
		_, stringData, _ := unstructured.NestedFieldNoCopy(u.Object, "stringData", "sops.azure-kv")
		if decrypts && decryption["secretRef"] == nil || stringData {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "kustomizations"}, o.GetName(), fmt.Errorf("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: needs a key"))
		}
		return c.Create(ctx, o, opts...)
	}}
	for reason, tc := range map[string]struct {
		args       []string
		annotation string
		want       Outcome
	}{
		"a policy demands a key":                  {nil, "note", Stopped},
		"the controller has an identity of AWS":   {nil, "eks.amazonaws.com/role-arn", GotThrough},
		"the controller has an identity of Azure": {nil, "azure.workload.identity/client-id", GotThrough},
		"Flux uses accounts of the namespace":     {[]string{gate, account}, "eks.amazonaws.com/role-arn", Stopped},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "kustomize-controller"}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Args: tc.args}}
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "kustomize-controller", Annotations: map[string]string{tc.annotation: "any"}}}
		f := decryptionWithIdentity().Run(t.Context(), newFakeEnv(policy, d, sa))
		if f.Outcome != tc.want || tc.want == GotThrough && !strings.Contains(f.Evidence, tc.annotation) {
			t.Errorf("%s: got %s %s %s", reason, f.Outcome, f.Reason, f.Evidence)
		}
	}
}
