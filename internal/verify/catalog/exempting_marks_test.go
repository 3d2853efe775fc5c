package catalog

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

func TestNamesOfExpression(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string][]mark{
		`!object.metadata.name.startsWith('bootstrap-')`:         {{nameMark, "bootstrap-*"}},
		`!request.name.endsWith("-legacy")`:                      {{nameMark, "*-legacy"}},
		`object.metadata.name in ['remote', 'Not A Name']`:       {{nameMark, "remote"}},
		`!object.metadata.name.matches('^infra-.*$')`:            {{nameMark, "infra-x"}},
		`object.spec.name.startsWith('bootstrap-')`:              nil,
		`object.metadata.namespace == 'team'`:                    nil,
		`namespaceObject.metadata.name.startsWith('bootstrap-')`: nil,
	} {
		if diff := cmp.Diff(want, namesOfExpression(expression), cmp.AllowUnexported(mark{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
	if got := (mark{nameMark, "bootstrap-*"}).on(configMap("team", "x")).GetName(); got != "bootstrap-x" {
		t.Errorf("got the name %s", got)
	}
}

// A policy that changes objects leaves out those that its selectors and expressions exempt, as one that refuses them does.
func TestExemptingMarks(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{}, &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "account"},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}}},
			Mutations:        []admissionv1.Mutation{{ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: "has(object.metadata.labels.free) ? Object{} : Object{}"}}},
		},
	}, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "account"},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "account", MatchResources: &admissionv1.MatchResources{
			ExcludeResourceRules: []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{"infra"}}},
		}},
	})
	got, err := exemptingMarks(t.Context(), e.Admin)
	if diff := cmp.Diff(exemptionsOf("policy account", true, []mark{{"skip", "true"}, {"free", "true"}, {nameMark, "infra"}}), got, cmp.AllowUnexported(mark{}, exemption{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestKyvernoMarks(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	for _, text := range []string{`
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: accounts}
spec:
  rules:
    - exclude: {resources: {selector: {matchLabels: {olden: "yes"}}}}
    - exclude: {any: [{resources: {names: ["bootstrap-*"]}}, {resources: {annotations: {free: "*"}}}]}
    - preconditions: {all: [{key: '{{ request.object.metadata.labels."example.com/skip" || ''''}}', operator: NotEquals, value: "true"}]}
`, `
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: legacy, namespace: platform}
spec: {exceptions: [{policyName: accounts}], match: {any: [{resources: {names: ["legacy-*"]}}]}}
`, `
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: expressed}
spec: {matchConditions: [{name: free, expression: "!has(object.metadata.labels.free)"}]}
`, `
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {name: old, namespace: platform}
spec: {policyRefs: [{name: expressed, kind: ValidatingPolicy}], matchConditions: [{name: old, expression: "object.metadata.name.startsWith('old-')"}]}
`} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, u)
	}
	e := newFakeEnv(interceptor.Funcs{}, objects...)
	got, err := kyvernoMarks(t.Context(), e.Admin)
	want := slices.Concat(
		exemptionsOf("Kyverno policy accounts", true, []mark{{"olden", "yes"}, {nameMark, "bootstrap-*"}, {"free", "x"}, {"example.com/skip", "true"}}),
		exemptionsOf("", true, []mark{{nameMark, "legacy-*"}}),
		exemptionsOf("Kyverno policy expressed", true, []mark{{"free", "true"}}),
		exemptionsOf("", true, []mark{{nameMark, "old-*"}}),
	)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mark{}, exemption{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
