package lockdown

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWideForTenants(t *testing.T) {
	t.Parallel()
	namespaces := []*unstructured.Unstructured{
		parsed(t, "{kind: Namespace, metadata: {name: apps, labels: {tenure.dev/tenant: team}}}"),
		parsed(t, "{kind: Namespace, metadata: {name: home, labels: {toolkit.fluxcd.io/tenant: team}}}"),
		parsed(t, "{kind: Namespace, metadata: {name: tools}}"),
		parsed(t, "{kind: Namespace, metadata: {name: sites, labels: {toolkit.fluxcd.io/role: tenant}}}"),
	}
	if plain := unlabelled(namespaces, []string{"apps", "home", "sites"}); !slices.Equal(plain, []string{"sites"}) {
		t.Errorf("without a tenant's label: got %v, want sites", plain)
	}
	const account = "{kind: ServiceAccount, namespace: apps, name: deployer}"
	for _, tc := range []struct{ reason, namespace, role, subject, want string }{
		{"all rights", "apps", "ClusterRole, name: cluster-admin", account, "RoleBinding apps/x gives apps/deployer the role cluster-admin: give it tenure-tenant"},
		{"tokens and impersonation", "apps", "ClusterRole, name: edit", account, "the role edit"},
		{"an account of another namespace of tenants", "apps", "ClusterRole, name: admin", "{kind: ServiceAccount, namespace: home, name: gitops}", "home/gitops"},
		{"the account as a user", "apps", "ClusterRole, name: admin", "{kind: User, name: 'system:serviceaccount:apps:deployer'}", "system:serviceaccount:apps:deployer"},
		{"all accounts of a namespace", "home", "ClusterRole, name: admin", "{kind: Group, name: 'system:serviceaccounts:apps'}", "system:serviceaccounts:apps"},
		{"a role of the namespace's own", "apps", "Role, name: admin", account, ""},
		{"a role that reads", "apps", "ClusterRole, name: view", account, ""},
		{"an account of the platform", "apps", "ClusterRole, name: admin", "{kind: ServiceAccount, namespace: tools, name: operator}", ""},
		{"a person", "apps", "ClusterRole, name: admin", "{kind: User, name: ann}", ""},
		{"a namespace that discovery found", "sites", "ClusterRole, name: admin", "{kind: ServiceAccount, namespace: sites, name: flux}", "RoleBinding sites/x gives sites/flux the role admin"},
		{"a namespace of nobody's", "tools", "ClusterRole, name: admin", account, ""},
	} {
		binding := parsed(t, "{kind: RoleBinding, metadata: {namespace: "+tc.namespace+", name: x}, roleRef: {kind: "+tc.role+"}, subjects: ["+tc.subject+"]}")
		got := strings.Join(wideForTenants(namespaces, []*unstructured.Unstructured{binding}, []string{"sites"}), "; ")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestNotInForce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ reason, status, want string }{
		{"it is in force", `{conditions: [{type: Ready, status: "True", message: all}]}`, ""},
		{"it is not", `{conditions: [{type: Ready, status: "False", message: no such rule}]}`, "no such rule"},
		{"it has just been changed", `{conditions: [{type: Ready, status: Unknown, message: in force in 1 of 2, lastTransitionTime: "2026-11-22T11:59:30Z"}]}`, ""},
		{"it does not come into force", `{conditions: [{type: Ready, status: Unknown, message: in force in 1 of 2, lastTransitionTime: "2026-11-22T11:58:30Z"}]}`, "in force in 1 of 2"},
		{"nobody has looked", "{}", ""},
	} {
		if got := notInForce(parsed(t, "{status: "+tc.status+"}"), now); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
