package sourcegrant

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestStale shares a source while the cache does not show yet what has the name of the
// copy.
func TestStale(t *testing.T) {
	t.Parallel()
	const revision = "main@sha1:1"
	for name, tc := range map[string]struct {
		reason string
		labels map[string]string
		want   string
	}{
		"somebody else's": {"what a tenant has made is not taken over because the cache is behind", map[string]string{"team": "dev"}, ""},
		"of another grant": {"a copy belongs to the namespace that grants it",
			map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, labelFrom: "other"}, ""},
		"our own": {"a copy that was made a moment ago goes on where it was",
			map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, labelFrom: "owner"}, revision},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := object(artifactKind)
			taken.SetNamespace("dev")
			taken.SetName("owner.common")
			taken.SetLabels(tc.labels)
			source := object(sourceGroup.WithKind("GitRepository"))
			source.SetNamespace("owner")
			source.SetName("common")
			source.Object["status"] = map[string]any{"artifact": map[string]any{"revision": revision, "url": "http://storage/1.tar.gz", "digest": "sha256:1", "path": "x", "lastUpdateTime": "2026-11-21T12:00:00Z"}}
			grant := &v1alpha1.SourceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "owner", Name: "one"}}
			grant.Spec.To = []v1alpha1.GrantedSource{{Kind: "GitRepository", Name: "common"}}
			grant.Spec.From = []v1alpha1.GrantedConsumers{{Tenant: "dev"}}
			dev := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}}}
			live := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(grant, taken).WithObjects(taken, source, grant, dev).Build()
			stale := interceptor.NewClient(live, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if list.GetObjectKind().GroupVersionKind().Kind == artifactKind.Kind+"List" {
						return nil
					}
					return c.List(ctx, list, options...)
				},
			})
			r := &Reconciler{Client: stale, APIReader: live, Events: events.NewFakeRecorder(1), Now: time.Now}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "owner"}}); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			got := object(artifactKind)
			if err := live.Get(t.Context(), client.ObjectKeyFromObject(taken), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.labels, got.GetLabels()); diff != "" {
				t.Errorf("%s: labels (-want +got):\n%s", tc.reason, diff)
			}
			have, _, _ := unstructured.NestedString(got.Object, "status", "artifact", "revision")
			if have != tc.want {
				t.Errorf("%s: its revision is %q, not %q", tc.reason, have, tc.want)
			}
		})
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
