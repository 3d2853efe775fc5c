package tenantnamespace

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type kinds []string

func (k kinds) Served(context.Context) ([]string, error) { return k, nil }

// TestCounted takes what follows one after the other: Kubernetes counts the kind a, and
// begins to count b.
func TestCounted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &Reconciler{Kinds: kinds{"a", "b"}, Now: func() time.Time { return now }}
	bounds := func(kinds ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, kind := range kinds {
			list[corev1.ResourceName("count/"+kind)] = resource.MustParse("5")
		}
		return list
	}
	quota := func(hard, used corev1.ResourceList) *contents {
		return &contents{quotas: []*corev1.ResourceQuota{{
			ObjectMeta: metav1.ObjectMeta{Name: tenancy.QuotaName},
			Spec:       corev1.ResourceQuotaSpec{Hard: hard},
			Status:     corev1.ResourceQuotaStatus{Hard: hard, Used: used},
		}}}
	}
	for _, tc := range []struct {
		reason string
		have   *contents
		after  time.Duration
		want   []string
		later  time.Duration
	}{
		{"a new namespace counts all", &contents{}, 0, []string{"a", "b"}, 0},
		{"a kind that is not counted is left out", quota(bounds("a", "b"), bounds("a")), 0, []string{"a"}, countPause},
		{"in other namespaces too", &contents{}, time.Second, []string{"a"}, countPause - time.Second},
		{"but not where it is counted", quota(bounds("a", "b"), bounds("a", "b")), 0, []string{"a", "b"}, 0},
		{"and it is tried again", quota(bounds("a"), bounds("a")), countPause, []string{"a", "b"}, 0},
	} {
		now = now.Add(tc.after)
		got, later, err := r.countObjects(t.Context(), tc.have)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || later != tc.later {
			t.Errorf("%s: asked again after %s, want %s (-want +got):\n%s", tc.reason, later, tc.later, diff)
		}
	}
}
