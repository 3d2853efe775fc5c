package tenancy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The policy of a namespace of tenant shop lets in the namespaces that it should, whichever
// label names their tenant.
func TestIsolation(t *testing.T) {
	t.Parallel()
	const ours, flux, capsule = v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant
	for reason, tc := range map[string]struct {
		from   map[string]string
		tenant bool // admitted with Tenant, and by default
		other  bool // admitted with Namespace
	}{
		"the platform's":                                {nil, true, true},
		"the platform's, with labels":                   {map[string]string{"team": "shop"}, true, true},
		"the tenant's":                                  {map[string]string{ours: "shop"}, true, false},
		"the tenant's by Flux's label":                  {map[string]string{flux: "shop"}, true, false},
		"the tenant's by Capsule's label":               {map[string]string{capsule: "shop"}, true, false},
		"the tenant's, and the other label is ignored":  {map[string]string{ours: "shop", flux: "bank"}, true, false},
		"another tenant's":                              {map[string]string{ours: "bank"}, false, false},
		"another tenant's by Flux's label":              {map[string]string{flux: "bank"}, false, false},
		"another tenant's by Capsule's label":           {map[string]string{capsule: "bank"}, false, false},
		"another tenant's that claims to be this one's": {map[string]string{ours: "bank", flux: "shop", capsule: "shop"}, false, false},
		"another tenant's by two labels":                {map[string]string{flux: "bank", capsule: "shop"}, false, false},
		"nobody's, with an empty label":                 {map[string]string{ours: ""}, false, false},
	} {
		for mode, want := range map[string]bool{"": tc.tenant, v1alpha1.IsolationTenant: tc.tenant, "of a later version": tc.tenant, v1alpha1.IsolationNamespace: tc.other} {
			policy := isolation("shop-prod", "shop", mode)
			admitted := false
			for _, peer := range policy.Spec.Ingress[0].From {
				if peer.NamespaceSelector == nil {
					continue // Pods of the same namespace
				}
				selector, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
				if err != nil {
					t.Fatal(err)
				}
				admitted = admitted || peer.PodSelector == nil && peer.IPBlock == nil && selector.Matches(labels.Set(tc.from))
			}
			if admitted != want {
				t.Errorf("mode %q, from a namespace that is %s: admitted is %t, want %t", mode, reason, admitted, want)
			}
		}
	}
	if policy := isolation("shop-prod", "shop", v1alpha1.IsolationNone); policy != nil {
		t.Errorf("mode None: got %v, want no policy", policy)
	}
}

// The profile decides for all tenants, and a Tenant for itself.
func TestIsolationOfATenant(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		profile, tenant string
		from            int // peers; zero for no policy
	}{
		"the default is the tenant": {"", "", 4},
		"the profile's":             {v1alpha1.IsolationNamespace, "", 2},
		"the Tenant's":              {v1alpha1.IsolationNone, v1alpha1.IsolationNamespace, 2},
		"none":                      {v1alpha1.IsolationNamespace, v1alpha1.IsolationNone, 0},
	} {
		profile, tenant := posture(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		profile.Spec.Tenants.Network.Isolation, tenant.Spec.Network.Isolation = tc.profile, tc.tenant
		objects, err := Desired(Namespace{Name: "shop", Labels: map[string]string{v1alpha1.LabelTenant: "shop"}, Tenant: tenant}, profile)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		if objects.Isolation != nil {
			got = len(objects.Isolation.Spec.Ingress[0].From)
		}
		if diff := cmp.Diff(tc.from, got); diff != "" {
			t.Errorf("%s: the number of peers (-want +got):\n%s", reason, diff)
		}
	}
}
