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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	operators "k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxValues is the maximum number of values that an attack tries for the same labels: in a fleet with many
// tenants, the network policies of each tenant select a value of their own.
const maxValues = 3

// selection is an object that selects namespaces by their labels; selector may be nil.
type selection struct {
	what     string
	selector *metav1.LabelSelector
}

// relabelling is [requests] with additional requests that change labels of the tenant's namespace. They
// depend on the namespace selectors in the fleet.
func relabelling(further func(*Scenario, context.Context) ([]request, error), all ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		more, err := further(e, ctx)
		if err != nil {
			return notProven("cannot read what selects namespaces by their labels: " + firstLine(err.Error()))
		}
		return requests(slices.Concat(all, more)...)(ctx, e)
	}
}

// relabels returns a request for each change that the function changes returns for a selection. The format
// what gets the selection and the keys of the labels. relabels omits labels that the platform lets owners
// choose, since they are no control.
func (e *Scenario) relabels(ctx context.Context, selections []selection, changes func(*metav1.LabelSelector, labels.Set) [][]labelChange, what string) ([]request, error) {
	if len(selections) == 0 {
		return nil, nil
	}
	chosen, err := e.chosenLabels(ctx)
	if err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{}
	if err := e.Admin.Get(ctx, client.ObjectKey{Name: e.Namespace}, ns); err != nil {
		return nil, err
	}
	var all []request
	patches := map[string][]string{} // by the keys of the labels
	for _, s := range selections {
		for _, change := range changes(s.selector, ns.Labels) {
			var keys []string
			for _, c := range change {
				keys = append(keys, c.key)
			}
			named, patch := strings.Join(keys, " and "), patchOf(change)
			if !slices.ContainsFunc(keys, func(key string) bool { return !isChosen(chosen, key) }) ||
				slices.Contains(patches[named], patch) || len(patches[named]) == maxValues {
				continue
			}
			patches[named] = append(patches[named], patch)
			all = append(all, request{what: fmt.Sprintf(what, s.what, named), aimed: patchNamespace("", patch)})
		}
	}
	return all, nil
}

// tenant returns the Tenant object of the tenant, or nil if there is none.
func (e *Scenario) tenant(ctx context.Context) (*v1alpha1.Tenant, error) {
	content := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	if there, err := e.exists(ctx, content); err != nil || !there {
		return nil, err
	}
	if err := e.Admin.Get(ctx, keyOf(content), content); err != nil {
		return nil, err
	}
	tenant := &v1alpha1.Tenant{}
	return tenant, runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, tenant)
}

// chosenLabels returns the patterns of the labels that the tenant's owners may choose.
func (e *Scenario) chosenLabels(ctx context.Context) ([]v1alpha1.ValuePattern, error) {
	tenant, err := e.tenant(ctx)
	if err != nil {
		return nil, err
	}
	profile, err := e.profile(ctx)
	if err != nil {
		return nil, err
	}
	var chosen []v1alpha1.ValuePattern
	if profile != nil {
		chosen = profile.Spec.NamespaceMetadata.Labels
	}
	if tenant != nil {
		chosen = slices.Concat(chosen, tenant.Spec.Namespaces.Allowed.Labels)
	}
	return chosen, nil
}

// isChosen reports whether a key matches a pattern in a list of keys that owners may choose. An * matches
// any characters.
func isChosen[P ~string](list []P, key string) bool {
	return slices.ContainsFunc(list, func(pattern P) bool {
		whole := "^" + strings.ReplaceAll(regexp.QuoteMeta(string(pattern)), `\*`, ".*") + "$"
		matched, err := regexp.MatchString(whole, key)
		return err == nil && matched
	})
}

// labelChange sets a label to a value, or removes the label if the value is nil.
type labelChange struct {
	key   string
	value *string
}

// changesToLeave returns, for each label of a selector, the change of this label alone after which the
// selector no longer selects a namespace, if there is one. The API server itself sets the label with the
// name of the namespace.
func changesToLeave(selector *metav1.LabelSelector, current labels.Set) [][]labelChange {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if selector == nil || err != nil || !matching.Matches(current) {
		return nil
	}
	added := "tenure-attack-i6"
	candidates := map[string][]*string{}
	for key := range selector.MatchLabels {
		candidates[key] = []*string{nil}
	}
	for _, expression := range selector.MatchExpressions {
		values := append(candidates[expression.Key], nil, &added)
		if expression.Operator == metav1.LabelSelectorOpNotIn {
			values = append(values, &expression.Values[0])
		}
		candidates[expression.Key] = values
	}
	delete(candidates, corev1.LabelMetadataName)
	var all [][]labelChange
	for _, key := range slices.Sorted(maps.Keys(candidates)) {
		for _, value := range candidates[key] {
			changed := labels.Merge(current, nil)
			delete(changed, key)
			if value != nil {
				changed[key] = *value
			}
			if !matching.Matches(changed) {
				all = append(all, []labelChange{{key, value}})
				break
			}
		}
	}
	return all
}

// changesToJoin returns the changes of labels after which a selector selects a namespace, sorted by their
// keys, as the only element. It returns none if the selector selects the namespace already, or if only
// another name of the namespace would help.
func changesToJoin(selector *metav1.LabelSelector, current labels.Set) [][]labelChange {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if selector == nil || err != nil || matching.Matches(current) {
		return nil
	}
	requirements, _ := matching.Requirements()
	changed := labels.Merge(current, nil)
	var changes []labelChange
	for _, r := range requirements {
		if r.Matches(changed) {
			continue
		}
		change := labelChange{key: r.Key()}
		if values := r.ValuesUnsorted(); r.Operator() != operators.NotIn && r.Operator() != operators.DoesNotExist {
			value := "tenure-attack-i18"
			if len(values) > 0 {
				value = slices.Min(values)
			}
			change.value = &value
			changed[r.Key()] = value
		} else {
			delete(changed, r.Key())
		}
		changes = append(changes, change)
	}
	if !matching.Matches(changed) || changed[corev1.LabelMetadataName] != current[corev1.LabelMetadataName] {
		return nil
	}
	return [][]labelChange{changes}
}

// patchOf returns changes as one merge patch of a namespace.
func patchOf(changes []labelChange) string {
	changed := map[string]*string{}
	for _, c := range changes {
		changed[c.key] = c.value
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changed}})
	return string(patch)
}
