package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTrim holds that the cache keeps what is asked of it about who wrote what.
func TestTrim(t *testing.T) {
	t.Parallel()
	fields := metav1.NewFieldsV1(`{"f:metadata":{}}`)
	at := metav1.Unix(1, 0)
	ours := metav1.ManagedFieldsEntry{Manager: "tenure-manager", Operation: metav1.ManagedFieldsOperationApply, Time: &at, FieldsV1: fields}
	theirs := metav1.ManagedFieldsEntry{Manager: "kustomize-controller", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields}
	edited := metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: fields}
	for _, tc := range []struct {
		reason string
		object client.Object
		want   []metav1.ManagedFieldsEntry
	}{
		{"which labels of a namespace are the manager's", &corev1.Namespace{}, []metav1.ManagedFieldsEntry{ours}},
		{"who else applies an object that the manager may remove", &corev1.ServiceAccount{}, []metav1.ManagedFieldsEntry{
			{Manager: theirs.Manager, Operation: theirs.Operation},
		}},
		{"since when a RoleBinding gives what it gives", &rbacv1.RoleBinding{}, []metav1.ManagedFieldsEntry{
			{Manager: ours.Manager, Operation: ours.Operation, Time: &at},
			{Manager: theirs.Manager, Operation: theirs.Operation},
		}},
		{"nothing of a Tenant, which people write", &v1alpha1.Tenant{}, nil},
	} {
		tc.object.SetManagedFields([]metav1.ManagedFieldsEntry{ours, theirs, edited})
		if _, err := trimForCache(tc.object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, tc.object.GetManagedFields()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestTrimForeign checks that the cache keeps little of large objects that tenants can create, and
// everything of the manager's own.
func TestTrimForeign(t *testing.T) {
	t.Parallel()
	const entries = 10 * maxSubjects
	for reason, set := range map[string]map[string]string{"a tenant's": nil, "the manager's": {tenancy.LabelManaged: tenancy.ManagedValue}} {
		meta := metav1.ObjectMeta{Name: "x", Namespace: "a", Labels: set}
		account := &corev1.ServiceAccount{ObjectMeta: meta, Secrets: make([]corev1.ObjectReference, entries), ImagePullSecrets: make([]corev1.LocalObjectReference, entries)}
		policy := &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, entries)}}
		binding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: make([]rbacv1.Subject, entries)}
		for _, o := range []client.Object{account, policy, binding} {
			if _, err := trimForCache(o); err != nil {
				t.Fatal(err)
			}
		}
		want := []int{0, 0, 0, maxSubjects}
		if set != nil {
			want = []int{entries, entries, entries, entries}
		}
		if diff := cmp.Diff(want, []int{len(account.Secrets), len(account.ImagePullSecrets), len(policy.Spec.Ingress), len(binding.Subjects)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// TestTrimForeignMetadata checks that the cache keeps little of the metadata of tenants' objects, and of it the
// labels and annotations that the manager reads.
func TestTrimForeignMetadata(t *testing.T) {
	t.Parallel()
	many := func(kept ...string) map[string]string {
		all := map[string]string{}
		for i := range 10_000 {
			all[fmt.Sprintf("a.example.com/%d", i)] = strings.Repeat("x", 60)
		}
		all["tenure.dev/long"] = strings.Repeat("x", maxForeign)
		for _, name := range kept {
			all[name] = "true"
		}
		return all
	}
	for reason, namespace := range map[string]string{"a tenant's object": "a", "a cluster-scoped object": ""} {
		o := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: "x", Namespace: namespace,
			Labels: many("owner.projectcapsule.dev/promote", "kustomize.toolkit.fluxcd.io/name"), Annotations: many("tenure.dev/kubeconfig", "capsule.addon.fluxcd/enabled"),
			Finalizers: slices.Repeat([]string{metav1.FinalizerOrphanDependents}, 10_000),
		}}
		for range 1000 {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"})
		}
		if _, err := trimForCache(o); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{o.Labels["owner.projectcapsule.dev/promote"], o.Labels["kustomize.toolkit.fluxcd.io/name"], o.Annotations["tenure.dev/kubeconfig"], o.Annotations["capsule.addon.fluxcd/enabled"]} {
			if name != "true" {
				t.Errorf("%s: a label or an annotation that the manager reads is gone: %d labels, %d annotations", reason, len(o.Labels), len(o.Annotations))
			}
		}
		small := sizeOf(o.Labels) <= maxForeign && sizeOf(o.Annotations) <= maxForeign && len(o.OwnerReferences) == 0 && len(o.Finalizers) == 1
		if small != (namespace != "") {
			t.Errorf("%s: the cache keeps %d bytes of labels, %d of annotations, %d owners, %d finalizers", reason, sizeOf(o.Labels), sizeOf(o.Annotations), len(o.OwnerReferences), len(o.Finalizers))
		}
	}
	names := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a"}}
	for range maxSubjects {
		names.Subjects = append(names.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: strings.Repeat("x", 1000)})
	}
	if _, err := trimForCache(names); err != nil {
		t.Fatal(err)
	}
	if got := len(names.Subjects); got != maxSubjectBytes/1000 {
		t.Errorf("the cache keeps %d subjects with long names", got)
	}
}

// TestLargeLabelsAreNotShared checks that the pool keeps no large labels, which would stay after the deletion of
// their object.
func TestLargeLabelsAreNotShared(t *testing.T) {
	t.Parallel()
	p := &valuePool{size: poolSize}
	for _, name := range []string{"small", strings.Repeat("x", maxSharedLabels)} {
		p.share(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a", Labels: map[string]string{name: "x"}}})
	}
	if len(p.newer) != 1 {
		t.Errorf("the pool has %d values, and not the small labels alone", len(p.newer))
	}
}
