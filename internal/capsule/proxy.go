package capsule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nameLabel is the label by which Capsule's proxy selects classes by name.
const nameLabel = "name"

// Shown is the translation of a ProxySetting or GlobalProxySettings.
type Shown struct {
	// Resources are the visible resources, each with its subjects.
	Resources []v1alpha1.ClusterResource
	// Notes are about fields without effect.
	Notes []Note
}

// proxyKinds maps the kinds in proxySettings to API groups and resources.
var proxyKinds = map[string]struct{ group, resource string }{
	"Nodes":             {"", "nodes"},
	"StorageClasses":    {"storage.k8s.io", "storageclasses"},
	"IngressClasses":    {"networking.k8s.io", "ingressclasses"},
	"PriorityClasses":   {"scheduling.k8s.io", "priorityclasses"},
	"RuntimeClasses":    {"node.k8s.io", "runtimeclasses"},
	"PersistentVolumes": {"", "persistentvolumes"},
}

// ProxySetting translates a ProxySetting, which lets a tenant show cluster resources to its own users. The
// proxy limits these to the resources that every owner of the tenant can see; ProxySetting does not check
// this. It omits subjects with names of Kubernetes, such as system:authenticated, and adds a note, since
// they belong to no tenant.
func ProxySetting(spec v1beta1.ProxySettingSpec) Shown {
	var s Shown
	for i, by := range spec.Subjects {
		field := fmt.Sprintf("spec.subjects[%d]", i)
		named, err := owner(v1beta2.Identity{Kind: by.Kind, Name: by.Name})
		if err != nil {
			s.note(field, "%v", err)
			continue
		}
		subjects := []v1alpha1.Subject{{Kind: named.Kind, Namespace: named.Namespace, Name: named.Name}}
		for j, p := range by.ProxySettings {
			if kind := proxyKinds[p.Kind]; s.lists(fmt.Sprintf("%s.proxySettings[%d].operations", field, j), p) && kind.resource != "" {
				s.Resources = append(s.Resources, readable(kind.group, kind.resource, metav1.LabelSelector{}, subjects))
			}
		}
		s.add(field, by.ClusterResources, subjects)
	}
	return s
}

// GlobalProxySettings translates the cluster resources that the platform shows.
func GlobalProxySettings(spec v1beta1.GlobalProxySettingsSpec) Shown {
	var s Shown
	for i, rule := range spec.Rules {
		field := fmt.Sprintf("spec.rules[%d]", i)
		var subjects []v1alpha1.Subject
		for j, by := range rule.Subjects {
			named, err := anybody(by)
			if err != nil {
				s.note(fmt.Sprintf("%s.subjects[%d]", field, j), "%v", err)
				continue
			}
			subjects = append(subjects, named)
		}
		s.add(field, rule.ClusterResources, subjects)
	}
	return s
}

// anybody returns a subject, which may also be one of Kubernetes' own groups.
func anybody(by v1beta1.ProxyIdentity) (v1alpha1.Subject, error) {
	if by.Kind == rbacv1.GroupKind && strings.HasPrefix(by.Name, "system:") && len(by.Name) <= maxName {
		return v1alpha1.Subject{Kind: by.Kind, Name: by.Name}, nil
	}
	o, err := owner(v1beta2.Identity{Kind: by.Kind, Name: by.Name})
	return v1alpha1.Subject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, err
}

func (s *Shown) note(field, format string, args ...any) {
	s.Notes = append(s.Notes, Note{Field: field, State: Reported, Message: fmt.Sprintf(format, args...)})
}

// add adds resources for subjects. It adds none if there are no subjects.
func (s *Shown) add(field string, resources []v1beta1.ClusterResource, subjects []v1alpha1.Subject) {
	for i, r := range resources {
		at := fmt.Sprintf("%s.clusterResources[%d]", field, i)
		selector, err := selectorOf(r.Selector)
		switch {
		case slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*"):
			s.note(at, "name the kinds: * would also show kinds that are installed later")
			continue
		case slices.ContainsFunc(r.Resources, func(name string) bool { return strings.Contains(name, "/") }):
			s.note(at+".resources", "parts of objects are not shown")
			continue
		case slices.Contains(r.APIGroups, rbacv1.GroupName):
			s.note(at+".apiGroups", "the proxy does not show RBAC objects")
			continue
		case err != nil:
			s.note(at+".selector", "%v", err)
			continue
		}
		var verbs []string
		for _, o := range r.Operations {
			switch o {
			case "List":
				verbs = append(verbs, "list", "watch")
			case "Get":
				verbs = append(verbs, "get")
			}
		}
		if r.Operations == nil {
			verbs = []string{"get", "list", "watch"}
		}
		if len(subjects) > 0 {
			s.Resources = append(s.Resources, v1alpha1.ClusterResource{
				APIGroups: r.APIGroups, Resources: r.Resources, Verbs: verbs, Selector: *selector, Subjects: subjects,
			})
		}
	}
}

func selectorOf(s *metav1.LabelSelector) (*metav1.LabelSelector, error) {
	if s == nil {
		return nil, errors.New("the selector is missing: {} is everything")
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return nil, fmt.Errorf("it is no selector: %w", err)
	}
	return s, nil
}

// lists reports whether the operations include List, and adds a note about the other
// operations.
func (s *Shown) lists(field string, p v1beta2.OwnerProxySetting) bool {
	var rest []string
	for _, o := range p.Operations {
		if o != "List" {
			rest = append(rest, string(o))
		}
	}
	if len(rest) > 0 {
		s.note(field, "the proxy changes nothing: give the right to %s with a ClusterRole, such as one in spec.clusterRoles of a Tenant of Tenure", strings.ToLower(strings.Join(rest, " and ")))
	}
	return slices.Contains(p.Operations, v1beta2.ProxyOperation("List"))
}

// readable returns a read-only ClusterResource for the objects that the selector matches.
func readable(group, resource string, selector metav1.LabelSelector, subjects []v1alpha1.Subject) v1alpha1.ClusterResource {
	return v1alpha1.ClusterResource{
		APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"},
		Selector: selector, Subjects: subjects,
	}
}

// proxySettings translates the owners' proxySettings: one entry per kind and selector, with
// all owners that have the kind.
func (t *translation) proxySettings() {
	subjects := map[string][]v1alpha1.Subject{}
	var kinds []string
	for i, o := range t.tenant.Spec.Owners {
		named, err := owner(o.Identity)
		if err != nil {
			continue // the owner is refused
		}
		for j, p := range o.ProxySettings {
			s := &Shown{}
			if s.lists(fmt.Sprintf("spec.owners[%d].proxySettings[%d].operations", i, j), p) {
				who := v1alpha1.Subject{Kind: named.Kind, Namespace: named.Namespace, Name: named.Name}
				if !slices.Contains(subjects[p.Kind], who) {
					subjects[p.Kind] = append(subjects[p.Kind], who)
				}
				if !slices.Contains(kinds, p.Kind) {
					kinds = append(kinds, p.Kind)
				}
			}
			t.notes = append(t.notes, s.Notes...)
		}
	}
	for _, name := range kinds {
		kind, known := proxyKinds[name]
		if !known {
			continue // the API server rejects such kinds
		}
		if len(subjects[name]) > maxSubjects {
			t.note(Refused, "spec.owners", "%d of them have proxySettings for %s, and at most %d can be kept", len(subjects[name]), name, maxSubjects)
			continue
		}
		for _, selector := range t.shownOf(name) {
			if _, err := metav1.LabelSelectorAsSelector(&selector); err == nil {
				t.spec.ClusterResources = append(t.spec.ClusterResources, readable(kind.group, kind.resource, selector, subjects[name]))
			}
		}
	}
}

// shownOf returns the selectors for the objects of a kind that an owner can see. As in Capsule's proxy,
// these are the nodes on which the tenant's Pods run and the classes that the tenant may use. For
// persistent volumes, the proxy shows only the volumes of the tenant's claims.
func (t *translation) shownOf(kind string) []metav1.LabelSelector {
	spec := &t.tenant.Spec
	var classes *v1beta2.DefaultAllowedList
	switch kind {
	case "Nodes":
		return []metav1.LabelSelector{{MatchLabels: spec.NodeSelector}}
	case "PersistentVolumes":
		return []metav1.LabelSelector{{}}
	case "StorageClasses":
		classes = spec.StorageClasses
	case "IngressClasses":
		if spec.IngressOptions != nil {
			classes = spec.IngressOptions.AllowedClasses
		}
	case "PriorityClasses":
		classes = spec.PriorityClasses
	case "RuntimeClasses":
		classes = spec.RuntimeClasses
	}
	if classes == nil {
		return nil
	}
	var all []metav1.LabelSelector
	if names := classes.Allowed; len(names) > 0 {
		all = append(all, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: nameLabel, Operator: metav1.LabelSelectorOpIn, Values: names}}})
	}
	if len(classes.MatchLabels)+len(classes.MatchExpressions) > 0 {
		all = append(all, classes.LabelSelector)
	}
	return all
}
