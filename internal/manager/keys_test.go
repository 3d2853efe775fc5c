package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSignatureKeys checks that the manager keeps the platform's public keys in the namespaces of
// a Tenant, and nothing else with them, and that its right to write Secrets ends with their names.
func TestSignatureKeys(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	keys := func(namespace, verifier string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tenancy.KeySecretPrefix + verifier}}
	}
	become := func(reason, namespace, verifier string, want ...string) {
		t.Helper()
		testwait.For(t, reason, patience, func() (bool, string) {
			s := keys(namespace, verifier)
			err := admin.Get(t.Context(), client.ObjectKeyFromObject(s), s)
			if apierrors.IsNotFound(err) {
				return len(want) == 0, "there is no Secret " + s.Name
			}
			got := slices.Sorted(maps.Keys(s.Data))
			return err == nil && slices.Equal(got, want) && s.Labels[tenancy.LabelManaged] == tenancy.ManagedValue, fmt.Sprint(err, got, s.Labels)
		})
	}
	// A tenant made a Secret of the name before the rules were there.
	create(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: signs-one, labels: {tenure.dev/tenant: signs}}}\n---\n"+
		"{apiVersion: v1, kind: Secret, metadata: {name: tenure-keys-git, namespace: signs-one}, immutable: true, stringData: {theirs.asc: x}}")
	create(t, admin, tenantManifest("signs", `{namespaces: {create: [signs-two]}, policy: {signatures: {keys: {git: {a.asc: A, b.sshpub: B}}, git: {mode: Tag}}}}`))
	become("the Secret of the tenant to be replaced", "signs-one", "git", "a.asc", "b.sshpub")
	become("a new namespace to have the keys", "signs-two", "git", "a.asc", "b.sshpub")
	become("keys that are not there to be in no Secret", "signs-two", "cosign")

	parameters := &v1alpha1.TenantParameters{}
	testwait.For(t, "the parameters to have the demand and no keys", patience, func() (bool, string) {
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "signs-two", Name: v1alpha1.ParametersName}, parameters); err != nil {
			return false, err.Error()
		}
		demand := parameters.Spec.Tenants.Signatures
		return demand.Git != nil && demand.Git.Mode == "Tag" && len(demand.Keys.Git) == 0, fmt.Sprint(demand)
	})

	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "signs"}}
	merge(t, admin, tenant, `{"spec":{"policy":{"signatures":{"keys":{"git":{"a.asc":null},"cosign":{"c.pub":"C"}}}}}}`)
	become("a key to be withdrawn", "signs-one", "git", "b.sshpub")
	become("keys of another program to be added", "signs-one", "cosign", "c.pub")
	merge(t, admin, tenant, `{"spec":{"policy":{"signatures":{"keys":{"git":null}}}}}`)
	become("all keys of a program to be withdrawn", "signs-one", "git")
	become("those of the other to stay", "signs-two", "cosign", "c.pub")
	merge(t, admin, tenant, `{"spec":{"policy":{"signatures":null}}}`)
	become("all keys to be withdrawn", "signs-two", "cosign")

	manager := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:tenure-manager", Groups: []string{"system:authenticated"}})
	for what, err := range map[string]error{
		"write another Secret": manager.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: other, namespace: signs-one}}")), client.FieldOwner("x"), client.DryRunAll),
		"list Secrets":         manager.List(t.Context(), &corev1.SecretList{}, client.InNamespace("signs-one")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the manager can %s: %v", what, err)
		}
	}
	// The platform's own namespaces have no tenants.
	err := manager.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: tenure-keys-git, namespace: flux-system}}")), client.FieldOwner("x"), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "tenure-manager") {
		t.Errorf("the manager can write keys for the platform's sources: %v", err)
	}
}
