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
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tiers"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			ParamKind:   &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			Validations: []admissionv1.Validation{{Expression: "has(request.options.fieldManager) || object.metadata.labels.tier in params.data.tiers"}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "tiers"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "tiers", ParamRef: &admissionv1.ParamRef{Name: "tiers", Namespace: "platform"},
		}},
		object("v1", "ConfigMap", "platform", "tiers", map[string]any{"data": map[string]any{"tiers": "1,gold-plated"}}),
		object("v1", "ConfigMap", "platform", "others", map[string]any{"data": map[string]any{"tiers": "silver"}}),
	} {
		if err := e.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	tiers, err := exemptingMarks(t.Context(), e.Admin)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.DeleteFunc(slices.Clone(tiers), func(x exemption) bool { return x.policy == "policy tiers" })
	tiers = slices.DeleteFunc(tiers, func(x exemption) bool { return x.policy != "policy tiers" })
	has := func(m mark) bool {
		return slices.ContainsFunc(tiers, func(x exemption) bool { return x.mark == m && x.untried == "" })
	}
	if !has(mark{"tier", "gold-plated"}) || has(mark{"tier", "silver"}) || !slices.ContainsFunc(tiers, func(x exemption) bool { return x.untried != "" }) {
		t.Errorf("got %v of the policy with a parameter", tiers)
	}
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
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: further}
spec:
  rules:
    - match: {any: [{resources: {selector: {matchLabels: {needs: it}, matchExpressions: [{key: skip, operator: DoesNotExist}]}}}]}
    - exclude: {any: [{resources: {selector: {matchExpressions: [{key: any, operator: Exists}, {key: tier, operator: In, values: [old]}]}}}]}
    - validate: {deny: {conditions: {all: [{key: "{{ request.object.metadata.labels.denied }}", operator: NotEquals, value: "no"}]}}}
    - validate: {cel: {expressions: [{expression: "has(object.metadata.labels.expressed)"}]}}
    - validate: {foreach: [{deny: {conditions: {any: [{key: "{{ request.dryRun }}", operator: Equals, value: true}]}}}]}
`, `
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: legacy, namespace: platform}
spec: {exceptions: [{policyName: accounts}], match: {any: [{resources: {names: ["legacy-*"], selector: {matchExpressions: [{key: legacy, operator: Exists}]}}}]}}
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
		exemptionsOf("Kyverno policy further", true, []mark{{"skip", "true"}, {"any", "true"}, {"tier", "old"}, {"denied", "no"}, {"expressed", "true"}}),
		[]exemption{{policy: "Kyverno policy further", changes: true, untried: "Kyverno policy further refuses it, which looks at the options of a request, such as its field manager, and verify does not try others"}},
		exemptionsOf("", true, []mark{{"legacy", "true"}, {nameMark, "legacy-*"}}),
		exemptionsOf("Kyverno policy expressed", true, []mark{{"free", "true"}}),
		exemptionsOf("", true, []mark{{nameMark, "old-*"}}),
	)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mark{}, exemption{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
