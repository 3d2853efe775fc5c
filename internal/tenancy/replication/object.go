package replication

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupCapsule is Capsule's group.
const groupCapsule = "capsule.clastix.io"

// decode decodes an item of a list.
func decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("it is not an object with apiVersion and kind: %w", err)
	}
	return u, nil
}

// metadata are the fields that an item may have in its metadata. The API server
// writes an empty creationTimestamp into embedded objects.
var metadata = []string{"name", "namespace", "labels", "annotations", "creationTimestamp"}

// wrong returns why an object must not be replicated to a namespace, or "".
func (p *planner) wrong(u *unstructured.Unstructured, namespace string) string {
	if reason := p.wrongKind(u); reason != "" {
		return reason
	}
	meta, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return "it has no name"
	}
	if created, ok := meta["creationTimestamp"]; ok && created != nil {
		return "metadata.creationTimestamp is not yours to set: leave it out"
	}
	delete(meta, "creationTimestamp")
	if _, ok := meta["generateName"]; ok {
		return "it needs a name: with metadata.generateName there would be a new object each time"
	}
	for _, field := range slices.Sorted(maps.Keys(meta)) {
		if !slices.Contains(metadata, field) {
			return fmt.Sprintf("metadata.%s is not yours to set: leave it out", field)
		}
	}
	if problem := wrongMaps(meta); problem != "" {
		return problem
	}
	name, ok := meta["name"].(string)
	if !ok || name == "" {
		return "it has no name"
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return "its name " + strings.Join(problems, ", ")
	}
	given, ok := meta["namespace"]
	if p.once {
		return p.wrongPlace(u, given, ok)
	}
	if ok && given != namespace {
		return fmt.Sprintf("it must not come into namespace %v: leave metadata.namespace out, the namespaces are those of tenant %s", given, p.in.Tenant)
	}
	return ""
}

// wrongKind returns why a kind must not be replicated, or "".
func (p *planner) wrongKind(u *unstructured.Unstructured) string {
	version, err := schema.ParseGroupVersion(u.GetAPIVersion())
	if err != nil || u.GetAPIVersion() == "" || u.GetKind() == "" {
		return "its apiVersion and kind are not valid"
	}
	if _, list := u.Object["items"]; list || strings.HasSuffix(u.GetKind(), "List") {
		return "it is a list: give each object by itself"
	}
	if _, status := u.Object["status"]; status {
		return "it has a status: leave it out"
	}
	switch version.Group {
	case v1alpha1.GroupVersion.Group, groupCapsule:
		return fmt.Sprintf("kind %s of %s grants permissions, and is not replicated", u.GetKind(), version.Group)
	}
	switch p.in.Scope(version.WithKind(u.GetKind())) {
	case Cluster:
		if p.once {
			return ""
		}
		return fmt.Sprintf("cluster-scoped kind %s/%s is not allowed: only namespaced objects are replicated", version, u.GetKind())
	case Unknown:
		return fmt.Sprintf("the cluster does not store kind %s of %s", u.GetKind(), version)
	case Namespaced:
	}
	return ""
}

// wrongMaps reports whether labels or annotations have values that are not strings.
func wrongMaps(meta map[string]any) string {
	for _, field := range []string{"labels", "annotations"} {
		values, ok := meta[field]
		if !ok {
			continue
		}
		texts, ok := values.(map[string]any)
		if !ok {
			return "metadata." + field + " has to be names and texts"
		}
		for name, value := range texts {
			if _, ok := value.(string); !ok {
				return fmt.Sprintf("metadata.%s: %s has to be text", field, name)
			}
		}
	}
	return ""
}

// Labels and annotations by which other controllers find the objects that they created. A copy
// does not get them.
var othersMarks = []string{
	"kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/", "kubectl.kubernetes.io/last-applied-configuration",
	"app.kubernetes.io/managed-by", v1alpha1.GroupVersion.Group + "/", groupCapsule + "/", "projectcapsule.dev/",
}

// bare returns an object without the fields that are specific to it, such as its UID.
func bare(u *unstructured.Unstructured) *unstructured.Unstructured {
	copied := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range u.DeepCopy().Object {
		if field != "metadata" && field != "status" {
			copied.Object[field] = value
		}
	}
	copied.SetName(u.GetName())
	copied.SetLabels(withoutMarks(u.GetLabels()))
	copied.SetAnnotations(withoutMarks(u.GetAnnotations()))
	return copied
}

func withoutMarks(all map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range all {
		if !slices.ContainsFunc(othersMarks, func(mark string) bool { return strings.HasPrefix(name, mark) }) {
			kept[name] = value
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// variables returns the replacer of the variables.
func variables(tenant, namespace string) *strings.Replacer {
	return strings.NewReplacer("{{ tenant.name }}", tenant, "{{tenant.name}}", tenant, "{{ namespace }}", namespace, "{{namespace}}", namespace)
}

// Filled returns a copy of texts by name, with {{ tenant.name }} and {{ namespace }} replaced.
func Filled(texts map[string]string, tenant, namespace string) map[string]string {
	filled := make(map[string]string, len(texts))
	for name, text := range texts {
		filled[name] = variables(tenant, namespace).Replace(text)
	}
	return filled
}

// substitute replaces the variables. Both values are DNS labels, so they cannot add other
// content.
func (p *planner) substitute(u *unstructured.Unstructured, namespace string) error {
	replacer := variables(p.in.Tenant, namespace)
	filled, err := walk(u.Object, func(text string) (string, error) {
		text = replacer.Replace(text)
		if i := strings.Index(text, "{{"); i >= 0 {
			return "", fmt.Errorf("%q: only {{ tenant.name }} and {{ namespace }} can be in double braces", text[i:min(len(text), i+40)])
		}
		return text, nil
	})
	if err != nil {
		return err
	}
	u.Object = filled.(map[string]any)
	return nil
}

// walk changes all strings, but no names of fields.
func walk(value any, change func(string) (string, error)) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return change(v)
	case []any:
		for i := range v {
			if v[i], err = walk(v[i], change); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = walk(v[k], change); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}
