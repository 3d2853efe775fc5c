package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlanOnce checks which objects are applied once, and what is refused.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	const here = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"of-{{tenant.name}}","namespace":"{{ tenant.name }}-home"},"data":{"n":"1"}}`
	for name, tc := range map[string]struct {
		reason, tenant string
		entry          Entry
		want           []string
		refusal        string
	}{
		"namespaced":     {reason: "it names its namespace", tenant: "alpha", entry: Entry{Items: raw(here)}, want: []string{"ConfigMap alpha-home/of-alpha"}},
		"cluster":        {reason: "it is in none", tenant: "alpha", entry: Entry{Items: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"{{tenant.name}}"}}`)}, want: []string{"ClusterRole /alpha"}},
		"without tenant": {reason: "no variable is needed", entry: Entry{Items: raw(strings.ReplaceAll(strings.ReplaceAll(here, "{{tenant.name}}", "all"), "{{ tenant.name }}", "all"))}, want: []string{"ConfigMap all-home/of-all"}},
		"two items":      {reason: "they are one object together", tenant: "alpha", entry: Entry{Items: raw(here, strings.Replace(here, `"n"`, `"m"`, 1))}, want: []string{"ConfigMap alpha-home/of-alpha"}},
		"no namespace":   {reason: "no place is meant", tenant: "alpha", entry: Entry{Items: raw(configMap)}, refusal: "list, item 0 (ConfigMap a): it needs a namespace in metadata.namespace"},
		"a wrong one":    {reason: "no request must go elsewhere", tenant: "alpha", entry: Entry{Items: raw(strings.Replace(configMap, `"name":"a"`, `"name":"a","namespace":"b/../c"`, 1))}, refusal: "its namespace "},
		"one too many":   {reason: "the kind has none", tenant: "alpha", entry: Entry{Items: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a","namespace":"b"}}`)}, refusal: "objects of the kind ClusterRole are in no namespace"},
		"no tenant":      {reason: "there is none to name", entry: Entry{Items: raw(here)}, refusal: "variables are not allowed"},
		"a namespace":    {reason: "no namespace is meant", tenant: "alpha", entry: Entry{Items: raw(strings.Replace(here, "of-{{tenant.name}}", "{{namespace}}", 1))}, refusal: "only {{ tenant.name }} can be in double braces"},
		"in labels":      {reason: "nor in labels", tenant: "alpha", entry: Entry{Items: raw(here), Labels: map[string]string{"a": "{{namespace}}"}}, refusal: "only {{ tenant.name }} can be in double braces"},
		"our labels":     {reason: "they mean something", tenant: "alpha", entry: Entry{Items: raw(here), Labels: map[string]string{"tenure.dev/tenant": "b"}}, refusal: "label tenure.dev/tenant is not yours to set"},
		"our kinds":      {reason: "they grant", tenant: "alpha", entry: Entry{Items: raw(`{"apiVersion":"tenure.dev/v1alpha1","kind":"Tenant","metadata":{"name":"a"}}`)}, refusal: "grants permissions"},
		"an unknown one": {reason: "it is not stored", tenant: "alpha", entry: Entry{Items: raw(`{"apiVersion":"v1","kind":"Nothing","metadata":{"name":"a"}}`)}, refusal: "the cluster does not store"},
	} {
		tc.entry.Name, tc.entry.Variables, tc.entry.Capsule = "list", true, true
		objects, refusals := PlanOnce(Input{Tenant: tc.tenant, Entries: []Entry{tc.entry}, Scope: scopes})
		if diff := cmp.Diff(tc.want, named(objects)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
		if got := fmt.Sprint(refusals); (tc.refusal == "") != (len(refusals) == 0) || !strings.Contains(got, tc.refusal) {
			t.Errorf("%s: %s: refused %s, want %q", name, tc.reason, got, tc.refusal)
		}
	}
}

// TestPlanOnceLabels fills in the name of the tenant in labels and annotations.
func TestPlanOnceLabels(t *testing.T) {
	t.Parallel()
	objects, refusals := PlanOnce(Input{Tenant: "alpha", Scope: scopes, Entries: []Entry{{
		Items: raw(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a","labels":{"b":"c"}}}`), Variables: true, Capsule: true,
		Labels: map[string]string{"of": "{{ tenant.name }}"}, Annotations: map[string]string{"for": "{{tenant.name}}"},
	}}})
	if len(objects) != 1 || len(refusals) != 0 {
		t.Fatal(objects, refusals)
	}
	if got := fmt.Sprint(objects[0].Object.GetLabels(), objects[0].Object.GetAnnotations()); got != "map[b:c of:alpha] map[for:alpha]" {
		t.Errorf("got %s", got)
	}
}
