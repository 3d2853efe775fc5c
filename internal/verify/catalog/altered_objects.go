package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// alteredError is the result of a request that the API server accepts after a policy or a webhook has changed fields of
// the object. [judge] counts it as a refusal by a policy.
type alteredError struct {
	// paths are the changed fields, sorted.
	paths []string
	// sent is the object that the tenant sent.
	sent *unstructured.Unstructured
}

func (a *alteredError) Error() string {
	return "the API server accepts the object with other values in " + strings.Join(a.paths, ", ")
}

// control returns the name of the control.
func (a *alteredError) control() string {
	return "policy that changes " + strings.Join(a.paths, " and ")
}

// acceptedKey is the key of a context with a list of the objects that the API server accepted: see [aboutAttack].
type acceptedKey struct{}

// aboutAttack returns the error of a request for an object of an attack. If the API server accepts it with other values,
// only those fields count in which the object differs from the tenant's own object, and which the API server leaves alone
// there. A policy that changes every object is not about the attack, and one that adds a label to the object of an attack
// leaves what the attack needs. own sends the request for the tenant's own object; without it, the attack's object counts
// as accepted. The same holds for each way around a refusal in which the API server accepts the object with other values.
func aboutAttack(ctx context.Context, err error, own func(context.Context) error) error {
	var altered *alteredError
	var refused *policyRefusal
	switch answer := (&ownAnswer{own: own}); {
	case errors.As(err, &refused):
		for _, way := range refused.accepted {
			if answer.changesOf(ctx, way.altered) == nil {
				return way.by
			}
		}
		rest := refused.error
		if errors.As(rest, &altered) {
			rest = answer.changesOf(ctx, altered)
		}
		if rest == nil {
			return nil
		}
		return &policyRefusal{error: rest, untried: refused.untried}
	case errors.As(err, &altered):
		return answer.changesOf(ctx, altered)
	}
	return err
}

// ownAnswer is the answer to the request for the tenant's own object, which is sent once.
type ownAnswer struct {
	own      func(context.Context) error
	sent     bool
	accepted []*unstructured.Unstructured
	refusal  error
}

// changesOf returns the error with the changed fields that are about the attack, or nil if there is none.
func (a *ownAnswer) changesOf(ctx context.Context, altered *alteredError) error {
	if a.own == nil {
		return nil
	}
	if !a.sent {
		a.refusal, a.sent = a.own(context.WithValue(ctx, acceptedKey{}, &a.accepted)), true
	}
	if a.refusal != nil && len(a.accepted) == 0 {
		return altered
	}
	var also *alteredError
	errors.As(a.refusal, &also)
	paths := slices.DeleteFunc(slices.Clone(altered.paths), func(path string) bool {
		return also != nil && slices.Contains(also.paths, path) || len(a.accepted) == 0 || !differIn(path, altered.sent, a.accepted[0])
	})
	if len(paths) == 0 {
		return nil
	}
	return &alteredError{paths, altered.sent}
}

// differIn reports whether two objects differ in a field, in a part of it or in the field that contains it.
func differIn(path string, object, other *unstructured.Unstructured) bool {
	changed, removed := differences(object, other)
	return slices.ContainsFunc(append(changed, removed...), func(p string) bool {
		return p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(path, p+".")
	})
}

// mutates reports whether a policy or a webhook of the fleet may change objects. Tenure's own do not change what attacks
// are about, except for the account of Flux objects, which its rules demand as well.
func mutates(ctx context.Context, admin client.Reader) (bool, error) {
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	var webhooks admissionv1.MutatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&bindings, &webhooks} {
		if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return false, fmt.Errorf("cannot see what changes objects: %w", err)
		}
	}
	ofTenure := func(name string) bool { return strings.HasPrefix(name, admission.Prefix) }
	return slices.ContainsFunc(bindings.Items, func(b admissionv1.MutatingAdmissionPolicyBinding) bool { return !ofTenure(b.Spec.PolicyName) }) ||
		slices.ContainsFunc(webhooks.Items, func(w admissionv1.MutatingWebhookConfiguration) bool { return !ofTenure(w.Name) }), nil
}

// tryIntact is [Scenario.tryCreate], and returns an [alteredError] if the API server accepts the object with other values.
func (e *Scenario) tryIntact(ctx context.Context, u *unstructured.Unstructured) error {
	got := u.DeepCopy()
	if err := e.As.Create(ctx, got, client.DryRunAll); err != nil {
		return err
	}
	return e.altered(ctx, u, got)
}

// altered returns an [alteredError] if the API server returned an object with other values than the tenant sent, and
// otherwise nil. A field that the kind lacks is not changed by a policy: the API server drops it.
func (e *Scenario) altered(ctx context.Context, sent, got *unstructured.Unstructured) error {
	if !e.mutates {
		return nil
	}
	if accepted, ok := ctx.Value(acceptedKey{}).(*[]*unstructured.Unstructured); ok {
		*accepted = append(*accepted, sent)
	}
	return alteredFields(ctx, e.As, sent, got)
}

// alteredFields is [Scenario.altered] for any client, which asks the API server for the fields that a kind lacks.
func alteredFields(ctx context.Context, c client.Client, sent, got *unstructured.Unstructured) error {
	changed, removed := differences(sent, got)
	if len(removed) > 0 {
		strict := fmt.Sprint(c.Create(ctx, sent.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)))
		removed = slices.DeleteFunc(removed, func(path string) bool { return strings.Contains(strict, `unknown field "`+path) })
	}
	paths := append(changed, removed...)
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	return &alteredError{slices.Compact(paths), sent}
}

// alteredInCluster returns the fields of a canary, which Flux applied from the tenant's files, that policies changed and in
// which it differs from the tenant's own object: see [aboutAttack]. It returns nil if the canary is as in the files.
func (e *Scenario) alteredInCluster(ctx context.Context, canary, applied, own *unstructured.Unstructured) *alteredError {
	var altered *alteredError
	if !e.mutates || !errors.As(alteredFields(ctx, e.Admin, canary, applied), &altered) {
		return nil
	}
	altered.paths = slices.DeleteFunc(altered.paths, func(path string) bool { return !differIn(path, canary, own) })
	if len(altered.paths) == 0 {
		return nil
	}
	return altered
}

// differences returns the fields of an object that have other values in the answer of the API server, and the fields that
// the answer lacks. An account in an object of Flux that names none is a changed field.
func differences(sent, got *unstructured.Unstructured) (changed, removed []string) {
	compare := func(path string, want, typed, have any) {
		c, r := fieldDifferences(path, want, typed, have)
		changed, removed = append(changed, c...), append(removed, r...)
	}
	typed := asTyped(sent)
	for key, value := range sent.Object {
		switch key {
		case "apiVersion", "kind", "status", "stringData":
		case "metadata":
			fields, _ := value.(map[string]any)
			inTyped, _ := typed[key].(map[string]any)
			have, _ := got.Object[key].(map[string]any)
			for _, field := range []string{"labels", "annotations", "finalizers"} {
				if want, given := fields[field]; given {
					compare("metadata."+field, want, inTyped[field], have[field])
				}
			}
		default:
			compare(key, value, typed[key], got.Object[key])
		}
	}
	if kind := flux.Kind(sent.GetKind()); kind == flux.Kustomization || kind == flux.HelmRelease {
		account := func(u *unstructured.Unstructured) string {
			name, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName")
			return name
		}
		if account(sent) == "" && account(got) != "" {
			changed = append(changed, "spec.serviceAccountName")
		}
	}
	return changed, removed
}

// asTyped returns the fields of an object of Kubernetes as its type has them: without the empty values that mean the same
// as missing ones, such as an empty string in a field that is no pointer. Of other objects it returns the metadata.
func asTyped(u *unstructured.Unstructured) map[string]any {
	o, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		o = &metav1.PartialObjectMetadata{}
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o) != nil {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return fields
}

// fieldDifferences compares a value with the value in the answer, which may have further fields and further elements of
// lists, and may lack empty values that typed, the value of [asTyped], lacks too.
func fieldDifferences(path string, want, typed, have any) (changed, removed []string) {
	if have == nil {
		if typed == nil && isEmpty(want) {
			return nil, nil
		}
		return nil, []string{path}
	}
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		if !ok {
			return []string{path}, nil
		}
		inTyped, _ := typed.(map[string]any)
		for key, value := range want {
			c, r := fieldDifferences(path+"."+key, value, inTyped[key], fields[key])
			changed, removed = append(changed, c...), append(removed, r...)
		}
		return changed, removed
	case []any:
		elements, ok := have.([]any)
		if !ok {
			return []string{path}, nil
		}
		inTyped, _ := typed.([]any)
		for i, value := range want {
			var of any
			if i < len(inTyped) {
				of = inTyped[i]
			}
			if !slices.ContainsFunc(elements, func(element any) bool {
				c, r := fieldDifferences("", value, of, element)
				return len(c)+len(r) == 0
			}) {
				return []string{path}, nil
			}
		}
		return nil, nil
	}
	if fmt.Sprint(want) == fmt.Sprint(have) || sameQuantity(want, have) {
		return nil, nil
	}
	return []string{path}, nil
}

// isEmpty reports whether a value is empty, so that an object may omit it.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			if !isEmpty(inner) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return value == nil || slices.Contains([]string{"", "0", "false"}, fmt.Sprint(value))
}

// sameQuantity reports whether two values are the same amount in different forms.
func sameQuantity(a, b any) bool {
	x, err := resource.ParseQuantity(fmt.Sprint(a))
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(fmt.Sprint(b))
	return err == nil && x.Cmp(y) == 0
}
