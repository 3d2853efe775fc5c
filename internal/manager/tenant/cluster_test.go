package tenant

import (
	"context"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

type oneProfile struct{}

func (oneProfile) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	p := &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}
	// The fake client cannot apply NetworkPolicies.
	p.Spec.Tenants.Network.Isolation = v1alpha1.IsolationNone
	p.Spec.PlatformNamespaces = []string{"flux-system"}
	return p, nil
}

// enforced are rules that the API server enforces.
type enforced struct{}

func (enforced) Enforced(context.Context) (bool, error) { return true, nil }

// cluster returns a client of what is there, with the indexes of the manager's cache.
func cluster(t *testing.T, there ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Tenant{}).WithObjects(there...).
		WithIndex(&corev1.Namespace{}, tenantnamespace.IndexTenant, func(o client.Object) []string { return []string{o.GetLabels()[v1alpha1.LabelTenant]} }).
		WithIndex(&corev1.ResourceQuota{}, indexMade, madeFor(v1alpha1.LabelFluxTenant)).
		WithIndex(&v1alpha1.Tenant{}, tenantnamespace.IndexOwnerNamespace, tenantnamespace.ByOwnerNamespace).
		WithIndex(&rbacv1.ClusterRole{}, indexMade, madeFor(v1alpha1.LabelTenant)).
		WithIndex(&rbacv1.ClusterRoleBinding{}, indexMade, madeFor(v1alpha1.LabelTenant)).
		Build()
}
