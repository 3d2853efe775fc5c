package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// profiles is a reader of a profile, or of an error.
type profiles struct {
	profile *v1alpha1.TenancyProfile
	err     error
}

func (p *profiles) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	return p.profile, p.err
}

// TestReconcile deletes the policy of a tenant without namespaces, once there is a valid profile, and
// no policy of others.
func TestReconcile(t *testing.T) {
	t.Parallel()
	failed := errors.New("no connection")
	for reason, tc := range map[string]struct {
		profiles profiles
		left     []string
		err      error
	}{
		"a valid profile":       {profiles{profile: &v1alpha1.TenancyProfile{}}, []string{"another-tenants", "by-hand"}, nil},
		"no profile":            {profiles{}, []string{"another-tenants", "by-hand", "tenure-isolation-tenant-gone"}, nil},
		"an invalid profile":    {profiles{err: fmt.Errorf("spec: %w", tenancy.ErrInvalid)}, []string{"another-tenants", "by-hand", "tenure-isolation-tenant-gone"}, nil},
		"an unreadable profile": {profiles{err: failed}, []string{"another-tenants", "by-hand", "tenure-isolation-tenant-gone"}, failed},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
				t.Fatal(err)
			}
			kind := tenancy.ClusterPolicyKinds()[0]
			policy := func(name string, labels map[string]string) *unstructured.Unstructured {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(kind)
				u.SetName(name)
				u.SetLabels(labels)
				return u
			}
			made := func(tenant string) map[string]string {
				return map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelTenant: tenant}
			}
			c := fake.NewClientBuilder().WithScheme(scheme).
				WithObjects(policy("tenure-isolation-tenant-gone", made("gone")), policy("another-tenants", made("other")), policy("by-hand", map[string]string{v1alpha1.LabelTenant: "gone"}),
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "other"}}}).
				WithIndex(&corev1.Namespace{}, indexTenant, ofNamespace).
				WithIndex(policy("", nil), indexTenant, ofPolicy).
				Build()
			r := &Reconciler{Client: c, Profiles: &tc.profiles, kind: kind}
			var names []string
			for _, request := range r.everybody(t.Context(), nil) {
				names = append(names, request.Name)
			}
			if !slices.Contains(names, "gone") || !slices.Contains(names, "other") {
				t.Errorf("a change of the profile enqueues %v", names)
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "gone"}}); !errors.Is(err, tc.err) {
				t.Errorf("got the error %v, want %v", err, tc.err)
			}
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			var left []string
			for i := range list.Items {
				left = append(left, list.Items[i].GetName())
			}
			slices.Sort(left)
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}
