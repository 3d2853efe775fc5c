package manager

import (
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestDisown ends the ownership that the manager gave Capsule's Tenants, and no other.
func TestDisown(t *testing.T) {
	t.Parallel()
	namespace := func(name, annotation string, owners ...string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"other": "stays"}}}
		if annotation != "" {
			ns.Annotations["tenure.dev/capsule-tenant"] = annotation
		}
		for _, uid := range owners {
			ns.OwnerReferences = append(ns.OwnerReferences, metav1.OwnerReference{APIVersion: "capsule.clastix.io/v1beta2", Kind: "Tenant", Name: "x", UID: types.UID(uid)})
		}
		return ns
	}
	kube := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(
		namespace("ours", "1", "1"), namespace("shared", "1", "1", "2"), namespace("capsules", "", "1"), namespace("nobodys", ""),
	).Build()
	r := &releaser{client: kube}
	for range 2 { // the second run changes nothing
		if err := r.disown(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]types.UID{"ours": nil, "shared": {"2"}, "capsules": {"1"}, "nobodys": nil} {
			ns := &corev1.Namespace{}
			if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
				t.Fatal(err)
			}
			var got []types.UID
			for _, ref := range ns.OwnerReferences {
				got = append(got, ref.UID)
			}
			if len(got) != len(want) || len(want) == 1 && got[0] != want[0] || ns.Annotations["tenure.dev/capsule-tenant"] != "" || ns.Annotations["other"] != "stays" {
				t.Errorf("namespace %s has the owners %v and the annotations %v, want the owners %v", name, got, ns.Annotations, want)
			}
		}
	}
}

// TestEndOwners ends the right of owners to create namespaces, and no other.
func TestEndOwners(t *testing.T) {
	t.Parallel()
	managed := map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}
	var objects []client.Object
	for name, labels := range map[string]map[string]string{"tenure:owners:ours": managed, "tenure:owners:ours:apply": managed, "tenure:cluster:shared": managed, "tenure:owners:others": nil} {
		meta := metav1.ObjectMeta{Name: name, Labels: labels}
		objects = append(objects, &rbacv1.ClusterRole{ObjectMeta: meta}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta})
	}
	kube := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).Build()
	if err := (&releaser{client: kube}).endOwners(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}} {
		if err := kube.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		var names []string
		if err := apimeta.EachListItem(list, func(o runtime.Object) error {
			names = append(names, o.(client.Object).GetName())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"tenure:cluster:shared", "tenure:owners:others"}; !slices.Equal(names, want) {
			t.Errorf("%T has %q, want %q", list, names, want)
		}
	}
}
