package capsule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNamespaceMetadata translates what Capsule says about labels and annotations of namespaces.
func TestNamespaceMetadata(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, options string
		want            v1alpha1.TenantNamespaces
	}{
		{"a selector, and what it may raise", `{additionalMetadataList: [{namespaceSelector: {matchLabels: {env: prod}}, labels: {tier: "{{tenant.name}}", pod-security.kubernetes.io/enforce: restricted}, annotations: {a: b}}]}`,
			v1alpha1.TenantNamespaces{Selected: []v1alpha1.SelectedMetadata{{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
				Labels:   map[string]string{"tier": "oil", "pod-security.kubernetes.io/enforce": "restricted"}, Annotations: map[string]string{"a": "b"},
			}}}},
		{"the level that all have", `{additionalMetadataList: [{namespaceSelector: {}, labels: {pod-security.kubernetes.io/enforce: baseline}}]}`, v1alpha1.TenantNamespaces{}},
		{"values that depend on the namespace", `{additionalMetadata: {labels: {a: "{{namespace}}"}}, additionalMetadataList: [{annotations: {b: "of {{  namespace }} in {{ tenant.name }}"}}]}`,
			v1alpha1.TenantNamespaces{Selected: []v1alpha1.SelectedMetadata{
				{Labels: map[string]string{"a": "{{ namespace }}"}},
				{Annotations: map[string]string{"b": "of {{ namespace }} in oil"}},
			}}},
		{"managed metadata only", `{managedMetadataOnly: true, forbiddenLabels: {denied: [a]}}`,
			v1alpha1.TenantNamespaces{Forbidden: v1alpha1.ForbiddenMetadata{Labels: []v1alpha1.ValuePattern{"*"}, Annotations: []v1alpha1.ValuePattern{"*"}}}},
		{"required values of any expression", `{requiredMetadata: {labels: {env: "^(prod|test)$", one: ^a-.*$}, annotations: {cost: "^INV-[0-9]{4}$", line: "^a.*b$", word: ^c$}}}`,
			v1alpha1.TenantNamespaces{Required: v1alpha1.RequiredMetadata{
				Labels:           map[string]v1alpha1.ValuePattern{"one": "a-*"},
				LabelExpressions: map[string]v1alpha1.Expression{"env": "^(prod|test)$"},
				Annotations:      map[string]v1alpha1.ValuePattern{"word": "c"},
				// A pattern would allow line breaks between a and b.
				AnnotationExpressions: map[string]v1alpha1.Expression{"cost": "^INV-[0-9]{4}$", "line": "^a.*b$"},
			}}},
		{"forbidden names of any expression", `{forbiddenLabels: {denied: [a], deniedRegex: "^b[0-9]+$"}, forbiddenAnnotations: {deniedRegex: "^gatsby-.*$|^managed[.]example/"}}`,
			v1alpha1.TenantNamespaces{Forbidden: v1alpha1.ForbiddenMetadata{
				Labels: []v1alpha1.ValuePattern{"a"}, LabelExpression: "^b[0-9]+$", Annotations: []v1alpha1.ValuePattern{"gatsby-*", "managed.example/*"},
			}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			got := Translate(Input{Tenant: parse(t, "spec: {namespaceOptions: "+tc.options+"}")})
			if len(got.Refusals()) > 0 {
				t.Errorf("refused: %v", got.Refusals())
			}
			want := oil(v1alpha1.TenantSpec{Namespaces: tc.want}).Namespaces
			if diff := cmp.Diff(want, got.Spec.Namespaces); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamespaceMetadataRefused refuses what no namespace can have, and keeps whose it is.
func TestNamespaceMetadataRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, options, field, message string
		state                           State
	}{
		{"the platform's label", `{additionalMetadataList: [{namespaceSelector: {}, labels: {tenure.dev/tenant: gas}}]}`, "additionalMetadataList[0].labels[tenure.dev/tenant]", "assigns the namespace", Refused},
		{"a lower level for some", `{additionalMetadataList: [{namespaceSelector: {}, labels: {pod-security.kubernetes.io/enforce: privileged}}]}`, "additionalMetadataList[0].labels[pod-security.kubernetes.io/enforce]", "keep the Pod Security level baseline", Reported},
		{"a lower level than all others'", `{additionalMetadataList: [{namespaceSelector: {}, labels: {pod-security.kubernetes.io/enforce: baseline}}, {labels: {pod-security.kubernetes.io/enforce: restricted}}]}`, "additionalMetadataList[0].labels[pod-security.kubernetes.io/enforce]", "keep the Pod Security level restricted", Reported},
		{"a level that cannot be raised to", `{additionalMetadata: {labels: {pod-security.kubernetes.io/enforce: privileged}}, additionalMetadataList: [{namespaceSelector: {}, labels: {pod-security.kubernetes.io/enforce: baseline}}]}`, "additionalMetadataList[0].labels[pod-security.kubernetes.io/enforce]", "raised to restricted only", Refused},
		{"no level", `{additionalMetadataList: [{namespaceSelector: {}, labels: {pod-security.kubernetes.io/enforce: high}}]}`, "additionalMetadataList[0].labels[pod-security.kubernetes.io/enforce]", "not a level", Refused},
		{"another template", `{additionalMetadataList: [{namespaceSelector: {}, annotations: {a: "{{ x }}"}}]}`, "additionalMetadataList[0].annotations[a]", "of templates only", Refused},
		{"no selector", `{additionalMetadataList: [{namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}, labels: {a: b}}]}`, "additionalMetadataList[0].namespaceSelector", "Is", Refused},
		{"a long expression", `{forbiddenLabels: {deniedRegex: "[a-z]+` + strings.Repeat("x", 256) + `"}}`, "forbiddenLabels.deniedRegex", "longer than 256", Unenforced},
		{"another tenant", `{additionalMetadata: {labels: {capsule.clastix.io/tenant: gas}}}`, "additionalMetadata.labels[capsule.clastix.io/tenant]", "keeps its value", Reported},
		{"another namespace", `{additionalMetadataList: [{namespaceSelector: {}, labels: {kubernetes.io/metadata.name: x}}]}`, "additionalMetadataList[0].labels[kubernetes.io/metadata.name]", "keeps its value", Reported},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			got := Translate(Input{Tenant: parse(t, "spec: {namespaceOptions: "+tc.options+"}")})
			if len(got.Notes) != 1 || got.Notes[0].State != tc.state || got.Notes[0].Field != "spec.namespaceOptions."+tc.field || !strings.Contains(got.Notes[0].Message, tc.message) {
				t.Errorf("got %v, want %s of %s with %q", got.Notes, tc.state, tc.field, tc.message)
			}
		})
	}
}
