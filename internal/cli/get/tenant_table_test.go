package get

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
)

func TestTenantTable(t *testing.T) {
	t.Parallel()
	object := func(name string, conditions ...metav1.Condition) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
			Status:     v1alpha1.TenantStatus{Namespaces: []string{name + "-one"}, Conditions: conditions},
		}
	}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 2, Message: "1 namespace is in place"}
	old := ready
	old.ObservedGeneration = 1
	exceeded := metav1.Condition{Type: "WithinQuota", Status: metav1.ConditionFalse, Message: "uses more pods"}
	shared := metav1.Condition{Type: "HostsSeparate", Status: metav1.ConditionUnknown, Message: "other tenants may use the same hosts"}
	tenants := describeTenants([]discovery.Tenant{
		{
			Name: "dev-team", Namespaces: []string{"apps", "apps-preview", "apps-test", "apps-old", "apps-new"},
			Accounts: []discovery.Account{{Namespace: "apps", Name: "dev-team"}}, Roles: []string{"ClusterRole/edit"},
			Repositories: []discovery.Repository{
				{URL: "https://git.example.com/acme/dev-team", Branch: "main"}, {URL: "https://git.example.com/acme/dev-team", Branch: "main"},
				{URL: "https://charts.example.com"},
			},
		},
		{Name: "labelled", Namespaces: []string{"labelled"}},
	}, map[string]*v1alpha1.Tenant{
		"dev-team": object("dev-team", ready), "changed": object("changed", old), "greedy": object("greedy", ready, exceeded, shared), "new": object("new"),
	})
	header, got := tenantTable(tenants, false)
	want := [][]string{
		{"NAME", "READY", "NAMESPACES", "REPOSITORIES", "MESSAGE"},
		{"changed", "Unknown", "changed-one", "-", "the manager has not reconciled the last change yet; before, 1 namespace is in place"},
		{"dev-team", "True", "apps,apps-preview,apps-test + 2 more...", "https://git.example.com/acme/dev-team#main + 1 more...", "1 namespace is in place"},
		{"greedy", "True", "greedy-one", "-", "1 namespace is in place; uses more pods; other tenants may use the same hosts"},
		{"labelled", "-", "labelled", "-", "no Tenant object; found by its label or its Flux objects"},
		{"new", "Unknown", "new-one", "-", "the manager has not reconciled it yet"},
	}
	if diff := cmp.Diff(want, append([][]string{header}, got...)); diff != "" {
		t.Errorf("a tenant is one row with the beginning of its lists (-want +got):\n%s", diff)
	}
	header, got = tenantTable(tenants, true)
	want = [][]string{
		{"NAME", "READY", "NAMESPACES", "ACCOUNTS", "ROLES", "REPOSITORIES", "OWNERS", "MESSAGE"},
		{
			"dev-team", "True", "apps,apps-preview,apps-test,apps-old,apps-new", "apps/dev-team", "ClusterRole/edit",
			"https://git.example.com/acme/dev-team#main,https://charts.example.com", "-", "1 namespace is in place",
		},
	}
	if diff := cmp.Diff(want, [][]string{header, got[1]}); diff != "" {
		t.Errorf("-o wide has all columns and complete lists (-want +got):\n%s", diff)
	}
}
