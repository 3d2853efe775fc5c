package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
