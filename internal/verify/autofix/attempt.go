package autofix

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// expectation reports whether the objects that Flux applies show the intended effect of an edit.
type expectation func(built) bool

// state is the part of a tree that edits change.
type state struct {
	now       map[string]string
	namespace map[string][]string
	manifests []string
	notes     []string
}

func (t *tree) save() state {
	return state{maps.Clone(t.now), maps.Clone(t.namespace), slices.Clone(t.manifests), slices.Clone(t.notes)}
}

func (t *tree) restore(s state) {
	t.now, t.namespace, t.manifests, t.notes = s.now, s.namespace, s.manifests, s.notes
}

// attempt makes edits, and builds the objects that Flux applies with and without them. It reverts the edits
// if a folder no longer builds, if they add or remove an unrelated object, or if the result lacks the
// effect of an edit. It then tries each edit by itself. It returns an error if no folder can be built.
func (t *tree) attempt(edits ...func()) error {
	was := t.save()
	before, err := t.bench.build(t)
	if err != nil {
		return err
	}
	t.expects = nil
	for _, edit := range edits {
		edit()
	}
	if maps.Equal(was.now, t.now) {
		t.restore(was)
		return nil
	}
	after, err := t.bench.build(t)
	if err == nil && t.holds(before, after) {
		return nil
	}
	t.restore(was)
	if err != nil || len(edits) == 1 {
		return err
	}
	for _, edit := range edits {
		if err := t.attempt(edit); err != nil {
			return err
		}
	}
	return nil
}

// holds compares the builds before and after edits. Narrower rights add roles and bindings,
// and remove ClusterRoleBindings; all other objects stay.
func (t *tree) holds(before, after built) bool {
	for r, objects := range before {
		now, ok := after[r]
		if !ok || !within(objects, now, "ClusterRoleBinding") || !within(now, objects, "Role", "RoleBinding") {
			return false
		}
	}
	return !slices.ContainsFunc(t.expects, func(e expectation) bool { return !e(after) })
}

// within reports whether others contain all objects, except objects of some kinds.
func within(objects, others []*unstructured.Unstructured, but ...string) bool {
	id := func(o *unstructured.Unstructured) string {
		return o.GetAPIVersion() + " " + o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	all := map[string]bool{}
	for _, o := range others {
		all[id(o)] = true
	}
	return !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		return !all[id(o)] && !slices.Contains(but, o.GetKind())
	})
}
