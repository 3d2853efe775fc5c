package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTenantNamespaces checks that each namespace of a tenant has everything
// that keeps the tenant in it.
func TestTenantNamespaces(t *testing.T) {
	t.Parallel()
	for env, namespaces := range map[string][]string{
		"staging":    {"apps", "apps-preview", "billing"},
		"production": {"apps", "billing"},
	} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			objects := build(t, "fleet/platform/tenants/"+env)
			have := map[string]bool{}
			for _, o := range objects.Resources() {
				have[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = true
				if o.GetKind() != "Namespace" {
					continue
				}
				if !slices.Contains(namespaces, o.GetName()) {
					t.Errorf("the namespace %s is not expected in %s", o.GetName(), env)
				}
				labels := o.GetLabels()
				if labels["toolkit.fluxcd.io/tenant"] == "" || labels["pod-security.kubernetes.io/enforce"] != "restricted" {
					t.Errorf("the namespace %s lacks its tenant's label or Pod Security: %v", o.GetName(), labels)
				}
			}
			for _, ns := range namespaces {
				team := "dev-team"
				if ns == "billing" {
					team = "billing"
				}
				for _, want := range []string{
					"Namespace /" + ns,
					"RoleBinding " + ns + "/" + team + "-reconciler",
					"ResourceQuota " + ns + "/bounds",
					"LimitRange " + ns + "/defaults",
					"NetworkPolicy " + ns + "/default-deny",
				} {
					if !have[want] {
						t.Errorf("%s is missing", want)
					}
				}
			}
		})
	}
}

// TestTenantBindings checks that no tenant is bound to more than the role that
// was made for tenants, and to nothing cluster-wide.
func TestTenantBindings(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"staging", "production"} {
		for _, o := range build(t, "fleet/platform/tenants/"+env).Resources() {
			switch o.GetKind() {
			case "ClusterRoleBinding", "ClusterRole":
				t.Errorf("%s: a tenant gets the %s %s", env, o.GetKind(), o.GetName())
			case "RoleBinding":
				var binding struct {
					RoleRef  struct{ Name string }
					Subjects []struct{ Kind, Name, Namespace string }
				}
				decode(t, o, &binding)
				if binding.RoleRef.Name != "acme-tenant" {
					t.Errorf("%s: %s/%s binds to %s", env, o.GetNamespace(), o.GetName(), binding.RoleRef.Name)
				}
				// The account of apps acts in apps-preview too: kustomize must
				// not move it along with the namespace.
				for _, s := range binding.Subjects {
					if s.Kind == "ServiceAccount" && s.Namespace != "apps" && s.Namespace != "billing" {
						t.Errorf("%s: %s/%s names an account in %s, where there is none", env, o.GetNamespace(), o.GetName(), s.Namespace)
					}
				}
			}
		}
	}
	role := find(t, build(t, "fleet/platform/infrastructure/policies"), "ClusterRole", "acme-tenant")
	var rules struct {
		Rules []struct{ APIGroups, Resources, Verbs []string }
	}
	decode(t, role, &rules)
	for _, rule := range rules.Rules {
		for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
			if word == "*" || word == "impersonate" || word == "escalate" || word == "bind" || word == "serviceaccounts/token" {
				t.Errorf("the tenants' role holds %q in %v", word, rule)
			}
		}
	}
}

// TestCharts checks that the two versions of the chart are what staging and
// production choose between.
func TestCharts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("charts/*/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var chart struct{ APIVersion, Name, Version string }
		if err := yaml.Unmarshal(content, &chart); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if chart.Name != "web" || chart.APIVersion != "v2" {
			t.Errorf("%s is not the chart web of version v2: %+v", file, chart)
		}
		versions = append(versions, chart.Version)
	}
	stable := slices.ContainsFunc(versions, func(v string) bool { return !strings.Contains(v, "-") })
	candidate := slices.ContainsFunc(versions, func(v string) bool { return strings.Contains(v, "-") })
	if !stable || !candidate {
		t.Errorf("production needs a stable version and staging a pre-release to differ, got %v", versions)
	}
}
