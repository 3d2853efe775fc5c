package profile

import (
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// The profile is in force where the parameters are those that the manager writes.
func TestLookExpectsWhatIsWritten(t *testing.T) {
	t.Parallel()
	signed := v1alpha1.Signatures{Keys: v1alpha1.SignatureKeys{Git: map[string]v1alpha1.PublicKey{"a.asc": "A"}}}
	withKeys := &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{Tenants: v1alpha1.Posture{Signatures: signed}}}
	for _, tc := range []struct {
		reason  string
		profile *v1alpha1.TenancyProfile
		tenant  *v1alpha1.Tenant
		labels  map[string]string
	}{
		{"an empty profile", &v1alpha1.TenancyProfile{}, nil, nil},
		{"keys of the profile", withKeys, nil, nil},
		{"keys of the profile, and a Tenant", withKeys, &v1alpha1.Tenant{}, nil},
		{"keys of the Tenant", &v1alpha1.TenancyProfile{}, &v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{Policy: v1alpha1.TenantPolicy{Signatures: &signed}}}, nil},
		{"a cordoned Tenant", &v1alpha1.TenancyProfile{}, &v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{Cordoned: true}}, nil},
		{"a namespace that is cordoned by itself", &v1alpha1.TenancyProfile{}, nil, map[string]string{v1alpha1.LabelCapsuleCordoned: "true"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev", v1alpha1.LabelParameters: "true"}}}
			for key, value := range tc.labels {
				ns.Labels[key] = value
			}
			if tc.tenant != nil {
				tc.tenant.Name = "dev"
			}
			desired, err := tenancy.Desired(tenancy.Namespace{Name: ns.Name, Labels: ns.Labels, Tenant: tc.tenant}, tc.profile)
			if err != nil {
				t.Fatal(err)
			}
			there := []client.Object{ns, desired.Parameters}
			if tc.tenant != nil {
				there = append(there, tc.tenant)
			}
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			r := &Reconciler{Failures: &Failures{}, Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithIndex(&rbacv1.RoleBinding{}, indexCredentials, ofCredentials).Build()}
			got, err := r.look(t.Context(), tc.profile)
			if err != nil {
				t.Fatal(err)
			}
			if got.InForce != 1 || got.Namespaces != 1 {
				t.Errorf("in force in %d of %d namespaces, want 1 of 1", got.InForce, got.Namespaces)
			}
		})
	}
}
