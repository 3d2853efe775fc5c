package tenancy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSelectedMetadata gives each namespace what its labels select.
func TestSelectedMetadata(t *testing.T) {
	t.Parallel()
	prod := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{
		Labels: map[string]string{"team": "dev"},
		Selected: []v1alpha1.SelectedMetadata{
			{Selector: prod, Labels: map[string]string{"team": "late", "tier": "gold", "pod-security.kubernetes.io/enforce": "restricted"}, Annotations: map[string]string{"a": "first"}},
			{Labels: map[string]string{"of": "{{ tenant.name }}-{{namespace}}"}, Annotations: map[string]string{"a": "second", "tenure.dev/x": "y"}},
			{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}, Labels: map[string]string{"wrong": "selector"}},
		},
	}}}
	for _, tc := range []struct {
		reason              string
		have                map[string]string
		labels, annotations map[string]string
	}{
		{"selected", map[string]string{"env": "prod"},
			map[string]string{"team": "dev", "tier": "gold", "of": "dev-web", "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}, map[string]string{"a": "first"}},
		{"not selected", nil,
			map[string]string{"team": "dev", "of": "dev-web", "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "latest"}, map[string]string{"a": "second"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			labels, annotations := tenancy.NamespaceMetadata(tenant, "web", tc.have)
			if diff := cmp.Diff(tc.labels, labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.annotations, annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
	_, _, err := tenancy.Metadata(tenant)
	for _, want := range []string{"selector of spec.namespaces.selected[2]", "annotation tenure.dev/x of spec.namespaces.selected[1]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the Tenant's problems are %v, without %s", err, want)
		}
	}
}

// TestUnsetSelected names labels that are wrong in some namespaces only, and not the ones that an earlier entry sets.
func TestUnsetSelected(t *testing.T) {
	t.Parallel()
	tenant := func(labels map[string]string, selected ...v1alpha1.SelectedMetadata) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Labels: labels, Selected: selected}}}
	}
	of := v1alpha1.SelectedMetadata{Labels: map[string]string{"of": "team-{{ namespace }}"}}
	prod := v1alpha1.SelectedMetadata{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}, Labels: of.Labels}
	short, long := "web", strings.Repeat("w", 60)
	for _, tc := range []struct {
		reason    string
		tenant    *v1alpha1.Tenant
		namespace string
		want      string
	}{
		{"no Tenant", nil, long, ""},
		{"a name that fits", tenant(nil, of), short, ""},
		{"a name that is too long with the rest of the value", tenant(nil, of), long, "label of of spec.namespaces.selected[0] cannot be team-" + long + ": must be no more than 63"},
		{"an entry that does not select the namespace", tenant(nil, prod), long, ""},
		{"the labels of all namespaces win", tenant(map[string]string{"of": "x"}, of), long, ""},
		{"an earlier entry wins", tenant(nil, v1alpha1.SelectedMetadata{Labels: map[string]string{"of": "x"}}, of), long, ""},
		{"a value that no namespace can have is a problem of the Tenant", tenant(nil, v1alpha1.SelectedMetadata{Labels: map[string]string{"of": "a b"}}), long, ""},
	} {
		got := ""
		if err := tenancy.UnsetSelected(tc.tenant, tc.namespace, nil); err != nil {
			got = err.Error()
		}
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
		}
	}
}

// TestBindingDescription names the labels and annotations that no RoleBinding can have.
func TestBindingDescription(t *testing.T) {
	t.Parallel()
	tenant := &v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{RoleBindings: []v1alpha1.TenantRoleBinding{
		{Labels: map[string]string{"team": "dev", "example.com/x": ""}, Annotations: map[string]string{"note": "ü", "Example.com/X": "y"}},
		{Labels: map[string]string{"a b": "c", "ok": "not ok", "kustomize.toolkit.fluxcd.io/name": "x"}, Annotations: map[string]string{"x y": "z"}},
	}}}
	_, _, err := tenancy.Metadata(tenant)
	if err == nil {
		t.Fatal("the labels are in order")
	}
	for _, want := range []string{"label a b of spec.roleBindings[1].labels", "label ok of spec.roleBindings[1].labels", "label kustomize.toolkit.fluxcd.io/name of", "annotation x y of spec.roleBindings[1].annotations"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the problems are without %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "spec.roleBindings[0]") {
		t.Errorf("labels that a RoleBinding can have are refused: %v", err)
	}
}
