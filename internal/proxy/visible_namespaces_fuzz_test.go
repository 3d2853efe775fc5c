package proxy

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	"k8s.io/apimachinery/pkg/watch"
)

// fuzzNamespace is a version of a namespace in the fuzzer's API server. The text is unique
// to this version.
type fuzzNamespace struct{ version, tenant, text string }

func (n fuzzNamespace) labels() map[string]string {
	set := map[string]string{"text": n.text}
	if n.tenant != "" {
		set[v1alpha1.LabelTenant] = n.tenant
	}
	return set
}

func (n fuzzNamespace) object(name string, table bool, columns any) json.RawMessage {
	object := map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": name, "resourceVersion": n.version, "labels": n.labels()}}
	if table {
		object = map[string]any{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": n.version}, "columnDefinitions": columns, "rows": []any{map[string]any{"cells": []any{name}, "object": object}}}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err) // maps and strings can always be encoded
	}
	return raw
}

// namespaceWorld is an API server with namespaces. The cache of the proxy and the watch of a
// client receive its events with different delays.
type namespaceWorld struct {
	t      *testing.T
	d      dice
	table  bool
	events []reachEvent
	// heard and passed are the numbers of events that the cache and the watch have
	// received.
	heard, passed int
	rights        *visibleNamespaces
	// changed is the version after which the rights changed last.
	changed int
	open    *namespaceFilter
	// fresh is true until the first event of the watch, and headed once the client has
	// received a first event.
	fresh, headed bool
	// client holds the version of each namespace that the client has. at is the resource
	// version of the client.
	client map[string]string
	at     int
}

// reachEvent is an event with the namespaces after it. Its version is its position, from 1.
type reachEvent struct {
	name  string
	kind  watch.EventType
	of    fuzzNamespace
	after map[string]fuzzNamespace
}

// then returns the namespaces at a version.
func (w *namespaceWorld) then(version int) map[string]fuzzNamespace {
	if version == 0 {
		return map[string]fuzzNamespace{}
	}
	return w.events[version-1].after
}

func (w *namespaceWorld) may(name string, ns fuzzNamespace) bool {
	r := w.rights
	return slices.Contains(r.owned, ns.tenant) || ns.tenant != "" && (r.all || r.names[name])
}

// visible returns the versions of the namespaces that are visible at a version.
func (w *namespaceWorld) visible(version int) map[string]string {
	seen := map[string]string{}
	for name, ns := range w.then(version) {
		if w.may(name, ns) {
			seen[name] = ns.version
		}
	}
	return seen
}

func (w *namespaceWorld) change() {
	there := maps.Clone(w.then(len(w.events)))
	name := w.d.of("n1", "n2", "n3", "n4")
	before, was := there[name]
	version := strconv.Itoa(len(w.events) + 1)
	e := reachEvent{name, watch.Modified, fuzzNamespace{version, w.d.of("", "a", "b", "c", "d"), "text-" + version + "."}, there}
	there[name] = e.of
	if !was {
		e.kind = watch.Added
	} else if w.d.IntN(4) == 0 {
		e.kind, e.of = watch.Deleted, before
		e.of.version = version
		delete(there, name)
	}
	w.events = append(w.events, e)
}

func (w *namespaceWorld) newRights() *visibleNamespaces {
	r := &visibleNamespaces{owned: []string{"a"}, names: map[string]bool{}, all: w.d.IntN(20) == 0}
	if w.d.IntN(9) == 0 {
		r.owned = w.d.some("a", "b")
	}
	for _, name := range w.d.some("n1", "n2", "n3", "n4") {
		r.names[name] = true
	}
	return r
}

// list lists the namespaces, as a client does at first and after an expired error.
func (w *namespaceWorld) list() {
	w.at = len(w.events)
	w.client = w.visible(w.at)
	w.begin()
}

// begin opens a watch from the client's version.
func (w *namespaceWorld) begin() {
	w.passed, w.fresh, w.headed = w.at, true, false
	w.open = &namespaceFilter{visible: w.rights, memory: budget.New(budget.Default()).OpenExact("x"), shown: map[string]namespaceVersion{}, pending: map[string]bool{}, known: func(name string) (map[string]string, bool) {
		ns, ok := w.then(w.heard)[name]
		return ns.labels(), ok
	}}
	for name, ns := range w.then(w.at) {
		if w.may(name, ns) {
			w.open.shown[name] = namespaceVersion{name: name, version: ns.version, labels: ns.labels(), object: ns.object(name, w.table, nil)}
		}
	}
}

// update replaces the rights of the open watch, as after a change of the cache.
func (w *namespaceWorld) keep(rights *visibleNamespaces) {
	kept := w.open.update(rights)
	w.rights = rights
	if !kept {
		w.list()
	}
}

// pass gives the watch one more event, and checks the event that the client gets.
func (w *namespaceWorld) pass() {
	e := w.events[w.passed]
	w.passed++
	var columns any
	if w.fresh {
		columns = []any{"Name"}
	}
	w.fresh = false
	out, err := w.open.pass(fanout.Frame{Type: e.kind, Object: e.of.object(e.name, w.table, columns)})
	if err != nil {
		w.t.Fatal(err)
	}
	if out == nil {
		return
	}
	if !w.may(e.name, e.of) && strings.Contains(string(out.Object), e.of.text) {
		w.t.Fatalf("what may not be seen is sent: %s of %+v", out.Object, w.rights)
	}
	m, err := readNamespaceVersion(out.Object)
	if err != nil || m.name != e.name || m.version != e.of.version {
		w.t.Fatalf("%s %s at %s is sent as %s: %v", e.kind, e.name, e.of.version, out.Object, err)
	}
	if w.table && !w.headed && !strings.Contains(string(out.Object), `"columnDefinitions":["Name"]`) {
		w.t.Fatalf("the first table has no columns: %s", out.Object)
	}
	w.headed = true
	if _, has := w.client[e.name]; has == (out.Type == watch.Added) {
		w.t.Fatalf("%s of %s to a client with %v", out.Type, e.name, w.client)
	}
	w.at = w.passed
	w.client[e.name] = m.version
	if out.Type == watch.Deleted {
		delete(w.client, e.name)
	}
}

// FuzzReach changes namespaces and rights at random while a watch is open. The watch drops
// at random, and the cache is behind or ahead of the watch. FuzzReach checks that the
// client has exactly the visible namespaces once all events have arrived, that the client
// receives nothing that it may not see, and that its first table has columns.
func FuzzReach(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := dice{rand.New(rand.NewPCG(seed, 11))}
		w := &namespaceWorld{t: t, d: d, table: d.IntN(2) == 0, changed: -1}
		w.rights = w.newRights()
		for range d.IntN(6) {
			w.change()
		}
		w.list()
		for range 60 {
			switch d.IntN(12) {
			case 0, 1, 2, 3:
				w.change()
			case 4, 5, 6, 7:
				if w.passed < len(w.events) {
					w.pass()
				}
			case 8, 9:
				w.heard += d.IntN(len(w.events) - w.heard + 1)
				w.keep(w.rights)
			case 10:
				w.changed = len(w.events)
				w.keep(w.newRights())
			case 11: // the connection drops, and the client continues
				if w.at <= w.changed || w.heard < w.changed {
					w.list() // see history: the change is newer, or has just arrived
				} else {
					w.begin()
				}
			}
			if w.heard < len(w.events) || w.passed < len(w.events) {
				continue
			}
			w.keep(w.rights)
			if diff := cmp.Diff(w.visible(len(w.events)), w.client); diff != "" {
				t.Fatalf("at version %d the client believes something else than it may see (-want +got):\n%s", len(w.events), diff)
			}
		}
	})
}
