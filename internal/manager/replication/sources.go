package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxFound is the maximum number of objects that a selector may select.
const maxFound = 64

// source is a reference to existing objects.
type source struct {
	// where is the path of the reference in its declaration, for messages.
	where string
	kind  schema.GroupVersionKind
	// namespace is the namespace of the objects.
	namespace string
	// name is the name of a single object; without it, selector selects objects, nil all of them.
	name     string
	selector labels.Selector
	// labels select the objects of a source with variables; nil selects all.
	labels *metav1.LabelSelector
	// variables is set if the namespace, the name or the labels have variables.
	variables bool
	// strip are labels that copies do not get.
	strip map[string]string
	// optional is set if the object may be missing.
	optional bool
	// index is the name of the objects in templates.
	index string
	// inEach is set if the objects are in the namespace that gets the template's objects.
	inEach bool
	// reader returns the account that reads the objects of a namespace for a target namespace.
	reader func(source, namespace string) replication.Account
}

// of returns the source with the variables replaced by a tenant and a target namespace.
func (src source) of(tenant, namespace string) (source, error) {
	if src.inEach {
		src.namespace = namespace
	}
	if !src.variables {
		return src, nil
	}
	filled := replication.Filled(map[string]string{"namespace": src.namespace, "name": src.name}, tenant, namespace)
	src.namespace, src.name = filled["namespace"], filled["name"]
	if src.name != "" {
		return src, nil
	}
	by := src.labels.DeepCopy()
	if by != nil {
		by.MatchLabels = replication.Filled(by.MatchLabels, tenant, namespace)
	}
	src.strip = replication.Filled(src.strip, tenant, namespace)
	var err error
	src.selector, err = selector(by)
	return src, err
}

// reading identifies what an account finds by a source.
type reading struct {
	account                   replication.Account
	namespace, name, selector string
}

func (src source) reading(namespace string) reading {
	r := reading{account: src.reader(src.namespace, namespace), namespace: src.namespace, name: src.name}
	if src.selector != nil {
		r.selector = src.selector.String()
	}
	return r
}

// copies reads the objects that an entry copies, for each target namespace. If the account
// may not read an object, copies adds a problem.
func (e *Engine) copies(ctx context.Context, from *entry, s scope, p *problems) map[string][]*unstructured.Unstructured {
	if len(from.from) == 0 {
		return nil
	}
	all := map[string][]*unstructured.Unstructured{}
	for _, src := range from.from {
		if e.scope(src.kind) != replication.Namespaced {
			p.add(reasonRefused, "%s: the cluster has no kind %s of %s in namespaces", src.where, src.kind.Kind, src.kind.GroupVersion())
			continue
		}
		// Usually one account reads the same objects for all namespaces.
		read := map[reading][]*unstructured.Unstructured{}
		for _, ns := range from.Selects(s.namespaces) {
			here, err := src.of(s.tenant, ns.Name)
			if err != nil {
				p.add(reasonRefused, "%s: the selector selects nothing: %v", src.where, err)
				continue
			}
			key := here.reading(ns.Name)
			found, done := read[key]
			if !done {
				found = e.find(ctx, here, key.account, p)
				if from.Capsule && here.name == "" {
					// Skip copies: the plan would refuse them, and the selector does not name them.
					found = slices.DeleteFunc(found, func(u *unstructured.Unstructured) bool { return u.GetLabels()[replication.LabelReplicated] != "" })
				}
				read[key] = found
			}
			all[ns.Name] = append(all[ns.Name], found...)
		}
	}
	return all
}

// contexts reads the objects that the templates of an entry use, for each target namespace.
func (e *Engine) contexts(ctx context.Context, from *entry, s scope, p *problems) map[string]map[string]any {
	if len(from.context) == 0 || len(from.Templates) == 0 {
		return nil
	}
	all := map[string]map[string]any{}
	for _, src := range from.context {
		if e.scope(src.kind) != replication.Namespaced {
			p.add(reasonRefused, "%s: the cluster has no kind %s of %s in namespaces", src.where, src.kind.Kind, src.kind.GroupVersion())
			continue
		}
		read := map[reading][]any{}
		for _, ns := range from.Selects(s.namespaces) {
			here, err := src.of(s.tenant, ns.Name)
			if err != nil {
				p.add(reasonRefused, "%s: the selector selects nothing: %v", src.where, err)
				continue
			}
			key := here.reading(ns.Name)
			objects, done := read[key]
			if !done {
				objects = []any{}
				for _, u := range e.find(ctx, here, key.account, p) {
					objects = append(objects, u.Object)
				}
				read[key] = objects
			}
			if all[ns.Name] == nil {
				all[ns.Name] = map[string]any{}
			}
			all[ns.Name][src.index] = objects
		}
	}
	return all
}

// crossNamespace is Capsule's message for a tenant's reference to another namespace.
const crossNamespace = "cross-namespace selection is not allowed"

// withoutSelector removes the labels by which a selector found an object, so that it does not find
// the copies.
func withoutSelector(u *unstructured.Unstructured, selector map[string]string) {
	labels := u.GetLabels()
	for name, value := range selector {
		if labels[name] == value {
			delete(labels, name)
		}
	}
	u.SetLabels(labels)
}

// find reads the objects of a source as an account.
func (e *Engine) find(ctx context.Context, src source, account replication.Account, p *problems) []*unstructured.Unstructured {
	c, err := e.Clients.As(account)
	if err != nil {
		p.add(reasonFailed, "%s: %v", src.where, err)
		return nil
	}
	var found []*unstructured.Unstructured
	if src.name != "" {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(src.kind)
		err = c.Get(ctx, client.ObjectKey{Namespace: src.namespace, Name: src.name}, u)
		found = append(found, u)
	} else {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(src.kind)
		by := src.selector
		if by == nil {
			by = labels.Everything()
		}
		err = c.List(ctx, list, client.InNamespace(src.namespace), client.MatchingLabelsSelector{Selector: by}, client.Limit(maxFound+1))
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	who := account.Namespace + "/" + account.Name
	switch {
	case apierrors.IsNotFound(err) && src.optional:
		return nil
	case apierrors.IsNotFound(err):
		p.add(reasonFailed, "%s: there is no %s %s/%s", src.where, src.kind.Kind, src.namespace, src.name)
		return nil
	case cannotImpersonate(err):
		p.add(reasonWaiting, "%s: the manager may not act as account %s yet", src.where, who)
		return nil
	case apierrors.IsForbidden(err):
		p.add(reasonRefused, "%s: %s without a right: account %s may not read it: a platform admin allows that with a RoleBinding in namespace %s: %v", src.where, crossNamespace, who, src.namespace, err)
		return nil
	case err != nil:
		p.add(reasonFailed, "%s: %v", src.where, err)
		return nil
	case len(found) > maxFound:
		p.add(reasonRefused, "%s: the selector finds more than %d objects", src.where, maxFound)
		return nil
	}
	for _, u := range found {
		withoutSelector(u, src.strip)
	}
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

// kindOf parses an API version and a kind.
func kindOf(apiVersion, kind string) (schema.GroupVersionKind, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || kind == "" || version.Version == "" {
		return schema.GroupVersionKind{}, fmt.Errorf("%q and %q are no apiVersion and kind", apiVersion, kind)
	}
	return version.WithKind(kind), nil
}
