package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claim is a claim of so many Gi.
func claim(namespace, name string, size int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(fmt.Sprint(size, "Gi"))}},
		},
	}
}

// apply applies an object as kustomize-controller does: first as a dry run, and then
// itself.
func (m *transferCluster) apply(t *testing.T, o client.Object) error {
	t.Helper()
	for _, options := range [][]client.PatchOption{{client.DryRunAll}, nil} {
		content := o.DeepCopyObject().(client.Object)
		options = append(options, client.ForceOwnership, client.FieldOwner("kustomize-controller"))
		if err := m.admin.Patch(t.Context(), content, client.Apply, options...); err != nil { //nolint:staticcheck // as Flux applies
			return fmt.Errorf("with %d options: %w", len(options), err)
		}
	}
	return nil
}

// dryRuns applies objects that exceed the part of their namespace, as Flux does.
func (m *transferCluster) dryRuns(t *testing.T) {
	create(t, m.admin, tenantManifest("dry", `{owners: [{kind: User, name: ann}], namespaces: {create: [dry-a, dry-b]}, quotas: [{name: compute, hard: {requests.cpu: "4", requests.storage: 40Gi}}]}`))
	m.divided(t, "dry", 2)
	defer m.guard(t, "dry", 4)()
	testwait.For(t, "the account of dry-b", patience, func() (bool, string) {
		err := m.admin.Get(t.Context(), client.ObjectKey{Namespace: "dry-b", Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, fmt.Sprint(err)
	})

	before := m.parts(t, "dry")
	for _, tc := range []struct {
		reason, refusal string
		object          client.Object
	}{
		{"it fits into the part", "", claim("dry-a", "small", 20)},
		{"the tenant does not have as much", "exceeded quota: compute of all namespaces of tenant dry, requested: requests.storage=41Gi, used: requests.storage=0 (by no namespace), limited: requests.storage=40Gi", claim("dry-a", "large", 41)},
	} {
		err := m.admin.Create(t.Context(), tc.object, client.DryRunAll)
		if err == nil && tc.refusal != "" || err != nil && (tc.refusal == "" || !strings.Contains(err.Error(), tc.refusal)) {
			t.Errorf("%s: got %v\nwant %q", tc.reason, err, tc.refusal)
		}
	}
	for i, q := range m.parts(t, "dry") {
		if got, want := q.Spec.Hard["requests.storage"], before[i].Spec.Hard["requests.storage"]; got.Cmp(want) != 0 {
			t.Errorf("dry runs for which nothing can be moved changed the part of %s from %s to %s", q.Namespace, &want, &got)
		}
	}

	for i, o := range []client.Object{claim("dry-a", "first", 25), claim("dry-b", "second", 12), claim("dry-a", "third", 3)} {
		if err := m.apply(t, o); err != nil {
			t.Errorf("claim %d, which the tenant has enough for: %v", i, err)
		}
	}
	p := pod("dry-b", "whole", "4")
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	if err := m.admin.Create(t.Context(), p.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("a dry run of a Pod of the size of the tenant's quota: %v", err)
	}
	// The dry run used nothing, and holds nothing for long.
	other := pod("dry-a", "whole", "4")
	if err := m.admin.Create(t.Context(), other, client.DryRunAll); err != nil {
		t.Errorf("the same in another namespace: %v", err)
	}
	if err := m.admin.Create(t.Context(), other); err != nil {
		t.Errorf("a Pod of the size of the tenant's quota, after dry runs in two namespaces: %v", err)
	}
	m.remove(t, other)
	if err := m.apply(t, p); err != nil {
		t.Errorf("a Pod of the size of the tenant's quota, after another one was deleted: %v", err)
	}
	testwait.For(t, "the wishes of dry runs to be withdrawn", patience, func() (bool, string) {
		for _, q := range m.parts(t, "dry") {
			if wished := q.Annotations["tenure.dev/wanted"]; strings.Contains(wished, "4") && q.Namespace == "dry-a" {
				return false, wished
			}
		}
		return true, ""
	})
}
