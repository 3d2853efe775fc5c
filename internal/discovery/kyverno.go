package discovery

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kyvernoKinds are the kinds of Kyverno's policies that decide about requests. Those in a namespace apply to this
// namespace only.
var kyvernoKinds = []schema.GroupVersionKind{
	{Group: "kyverno.io", Version: "v1", Kind: "ClusterPolicy"},
	{Group: "kyverno.io", Version: "v1", Kind: "Policy"},
	{Group: "policies.kyverno.io", Version: "v1", Kind: "ValidatingPolicy"},
	{Group: "policies.kyverno.io", Version: "v1", Kind: "MutatingPolicy"},
	{Group: "policies.kyverno.io", Version: "v1", Kind: "NamespacedValidatingPolicy"},
	{Group: "policies.kyverno.io", Version: "v1", Kind: "NamespacedMutatingPolicy"},
}

// kyvernoExceptions are the kinds of exceptions from Kyverno's policies.
var kyvernoExceptions = []schema.GroupVersionKind{
	{Group: "kyverno.io", Version: "v2", Kind: "PolicyException"},
	{Group: "policies.kyverno.io", Version: "v1", Kind: "PolicyException"},
}

// readKyverno reads the policies of Kyverno with the exceptions from them. Kyverno's webhooks do not say to which
// namespaces a policy applies.
func (b *bounds) readKyverno(ctx context.Context, c client.Reader) error {
	read := func(kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := b.list(ctx, c, list)
		return list.Items, err
	}
	var exceptions []unstructured.Unstructured
	for _, kind := range kyvernoExceptions {
		of, err := read(kind)
		if err != nil {
			return err
		}
		exceptions = append(exceptions, of...)
	}
	for _, kind := range kyvernoKinds {
		policies, err := read(kind)
		if err != nil {
			return err
		}
		for _, policy := range policies {
			spec := []any{policy.Object["spec"]}
			for _, exception := range exceptions {
				if exempts(exception, policy) {
					spec = append(spec, exception.Object["spec"])
				}
			}
			a := admission{name: "Kyverno policy " + policy.GetName(), spec: spec, users: subjectsOf(spec), namespace: policy.GetNamespace()}
			b.admission = append(b.admission, a)
		}
	}
	return nil
}

// exempts reports whether an exception of Kyverno names a policy.
func exempts(exception, policy unstructured.Unstructured) bool {
	refs, _, _ := unstructured.NestedSlice(exception.Object, "spec", "policyRefs")
	if slices.ContainsFunc(refs, func(ref any) bool {
		fields, _ := ref.(map[string]any)
		return fields["name"] == policy.GetName() && fields["kind"] == policy.GetKind()
	}) {
		return true
	}
	named, _, _ := unstructured.NestedSlice(exception.Object, "spec", "exceptions")
	return slices.ContainsFunc(named, func(entry any) bool {
		fields, _ := entry.(map[string]any)
		name, _ := fields["policyName"].(string)
		return name == policy.GetName() || name == policy.GetNamespace()+"/"+policy.GetName()
	})
}

// subjectsOf returns the texts by which rules of Kyverno select the callers of requests: the names of subjects, and the
// values of conditions on the caller.
func subjectsOf(spec any) []string {
	var all []string
	walkObjects(spec, func(fields map[string]any) {
		subjects, _ := fields["subjects"].([]any)
		for _, subject := range subjects {
			of, _ := subject.(map[string]any)
			name, _ := of["name"].(string)
			if of["kind"] == rbacv1.ServiceAccountKind {
				namespace, _ := of["namespace"].(string)
				name = namespace + ":" + name
			}
			all = append(all, strings.Trim(name, "*"))
		}
		key, _ := fields["key"].(string)
		if strings.Contains(key, "userInfo") || strings.Contains(key, "serviceAccountName") && !strings.Contains(key, "object.") {
			for _, text := range tokensOf(fields["value"]) {
				all = append(all, strings.Trim(text, "*"))
			}
		}
	})
	return all
}
