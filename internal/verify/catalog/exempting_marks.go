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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mark is a label or an annotation that may exempt an object from a policy. A tenant writes the labels and
// annotations of its own objects.
type mark struct{ key, value string }

func (m mark) String() string { return m.key + "=" + m.value }

// on returns an object with the mark.
func (m mark) on(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
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

// markedError is the result of a request that a policy refuses without a mark and admits with it. [judge]
// counts it as an accepted request.
type markedError struct{ mark mark }

func (m *markedError) Error() string {
	return "the label or annotation " + m.mark.String() + ", which exempts it from the policy"
}

// maxMarks is the maximum number of marks that an attack tries.
const maxMarks = 24

// exemptingMarks returns the marks in the policies of the fleet: in their object selectors, in their
// expressions about labels and annotations, and in Kyverno's exclusions. No mark exempts an object from
// Tenure's own policies.
func exemptingMarks(ctx context.Context, admin client.Reader) ([]mark, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		if err := admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot read the policies: %w", err)
		}
	}
	var all []mark
	for _, p := range policies.Items {
		if !strings.HasPrefix(p.Name, admission.Prefix) {
			all = append(all, marksOf(p.Spec)...)
		}
	}
	for _, b := range bindings.Items {
		if b.Spec.MatchResources != nil {
			all = append(all, marksOfSelector(b.Spec.MatchResources.ObjectSelector)...)
		}
	}
	excluded, err := kyvernoMarks(ctx, admin)
	if err != nil {
		return nil, err
	}
	var distinct []mark
	for _, m := range append(all, excluded...) {
		if !slices.Contains(distinct, m) && len(distinct) < maxMarks {
			distinct = append(distinct, m)
		}
	}
	return distinct, nil
}

// marksOf returns the marks in a policy's selector and expressions.
func marksOf(spec admissionv1.ValidatingAdmissionPolicySpec) []mark {
	var all []mark
	if spec.MatchConstraints != nil {
		all = marksOfSelector(spec.MatchConstraints.ObjectSelector)
	}
	for _, c := range spec.MatchConditions {
		all = append(all, marksOfExpression(c.Expression)...)
	}
	for _, v := range spec.Variables {
		all = append(all, marksOfExpression(v.Expression)...)
	}
	for _, v := range spec.Validations {
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
	// literals are the strings of an expression.
	literals = regexp.MustCompile(`'([^'\\]*)'|"([^"\\]*)"`)
	// dottedMark is a key in the form of a field.
	dottedMark = regexp.MustCompile(`(?:labels|annotations)\s*\.\s*\??([A-Za-z_]\w*)`)
)

// marksOfExpression returns each key in an expression, with each of the expression's other strings and with
// true as its value.
func marksOfExpression(expression string) []mark {
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

// kyvernoMarks returns the marks of the exclusions of Kyverno's policies.
func kyvernoMarks(ctx context.Context, admin client.Reader) ([]mark, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "kyverno.io", Version: "v1", Kind: "ClusterPolicy"})
	if err := admin.List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("cannot read the policies of Kyverno: %w", err)
	}
	var all []mark
	for _, policy := range list.Items {
		rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "rules")
		for _, rule := range rules {
			fields, _ := rule.(map[string]any)
			for _, how := range []string{"any", "all"} {
				filters, _, _ := unstructured.NestedSlice(fields, "exclude", how)
				for _, filter := range filters {
					of, _ := filter.(map[string]any)
					for _, at := range [][]string{{"resources", "selector", "matchLabels"}, {"resources", "annotations"}} {
						values, _, _ := unstructured.NestedStringMap(of, at...)
						for _, key := range slices.Sorted(maps.Keys(values)) {
							all = append(all, mark{key, strings.ReplaceAll(values[key], "*", "x")})
						}
					}
				}
			}
		}
	}
	return all, nil
}
