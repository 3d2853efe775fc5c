package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// TestNamespaces checks that users see the namespaces of their tenants, for each way in
// which a Tenant can name its owners.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("seen-home", "seen")+namespace("seen-a", "seen")+namespace("seen-b", "seen")+namespace("seen-other", "seen-other")+
		`{apiVersion: v1, kind: Namespace, metadata: {name: seen-nobodys}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: seen-view}, rules: [{apiGroups: [""], resources: [namespaces], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: seen-pods}, rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: seen-all}, rules: [{apiGroups: [""], resources: [namespaces], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: guest, namespace: seen-other}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: seen-view},
 subjects: [{kind: ServiceAccount, name: guest, namespace: seen-home}, {kind: ServiceAccount, name: both, namespace: seen-home}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: guest, namespace: seen-nobodys}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: seen-view},
 subjects: [{kind: ServiceAccount, name: guest, namespace: seen-home}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: guest, namespace: seen-a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: seen-pods},
 subjects: [{kind: ServiceAccount, name: guest, namespace: seen-home}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: seen-all}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: seen-all},
 subjects: [{kind: ServiceAccount, name: everything, namespace: seen-home}]}
---
`+tenant("seen", accountOwner("seen-home", "owner"), accountOwner("seen-home", "both"), "{kind: Group, name: seen-team}"))

	for _, tc := range []struct{ reason, account, want string }{
		{"an owner sees the tenant's namespaces", "owner", "seen-a seen-b seen-home"},
		{"who owns nothing sees nothing", "stranger", ""},
		{"who may get tenants' namespaces sees those, and not those of nobody", "guest", "seen-other"},
		{"who is both sees both", "both", "seen-a seen-b seen-home seen-other"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			sees(t, newClient(t, s.as(account(t, "seen-home", tc.account))), tc.want)
		})
	}
	t.Run("who may list all sees all", func(t *testing.T) {
		t.Parallel()
		c := newClient(t, s.as(account(t, "seen-home", "everything")))
		testwait.For(t, "all namespaces", patience, func() (bool, string) {
			got := list(t, c)
			return strings.Contains(got, "kube-system"), got
		})
	})
	owner := account(t, "seen-home", "owner")
	t.Run("the client's selector is kept", func(t *testing.T) {
		t.Parallel()
		c := newClient(t, s.as(owner))
		sees(t, c, "seen-a seen-b seen-home")
		for selector, want := range map[string]string{
			"kubernetes.io/metadata.name=seen-b":                       "seen-b",
			"kubernetes.io/metadata.name=kube-system":                  "",
			"kubernetes.io/metadata.name notin (seen-b)":               "seen-a seen-home",
			"tenure.dev/tenant=seen-other":                             "",
			"tenure.dev/tenant in (seen,seen-other),tenure.dev/tenant": "seen-a seen-b seen-home",
		} {
			if got := list(t, c, &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: selector}}); got != want {
				t.Errorf("%s: want %q, got %q", selector, want, got)
			}
		}
		if got := list(t, c, &client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "metadata.name=seen-a"}}); got != "seen-a" {
			t.Errorf("a field selector: got %q", got)
		}
		if got := list(t, c, &client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "metadata.name=kube-system"}}); got != "" {
			t.Errorf("a field selector for another: got %q", got)
		}
	})
	t.Run("pages", func(t *testing.T) {
		t.Parallel()
		c := newClient(t, s.as(owner))
		sees(t, c, "seen-a seen-b seen-home")
		var names []string
		page := &client.ListOptions{Limit: 1}
		for {
			var all corev1.NamespaceList
			if err := c.List(t.Context(), &all, page); err != nil {
				t.Fatal(err)
			}
			for _, ns := range all.Items {
				names = append(names, ns.Name)
			}
			if page.Continue = all.Continue; page.Continue == "" {
				break
			}
		}
		if got := strings.Join(names, " "); got != "seen-a seen-b seen-home" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("tables", func(t *testing.T) {
		t.Parallel()
		sees(t, newClient(t, s.as(owner)), "seen-a seen-b seen-home")
		for _, accept := range []string{"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
			r := s.request(t, http.MethodGet, "/api/v1/namespaces", owner)
			r.Header.Set("Accept", accept)
			code, body, _ := s.raw(t, r)
			kind, _, _ := strings.Cut(strings.TrimPrefix(accept, "application/json;as="), ";")
			if code != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`"kind":%q`, kind)) || strings.Contains(body, "kube-system") || !strings.Contains(body, "seen-b") {
				t.Errorf("%s: got %d %s", accept, code, body)
			}
		}
	})
	t.Run("other requests are the caller's own", func(t *testing.T) {
		t.Parallel()
		sees(t, newClient(t, s.as(owner)), "seen-a seen-b seen-home")
		for path, want := range map[string]int{
			"/api/v1/namespaces/seen-b":              http.StatusForbidden,
			"/api/v1/nodes":                          http.StatusForbidden,
			"/api/v1/secrets":                        http.StatusForbidden,
			"/version":                               http.StatusOK,
			"/apis/tenure.dev/v1alpha1/tenants/seen": http.StatusOK,
			"/apis/tenure.dev/v1alpha1/tenants/none": http.StatusForbidden,
		} {
			if code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, owner)); code != want {
				t.Errorf("%s: want %d, got %d %s", path, want, code, body)
			}
		}
		code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/apis/tenure.dev/v1alpha1/tenants", owner))
		if code != http.StatusOK || strings.Count(body, `"kind":"Tenant"`) != 1 || !strings.Contains(body, `"name":"seen"`) {
			t.Errorf("the owner's Tenants: got %d %s", code, body)
		}
	})
}

// TestFresh checks that a list right after the creation of a namespace has the namespace.
func TestFresh(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("fresh-home", "fresh")+tenant("fresh", accountOwner("fresh-home", "owner")))
	c := newClient(t, s.as(account(t, "fresh-home", "owner")))
	sees(t, c, "fresh-home")
	for i := range 200 {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fresh-%03d", i), Labels: map[string]string{"tenure.dev/tenant": "fresh"}}}
		if err := s.admin.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		if got := list(t, c, client.MatchingLabels{"kubernetes.io/metadata.name": ns.Name}); got != ns.Name {
			t.Fatalf("namespace %s was just made and is not in the list: %q", ns.Name, got)
		}
	}
}
