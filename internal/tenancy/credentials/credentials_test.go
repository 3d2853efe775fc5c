package credentials

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

func TestAsked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason      string
		annotations map[string]string
		want        Mode
	}{
		{"nothing is asked for", nil, None},
		{"the addon's", map[string]string{AddonAnnotation: "true"}, Own},
		{"the addon's, for all namespaces", map[string]string{AddonAnnotation: "true", AddonGlobalAnnotation: "true"}, Tenant},
		{"the second alone is nothing", map[string]string{AddonGlobalAnnotation: "true"}, None},
		{"only true is true", map[string]string{AddonAnnotation: "yes"}, None},
		{"ours", map[string]string{Annotation: "true"}, Own},
		{"ours, for all namespaces", map[string]string{Annotation: "tenant"}, Tenant},
		{"a value that nobody knows", map[string]string{Annotation: "all"}, None},
		{"ours decides", map[string]string{Annotation: "false", AddonAnnotation: "true"}, None},
	} {
		if got := Asked(tc.annotations); got != tc.want {
			t.Errorf("%s: want %v, got %v", tc.reason, tc.want, got)
		}
	}
}

// object has a name, labels and annotations.
func object(namespace, name string, labels, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: annotations, UID: types.UID(name)}
}

func tenant(name string, owners ...v1alpha1.Owner) v1alpha1.Tenant {
	return v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Owners: owners}}
}

func TestPlans(t *testing.T) {
	t.Parallel()
	owner := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "home", Name: "gitops"}
	of := func(name, tenant string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: object("", name, map[string]string{v1alpha1.LabelTenant: tenant}, nil)}
	}
	leaving := of("leaving", "a")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	gone := tenant("a", owner)
	gone.DeletionTimestamp = leaving.DeletionTimestamp
	all := []corev1.Namespace{of("z", "a"), of("home", "a"), of("b", "other"), of("c", "a"), leaving, of("flux-system", "a"), of("kube-x", "a")}
	long, flux := string(make([]byte, 240)), map[string]string{v1alpha1.LabelFluxTenant: "a"}
	for _, tc := range []struct {
		reason     string
		home, name string
		homeLabels map[string]string
		asks       string
		tenants    []v1alpha1.Tenant
		copies     []string
		bound      bool
		none       bool
		err        error
	}{
		{reason: "it does not ask", home: "home", name: "gitops", asks: "", tenants: []v1alpha1.Tenant{tenant("a", owner)}, none: true},
		{reason: "in its own namespace", home: "home", name: "gitops", homeLabels: flux, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}, bound: true},
		{reason: "in a tenant's namespace its rights are the Tenant's to say", home: "home", name: "gitops", homeLabels: map[string]string{v1alpha1.LabelTenant: "b"}, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}},
		{reason: "Capsule's label alone gives nobody a role, and the fleet may rely on the addon's", home: "home", name: "gitops", homeLabels: map[string]string{v1alpha1.LabelCapsuleTenant: "a"}, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}, bound: true},
		{reason: "nor does Flux's to an account of another name", home: "home", name: "gitops", homeLabels: map[string]string{v1alpha1.LabelFluxTenant: "a", v1alpha1.LabelCapsuleTenant: "b"}, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}, bound: true},
		{reason: "the account of the tenant's name has its role already", home: "home", name: "gitops", homeLabels: map[string]string{v1alpha1.LabelFluxTenant: "gitops"}, asks: "true", tenants: []v1alpha1.Tenant{tenant("gitops", owner)}},
		{reason: "a namespace of another tenant is not its own", home: "home", name: "gitops", homeLabels: map[string]string{v1alpha1.LabelFluxTenant: "b", v1alpha1.LabelCapsuleTenant: "a"}, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}},
		{reason: "our label counts, and not those beside it", home: "home", name: "gitops", homeLabels: map[string]string{v1alpha1.LabelTenant: "a", v1alpha1.LabelCapsuleTenant: "a"}, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}},
		{reason: "in all of the tenant's and no others", home: "home", name: "gitops", homeLabels: flux, asks: "tenant", tenants: []v1alpha1.Tenant{tenant("a", owner)}, copies: []string{"c", "z"}, bound: true},
		{reason: "in all of both tenants'", home: "home", name: "gitops", homeLabels: flux, asks: "tenant", tenants: []v1alpha1.Tenant{tenant("a", owner), tenant("other", owner)}, copies: []string{"b", "c", "z"}, bound: true},
		{reason: "it owns nothing", home: "home", name: "gitops", asks: "true", none: true, err: ErrNotOwner},
		{reason: "another account owns it", home: "home", name: "gitops", asks: "true", tenants: []v1alpha1.Tenant{tenant("a", v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "elsewhere", Name: "gitops"})}, none: true, err: ErrNotOwner},
		{reason: "a user of the name is another one", home: "home", name: "gitops", asks: "true", tenants: []v1alpha1.Tenant{tenant("a", v1alpha1.Owner{Kind: "User", Name: "gitops"})}, none: true, err: ErrNotOwner},
		{reason: "the Tenant goes", home: "home", name: "gitops", asks: "true", tenants: []v1alpha1.Tenant{gone}, none: true, err: ErrNotOwner},
		{reason: "no rule for tenants holds at home", home: "home", name: "gitops", homeLabels: map[string]string{"team": "a"}, asks: "tenant", tenants: []v1alpha1.Tenant{tenant("a", owner)}, none: true, err: ErrUngoverned},
		{reason: "a namespace of Kubernetes", home: "kube-system", name: "gitops", asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}, none: true, err: ErrPlatform},
		{reason: "a namespace of the platform", home: "flux-system", name: "gitops", asks: "true", tenants: []v1alpha1.Tenant{tenant("a", owner)}, none: true, err: ErrPlatform},
		{reason: "no object could have the name", home: "home", name: long, homeLabels: flux, asks: "true", tenants: []v1alpha1.Tenant{tenant("a", v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "home", Name: long})}, none: true, err: ErrName},
	} {
		plan, err := Plans(State{
			Account:    &corev1.ServiceAccount{ObjectMeta: object(tc.home, tc.name, nil, map[string]string{Annotation: tc.asks})},
			Home:       &corev1.Namespace{ObjectMeta: object("", tc.home, tc.homeLabels, nil)},
			Tenants:    tc.tenants,
			Namespaces: all,
			Profile:    &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{"flux-system"}}},
		})
		if !errors.Is(err, tc.err) || (plan == nil) != tc.none {
			t.Errorf("%s: want no plan: %v, error %v; got %+v, %v", tc.reason, tc.none, tc.err, plan, err)
			continue
		}
		if plan == nil {
			continue
		}
		if diff := cmp.Diff(tc.copies, plan.Copies); diff != "" || plan.Bound != tc.bound {
			t.Errorf("%s: want bound %v; got %+v; copies (-want +got):\n%s", tc.reason, tc.bound, plan, diff)
		}
	}
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason               string
		wanted, timeout, end time.Duration
	}{
		{"what is wanted", time.Hour, 5 * time.Minute, time.Hour},
		{"three times the longest timeout", time.Hour, 30 * time.Minute, 90 * time.Minute},
		{"what API servers give", time.Minute, time.Minute, MinLifetime},
		{"not for ever", time.Hour, 1000 * time.Hour, MaxLifetime},
	} {
		if got := Lifetime(tc.wanted, tc.timeout); got != tc.end {
			t.Errorf("%s: want %s, got %s", tc.reason, tc.end, got)
		}
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	token := Token{Issued: now, Expires: now.Add(time.Hour)}
	if token.Renew() != now.Add(40*time.Minute) || token.Overlap() != 20*time.Minute {
		t.Errorf("a token of an hour is renewed at %s, %s before its end", token.Renew(), token.Overlap())
	}
	written := map[string]string{AnnotationInputs: "x", AnnotationRenew: token.Renew().Format(time.RFC3339)}
	for _, tc := range []struct {
		reason      string
		annotations map[string]string
		inputs      string
		now         time.Time
		due         bool
	}{
		{"it has two thirds of its life", written, "x", now, false},
		{"a third is left", written, "x", now.Add(40 * time.Minute), true},
		{"it is made of something else", written, "y", now, true},
		{"it is empty", nil, "x", now, true},
		{"nobody knows when", map[string]string{AnnotationInputs: "x", AnnotationRenew: "soon"}, "x", now, true},
		{"no token of ours is that far from its end", map[string]string{AnnotationInputs: "x", AnnotationRenew: now.Add(1000 * time.Hour).Format(time.RFC3339)}, "x", now, true},
	} {
		if got := Due(tc.annotations, tc.inputs, tc.now).IsZero(); got != tc.due {
			t.Errorf("%s: want due: %v, got %v", tc.reason, tc.due, got)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	account := types.NamespacedName{Namespace: "home", Name: "gitops"}
	target := Target{Server: "https://tenure-proxy.flux-system.svc:9001", CA: []byte("certificates")}
	out, err := Kubeconfig(target, account, "apps", "word")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	at := config.Contexts[config.CurrentContext]
	cluster, user := config.Clusters[at.Cluster], config.AuthInfos[at.AuthInfo]
	if cluster.Server != target.Server || string(cluster.CertificateAuthorityData) != "certificates" || cluster.InsecureSkipTLSVerify || user.Token != "word" || at.Namespace != "apps" {
		t.Errorf("the kubeconfig says something else:\n%s", out)
	}
	for _, tc := range []struct {
		reason string
		target Target
		token  string
	}{
		{"no TLS", Target{Server: "http://proxy", CA: target.CA}, "word"},
		{"nobody to trust", Target{Server: target.Server}, "word"},
		{"credentials in the address", Target{Server: "https://a:b@proxy", CA: target.CA}, "word"},
		{"no host", Target{Server: "https://", CA: target.CA}, "word"},
		{"no token", target, ""},
	} {
		if _, err := Kubeconfig(tc.target, account, "", tc.token); err == nil {
			t.Errorf("%s: want an error", tc.reason)
		}
	}
}

// FuzzPlans: whatever the objects are called, credentials are given for owned tenants
// and outside of the platform's namespaces only.
func FuzzPlans(f *testing.F) {
	f.Add("home", "gitops", "home", "gitops", "a", "apps", "a", "tenant", v1alpha1.LabelFluxTenant)
	f.Add("home", "gitops", "home", "gitops", "a", "apps", "a", "tenant", "team")
	f.Add("kube-system", "gitops", "kube-system", "gitops", "a", "flux-system", "a", "tenant", v1alpha1.LabelTenant)
	f.Add("home", "gitops", "other", "gitops", "a", "apps", "b", "true", v1alpha1.LabelCapsuleTenant)
	f.Fuzz(func(t *testing.T, home, name, ownerHome, ownerName, tenantName, namespace, label, asks, homeLabel string) {
		profile := &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{"flux-system"}}}
		plan, _ := Plans(State{
			Account:    &corev1.ServiceAccount{ObjectMeta: object(home, name, nil, map[string]string{Annotation: asks})},
			Home:       &corev1.Namespace{ObjectMeta: object("", home, map[string]string{homeLabel: tenantName}, nil)},
			Tenants:    []v1alpha1.Tenant{tenant(tenantName, v1alpha1.Owner{Kind: "ServiceAccount", Namespace: ownerHome, Name: ownerName})},
			Namespaces: []corev1.Namespace{{ObjectMeta: object("", namespace, map[string]string{v1alpha1.LabelTenant: label}, nil)}},
			Profile:    profile,
		})
		if plan == nil {
			return
		}
		if home != ownerHome || name != ownerName || asks != "true" && asks != "tenant" {
			t.Errorf("credentials for %s/%s, which owns nothing or asks for nothing", home, name)
		}
		if homeLabel != v1alpha1.LabelTenant && homeLabel != v1alpha1.LabelFluxTenant && homeLabel != v1alpha1.LabelCapsuleTenant {
			t.Errorf("credentials in %s, which has no label of a tenant", home)
		}
		for _, at := range append(plan.Copies, home) {
			if at == "flux-system" || len(at) > 5 && at[:5] == "kube-" {
				t.Errorf("credentials in %s", at)
			}
		}
		if len(plan.Copies) > 0 && (label != tenantName || asks != "tenant") {
			t.Errorf("copies in %v of tenant %s", plan.Copies, label)
		}
	})
}
