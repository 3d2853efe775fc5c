package failureevents

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestAppliedAs(t *testing.T) {
	t.Parallel()
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	for _, tc := range []struct {
		reason   string
		subjects []rbacv1.Subject
		want     []string
		looked   []string
	}{
		{"the platform's account got rights", []rbacv1.Subject{account("flux-system", "delegate")}, []string{"flux-system/sync"}, []string{"flux-system"}},
		{"another account of the platform applies nothing", []rbacv1.Subject{account("flux-system", "other")}, nil, []string{"flux-system"}},
		{"an account of the binding's own namespace, as nearly all are, costs nothing", []rbacv1.Subject{account("apps", "delegate")}, nil, nil},
		{"people apply nothing", []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "delegate"}}, nil, nil},
		{"an account of no namespace is not one of all", []rbacv1.Subject{account("", "delegate")}, nil, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			k := kustomization("flux-system", "False", "ReconciliationFailed", "forbidden", map[string]any{"serviceAccountName": "delegate"})
			var looked []string
			c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(k).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					o := client.ListOptions{}
					looked = append(looked, o.ApplyOptions(opts).Namespace)
					return c.List(ctx, list, opts...)
				},
			}).Build()
			r := &Reconciler{Kind: Kustomization}
			var got []string
			for _, request := range r.appliedAs(t.Context(), c, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "b"}, Subjects: tc.subjects}) {
				got = append(got, request.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is looked at again (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.looked, looked); diff != "" {
				t.Errorf("namespaces that were listed (-want +got):\n%s", diff)
			}
		})
	}
}
