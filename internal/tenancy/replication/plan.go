// Package replication computes the objects that the namespaces of a tenant get: a pure function of
// lists of objects and the tenant's namespaces. All objects that [Plan] returns are in one of these
// namespaces and of a namespaced kind; the objects of [PlanOnce] are in the namespaces that they
// name. The package does not decide which account applies the objects, and whether the account has
// the rights.
package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// MaxObjects is the maximum number of objects of a declaration in all namespaces
	// together, since a status lists them.
	MaxObjects = 5000
	// LabelReplicated is on each object that was replicated: [Made] or [Adopted].
	LabelReplicated = "tenure.dev/replicated"
	// Made is the value for an object that the manager created. It is deleted with its
	// declaration.
	Made = "made"
	// Adopted is the value for an object that existed before. It stays when its declaration
	// is deleted.
	Adopted = "adopted"
)

// Scope says where objects of a kind are.
type Scope int

const (
	// Unknown kinds are not served by the cluster, or the cluster does not store their objects,
	// as with reviews.
	Unknown Scope = iota
	// Namespaced kinds have a namespace.
	Namespaced
	// Cluster kinds have none.
	Cluster
)

// Namespace is a namespace of the tenant.
type Namespace struct {
	Name string
	// Labels are the labels that the platform or the Tenant set.
	Labels map[string]string
	// Chosen are all labels, also those that an owner chose.
	Chosen map[string]string
}

// Entry is a list of objects and the namespaces that get it.
type Entry struct {
	// Name says where it is in its declaration, for messages.
	Name string
	// Selector chooses the namespaces by their labels; nil chooses all.
	Selector labels.Selector
	// OfTenant is true if the tenant writes the declaration. Its Selector also reads the labels that owners
	// choose. In a declaration of the platform they select nothing, or owners could choose what they get.
	OfTenant bool
	// Items are objects as JSON.
	Items [][]byte
	// Copies are objects that exist, as they were read for a namespace.
	Copies map[string][]*unstructured.Unstructured
	// Labels and Annotations are added to each object.
	Labels, Annotations map[string]string
	// Variables lets items, labels and annotations have {{ tenant.name }} and {{ namespace }}, and
	// items nothing else in double braces.
	Variables bool
	// Templates make further objects.
	Templates []*Template
	// Context holds what templates can read for a namespace besides the names of the tenant and the
	// namespace.
	Context map[string]map[string]any
	// Capsule treats objects as Capsule does: the namespace that an object names does not matter, and
	// several items for one object are one object together.
	Capsule bool
}

// Input is the input of [Plan].
type Input struct {
	// Tenant is the tenant's name.
	Tenant string
	// TenantObject holds what templates can read of the tenant besides its name; it may be nil.
	TenantObject map[string]any
	// Namespaces are all namespaces of the tenant. Namespaces of the platform must not be among
	// them.
	Namespaces []Namespace
	// Entries are the lists.
	Entries []Entry
	// Scope says where objects of a kind are.
	Scope func(schema.GroupVersionKind) Scope
}

// Object is a desired object of a namespace.
type Object struct {
	// Entry is the index of its list.
	Entry int
	// Origin is the place of the object in its list, in the format of Capsule's status, such as raw-0.
	Origin string
	// Object is the object. Its metadata has only the name, namespace, labels and annotations.
	Object *unstructured.Unstructured
}

// Key identifies an object in a cluster, independently of its API version.
type Key struct {
	Group, Kind, Namespace, Name string
}

// KeyOf returns the key of an object.
func KeyOf(u *unstructured.Unstructured) Key {
	gvk := u.GroupVersionKind()
	return Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
}

// Refusal says why something is not replicated.
type Refusal struct {
	// Where is the list and the item in it.
	Where string
	// Reason is for people.
	Reason string
}

func (r Refusal) String() string { return r.Where + ": " + r.Reason }

// Plan returns the objects, ordered by list and then by namespace, and the refused items. A
// refused item does not prevent other objects.
func Plan(in Input) ([]Object, []Refusal) {
	p := newPlanner(in)
	for i := range in.Entries {
		p.entry(i, &in.Entries[i])
	}
	return p.planned()
}

func newPlanner(in Input) *planner {
	return &planner{in: in, seen: map[Key]int{}, origins: map[Key]string{}, said: map[Refusal]bool{}, steps: &steps{left: maxSteps}}
}

// planned returns the objects, at most [MaxObjects], and the refusals.
func (p *planner) planned() ([]Object, []Refusal) {
	if n := len(p.objects); n > MaxObjects {
		p.objects = p.objects[:MaxObjects]
		p.refuse("all", "there are %d objects in all namespaces together, and %d of them at most are replicated: make the lists shorter, or select fewer namespaces", n, MaxObjects)
	}
	return p.objects, p.refusals
}

// Selects returns the namespaces that get the list.
func (e *Entry) Selects(namespaces []Namespace) []Namespace {
	var selected []Namespace
	for _, ns := range namespaces {
		read := ns.Labels
		if e.OfTenant {
			read = ns.Chosen
		}
		if e.Selector == nil || e.Selector.Matches(labels.Set(read)) {
			selected = append(selected, ns)
		}
	}
	slices.SortFunc(selected, func(a, b Namespace) int { return strings.Compare(a.Name, b.Name) })
	return selected
}

type planner struct {
	in       Input
	objects  []Object
	refusals []Refusal
	// seen are the indexes of the objects, and origins their paths in the declaration.
	seen    map[Key]int
	origins map[Key]string
	said    map[Refusal]bool
	steps   *steps
	// once is set for objects that are applied once: see [PlanOnce].
	once bool
}

// refuse adds a refusal unless the same one exists.
func (p *planner) refuse(where, format string, args ...any) {
	r := Refusal{Where: where, Reason: fmt.Sprintf(format, args...)}
	if !p.said[r] {
		p.said[r] = true
		p.refusals = append(p.refusals, r)
	}
}

func (p *planner) entry(index int, e *Entry) {
	for _, ns := range e.Selects(p.in.Namespaces) {
		for i, raw := range e.Items {
			where := fmt.Sprintf("%s, item %d", e.Name, i)
			item, err := decode(raw)
			if err == nil && e.Variables {
				err = p.substitute(item, ns.Name)
			}
			if err != nil {
				p.refuse(where, "%v", err)
				continue
			}
			p.object(index, e, ns.Name, where, fmt.Sprintf("raw-%d", i), item)
		}
		for i, t := range e.Templates {
			made, err := t.objects(p.templateData(e, ns), p.steps)
			if err != nil {
				p.refuse(t.Where, "for namespace %s: %v", ns.Name, err)
				continue
			}
			for n, item := range made {
				p.object(index, e, ns.Name, t.Where, fmt.Sprintf("generator-%d-%d", i, n), item)
			}
		}
		for _, found := range e.Copies[ns.Name] {
			if found.GetNamespace() == ns.Name {
				continue // an earlier item has it already
			}
			where := fmt.Sprintf("%s, copy of %s %s/%s", e.Name, found.GetKind(), found.GetNamespace(), found.GetName())
			if _, again := found.GetLabels()[LabelReplicated]; again {
				p.refuse(where, "it is a copy itself: name the object that it was made of")
				continue
			}
			p.object(index, e, ns.Name, where, "item-"+found.GetName(), bare(found))
		}
	}
}

// templateData returns the data that the templates of an entry can read for a namespace.
func (p *planner) templateData(e *Entry, ns Namespace) map[string]any {
	labels := map[string]any{}
	for name, value := range ns.Labels {
		labels[name] = value
	}
	data := map[string]any{}
	for index, objects := range e.Context[ns.Name] {
		data[index] = objects
	}
	data["tenant"] = map[string]any{"metadata": map[string]any{"name": p.in.Tenant}}
	if p.in.TenantObject != nil {
		data["tenant"] = p.in.TenantObject
	}
	data["namespace"] = map[string]any{"metadata": map[string]any{"name": ns.Name, "labels": labels}}
	return data
}

// object adds an object, or a refusal if the object is not valid.
func (p *planner) object(index int, e *Entry, namespace, where, origin string, u *unstructured.Unstructured) {
	where += describe(u)
	if meta, ok := u.Object["metadata"].(map[string]any); ok && e.Capsule && !p.once {
		delete(meta, "namespace")
	}
	if reason := p.wrong(u, namespace); reason != "" {
		p.refuse(where, "%s", reason)
		return
	}
	u.SetNamespace(namespace)
	added, err := p.added(e, e.Labels, namespace)
	notes, wrong := p.added(e, e.Annotations, namespace)
	if err = errors.Join(err, wrong); err != nil {
		p.refuse(where, "%v", err)
		return
	}
	u.SetLabels(merged(u.GetLabels(), added))
	u.SetAnnotations(merged(u.GetAnnotations(), notes))
	for name := range u.GetLabels() {
		if strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
			p.refuse(where, "label %s is not yours to set: leave it out", name)
			return
		}
	}
	key := KeyOf(u)
	if other, taken := p.seen[key]; taken && e.Capsule {
		mergeInto(p.objects[other].Object.Object, u.Object)
		return
	} else if taken {
		p.refuse(where, "namespace %s gets the same object from %s: leave one of them out", namespace, p.origins[key])
		return
	}
	p.seen[key], p.origins[key] = len(p.objects), where
	p.objects = append(p.objects, Object{Entry: index, Origin: origin, Object: u})
}

// mergeInto adds the fields of another object for the same key. A value of the other object
// replaces the value of the same field.
func mergeInto(object, other map[string]any) {
	for field, value := range other {
		inner, isMap := value.(map[string]any)
		if have, ok := object[field].(map[string]any); ok && isMap {
			mergeInto(have, inner)
			continue
		}
		object[field] = value
	}
}

func describe(u *unstructured.Unstructured) string {
	if u.GetKind() == "" || u.GetName() == "" {
		return ""
	}
	return fmt.Sprintf(" (%s %s)", u.GetKind(), u.GetName())
}

// merged returns the entries of a and b, and nil if there are none. An entry of b replaces the
// entry of a with the same name.
func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}
