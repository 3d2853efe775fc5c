package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestIsolation checks that the manager isolates namespaces with and without a Tenant, that
// tenants cannot change that, and that the Tenant decides how.
func TestIsolation(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	policy := func(namespace string) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tenancy.IsolationName}}
	}
	// becomes waits until the policy of a namespace is the manager's, with a number of peers.
	becomes := func(namespace string, peers int) {
		t.Helper()
		testwait.For(t, fmt.Sprintf("%s to be isolated with %d peers", namespace, peers), patience, func() (bool, string) {
			p := policy(namespace)
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				return false, err.Error()
			}
			ours := p.Labels[tenancy.LabelManaged] == tenancy.ManagedValue
			return ours && len(p.Spec.Ingress) == 1 && len(p.Spec.Ingress[0].From) == peers, fmt.Sprint(p.Labels, p.Spec)
		})
	}
	// refused checks that a user can neither change nor delete the policy, but have others.
	refused := func(who rest.ImpersonationConfig, namespace string) {
		t.Helper()
		as := newClient(t, restConfig, who)
		own := policy(namespace)
		own.Name = "own"
		testwait.For(t, who.UserName+" to have rights", patience, func() (bool, string) {
			err := as.Create(t.Context(), own.DeepCopy(), client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		})
		testwait.For(t, "the rule to keep the isolation from "+who.UserName, patience, func() (bool, string) {
			err := as.Patch(t.Context(), policy(namespace), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ingress":[{}]}}`)), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "belongs to the platform"), fmt.Sprint(err)
		})
		for what, err := range map[string]error{
			"take its label":    as.Patch(t.Context(), policy(namespace), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`)), client.DryRunAll),
			"delete":            as.Delete(t.Context(), policy(namespace), client.DryRunAll),
			"delete all of its": as.DeleteAllOf(t.Context(), policy(namespace), client.InNamespace(namespace), client.DryRunAll),
		} {
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("%s can %s the isolation of %s: %v", who.UserName, what, namespace, err)
			}
		}
	}

	create(t, admin, namespace("iso-labelled", v1alpha1.LabelFluxTenant, "iso-labelled"))
	becomes("iso-labelled", 4)
	refused(rest.ImpersonationConfig{UserName: "system:serviceaccount:iso-labelled:iso-labelled", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:iso-labelled", "system:authenticated"}}, "iso-labelled")

	create(t, admin, tenantManifest("iso", "{owners: [{kind: User, name: iris}], namespaces: {create: [iso-one]}, network: {isolation: None}}"))
	condition(t, admin, "iso", "Ready", "InPlace", "")
	iris := rest.ImpersonationConfig{UserName: "iris", Groups: []string{"system:authenticated"}}
	as := newClient(t, restConfig, iris)
	theirs := policy("iso-one")
	theirs.Spec = networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{}}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
	}
	testwait.For(t, "the owner to have a policy with the name of the manager's", patience, func() (bool, string) {
		err := as.Create(t.Context(), theirs)
		return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
	})
	set := func(mode string) {
		t.Helper()
		merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "iso"}}, `{"spec":{"network":{"isolation":`+mode+`}}}`)
	}
	set(`"Namespace"`)
	becomes("iso-one", 2)
	p := policy("iso-one")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, p.Spec.PolicyTypes); diff != "" || len(p.Spec.PodSelector.MatchLabels) > 0 {
		t.Errorf("the owner's policy is not replaced: selector %v, types (-want +got):\n%s", p.Spec.PodSelector, diff)
	}
	refused(iris, "iso-one")
	set("null")
	becomes("iso-one", 4)
	if err := admin.Delete(t.Context(), policy("iso-one")); err != nil {
		t.Fatal(err)
	}
	becomes("iso-one", 4)
	set(`"None"`)
	exists(t, admin, false, policy("iso-one"), "iso-one", tenancy.IsolationName)
	merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "iso"}}, `{"spec":{"network":null}}`)
	becomes("iso-one", 4)
}
