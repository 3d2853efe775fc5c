package get

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
)

// TestChoiceOf checks that the file beside a fleet counts as for verify, and the flags with it.
func TestChoiceOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tenure.yaml"), []byte("tenants: [namespace=web]\nplatform: [namespace=istio]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason, fleet string
		want          string
	}{
		"without a fleet": {"the flags alone count", "", "[namespace=a] []"},
		"with a fleet":    {"the file counts as well", dir, "[namespace=web namespace=a] [namespace=istio]"},
		"without a file":  {"the flags alone count", t.TempDir(), "[namespace=a] []"},
	} {
		choice, err := choiceOf(tc.fleet, []string{"namespace=a"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(choice.Tenants, choice.Platform); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tenure.yaml"), []byte("tenants: [nothing]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := choiceOf(dir, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "tenure.yaml: ") {
		t.Errorf("a wrong file: got %v", err)
	}
}

func TestTenantRows(t *testing.T) {
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
	shared := metav1.Condition{Type: "HostsSeparate", Status: metav1.ConditionUnknown, Message: "others may have the same hosts"}
	got := tenantRows([]discovery.Tenant{
		{
			Name: "dev-team", Namespaces: []string{"apps", "apps-preview"},
			Accounts: []discovery.Account{{Namespace: "apps", Name: "dev-team"}}, Roles: []string{"ClusterRole/edit"},
			Repositories: []discovery.Repository{{URL: "https://git.example.com/acme/dev-team", Branch: "main"}},
		},
		{Name: "labelled", Namespaces: []string{"labelled"}},
	}, map[string]*v1alpha1.Tenant{
		"dev-team": object("dev-team", ready), "changed": object("changed", old), "greedy": object("greedy", ready, exceeded, shared), "new": object("new"),
	})
	want := [][]string{
		{"changed", "Unknown", "changed-one", "", "", "", "the manager has not looked at the last change yet; before, 1 namespace is in place"},
		{"dev-team", "True", "apps,apps-preview", "apps/dev-team", "ClusterRole/edit", "https://git.example.com/acme/dev-team#main", "1 namespace is in place"},
		{"greedy", "True", "greedy-one", "", "", "", "1 namespace is in place; uses more pods; others may have the same hosts"},
		{"labelled", "-", "labelled", "", "", "", "known by label or by its Flux objects, no Tenant"},
		{"new", "Unknown", "new-one", "", "", "", "the manager has not looked at it yet"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a tenant is one row, lists are joined (-want +got):\n%s", diff)
	}
	if len(want[0]) != len(tenantColumns) {
		t.Errorf("%d cells for %d columns", len(want[0]), len(tenantColumns))
	}
}
