package replication_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestVerify runs the attacks of row I15, first as everything is and then without
// each control. It takes a rule away, so it does not run beside others.
func TestVerify(t *testing.T) {
	c, restConfig := cluster(t)
	create(t, c, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: proved}, spec: {owners: [{kind: User, name: ann}], namespaces: {create: [proved-a]}}}")
	exists(t, c, true, &rbacv1.RoleBinding{}, "proved-a", "tenure-reconciler")
	exists(t, c, true, &rbacv1.RoleBinding{}, "proved-a", "tenure:owners:tenure-tenant")
	testwait.For(t, "the namespace to be governed", patience, func() (bool, string) {
		ns := &corev1.Namespace{}
		err := c.Get(t.Context(), client.ObjectKey{Name: "proved-a"}, ns)
		return err == nil && ns.Labels["tenure.dev/parameters"] != "", "its labels"
	})
	const tenant, manager, resource = "I15-api", "I15-api-manager", "I15-api-TenantResource"
	testwait.For(t, "the rules for the manager to be in force", patience, func() (bool, string) {
		f := try(t, restConfig)[manager]
		return f.Outcome == catalog.Stopped, string(f.Outcome) + " " + f.Message + f.Reason
	})
	verified(t, restConfig, "every control is there", map[string]want{
		tenant:   {catalog.Stopped, "manager, RBAC"},
		manager:  {catalog.Stopped, byEither},
		resource: {catalog.Stopped, "RBAC (own objects too)"},
	})

	bind(t, c, "may-declare", rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"capsule.clastix.io"}, Resources: []string{"tenantresources"}})
	verified(t, restConfig, "a tenant that may make TenantResources is stopped by who applies them", map[string]want{resource: {catalog.Stopped, "manager, RBAC (own objects too)"}})

	bind(t, c, "may-read", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}})
	verified(t, restConfig, "what the account may read is copied", map[string]want{tenant: {catalog.GotThrough, ""}, manager: {catalog.Stopped, byEither}})

	// Each of the two rules stops the manager by itself. Policies end a moment after they
	// are deleted.
	for _, step := range []struct{ away, want string }{{"manager", "policy tenure-replicators"}, {"replicators", ""}} {
		withoutRule(t, c, admission.Prefix+step.away)
		testwait.For(t, "the manager to be judged without rule "+step.away, patience, func() (bool, string) {
			f := try(t, restConfig)[manager]
			return f.Control == step.want && (f.Outcome == catalog.GotThrough) == (step.want == ""), string(f.Outcome) + " " + f.Message + f.Reason
		})
	}
}

// withoutRule deletes the bindings of a rule until the test ends.
func withoutRule(t *testing.T, c client.Client, name string) {
	t.Helper()
	var all admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, b := range all.Items {
		if b.Spec.PolicyName != name {
			continue
		}
		if err := c.Delete(t.Context(), b.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			b.ObjectMeta = metav1.ObjectMeta{Name: b.Name, Labels: b.Labels}
			if err := c.Create(context.WithoutCancel(t.Context()), &b); err != nil {
				t.Error(err)
			}
		})
	}
}

// byEither is the control of what two rules refuse: the API server tells one of them.
const byEither = "policy tenure-manager or tenure-replicators"

// want is how an attack is to end, and what stops it.
type want struct {
	outcome catalog.Outcome
	control string
}

// verified runs the attacks and compares.
func verified(t *testing.T, restConfig *rest.Config, reason string, all map[string]want) {
	t.Helper()
	got := try(t, restConfig)
	for key, want := range all {
		f := got[key]
		either := want.control == byEither && slices.Contains([]string{"policy tenure-manager", "policy tenure-replicators"}, f.Control)
		if f.Outcome != want.outcome || f.Control != want.control && !either {
			t.Errorf("%s: %s %s by %q, want %s by %q (%s)", reason, key, f.Outcome, f.Control, want.outcome, want.control, f.Message+f.Evidence+f.Reason)
		}
	}
}

// try runs the row as tenant proved.
func try(t *testing.T, restConfig *rest.Config) map[string]catalog.Finding {
	t.Helper()
	report, err := catalog.Run(t.Context(), catalog.Options{
		Config: restConfig, Platform: "flux-system", Tenant: "proved", Keep: true,
		Only: func(a catalog.Attack) bool { return a.ID == "I15" },
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]catalog.Finding{}
	for _, r := range report.Results {
		got[r.Attack.Key()] = r.Finding
		t.Logf("%s %s after %s: %s", r.Attack.Key(), r.Finding.Outcome, r.Took, r.Finding.Message+r.Finding.Evidence+r.Finding.Reason)
	}
	if len(got) == 0 {
		t.Fatal("nothing was tried")
	}
	return got
}

// bind gives the account of tenant proved a right everywhere, and waits until the API
// server goes by it.
func bind(t *testing.T, c client.Client, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: strings.ToLower(t.Name()) + "-" + name}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "proved-a", Name: "proved"}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	right := &authorizationv1.ResourceAttributes{Namespace: "proved-a", Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]}
	testwait.For(t, "the account to have the right of "+meta.Name, patience, func() (bool, string) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:proved-a:proved", ResourceAttributes: right,
		}}
		err := c.Create(t.Context(), review)
		return err == nil && review.Status.Allowed, fmt.Sprint(review.Status, err)
	})
}
