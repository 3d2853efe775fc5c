package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterNetworkPolicy returns an empty policy of the version that the test installs.
func clusterNetworkPolicy(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("policy.networking.k8s.io/v1alpha2")
	u.SetKind("ClusterNetworkPolicy")
	u.SetName(name)
	return u
}

// TestClusterIsolation serves the kind ClusterNetworkPolicy after the tenants exist, and follows their
// policies until the tenants are gone.
func TestClusterIsolation(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	create(t, admin, namespace("cni-flux", v1alpha1.LabelFluxTenant, "cni-flux"))
	create(t, admin, tenantManifest("cni", "{owners: [{kind: User, name: nina}], namespaces: {create: [cni-one, cni-two]}}"))
	condition(t, admin, "cni", "Ready", "InPlace", "")
	testcluster.Apply(t, restConfig, func(*unstructured.Unstructured) bool { return true }, testcrds.NetworkPolicyAPI("v1alpha2"))

	const byTenant, byFlux, one, two = "tenure-isolation-tenant-cni", "tenure-isolation-flux-cni-flux", "tenure-isolation-namespace-cni-one", "tenure-isolation-namespace-cni-two"
	is := func(want bool, names ...string) {
		t.Helper()
		for _, name := range names {
			exists(t, admin, want, clusterNetworkPolicy(name), "", name)
		}
	}
	is(true, byTenant, byFlux)
	others := parse(t, "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: others, labels: {tenure.dev/tenant: cni}}, spec: {tier: Baseline, priority: 5, subject: {namespaces: {}}}}")
	if err := admin.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}

	t.Run("drift", func(t *testing.T) {
		first := clusterNetworkPolicy(byTenant)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
			t.Fatal(err)
		}
		for _, patch := range []string{
			`{"spec":{"ingress":[{"action":"Accept","from":[{"namespaces":{}}]}]}}`,
			`{"spec":{"egress":[{"action":"Accept","to":[{"namespaces":{}}]}]}}`,
			`{"spec":{"tier":"Baseline","priority":7}}`,
			`{"spec":{"subject":{"namespaces":{"matchLabels":{"never":"there"}}}}}`,
		} {
			merge(t, admin, clusterNetworkPolicy(byTenant), patch)
			testwait.For(t, "the policy to be as before "+patch, patience, func() (bool, string) {
				now := clusterNetworkPolicy(byTenant)
				err := admin.Get(t.Context(), client.ObjectKeyFromObject(now), now)
				return err == nil && tenancy.UpToDate(now, first), fmt.Sprint(now.Object["spec"], err)
			})
		}
		if err := admin.Delete(t.Context(), clusterNetworkPolicy(byTenant)); err != nil {
			t.Fatal(err)
		}
		is(true, byTenant)
	})

	for _, who := range []rest.ImpersonationConfig{
		{UserName: "nina", Groups: []string{"system:authenticated"}},
		{UserName: "system:serviceaccount:cni-one:cni", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:cni-one", "system:authenticated"}},
	} {
		t.Run("tenant "+who.UserName, func(t *testing.T) {
			as := newClient(t, restConfig, who)
			own := parse(t, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: all, namespace: cni-one}, spec: {podSelector: {}, ingress: [{}]}}")
			testwait.For(t, "the tenant to have rights", patience, func() (bool, string) {
				err := as.Create(t.Context(), own.DeepCopy(), client.DryRunAll)
				return err == nil, fmt.Sprint(err)
			})
			written := parse(t, "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: own}, spec: {tier: Admin, priority: 0, subject: {namespaces: {}}}}")
			for what, err := range map[string]error{
				"create":     as.Create(t.Context(), written, client.DryRunAll),
				"change":     as.Patch(t.Context(), clusterNetworkPolicy(byTenant), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ingress":[]}}`)), client.DryRunAll),
				"delete":     as.Delete(t.Context(), clusterNetworkPolicy(byTenant), client.DryRunAll),
				"delete all": as.DeleteAllOf(t.Context(), clusterNetworkPolicy(""), client.DryRunAll),
			} {
				if !apierrors.IsForbidden(err) {
					t.Errorf("%s can %s policies of the cluster: %v", who.UserName, what, err)
				}
			}
		})
	}

	t.Run("manager", func(t *testing.T) { checkManagerPolicies(t, restConfig, byTenant) })

	set := func(mode string) {
		t.Helper()
		merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "cni"}}, `{"spec":{"network":{"isolation":`+mode+`}}}`)
	}
	set(`"Namespace"`)
	is(true, one, two)
	is(false, byTenant)
	set(`"None"`)
	is(false, one, two)
	set("null")
	is(true, byTenant)

	// A namespace that leaves its tenant, and a Tenant that is deleted with its namespaces.
	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cni-flux"}}, `{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":null}}}`)
	is(false, byFlux)
	if err := admin.Delete(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "cni"}}); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, &v1alpha1.Tenant{}, "", "cni")
	testwait.For(t, "the policy to be about no namespace, or to be gone", patience, func() (bool, string) {
		var left corev1.NamespaceList
		if err := admin.List(t.Context(), &left, client.MatchingLabels{v1alpha1.LabelTenant: "cni"}); err != nil {
			return false, err.Error()
		}
		err := admin.Get(t.Context(), client.ObjectKey{Name: byTenant}, clusterNetworkPolicy(byTenant))
		return apierrors.IsNotFound(err) && len(left.Items) == 0, fmt.Sprintf("%d namespaces, %v", len(left.Items), err)
	})
	is(true, "others")
}

// checkManagerPolicies checks what a thief of the manager's token can do with policies of the cluster.
func checkManagerPolicies(t *testing.T, restConfig *rest.Config, existing string) {
	t.Helper()
	as := newClient(t, restConfig, rest.ImpersonationConfig{
		UserName: "system:serviceaccount:flux-system:tenure-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"},
	})
	manifest := func(labels, subject, rest string) *unstructured.Unstructured {
		return parse(t, "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: stolen, labels: {"+labels+"}}, spec: {tier: Admin, subject: "+subject+", "+rest+"}}")
	}
	const (
		made   = "tenure.dev/managed-by: manager"
		tenant = "{namespaces: {matchLabels: {tenure.dev/tenant: cni}}}"
		deny   = "ingress: [{action: Deny, from: [{namespaces: {}}]}]"
	)
	for reason, tc := range map[string]struct {
		err  error
		want string // part of the message; "" if the request is allowed
	}{
		"as it does":           {as.Create(t.Context(), manifest(made, tenant, "priority: 1000, "+deny), client.DryRunAll), ""},
		"without its label":    {as.Create(t.Context(), manifest("", tenant, "priority: 1000, "+deny), client.DryRunAll), "the manager did not create the object"},
		"first of all":         {as.Create(t.Context(), manifest(made, tenant, "priority: 0, "+deny), client.DryRunAll), "come after those of the platform"},
		"lets in":              {as.Create(t.Context(), manifest(made, tenant, "priority: 1000, ingress: [{action: Accept, from: [{namespaces: {}}]}]"), client.DryRunAll), "let nobody in"},
		"for egress":           {as.Create(t.Context(), manifest(made, tenant, "priority: 1000, egress: [{action: Deny, to: [{namespaces: {}}]}]"), client.DryRunAll), "let nobody in"},
		"about all namespaces": {as.Create(t.Context(), manifest(made, "{namespaces: {}}", "priority: 1000, "+deny), client.DryRunAll), "about namespaces of tenants"},
		"about Pods":           {as.Create(t.Context(), manifest(made, "{pods: {namespaceSelector: {}, podSelector: {}}}", "priority: 1000, "+deny), client.DryRunAll), "about namespaces of tenants"},
		"takes its label away": {as.Patch(t.Context(), clusterNetworkPolicy(existing), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`)), client.DryRunAll), "the manager did not create the object"},
		"changes another one":  {as.Patch(t.Context(), clusterNetworkPolicy("others"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"priority":1000}}`)), client.DryRunAll), "the manager did not create the object"},
		"deletes another one":  {as.Delete(t.Context(), clusterNetworkPolicy("others"), client.DryRunAll), "the manager did not create the object"},
		"deletes its own":      {as.Delete(t.Context(), clusterNetworkPolicy(existing), client.DryRunAll), ""},
	} {
		if tc.want == "" && tc.err != nil || tc.want != "" && (tc.err == nil || !strings.Contains(tc.err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", reason, tc.err, tc.want)
		}
	}
}
