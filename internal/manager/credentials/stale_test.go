package credentials

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// behind returns a reconciler whose cache shows nothing of what is there.
func behind(t *testing.T, there ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build()
	return &Reconciler{APIReader: live, Client: interceptor.NewClient(live, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		},
	})}
}

var plan = &credentials.Plan{Account: types.NamespacedName{Namespace: "home", Name: "gitops"}, Secret: "gitops-kubeconfig", Bound: true, Copies: []string{"apps"}}

// TestLeaveStale takes credentials away a moment after they were made.
func TestLeaveStale(t *testing.T) {
	t.Parallel()
	stand, record := plan.Stand("apps"), plan.Record("apps", rbacv1.Subject{}, false)
	r := behind(t, stand, record)
	if err := r.leave(t.Context(), plan.Account, record); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{stand, record} {
		if err := r.APIReader.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is left, and nobody would find it again: %v", o, o.GetName(), err)
		}
	}
}

// TestRightsStale gives an account its rights where a RoleBinding of its name has come
// a moment ago, or has not.
func TestRightsStale(t *testing.T) {
	t.Parallel()
	theirs := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gitops"},
		RoleRef:    plan.Rights().RoleRef, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "ann"}},
	}
	for name, tc := range map[string]struct {
		reason string
		there  []client.Object
		want   []rbacv1.Subject
	}{
		"theirs":  {"who brings it says what the account may do", []client.Object{theirs}, theirs.Subjects},
		"nothing": {"an owner needs rights to deliver", nil, plan.Rights().Subjects},
		"ours":    {"it was made a moment ago", []client.Object{plan.Rights()}, plan.Rights().Subjects},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := behind(t, tc.there...)
			if err := (&issue{Reconciler: r, plan: plan}).rights(t.Context(), "home"); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			got := &rbacv1.RoleBinding{}
			if err := r.APIReader.Get(t.Context(), client.ObjectKeyFromObject(theirs), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Subjects); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
