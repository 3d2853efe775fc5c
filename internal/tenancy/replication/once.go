package replication

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PlanOnce returns the objects of lists that are applied once, and not in each namespace, and the
// refused items. An object is in the namespace that it names, or in the cluster. PlanOnce applies
// only Items, and replaces only the variable {{ tenant.name }}, if the input has a tenant.
//
// PlanOnce does not limit the namespaces: the rights of the account that applies the objects do. So
// it uses nothing that a tenant could have written, such as a template's data.
func PlanOnce(in Input) ([]Object, []Refusal) {
	p := newPlanner(in)
	p.once = true
	for i := range in.Entries {
		e := &in.Entries[i]
		for n, raw := range e.Items {
			where := fmt.Sprintf("%s, item %d", e.Name, n)
			item, err := decode(raw)
			if err == nil {
				err = p.substituteOnce(item)
			}
			if err != nil {
				p.refuse(where, "%v", err)
				continue
			}
			p.object(i, e, item.GetNamespace(), where, fmt.Sprintf("raw-%d", n), item)
		}
	}
	return p.planned()
}

// filledOnce replaces the variable of a text.
func (p *planner) filledOnce(text string) (string, error) {
	known := "variables are not allowed"
	if p.in.Tenant != "" {
		text = strings.NewReplacer("{{ tenant.name }}", p.in.Tenant, "{{tenant.name}}", p.in.Tenant).Replace(text)
		known = "only {{ tenant.name }} can be in double braces"
	}
	if i := strings.Index(text, "{{"); i >= 0 {
		return "", fmt.Errorf("%q: %s in an object that is not made for each namespace", text[i:min(len(text), i+40)], known)
	}
	return text, nil
}

func (p *planner) substituteOnce(u *unstructured.Unstructured) error {
	filled, err := walk(u.Object, p.filledOnce)
	if err != nil {
		return err
	}
	u.Object = filled.(map[string]any)
	return nil
}

// added returns labels or annotations of a list with the variables replaced.
func (p *planner) added(e *Entry, texts map[string]string, namespace string) (map[string]string, error) {
	switch {
	case !e.Variables:
		return texts, nil
	case !p.once:
		return Filled(texts, p.in.Tenant, namespace), nil
	}
	filled := map[string]string{}
	for name, text := range texts {
		var err error
		if filled[name], err = p.filledOnce(text); err != nil {
			return nil, err
		}
	}
	return filled, nil
}

// wrongPlace returns the reason why the namespace of an object that is applied once is missing or
// superfluous, or "".
func (p *planner) wrongPlace(u *unstructured.Unstructured, given any, has bool) string {
	if p.in.Scope(u.GroupVersionKind()) == Cluster {
		if has {
			return fmt.Sprintf("objects of the kind %s are in no namespace: leave metadata.namespace out", u.GetKind())
		}
		return ""
	}
	name, ok := given.(string)
	if !ok || name == "" {
		return "it needs a namespace in metadata.namespace, since it is not made for each namespace"
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return "its namespace " + strings.Join(problems, ", ")
	}
	return ""
}
