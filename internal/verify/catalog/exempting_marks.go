package catalog

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mark is a label or an annotation that may exempt an object from a policy, or a form of its name if the key is
// [nameMark]. A tenant chooses the labels, the annotations and the names of its own objects.
type mark struct{ key, value string }

// nameMark is the key of a mark that is a name. An * in the value stands for the name that the object would have.
const nameMark = "metadata.name"

func (m mark) String() string {
	if m.key == nameMark {
		return "the name " + m.value
	}
	return "the label or annotation " + m.key + "=" + m.value
}

// on returns an object with the mark.
func (m mark) on(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	if m.key == nameMark {
		u.SetName(strings.Replace(m.value, "*", u.GetName(), 1))
		return u
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[m.key] = m.value
	u.SetAnnotations(annotations)
	if len(validation.IsValidLabelValue(m.value)) == 0 {
		all := u.GetLabels()
		if all == nil {
			all = map[string]string{}
		}
		all[m.key] = m.value
		u.SetLabels(all)
	}
	return u
}

// clashesWith reports whether a mark would replace what an object needs for its attack: a label or an annotation that
// the object has, or a name that the attack did not choose freely.
func (m mark) clashesWith(u *unstructured.Unstructured) bool {
	if m.key == nameMark {
		return !strings.Contains(u.GetName(), name(""))
	}
	label, labelled := u.GetLabels()[m.key]
	annotation, annotated := u.GetAnnotations()[m.key]
	return labelled && label != m.value || annotated && annotation != m.value
}

// exemption is a mark in a policy.
type exemption struct {
	mark
	// policy is the name of the policy as a control; "" for a mark that may exempt from any.
	policy string
	// changes is set if the policy may change objects.
	changes bool
}

// exemptionsOf returns the exemptions of a policy by marks.
func exemptionsOf(policy string, changes bool, marks []mark) []exemption {
	var all []exemption
	for _, m := range marks {
		all = append(all, exemption{m, policy, changes})
	}
	return all
}

// exemptingMarks returns the marks in the policies of the fleet: in their object selectors, in the names that they
// exclude, in their expressions about labels, annotations and names, and in Kyverno's exclusions. No mark exempts an
// object from Tenure's own policies.
func exemptingMarks(ctx context.Context, admin client.Reader) ([]exemption, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	var mutations admissionv1.MutatingAdmissionPolicyList
	var mutationBindings admissionv1.MutatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings, &mutations, &mutationBindings} {
		if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("cannot read the policies: %w", err)
		}
	}
	var all []exemption
	for _, p := range policies.Items {
		if !strings.HasPrefix(p.Name, admission.Prefix) {
			all = append(all, exemptionsOf(policyControl+p.Name, false, marksOf(p.Spec))...)
		}
	}
	for _, p := range mutations.Items {
		if !strings.HasPrefix(p.Name, admission.Prefix) {
			all = append(all, exemptionsOf(policyControl+p.Name, true, marksOfMutation(p.Spec))...)
		}
	}
	for _, b := range bindings.Items {
		all = append(all, exemptionsOf(policyControl+b.Spec.PolicyName, false, marksOfMatch(b.Spec.MatchResources, nil, nil))...)
	}
	for _, b := range mutationBindings.Items {
		all = append(all, exemptionsOf(policyControl+b.Spec.PolicyName, true, marksOfMatch(b.Spec.MatchResources, nil, nil))...)
	}
	excluded, err := kyvernoMarks(ctx, admin)
	if err != nil {
		return nil, err
	}
	return append(all, excluded...), nil
}

// marksOf returns the marks in a policy's selector and expressions.
func marksOf(spec admissionv1.ValidatingAdmissionPolicySpec) []mark {
	all := marksOfMatch(spec.MatchConstraints, spec.MatchConditions, spec.Variables)
	for _, v := range spec.Validations {
		all = append(all, marksOfExpression(v.Expression)...)
	}
	return all
}

// marksOfMutation is [marksOf] for a policy that changes objects.
func marksOfMutation(spec admissionv1.MutatingAdmissionPolicySpec) []mark {
	all := marksOfMatch(spec.MatchConstraints, spec.MatchConditions, spec.Variables)
	for _, m := range spec.Mutations {
		if m.ApplyConfiguration != nil {
			all = append(all, marksOfExpression(m.ApplyConfiguration.Expression)...)
		}
		if m.JSONPatch != nil {
			all = append(all, marksOfExpression(m.JSONPatch.Expression)...)
		}
	}
	return all
}

// marksOfMatch returns the marks in what selects the requests of a policy, and in its variables.
func marksOfMatch(match *admissionv1.MatchResources, conditions []admissionv1.MatchCondition, variables []admissionv1.Variable) []mark {
	var all []mark
	if match != nil {
		all = marksOfSelector(match.ObjectSelector)
		for _, r := range match.ExcludeResourceRules {
			for _, name := range r.ResourceNames {
				all = append(all, named(name)...)
			}
		}
	}
	for _, c := range conditions {
		all = append(all, marksOfExpression(c.Expression)...)
	}
	for _, v := range variables {
		all = append(all, marksOfExpression(v.Expression)...)
	}
	return all
}

// marksOfSelector returns the marks with which a selector no longer selects an object without labels.
func marksOfSelector(selector *metav1.LabelSelector) []mark {
	if selector == nil {
		return nil
	}
	var all []mark
	for _, r := range selector.MatchExpressions {
		switch r.Operator {
		case metav1.LabelSelectorOpDoesNotExist:
			all = append(all, mark{r.Key, "true"})
		case metav1.LabelSelectorOpNotIn:
			for _, value := range r.Values {
				all = append(all, mark{r.Key, value})
			}
		}
	}
	return all
}

var (
	// aboutMarks matches an expression that looks at labels or annotations of an object.
	aboutMarks = regexp.MustCompile(`metadata\s*\.\s*\??(?:labels|annotations)`)
	// aboutNames matches an expression that looks at the beginning or the end of an object's name, or at whether the
	// name is in a list.
	aboutNames = regexp.MustCompile(`(?:\bobject\s*\.\s*metadata|\brequest)\s*\.\s*\??name\b\s*(?:\.\s*(startsWith|endsWith|contains|matches)\s*\(|==|!=|\bin\b)`)
	// anyCharacters matches the parts of a regular expression that stand for several characters.
	anyCharacters = regexp.MustCompile(`\.[*+?]|\[[^\]]*\][*+?]?`)
	// literals are the strings of an expression.
	literals = regexp.MustCompile(`'([^'\\]*)'|"([^"\\]*)"`)
	// dottedMark is a key in the form of a field.
	dottedMark = regexp.MustCompile(`(?:labels|annotations)\s*\.\s*\??([A-Za-z_]\w*)`)
)

// namesOfExpression returns the forms of names in an expression.
func namesOfExpression(expression string) []mark {
	var all []mark
	for _, how := range aboutNames.FindAllStringSubmatch(expression, -1) {
		for _, m := range literals.FindAllStringSubmatch(expression, -1) {
			form := m[1] + m[2]
			switch how[1] {
			case "startsWith":
				form += "*"
			case "endsWith":
				form = "*" + form
			case "contains":
				form = "x" + form + "*"
			case "matches":
				form = anyCharacters.ReplaceAllString(strings.TrimSuffix(strings.TrimPrefix(form, "^"), "$"), "x")
				if !strings.HasSuffix(m[1]+m[2], "$") {
					form += "*"
				}
			}
			all = append(all, named(form)...)
		}
	}
	return all
}

// named returns the mark with a form of names, or none if it is the form of no name.
func named(form string) []mark {
	if strings.Count(form, "*") > 1 || form == "*" || len(validation.IsDNS1123Subdomain(strings.Replace(form, "*", "x", 1))) > 0 {
		return nil
	}
	return []mark{{nameMark, form}}
}

// marksOfExpression returns each key in an expression, with each of the expression's other strings and with
// true as its value, and the forms of names in it.
func marksOfExpression(expression string) []mark {
	return append(labelsOfExpression(expression), namesOfExpression(expression)...)
}

func labelsOfExpression(expression string) []mark {
	if !aboutMarks.MatchString(expression) {
		return nil
	}
	var words, keys []string
	for _, m := range literals.FindAllStringSubmatch(expression, -1) {
		words = append(words, m[1]+m[2])
	}
	for _, m := range dottedMark.FindAllStringSubmatch(expression, -1) {
		keys = append(keys, m[1])
	}
	for _, w := range words {
		if len(validation.IsQualifiedName(w)) == 0 {
			keys = append(keys, w)
		}
	}
	var all []mark
	for _, key := range keys {
		for _, value := range append(slices.Clone(words), "true") {
			if value != key {
				all = append(all, mark{key, value})
			}
		}
	}
	return all
}

// kyvernoPolicies are the kinds of Kyverno's policies with rules.
var kyvernoPolicies = []schema.GroupVersionKind{
	{Group: "kyverno.io", Version: "v1", Kind: "ClusterPolicy"}, {Group: "kyverno.io", Version: "v1", Kind: "Policy"},
}

// kyvernoMarks returns the marks of the exclusions and preconditions of Kyverno's policies, and of the exceptions from
// these policies.
func kyvernoMarks(ctx context.Context, admin client.Reader) ([]exemption, error) {
	var all []exemption
	for _, kind := range kyvernoPolicies {
		policies, err := listOfKyverno(ctx, admin, kind)
		if err != nil {
			return nil, err
		}
		for _, policy := range policies {
			var marks []mark
			rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "rules")
			for _, rule := range rules {
				fields, _ := rule.(map[string]any)
				marks = append(marks, marksOfFilters(fields["exclude"])...)
				marks = append(marks, marksOfPreconditions(fields["preconditions"])...)
			}
			all = append(all, exemptionsOf(kyvernoPolicy+policy.GetName(), true, marks)...)
		}
	}
	exceptions, err := listOfKyverno(ctx, admin, schema.GroupVersionKind{Group: "kyverno.io", Version: "v2", Kind: "PolicyException"})
	if err != nil {
		return nil, err
	}
	for _, exception := range exceptions {
		match, _, _ := unstructured.NestedMap(exception.Object, "spec", "match")
		marks := marksOfFilters(match)
		conditions, _, _ := unstructured.NestedFieldNoCopy(exception.Object, "spec", "conditions")
		all = append(all, exemptionsOf("", true, append(marks, marksOfPreconditions(conditions)...))...)
	}
	expressed, err := kyvernoExpressions(ctx, admin)
	return append(all, expressed...), err
}

// kyvernoExpressions returns the marks in Kyverno's policies with expressions, which have the fields of the API server's
// own policies, and in the exceptions from them.
func kyvernoExpressions(ctx context.Context, admin client.Reader) ([]exemption, error) {
	var all []exemption
	for _, kind := range []string{"ValidatingPolicy", "MutatingPolicy", "NamespacedValidatingPolicy", "NamespacedMutatingPolicy", "PolicyException"} {
		policies, err := listOfKyverno(ctx, admin, schema.GroupVersionKind{Group: "policies.kyverno.io", Version: "v1", Kind: kind})
		if err != nil {
			return nil, err
		}
		for _, policy := range policies {
			fields, _, _ := unstructured.NestedMap(policy.Object, "spec")
			var validating admissionv1.ValidatingAdmissionPolicySpec
			var mutating admissionv1.MutatingAdmissionPolicySpec
			// A field that is not as in the API server's kinds ends the conversion; the fields before it count.
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &validating)
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &mutating)
			mutating.MatchConstraints, mutating.MatchConditions, mutating.Variables = nil, nil, nil
			control := kyvernoPolicy + policy.GetName()
			if kind == "PolicyException" {
				control = ""
			}
			all = append(all, exemptionsOf(control, true, append(marksOf(validating), marksOfMutation(mutating)...))...)
		}
	}
	return all, nil
}

// listOfKyverno returns the objects of a kind of Kyverno, and none if the cluster lacks the kind.
func listOfKyverno(ctx context.Context, admin client.Reader, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cannot read the policies of Kyverno: %w", err)
	}
	return list.Items, nil
}

// filtersOf returns the filters of a rule of Kyverno, which may be nil: lists of filters in the fields any and all, or one
// filter as in its older policies.
func filtersOf(filters any) []map[string]any {
	of, _ := filters.(map[string]any)
	every := []map[string]any{of}
	for _, how := range []string{"any", "all"} {
		list, _, _ := unstructured.NestedSlice(of, how)
		for _, filter := range list {
			if fields, ok := filter.(map[string]any); ok {
				every = append(every, fields)
			}
		}
	}
	return every
}

// marksOfFilters returns the marks of the objects that filters of Kyverno select.
func marksOfFilters(filters any) []mark {
	var all []mark
	for _, of := range filtersOf(filters) {
		for _, at := range [][]string{{"resources", "selector", "matchLabels"}, {"resources", "annotations"}} {
			values, _, _ := unstructured.NestedStringMap(of, at...)
			for _, key := range slices.Sorted(maps.Keys(values)) {
				all = append(all, mark{key, strings.ReplaceAll(values[key], "*", "x")})
			}
		}
		names, _, _ := unstructured.NestedStringSlice(of, "resources", "names")
		if name, found, _ := unstructured.NestedString(of, "resources", "name"); found {
			names = append(names, name)
		}
		for _, name := range names {
			all = append(all, named(strings.ReplaceAll(name, "?", "x"))...)
		}
	}
	return all
}

var (
	// labelInVariable matches the key of a label or an annotation in a variable of Kyverno, which may be quoted.
	labelInVariable = regexp.MustCompile(`(?:labels|annotations)\s*\.\s*(?:\\?"([^"\\]+)\\?"|([A-Za-z_]\w*))`)
	// nameInVariable matches the name of the object in a variable of Kyverno.
	nameInVariable = regexp.MustCompile(`request\.(?:object\.metadata\.)?name\b`)
)

// marksOfPreconditions returns the marks in the conditions of a rule of Kyverno: each key of a label in a variable with
// each value in the condition, and the forms of names.
func marksOfPreconditions(conditions any) []mark {
	var all []mark
	switch conditions := conditions.(type) {
	case []any:
		for _, condition := range conditions {
			all = append(all, marksOfPreconditions(condition)...)
		}
	case map[string]any:
		for _, how := range []string{"any", "all"} {
			all = append(all, marksOfPreconditions(conditions[how])...)
		}
		key, _ := conditions["key"].(string)
		values, isList := conditions["value"].([]any)
		if !isList {
			values = []any{conditions["value"]}
		}
		for _, value := range values {
			text := fmt.Sprint(value)
			for _, m := range labelInVariable.FindAllStringSubmatch(key, -1) {
				all = append(all, mark{m[1] + m[2], strings.ReplaceAll(text, "*", "x")})
			}
			if nameInVariable.MatchString(key) {
				all = append(all, named(strings.ReplaceAll(text, "?", "x"))...)
			}
		}
	}
	return all
}
