package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mark is a label or an annotation that may exempt an object from a policy, a form of its name if the key is
// [nameMark], or an owner if the key is [ownerMark]. A tenant chooses the labels, the annotations, the names and the
// owners of its own objects.
type mark struct{ key, value string }

const (
	// nameMark is the key of a mark that is a name. An * in the value stands for the name that the object would have.
	nameMark = "metadata.name"
	// ownerMark is the key of a mark that is an owner. The value is its apiVersion and kind, with a space between them.
	ownerMark = "metadata.ownerReferences"
)

func (m mark) String() string {
	if m.key == nameMark {
		return "the name " + m.value
	}
	if m.key == ownerMark {
		return "an owner of the kind " + m.value
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
	if m.key == ownerMark {
		apiVersion, kind, _ := strings.Cut(m.value, " ")
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name("owner"), UID: types.UID(name("owner"))}})
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
	if m.key == ownerMark {
		return len(u.GetOwnerReferences()) > 0
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
	// untried says what the policy may exempt by beside marks; "" for a mark.
	untried string
}

// exemptionsOf returns the exemptions of a policy by marks.
func exemptionsOf(policy string, changes bool, marks []mark) []exemption {
	var all []exemption
	for _, m := range marks {
		all = append(all, exemption{mark: m, policy: policy, changes: changes})
	}
	return all
}

// policies are the policies of the API server with their bindings.
type policies struct {
	policies         admissionv1.ValidatingAdmissionPolicyList
	bindings         admissionv1.ValidatingAdmissionPolicyBindingList
	mutations        admissionv1.MutatingAdmissionPolicyList
	mutationBindings admissionv1.MutatingAdmissionPolicyBindingList
}

// readPolicies reads the policies. A kind that the API server does not serve has no objects.
func readPolicies(ctx context.Context, admin client.Reader) (*policies, error) {
	var read policies
	for _, list := range []client.ObjectList{&read.policies, &read.bindings, &read.mutations, &read.mutationBindings} {
		if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("cannot read the policies: %w", err)
		}
	}
	return &read, nil
}

// exemptingMarks returns the marks in the policies of the fleet: in their object selectors, in the names that they
// exclude, in their expressions about labels, annotations and names, and in Kyverno's exclusions. No mark exempts an
// object from Tenure's own policies.
func exemptingMarks(ctx context.Context, admin client.Reader) ([]exemption, error) {
	read, err := readPolicies(ctx, admin)
	if err != nil {
		return nil, err
	}
	params := map[string][]string{}
	for _, b := range read.bindings.Items {
		for _, p := range read.policies.Items {
			if p.Name == b.Spec.PolicyName {
				if err := paramTexts(ctx, admin, p.Spec.ParamKind, b.Spec.ParamRef, params, policyControl+p.Name); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, b := range read.mutationBindings.Items {
		for _, p := range read.mutations.Items {
			if p.Name == b.Spec.PolicyName {
				if err := paramTexts(ctx, admin, p.Spec.ParamKind, b.Spec.ParamRef, params, policyControl+p.Name); err != nil {
					return nil, err
				}
			}
		}
	}
	var all []exemption
	for _, p := range read.policies.Items {
		if control := policyControl + p.Name; !strings.HasPrefix(p.Name, admission.Prefix) {
			all = append(all, exemptionsOf(control, false, marksOf(p.Spec, params[control]...))...)
			all = append(all, exemptionsByOptions(control, false, p.Spec)...)
		}
	}
	for _, p := range read.mutations.Items {
		if control := policyControl + p.Name; !strings.HasPrefix(p.Name, admission.Prefix) {
			all = append(all, exemptionsOf(control, true, marksOfMutation(p.Spec, params[control]...))...)
			all = append(all, exemptionsByOptions(control, true, p.Spec)...)
		}
	}
	for _, b := range read.bindings.Items {
		all = append(all, exemptionsOf(policyControl+b.Spec.PolicyName, false, marksOfMatch(b.Spec.MatchResources, nil, nil, nil))...)
	}
	for _, b := range read.mutationBindings.Items {
		all = append(all, exemptionsOf(policyControl+b.Spec.PolicyName, true, marksOfMatch(b.Spec.MatchResources, nil, nil, nil))...)
	}
	excluded, err := kyvernoMarks(ctx, admin)
	if err != nil {
		return nil, err
	}
	return append(all, excluded...), nil
}

// aboutOptions matches an expression that looks at the options of a request, such as its field manager.
var aboutOptions = regexp.MustCompile(`\brequest\s*\.\s*\??(?:options|dryRun)\b`)

// exemptionsByOptions returns what a policy may exempt by beside marks: the options of a request, which attacks do not vary.
func exemptionsByOptions(policy string, changes bool, spec any) []exemption {
	text, err := json.Marshal(spec)
	if err != nil || !aboutOptions.Match(text) {
		return nil
	}
	return []exemption{{policy: policy, changes: changes, untried: policy + " refuses it, which looks at the options of a request, such as its field manager, and verify does not try others"}}
}

// paramTexts adds the texts in the parameters of a policy's binding to those of the policy, under the name of its control.
// Parameters of Tenure's own kinds name no objects to exempt.
func paramTexts(ctx context.Context, admin client.Reader, kind *admissionv1.ParamKind, ref *admissionv1.ParamRef, into map[string][]string, policy string) error {
	if kind == nil || ref == nil || strings.HasPrefix(kind.APIVersion, v1alpha1.GroupVersion.Group+"/") {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	if err := admin.List(ctx, list, client.InNamespace(ref.Namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return nil
		}
		return fmt.Errorf("cannot read the parameters of a policy: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return fmt.Errorf("cannot read the parameters of a policy: %w", err)
	}
	for _, param := range list.Items {
		if ref.Name != "" && param.GetName() != ref.Name || ref.Selector != nil && !selector.Matches(labels.Set(param.GetLabels())) {
			continue
		}
		content := maps.Clone(param.Object)
		delete(content, "metadata")
		into[policy] = append(into[policy], textsIn(content)...)
	}
	return nil
}

// textsIn returns the parts of the texts in a value, between spaces, commas, semicolons and lines. Keys of maps are texts.
func textsIn(value any) []string {
	var all []string
	switch value := value.(type) {
	case string:
		return strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" ,;\t\n\"'[]", r) })
	case []any:
		for _, element := range value {
			all = append(all, textsIn(element)...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key != "apiVersion" && key != "kind" {
				all = append(append(all, key), textsIn(value[key])...)
			}
		}
	}
	return all
}

// usedVariable matches a variable in an expression.
var usedVariable = regexp.MustCompile(`\bvariables\s*\.\s*(\w+)`)

// expanding returns a function that adds to an expression the variables that it uses, and the texts of the policy's
// parameters if it reads these.
func expanding(variables []admissionv1.Variable, params []string) func(string) string {
	byName := map[string]string{}
	for _, v := range variables {
		byName[v.Name] = v.Expression
	}
	return func(expression string) string {
		parts, added := []string{expression}, map[string]bool{}
		for i := 0; i < len(parts); i++ {
			for _, m := range usedVariable.FindAllStringSubmatch(parts[i], -1) {
				if !added[m[1]] {
					added[m[1]] = true
					parts = append(parts, byName[m[1]])
				}
			}
		}
		expanded := strings.Join(parts, "\n")
		if strings.Contains(expanded, "params") {
			for _, text := range params {
				expanded += " '" + strings.ReplaceAll(text, `\`, "") + "'"
			}
		}
		return expanded
	}
}

// marksOf returns the marks in a policy's selector and expressions, with the texts of its parameters.
func marksOf(spec admissionv1.ValidatingAdmissionPolicySpec, params ...string) []mark {
	expand := expanding(spec.Variables, params)
	all := marksOfMatch(spec.MatchConstraints, spec.MatchConditions, spec.Variables, expand)
	for _, v := range spec.Validations {
		all = append(all, marksOfExpression(expand(v.Expression))...)
	}
	return all
}

// marksOfMutation is [marksOf] for a policy that changes objects.
func marksOfMutation(spec admissionv1.MutatingAdmissionPolicySpec, params ...string) []mark {
	expand := expanding(spec.Variables, params)
	all := marksOfMatch(spec.MatchConstraints, spec.MatchConditions, spec.Variables, expand)
	for _, m := range spec.Mutations {
		if m.ApplyConfiguration != nil {
			all = append(all, marksOfExpression(expand(m.ApplyConfiguration.Expression))...)
		}
		if m.JSONPatch != nil {
			all = append(all, marksOfExpression(expand(m.JSONPatch.Expression))...)
		}
	}
	return all
}

// marksOfMatch returns the marks in what selects the requests of a policy, and in its variables.
func marksOfMatch(match *admissionv1.MatchResources, conditions []admissionv1.MatchCondition, variables []admissionv1.Variable, expand func(string) string) []mark {
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
		all = append(all, marksOfExpression(expand(c.Expression))...)
	}
	for _, v := range variables {
		all = append(all, marksOfExpression(expand(v.Expression))...)
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
	return slices.Concat(labelsOfExpression(expression), namesOfExpression(expression), ownersOfExpression(expression))
}

var (
	// aboutOwners matches an expression that looks at the owners of an object.
	aboutOwners = regexp.MustCompile(`metadata\s*\.\s*\??ownerReferences`)
	// versionText and kindText match an apiVersion and a kind.
	versionText = regexp.MustCompile(`^(?:[a-z0-9.-]+/)?v\d\w*$`)
	kindText    = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

// ownersOfExpression returns an owner of each kind in an expression that looks at the owners of an object. Without a kind
// there, any owner counts. The garbage collector deletes no object whose owners have a kind that the cluster lacks.
func ownersOfExpression(expression string) []mark {
	if !aboutOwners.MatchString(expression) {
		return nil
	}
	var versions, kinds []string
	for _, m := range literals.FindAllStringSubmatch(expression, -1) {
		switch text := m[1] + m[2]; {
		case versionText.MatchString(text):
			versions = append(versions, text)
		case kindText.MatchString(text):
			kinds = append(kinds, text)
		}
	}
	if len(versions) == 0 {
		versions = []string{"example.com/v1"}
	}
	if len(kinds) == 0 {
		kinds = []string{"Owner"}
	}
	var all []mark
	for _, version := range versions {
		for _, kind := range kinds {
			all = append(all, mark{ownerMark, version + " " + kind})
		}
	}
	return all
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
				marks = append(marks, marksAgainstFilters(fields["match"])...)
				marks = append(marks, marksOfConditions(rule)...)
			}
			control := kyvernoPolicy + policy.GetName()
			all = append(all, exemptionsOf(control, true, marks)...)
			all = append(all, exemptionsByOptions(control, true, policy.Object["spec"])...)
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
		all = append(all, exemptionsOf("", true, append(marks, marksOfConditions(conditions)...))...)
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
			all = append(all, exemptionsByOptions(control, true, fields)...)
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
		for _, r := range selectorOf(of).MatchExpressions {
			switch r.Operator {
			case metav1.LabelSelectorOpExists:
				all = append(all, mark{r.Key, "true"})
			case metav1.LabelSelectorOpIn:
				for _, value := range r.Values {
					all = append(all, mark{r.Key, value})
				}
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

// selectorOf returns the selector of the objects of a filter of Kyverno, which may be empty.
func selectorOf(filter map[string]any) metav1.LabelSelector {
	var selector metav1.LabelSelector
	fields, _, _ := unstructured.NestedMap(filter, "resources", "selector")
	// A field that is not as in the API server's selectors ends the conversion; the fields before it count.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &selector)
	return selector
}

// marksAgainstFilters returns the marks with which filters of Kyverno no longer select an object without labels.
func marksAgainstFilters(filters any) []mark {
	var all []mark
	for _, of := range filtersOf(filters) {
		selector := selectorOf(of)
		all = append(all, marksOfSelector(&selector)...)
	}
	return all
}

// marksOfConditions returns the marks in the conditions and in the expressions of a rule of Kyverno, wherever they are in
// it: each key of a label in a variable with each value in the condition, and the forms of names.
func marksOfConditions(rule any) []mark {
	var all []mark
	switch rule := rule.(type) {
	case []any:
		for _, element := range rule {
			all = append(all, marksOfConditions(element)...)
		}
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(rule)) {
			all = append(all, marksOfConditions(rule[field])...)
		}
		if expression, ok := rule["expression"].(string); ok {
			all = append(all, marksOfExpression(expression)...)
		}
		key, isText := rule["key"].(string)
		if !isText || rule["operator"] == nil {
			break
		}
		values, isList := rule["value"].([]any)
		if !isList {
			values = []any{rule["value"]}
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
