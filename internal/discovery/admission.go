package discovery

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

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
	// spec is searched for the names of tenants.
	spec any
	// params are the parameters in the namespaces; nil if the binding reads no parameters
	// there.
	params []unstructured.Unstructured
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
		if ref := binding.Spec.ParamRef; ref != nil && policy.ParamKind != nil && ref.Namespace == "" {
			var err error
			if a.params, err = b.readParams(ctx, c, *policy.ParamKind, *ref); err != nil {
				return err
			}
		}
		b.admission = append(b.admission, a)
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
			lines = append(lines, a.name+" with "+digest(content.Object, ns.Name, t.Name))
		}
	}
	if mentions(a.spec, append([]string{t.Name}, t.Namespaces...)) {
		lines = append(lines, a.name+" names tenant "+t.Name)
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

// mentions reports whether one of the names is in a value, as a whole word.
func mentions(value any, names []string) bool {
	// Marshalling an object of the API server cannot fail.
	content, _ := json.Marshal(value)
	words := strings.FieldsFunc(string(content), func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(names, w) })
}
