package tenantnamespace

import (
	"testing"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestReleaseQuota lets a namespace's part of a quota go by what was seen of it.
func TestReleaseQuota(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, tc := range map[string]struct {
		reason   string
		deleted  *metav1.Time
		remove   bool
		stale    bool
		conflict bool
	}{
		"unused":          {"nothing is used any more", &now, false, false, false},
		"used since":      {"something may be used now that was not when it was looked at, and would count nowhere", &now, false, true, true},
		"removed":         {"the finalizer goes with the quota, though the deletion changes it", nil, true, false, false},
		"removed, stale":  {"it may have become somebody else's", nil, true, true, true},
		"removed already": {"what is being deleted is not deleted again", &now, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.ResourceQuota{}).WithObjects(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
				Namespace: "dev", Name: "tenure-tenant-all", DeletionTimestamp: tc.deleted, Finalizers: []string{tenancy.QuotaFinalizer},
			}}).Build()
			seen := &corev1.ResourceQuota{}
			key := client.ObjectKey{Namespace: "dev", Name: "tenure-tenant-all"}
			if err := c.Get(t.Context(), key, seen); err != nil {
				t.Fatal(err)
			}
			if tc.stale {
				used := seen.DeepCopy()
				used.Status.Used = corev1.ResourceList{"pods": resource.MustParse("1")}
				if err := c.Status().Update(t.Context(), used); err != nil {
					t.Fatal(err)
				}
			}
			if err := ReleaseQuota(t.Context(), c, seen, tc.remove); apierrors.IsConflict(err) != tc.conflict || !tc.conflict && err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if err := c.Get(t.Context(), key, seen); apierrors.IsNotFound(err) == tc.conflict {
				t.Errorf("%s: the quota: %v", tc.reason, err)
			}
		})
	}
}
