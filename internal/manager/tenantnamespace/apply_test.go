package tenantnamespace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestChanges is about labels that come off a namespace, by who wrote them.
func TestChanges(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: FieldManager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{},"f:tenure.dev/tenant":{},"f:team":{},"f:old":{}}}}`)},
		{Manager: FieldManager, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:theirs":{}}}}`)},
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:theirs":{}}}}`)},
	}}}
	have := map[string]string{"kubernetes.io/metadata.name": "x", "tenure.dev/tenant": "x", "team": "x", "theirs": "1"}
	for _, tc := range []struct {
		reason     string
		have, want map[string]string
		off        map[string]any
		known      bool
	}{
		{"nothing is written when all is there, though Kubernetes added a label in the manager's name", have, map[string]string{"team": "x"}, map[string]any{}, true},
		{"what the Tenant does not have any more comes off, and nothing else", have, map[string]string{}, map[string]any{"team": nil}, true},
		{"what somebody else wrote is made the manager's", have, map[string]string{"team": "x", "theirs": "1"}, map[string]any{}, false},
		{"what is not there is to be written", map[string]string{}, map[string]string{"team": "x"}, map[string]any{}, false},
	} {
		off, known := changes(tc.have, tc.want, owned(ns, "f:labels"))
		if diff := cmp.Diff(tc.off, off); diff != "" || known != tc.known {
			t.Errorf("%s: all known: %v; taken off (-want +got):\n%s", tc.reason, known, diff)
		}
	}
}

// TestStaleAccount writes what belongs into a namespace while the cache does not show
// the account yet that a fleet has brought.
func TestStaleAccount(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	theirs := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "dev-apps", Name: "dev", Labels: map[string]string{"team": "dev"}}}
	live := fake.NewClientBuilder().WithScheme(s).WithObjects(theirs).Build()
	ours := &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "dev-apps", Name: "dev", Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}},
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-apps"}}
	_, _, err := (&Reconciler{Client: live}).applyAll(t.Context(), ns, nil, []client.Object{ours}, &contents{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("it is not looked at again: %v", err)
	}
	got := &corev1.ServiceAccount{}
	if err := live.Get(t.Context(), client.ObjectKeyFromObject(theirs), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(theirs.Labels, got.Labels); diff != "" {
		t.Errorf("somebody else's account is taken for the manager's (-want +got):\n%s", diff)
	}
}

// TestUncordonedAtOnce ends the cordon of a Tenant of Capsule's, whose namespaces have a label for it: the parameters
// change with the label, not one reconcile later.
func TestUncordonedAtOnce(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	is := func(reason string, want bool) {
		t.Helper()
		parameters, ns := &v1alpha1.TenantParameters{}, &corev1.Namespace{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: v1alpha1.ParametersName}, parameters); err != nil {
			t.Fatal(err)
		}
		if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, ns); err != nil {
			t.Fatal(err)
		}
		if label := tenancy.Cordoned(ns.Labels); parameters.Spec.Cordoned != want || label != want {
			t.Errorf("%s: the parameters say %v, the label says %v, want %v", reason, parameters.Spec.Cordoned, label, want)
		}
	}
	change := func(cordoned bool) {
		t.Helper()
		tenant := &v1alpha1.Tenant{}
		if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, tenant); err != nil {
			t.Fatal(err)
		}
		tenant.Spec.Cordoned, tenant.Spec.Namespaces.Labels = cordoned, nil
		if cordoned {
			tenant.Spec.Namespaces.Labels = map[string]string{v1alpha1.LabelCapsuleCordoned: "true"}
		}
		if err := w.Update(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
		w.look(t, r)
	}
	change(true)
	is("cordoned", true)
	change(false)
	is("not cordoned any more", false)
}
