package discovery

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// admission is a policy with its binding, or a webhook, and the namespaces to which it
// applies.
type admission struct {
	name string
	// selectors must all match the labels of a namespace.
	selectors []*metav1.LabelSelector
	// spec is searched for the names of tenants. words are its words, and parts the words by which it may decide about
	// parts of names: it is searched once for each namespace, and a fleet has many.
	spec         any
	words, parts []string
	// users are the texts by which it may decide about the caller of a request, sorted.
	users []string
	// patterns are the users as regular expressions; nil for a text that is none.
	patterns []*regexp.Regexp
	// namespace is the only namespace to which it applies; "" for all.
	namespace string
	// params are the parameters in the namespaces; nil if the binding reads no parameters
	// there.
	params []unstructured.Unstructured
}

// readMutations reads the MutatingAdmissionPolicies that have a binding: what sets the account of a
// tenant's objects is a control, too.
func (b *bounds) readMutations(ctx context.Context, c client.Reader) error {
	var policies admissionv1.MutatingAdmissionPolicyList
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		if err := b.list(ctx, c, list); err != nil {
			return err
		}
	}
	for _, binding := range bindings.Items {
		i := slices.IndexFunc(policies.Items, func(p admissionv1.MutatingAdmissionPolicy) bool { return p.Name == binding.Spec.PolicyName })
		if i < 0 {
			continue
		}
		policy := policies.Items[i].Spec
		a := admission{name: "mutation binding " + binding.Name, spec: []any{policy, binding.Spec}}
		for _, match := range []*admissionv1.MatchResources{binding.Spec.MatchResources, policy.MatchConstraints} {
			if match != nil {
				a.selectors = append(a.selectors, match.NamespaceSelector)
			}
		}
		if err := b.addParams(ctx, c, &a, policy.ParamKind, binding.Spec.ParamRef); err != nil {
			return err
		}
		b.admission = append(b.admission, a)
	}
	return nil
}

// readAdmission reads the policies that have a binding, and the webhooks.
func (b *bounds) readAdmission(ctx context.Context, c client.Reader) error {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	var webhooks admissionv1.ValidatingWebhookConfigurationList
	var mutating admissionv1.MutatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&policies, &bindings, &webhooks, &mutating} {
		if err := b.list(ctx, c, list); err != nil {
			return err
		}
	}
	for _, binding := range bindings.Items {
		i := slices.IndexFunc(policies.Items, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == binding.Spec.PolicyName })
		if i < 0 {
			continue
		}
		policy := policies.Items[i].Spec
		a := admission{name: "policy binding " + binding.Name, spec: []any{policy, binding.Spec}}
		if binding.Spec.MatchResources != nil {
			a.selectors = append(a.selectors, binding.Spec.MatchResources.NamespaceSelector)
		}
		if policy.MatchConstraints != nil {
			a.selectors = append(a.selectors, policy.MatchConstraints.NamespaceSelector)
		}
		if err := b.addParams(ctx, c, &a, policy.ParamKind, binding.Spec.ParamRef); err != nil {
			return err
		}
		b.admission = append(b.admission, a)
	}
	if err := b.readMutations(ctx, c); err != nil {
		return err
	}
	for _, configuration := range webhooks.Items {
		for _, w := range configuration.Webhooks {
			b.admission = append(b.admission, admission{name: "webhook " + w.Name, selectors: []*metav1.LabelSelector{w.NamespaceSelector}, spec: w.MatchConditions})
		}
	}
	for _, configuration := range mutating.Items {
		for _, w := range configuration.Webhooks {
			b.admission = append(b.admission, admission{name: "webhook " + w.Name, selectors: []*metav1.LabelSelector{w.NamespaceSelector}, spec: w.MatchConditions})
		}
	}
	if err := b.readKyverno(ctx, c); err != nil {
		return err
	}
	for i, a := range b.admission {
		b.admission[i].words, b.admission[i].parts = wordsOf(a.spec), partWords(a.spec)
		b.admission[i].users = sortedTexts(append(userTexts(a.spec), a.users...))
		for _, text := range b.admission[i].users {
			pattern, err := regexp.Compile(text)
			if err != nil {
				pattern = nil
			}
			b.admission[i].patterns = append(b.admission[i].patterns, pattern)
		}
	}
	return nil
}

// addParams adds the parameters of a binding to a policy. The parameters in the namespace of a request belong to this
// namespace. All other parameters are a part of the policy: they may name tenants and accounts. Those of Tenure's own
// kinds name none to exempt it.
func (b *bounds) addParams(ctx context.Context, c client.Reader, a *admission, kind *admissionv1.ParamKind, ref *admissionv1.ParamRef) error {
	if kind == nil || ref == nil {
		return nil
	}
	params, err := b.readParams(ctx, c, *kind, *ref)
	if err != nil {
		return err
	}
	if strings.HasPrefix(kind.APIVersion, v1alpha1.GroupVersion.Group+"/") {
		if ref.Namespace == "" {
			a.params = params
		}
		return nil
	}
	var shared []any
	for _, param := range params {
		switch param.GetNamespace() {
		case "", ref.Namespace:
			content := param.DeepCopy().Object
			delete(content, "metadata")
			shared = append(shared, content)
		default:
			if ref.Namespace == "" {
				a.params = append(a.params, param)
			}
		}
	}
	if len(shared) == 0 {
		return nil
	}
	if looksAtUserInParams(a.spec) {
		a.users = tokensOf(shared)
	}
	a.spec = []any{a.spec, shared}
	return nil
}

// readParams reads the parameters of a binding in all namespaces.
func (b *bounds) readParams(ctx context.Context, c client.Reader, kind admissionv1.ParamKind, ref admissionv1.ParamRef) ([]unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gv.WithKind(kind.Kind))
	if err := b.list(ctx, c, list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
		return ref.Name != "" && u.GetName() != ref.Name || ref.Selector != nil && !selects(ref.Selector, u.GetLabels())
	}), nil
}

// shape returns lines that say whether the policy or webhook applies to a namespace, and
// with which parameters. A policy that names the tenant adds a line with the tenant's name.
func (a admission) shape(t *Tenant, ns corev1.Namespace) []string {
	if a.namespace != "" && a.namespace != ns.Name {
		return nil
	}
	for _, s := range a.selectors {
		if s != nil && !selects(s, withName(ns)) {
			return nil
		}
	}
	lines := []string{a.name}
	for _, param := range a.params {
		if param.GetNamespace() == ns.Name {
			content := param.DeepCopy()
			unstructured.RemoveNestedField(content.Object, "metadata")
			unstructured.RemoveNestedField(content.Object, "status")
			lines = append(lines, a.name+" with "+digest(content.Object, t.ownNames(ns.Name)...))
		}
	}
	if mentions(a.words, append([]string{t.Name}, t.Namespaces...)) {
		lines = append(lines, a.name+" names tenant "+t.Name)
	}
	for _, part := range partsOf(a.parts, append([]string{t.Name, ns.Name}, t.Namespaces...)) {
		lines = append(lines, a.name+" may decide by "+part)
	}
	return lines
}

// withName returns the labels of a namespace with the name label, which the API server adds.
func withName(ns corev1.Namespace) map[string]string {
	all := map[string]string{corev1.LabelMetadataName: ns.Name}
	for key, value := range ns.Labels {
		all[key] = value
	}
	return all
}

// selects reports whether a selector matches the labels. An invalid selector matches nothing.
func selects(s *metav1.LabelSelector, all map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(all))
}

// mentions reports whether one of the names is one of the words.
func mentions(words, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, found := slices.BinarySearch(words, name)
		return found
	})
}

// minPart is the minimum length of a part of a name: a shorter one is in many names.
const minPart = 3

var (
	// looksInside matches an expression that looks at parts of a text.
	looksInside = regexp.MustCompile(`\.(startsWith|endsWith|contains|matches|find|findAll|split|substring|indexOf|lastIndexOf)\(`)
	// literals matches the texts in an expression.
	literals = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
	// anyCharacters matches the parts of a regular expression that stand for several characters.
	anyCharacters = regexp.MustCompile(`\.[*+?]|\[[^\]]*\][*+?]?`)
)

// partsOf returns the words that are parts of one of the names.
func partsOf(words, names []string) []string {
	var found []string
	for _, w := range words {
		if slices.ContainsFunc(names, func(name string) bool { return name != w && strings.Contains(name, w) }) {
			found = append(found, w)
		}
	}
	return found
}

// partWords returns the words of a value that may be parts of names, sorted: an expression may ask how a name begins or
// ends, and so may a pattern with a wildcard. Addresses, keys of labels and sentences are no such parts.
func partWords(value any) []string {
	var found []string
	for _, text := range textsOf(value) {
		plain := anyCharacters.ReplaceAllString(text, "*")
		if strings.ContainsAny(plain, " ./:") {
			continue
		}
		found = append(found, slices.DeleteFunc(wordsOf(plain), func(w string) bool { return len(w) < minPart })...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// textsOf returns the texts in the expressions of a value that look at parts of a text, and the patterns
// with wildcards.
func textsOf(value any) []string {
	var all []string
	walkTexts(value, func(v string) {
		if looksInside.MatchString(v) {
			all = append(all, literalsOf(v)...)
		} else if strings.ContainsAny(v, "*?") {
			all = append(all, v)
		}
	})
	return all
}

// userTexts returns the texts by which the expressions of a value may decide about the user or the groups of a request:
// the texts in these expressions, in the variables that they use, and in the expressions that use a variable which is only
// another name for the user.
func userTexts(value any) []string {
	var all []string
	for _, expression := range userExpressions(value) {
		all = append(all, literalsOf(expression)...)
	}
	return all
}

// sortedTexts returns the texts that are long enough to tell names apart, each once.
func sortedTexts(all []string) []string {
	all = slices.DeleteFunc(all, func(text string) bool { return len(text) < minPart })
	slices.Sort(all)
	return slices.Compact(all)
}

// variableName matches a variable in an expression.
var variableName = regexp.MustCompile(`variables\s*\.\s*(\w+)`)

// userExpressions returns the expressions of [userTexts].
func userExpressions(value any) []string {
	var texts []string
	walkTexts(value, func(v string) { texts = append(texts, v) })
	variables := variablesOf(value)
	aliases := map[string]bool{}
	for name, expression := range variables {
		aliases[name] = strings.Contains(expression, "userInfo") && len(literalsOf(expression)) == 0
	}
	uses := func(expression string) []string {
		var names []string
		for _, m := range variableName.FindAllStringSubmatch(expression, -1) {
			names = append(names, m[1])
		}
		return names
	}
	var found []string
	for _, text := range texts {
		if strings.Contains(text, "userInfo") || slices.ContainsFunc(uses(text), func(name string) bool { return aliases[name] }) {
			found = append(found, text)
		}
	}
	for i := 0; i < len(found); i++ {
		for _, name := range uses(found[i]) {
			if expression, known := variables[name]; known && !slices.Contains(found, expression) {
				found = append(found, expression)
			}
		}
	}
	return found
}

// variablesOf returns the expressions of a policy's variables, by name.
func variablesOf(value any) map[string]string {
	variables := map[string]string{}
	walkObjects(value, func(fields map[string]any) {
		name, named := fields["name"].(string)
		expression, given := fields["expression"].(string)
		if named && given {
			variables[name] = expression
		}
	})
	return variables
}

// looksAtUserInParams reports whether an expression that looks at the user of a request also looks at parameters.
func looksAtUserInParams(value any) bool {
	return slices.ContainsFunc(userExpressions(value), func(expression string) bool { return strings.Contains(expression, "params") })
}

// tokensOf returns the parts of the texts in a value between spaces, commas, semicolons and lines.
func tokensOf(value any) []string {
	var all []string
	walkTexts(value, func(v string) {
		all = append(all, strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" ,;\t\n\"'[]", r) })...)
	})
	return all
}

// distinguish returns the policies and webhooks with texts that the names of an identity contain or match, each with the
// texts; sorted.
func (b *bounds) distinguish(o Owner) []string {
	var all []string
	names := append(o.Groups(), o.User())
	for _, a := range b.admission {
		var found []string
		for i, text := range a.users {
			pattern := a.patterns[i]
			if slices.ContainsFunc(names, func(name string) bool {
				return strings.Contains(name, text) || pattern != nil && pattern.MatchString(name)
			}) {
				found = append(found, text)
			}
		}
		if len(found) > 0 {
			all = append(all, a.name+" by "+strings.Join(found, " and "))
		}
	}
	slices.Sort(all)
	return all
}

// literalsOf returns the texts in an expression.
func literalsOf(expression string) []string {
	var all []string
	for _, m := range literals.FindAllStringSubmatch(expression, -1) {
		all = append(all, m[1]+m[2])
	}
	return all
}

// walkTexts calls a function for each text in a value.
func walkTexts(value any, of func(string)) {
	walk(plainOf(value), func(v any) {
		if text, ok := v.(string); ok {
			of(text)
		}
	})
}

// walkObjects calls a function for each object in a value.
func walkObjects(value any, of func(map[string]any)) {
	walk(plainOf(value), func(v any) {
		if fields, ok := v.(map[string]any); ok {
			of(fields)
		}
	})
}

// plainOf returns a value as maps, lists and texts.
func plainOf(value any) any {
	// Marshalling an object of the API server cannot fail.
	content, _ := json.Marshal(value)
	var plain any
	_ = json.Unmarshal(content, &plain)
	return plain
}

// walk calls a function for a value and everything in it.
func walk(v any, of func(any)) {
	of(v)
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			walk(child, of)
		}
	case []any:
		for _, child := range v {
			walk(child, of)
		}
	}
}

// wordsOf returns the words of a value, sorted.
func wordsOf(value any) []string {
	// Marshalling an object of the API server cannot fail.
	content, _ := json.Marshal(value)
	words := strings.FieldsFunc(string(content), func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	slices.Sort(words)
	return slices.Compact(words)
}
