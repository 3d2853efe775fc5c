package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// clock is the manager's clock for tokens: the real one, set forward.
type clock struct{ ahead atomic.Int64 }

var testClock clock

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

const credentialed = `
{apiVersion: v1, kind: Namespace, metadata: {name: gold-home, labels: {capsule.clastix.io/tenant: golden}}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: gitops
  namespace: gold-home
  annotations: {capsule.addon.fluxcd/enabled: "true", capsule.addon.fluxcd/kubeconfig-global: "true"}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: other, namespace: gold-home, annotations: {tenure.dev/kubeconfig: "tenant"}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: plain, namespace: gold-home}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gold, namespace: kube-system, annotations: {tenure.dev/kubeconfig: "true"}}}
`

const goldTenant = `
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: golden}
spec:
  owners:
    - {kind: ServiceAccount, namespace: gold-home, name: gitops}
    - {kind: ServiceAccount, namespace: gold-home, name: plain}
    - {kind: ServiceAccount, namespace: kube-system, name: gold}
  namespaces: {create: [golden-a]}
`

// trust says whom the users of the proxy trust; the API server takes its place.
func trust(t *testing.T, admin client.Client, config *rest.Config, comment string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "tenure-proxy-ca"}, Data: map[string]string{"ca.crt": string(config.CAData) + comment}}
	err := admin.Create(t.Context(), cm)
	if apierrors.IsAlreadyExists(err) {
		err = admin.Update(t.Context(), cm)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// issued waits until a Secret has a kubeconfig that is not the one before, and returns
// the Secret.
func issued(t *testing.T, admin client.Client, namespace, before string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	testwait.For(t, "a new kubeconfig in namespace "+namespace, patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gitops-kubeconfig"}, s)
		return err == nil && len(s.Data["kubeconfig"]) > 0 && string(s.Data["kubeconfig"]) != before, fmt.Sprint(err, s.Annotations, ended.Load())
	})
	return s
}

// whoAmI says as whom a kubeconfig is known, as somebody else if a name is given.
func whoAmI(ctx context.Context, kubeconfig []byte, as string) (string, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return "", err
	}
	config.Impersonate.UserName = as
	return whoIs(ctx, config)
}

func whoIs(ctx context.Context, config *rest.Config) (string, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// told waits for an event about an account.
func told(t *testing.T, admin client.Client, namespace, name, reason string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("account %s/%s to be told %s", namespace, name, reason), patience, func() (bool, string) {
		var events eventsv1.EventList
		if err := admin.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
			return false, err.Error()
		}
		seen := ""
		for _, e := range events.Items {
			if e.Regarding.Kind == "ServiceAccount" && e.Regarding.Name == name {
				seen += e.Reason + " "
				if e.Reason == reason {
					return true, ""
				}
			}
		}
		return false, seen
	})
}

// TestCredentials follows an account from its annotation to its end.
func TestCredentials(t *testing.T) {
	t.Parallel()
	admin, config := cluster(t)
	trust(t, admin, config, "")
	create(t, admin, credentialed)
	told(t, admin, "gold-home", "gitops", "NotAnOwner")
	exists(t, admin, false, &corev1.Secret{}, "gold-home", "gitops-kubeconfig")

	// A Tenant that comes after the account is noticed.
	create(t, admin, goldTenant)
	home := issued(t, admin, "gold-home", "")
	issued(t, admin, "golden-a", "")
	create(t, admin, namespace("golden-b", v1alpha1.LabelTenant, "golden"))
	copied := issued(t, admin, "golden-b", "")
	// An account that was there before may have any rights.
	create(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: golden-c}}\n---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: gitops, namespace: golden-c}}\n")
	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "golden-c"}}, `{"metadata":{"labels":{"tenure.dev/tenant":"golden"}}}`)
	told(t, admin, "gold-home", "gitops", "ForeignAccount")
	exists(t, admin, false, &corev1.Secret{}, "golden-c", "gitops-kubeconfig")

	t.Run("Usable", func(t *testing.T) { usable(t, admin, home, copied) })
	t.Run("Nothing", func(t *testing.T) { nothing(t, admin) })
	t.Run("NotTheTenants", func(t *testing.T) { notTheTenants(t, config) })
	t.Run("Rights", func(t *testing.T) { managersRights(t, admin, config) })
	t.Run("Ungoverned", func(t *testing.T) { ungoverned(t, admin) })
	t.Run("Rotated", func(t *testing.T) { rotated(t, admin, config, home) })

	// The namespace leaves the tenant.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "golden-b"}}
	merge(t, admin, ns, `{"metadata":{"labels":{"tenure.dev/tenant":null}}}`)
	exists(t, admin, false, &corev1.Secret{}, "golden-b", "gitops-kubeconfig")
	exists(t, admin, false, &corev1.ServiceAccount{}, "golden-b", "gitops")
	exists(t, admin, false, &rbacv1.Role{}, "golden-b", "gold-home-gitops-impersonator")
	exists(t, admin, false, &rbacv1.RoleBinding{}, "golden-b", "gold-home-gitops-impersonator")
	exists(t, admin, false, &rbacv1.RoleBinding{}, "golden-b", "tenure:credentials:gold-home:gitops")
	testwait.For(t, "the token of a namespace that has left to end", patience, func() (bool, string) {
		user, err := whoAmI(t.Context(), copied.Data["kubeconfig"], "")
		return apierrors.IsUnauthorized(err), fmt.Sprint(user, err)
	})
	last := issued(t, admin, "gold-home", "").Data["kubeconfig"]

	// The account does not own the Tenant any more.
	merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "golden"}}, `{"spec":{"owners":[{"kind":"User","name":"ann"}]}}`)
	for _, namespace := range []string{"gold-home", "golden-a"} {
		exists(t, admin, false, &corev1.Secret{}, namespace, "gitops-kubeconfig")
		exists(t, admin, false, &rbacv1.RoleBinding{}, namespace, "tenure:credentials:gold-home:gitops")
	}
	for _, name := range []string{"gitops", "gold-home-gitops-impersonator"} {
		exists(t, admin, false, &rbacv1.RoleBinding{}, "gold-home", name)
	}
	exists(t, admin, false, &rbacv1.Role{}, "gold-home", "gold-home-gitops-impersonator")
	testwait.For(t, "the token to end with its Secret", patience, func() (bool, string) {
		user, err := whoAmI(t.Context(), last, "")
		return apierrors.IsUnauthorized(err), fmt.Sprint(user, err)
	})
}

// ungoverned checks that an account which owns a Tenant, in a namespace without a label of a
// tenant, gets no kubeconfig, neither there nor in the Tenant's namespaces, until the namespace
// is governed.
func ungoverned(t *testing.T, admin client.Client) {
	create(t, admin, `
{apiVersion: v1, kind: Namespace, metadata: {name: bare-home, labels: {team: bare}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gitops, namespace: bare-home, annotations: {tenure.dev/kubeconfig: "tenant"}}}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: bare}
spec:
  owners: [{kind: ServiceAccount, namespace: bare-home, name: gitops}]
  namespaces: {create: [bare-a]}
`)
	told(t, admin, "bare-home", "gitops", "UngovernedNamespace")
	exists(t, admin, true, &corev1.Namespace{}, "", "bare-a")
	for _, namespace := range []string{"bare-home", "bare-a"} {
		exists(t, admin, false, &corev1.Secret{}, namespace, "gitops-kubeconfig")
		exists(t, admin, false, &rbacv1.RoleBinding{}, namespace, "tenure:credentials:bare-home:gitops")
	}
	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bare-home"}}, `{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":"bare"}}}`)
	for _, namespace := range []string{"bare-home", "bare-a"} {
		issued(t, admin, namespace, "")
	}
}

func usable(t *testing.T, admin client.Client, home, copied *corev1.Secret) {
	const me, there = "system:serviceaccount:gold-home:gitops", "system:serviceaccount:golden-b:gitops"
	for _, tc := range []struct {
		reason string
		secret *corev1.Secret
		as     string
		want   string
	}{
		{"the account is itself", home, "", me},
		{"in another namespace it is the account there", copied, "", there},
		{"Flux impersonates the account that it is", home, me, me},
		{"Flux impersonates the account of a Kustomization there", copied, there, there},
		{"another account of the namespace", home, "system:serviceaccount:gold-home:other", ""},
		{"the account of the name elsewhere", home, there, ""},
		{"the owner, from a namespace of its tenant", copied, me, ""},
		{"the account of the name in another namespace of the tenant", copied, "system:serviceaccount:golden-a:gitops", ""},
		{"another account there", copied, "system:serviceaccount:golden-b:golden", ""},
		{"a person", home, "admin", ""},
		{"the manager", home, "system:serviceaccount:flux-system:tenure-manager", ""},
	} {
		user, err := whoAmI(t.Context(), tc.secret.Data["kubeconfig"], tc.as)
		if tc.want != "" && (err != nil || user != tc.want) || tc.want == "" && !apierrors.IsForbidden(err) {
			t.Errorf("%s: want %q, got user %q, error %v", tc.reason, tc.want, user, err)
		}
	}
	reach(t, copied)
	testwait.For(t, "the parameters to list the Secret", patience, func() (bool, string) {
		p := &v1alpha1.TenantParameters{}
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: "golden-a", Name: v1alpha1.ParametersName}, p)
		return strings.Join(p.Spec.Tenants.KubeConfigs, " ") == "gitops-kubeconfig" && slices.Contains(p.Spec.Tenants.Accounts.Reconcilers, "gitops"),
			fmt.Sprint(p.Spec.Tenants, err)
	})
}

// reach: the kubeconfig of a namespace is good for the namespace and nothing else.
func reach(t *testing.T, copied *corev1.Secret) {
	config, err := clientcmd.RESTConfigFromKubeConfig(copied.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the account to have the tenant's role in its namespace", patience, func() (bool, string) {
		_, err := c.CoreV1().ConfigMaps("golden-b").List(t.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	for _, namespace := range []string{"golden-a", "gold-home", "flux-system", ""} {
		if _, err := c.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("it lists what is in %q: %v", namespace, err)
		}
	}
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "golden-more"}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
		t.Errorf("it makes namespaces, as the owner does: %v", err)
	}
}

// nothing: who must not have credentials has none.
func nothing(t *testing.T, admin client.Client) {
	told(t, admin, "gold-home", "other", "NotAnOwner")
	told(t, admin, "kube-system", "gold", "PlatformNamespace")
	for _, tc := range []struct{ reason, namespace, secret string }{
		{"it owns nothing", "gold-home", "other-kubeconfig"},
		{"it does not ask", "gold-home", "plain-kubeconfig"},
		{"it is Kubernetes' own", "kube-system", "gold-kubeconfig"},
		{"it is Kubernetes' own, and the tenant's namespaces are not", "golden-a", "gold-kubeconfig"},
	} {
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: tc.namespace, Name: tc.secret}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: there is a Secret %s/%s: %v", tc.reason, tc.namespace, tc.secret, err)
		}
	}
}

// notTheTenants: who holds the credentials does not change them, nor makes what looks
// like them.
func notTheTenants(t *testing.T, config *rest.Config) {
	tenant := newClient(t, config, rest.ImpersonationConfig{UserName: "system:serviceaccount:gold-home:gitops", Groups: []string{"system:authenticated"}})
	secret := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"value":"mine"}}`))
	forged := secret("gold-home", "forged")
	forged.Labels = map[string]string{"tenure.dev/managed-by": "manager", "tenure.dev/credentials": "home"}
	for _, tc := range []struct {
		reason string
		try    func() error
	}{
		{"change it at home", func() error { return tenant.Patch(t.Context(), secret("gold-home", "gitops-kubeconfig"), patch) }},
		{"change a copy", func() error { return tenant.Patch(t.Context(), secret("golden-a", "gitops-kubeconfig"), patch) }},
		{"remove it at home", func() error { return tenant.Delete(t.Context(), secret("gold-home", "gitops-kubeconfig")) }},
		{"remove a copy", func() error { return tenant.Delete(t.Context(), secret("golden-a", "gitops-kubeconfig")) }},
		{"forge one", func() error { return tenant.Create(t.Context(), forged) }},
	} {
		if err := tc.try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "tenure-") {
			t.Errorf("%s: want a refusal by a rule, got %v", tc.reason, err)
		}
	}
	// It may write Secrets, so that it was the rule.
	if err := tenant.Create(t.Context(), secret("gold-home", "mine")); err != nil {
		t.Errorf("cannot write a Secret of its own: %v", err)
	}
}

// managersRights: the manager has rights where credentials are, and takes them nowhere
// else.
func managersRights(t *testing.T, admin client.Client, config *rest.Config) {
	const user = "system:serviceaccount:flux-system:tenure-manager"
	reviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		verb, resource, subresource, namespace string
		want                                   bool
	}{
		{"create", "serviceaccounts", "token", "gold-home", true},
		{"create", "serviceaccounts", "token", "golden-a", true},
		{"create", "serviceaccounts", "token", "gold-nobodys", false},
		{"create", "serviceaccounts", "token", "flux-system", false},
		{"create", "serviceaccounts", "token", "", false},
		{"impersonate", "serviceaccounts", "", "golden-a", true},
		{"impersonate", "serviceaccounts", "", "gold-nobodys", false},
		{"impersonate", "users", "", "", false},
		{"get", "secrets", "", "golden-a", true},
		{"list", "secrets", "", "golden-a", false},
		{"list", "secrets", "", "gold-home", false},
		{"get", "secrets", "", "kube-system", false},
		{"get", "secrets", "", "flux-system", false},
		{"list", "secrets", "", "", false},
	} {
		r, err := reviews.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:flux-system"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Resource: tc.resource, Subresource: tc.subresource, Namespace: tc.namespace},
		}}, metav1.CreateOptions{})
		if err != nil || r.Status.Allowed != tc.want {
			t.Errorf("%s %s %s in %q: want %v, got %v (%v)", tc.verb, tc.resource, tc.subresource, tc.namespace, tc.want, r.Status.Allowed, err)
		}
	}
	create(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: gold-nobodys}}\n---\n"+namespace("iron-c", v1alpha1.LabelTenant, "iron-c"))
	manager := newClient(t, config, rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}})
	me := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "flux-system", Name: "tenure-manager"}
	for _, tc := range []struct {
		reason, namespace, role, account string
		as                               client.Client
		subject                          rbacv1.Subject
		refused                          bool
	}{
		{"the account owns a tenant", "gold-home", "home", "gold-home/gitops", manager, me, false},
		{"the namespace is of its tenant", "golden-a", "copy", "gold-home/gitops", manager, me, false},
		{"the account owns nothing", "gold-home", "home", "gold-home/other", manager, me, true},
		{"the account is elsewhere", "gold-nobodys", "home", "gold-home/gitops", manager, me, true},
		{"the namespace is nobody's", "gold-nobodys", "copy", "gold-home/gitops", manager, me, true},
		{"the namespace is another tenant's", "iron-c", "copy", "gold-home/gitops", manager, me, true},
		{"the namespace is Kubernetes' own", "kube-system", "home", "kube-system/gold", manager, me, true},
		{"the namespace is the platform's", "flux-system", "home", "flux-system/tenure-manager", manager, me, true},
		{"no account is named", "gold-home", "home", "", manager, me, true},
		{"somebody else is to have it", "gold-home", "home", "gold-home/gitops", manager, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "gold-home", Name: "gitops"}, true},
		{"an admin gives it", "gold-home", "home", "gold-home/gitops", admin, me, true},
	} {
		b := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: "tried", Annotations: map[string]string{"tenure.dev/account": tc.account},
				Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, credentials.Label: "true"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenure-credentials-" + tc.role},
			Subjects: []rbacv1.Subject{tc.subject},
		}
		err := tc.as.Create(t.Context(), b, client.DryRunAll)
		// Where both rules refuse, the API server names one of them.
		byRule := refusedBy(err, "tenure-credentials") || refusedBy(err, "tenure-manager")
		if tc.refused != byRule || !tc.refused && err != nil {
			t.Errorf("%s: want a refusal: %v, got %v", tc.reason, tc.refused, err)
		}
	}
	everywhere := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tried"}, Subjects: []rbacv1.Subject{me},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenure-credentials-copy"},
	}
	if err := manager.Create(t.Context(), everywhere, client.DryRunAll); !refusedBy(err, "tenure-credentials") && !refusedBy(err, "tenure-manager") {
		t.Errorf("the rights for all namespaces at once: %v", err)
	}
}

// rotated: three tokens later the ones before are still good, and a new authority is
// in the kubeconfig soon.
func rotated(t *testing.T, admin client.Client, config *rest.Config, secret *corev1.Secret) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "gold-home", Name: "gitops"}}
	var tokens [][]byte
	for n := range 3 {
		tokens = append(tokens, secret.Data["kubeconfig"])
		renew, err := time.Parse(time.RFC3339, secret.Annotations["tenure.dev/renew"])
		if err != nil {
			t.Fatal(err)
		}
		testClock.ahead.Store(int64(time.Until(renew) + time.Second))
		// Somebody touches the account; otherwise the manager would come by itself,
		// by the real clock.
		merge(t, admin, account, fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, n))
		next := issued(t, admin, "gold-home", string(secret.Data["kubeconfig"]))
		if next.UID != secret.UID {
			t.Errorf("rotation %d: the Secret was replaced, which ends the tokens before", n)
		}
		secret = next
	}
	for n, kubeconfig := range tokens {
		if _, err := whoAmI(t.Context(), kubeconfig, ""); err != nil {
			t.Errorf("kubeconfig %d is not good any more: %v", n, err)
		}
	}
	testClock.ahead.Store(0)
	trust(t, admin, config, "\n")
	issued(t, admin, "gold-home", string(secret.Data["kubeconfig"]))
}
