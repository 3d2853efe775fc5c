package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// namespaceFilter filters a watch of all namespaces by the visible set of a user. It sends the events
// that the API server sends for a selector: ADDED for a namespace that becomes visible, and
// DELETED with the last visible object for a namespace that becomes invisible, both at the
// resource version of the change. So a client can continue from any event and misses no
// change.
type namespaceFilter struct {
	// accept holds the media types for the API server's answer: JSON types that the client
	// accepts.
	accept string
	// known returns the labels of a namespace in the cache.
	known func(name string) (labels map[string]string, ok bool)

	mu      sync.Mutex
	visible *visibleNamespaces
	// shown holds the namespaces that the client knows, in the version that it received
	// last.
	shown map[string]namespaceVersion
	// pending holds the namespaces that RBAC has begun to name and for which no event has
	// arrived since. They were not shown before, because they belonged to no tenant.
	pending map[string]bool
	// memory is the Reservation for the bytes of shown.
	memory *budget.Reservation
	// columns are the columns of the table, which only the first event has. headed
	// reports that the client has received them.
	columns json.RawMessage
	headed  bool
}

// watch returns the filter of a watch, and changes the query so that it selects all
// namespaces, with the client's own selectors. It assumes that a client that continues from
// a version has the namespaces that were visible then.
func (r namespaceReader) watch(ctx context.Context, query url.Values, visible *visibleNamespaces, continues bool) (*namespaceFilter, error) {
	// This only checks the query. The selection applies to the namespaces that readAt reads.
	if err := narrow(maps.Clone(query), Selection{Labels: emptySelector}); err != nil {
		return nil, err
	}
	accept, err := fanout.Accepted(r.request.Header)
	if err != nil {
		var status *apierrors.StatusError
		if errors.As(err, &status) {
			return nil, refuse("accept", status)
		}
		return nil, err
	}
	if query.Get("includeObject") == "None" {
		query.Set("includeObject", "Metadata") // the filter needs the labels
	}
	f := &namespaceFilter{accept: accept, visible: visible, memory: r.call.memory, shown: map[string]namespaceVersion{}, pending: map[string]bool{}, known: func(name string) (map[string]string, bool) {
		ns, ok := r.proxy.cache.namespace(name)
		if !ok {
			return nil, false
		}
		return ns.Labels, true
	}}
	if !continues {
		return f, nil
	}
	then := maps.Clone(query)
	exactly(then, query.Get("resourceVersion"))
	f.shown, _, err = r.readAt(ctx, then, listAccept(accept), visible)
	return f, err
}

// listAccept returns the media types of a list whose objects have the form of events in
// accept.
func listAccept(accept string) string {
	return strings.ReplaceAll(accept, "as=PartialObjectMetadata;", "as=PartialObjectMetadataList;")
}

// copyTo sends the visible events to the client until either side ends the watch or an event
// cannot be parsed.
func (f *namespaceFilter) copyTo(s *stream, body io.Reader) error {
	events := fanout.NewDecoder(body)
	for {
		next, err := events.Next()
		if err != nil {
			return nil
		}
		out, err := f.pass(next)
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		text, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if _, err := s.Write(append(text, '\n')); err != nil {
			return nil
		}
	}
}

// pass returns the event that the client gets for an event of the API server, or nil.
func (f *namespaceFilter) pass(in fanout.Frame) (*fanout.Frame, error) {
	if in.Type == watch.Error {
		return &in, nil
	}
	m, err := readNamespaceVersion(in.Object)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.noteColumns(in.Object); err != nil {
		return nil, err
	}
	switch in.Type {
	case watch.Bookmark:
		if m.name != "" {
			return nil, errors.New("cannot pass on a bookmark with a name")
		}
		return f.withColumns(in)
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return nil, fmt.Errorf("cannot pass on an event of the type %q", in.Type)
	}
	if m.name == "" {
		return nil, errNameless
	}
	delete(f.pending, m.name)
	before, was := f.shown[m.name]
	may := f.visible.sees(m.name, m.labels)
	if may && in.Type != watch.Deleted {
		if err := f.memory.Take(int64(len(m.object) - len(before.object))); err != nil {
			return nil, err
		}
		f.shown[m.name] = m
		in.Type = watch.Modified
		if !was {
			in.Type = watch.Added
		}
		return f.withColumns(in)
	}
	if !was {
		return nil, nil
	}
	delete(f.shown, m.name)
	if err := f.memory.Take(-int64(len(before.object))); err != nil {
		return nil, err
	}
	in.Type = watch.Deleted
	if !may {
		// The client gets the new resource version and no other new field.
		if in.Object, err = fanout.WithVersion(before.object, m.version); err != nil {
			return nil, err
		}
	}
	return f.withColumns(in)
}

// noteColumns keeps the columns of a table.
func (f *namespaceFilter) noteColumns(object json.RawMessage) error {
	if f.headed || f.columns != nil {
		return nil
	}
	var table struct{ ColumnDefinitions json.RawMessage }
	if err := json.Unmarshal(object, &table); err != nil {
		return err
	}
	if string(table.ColumnDefinitions) != "null" {
		f.columns = table.ColumnDefinitions
	}
	return nil
}

// withColumns adds the columns to the first Table that the client receives.
func (f *namespaceFilter) withColumns(out fanout.Frame) (*fanout.Frame, error) {
	if f.headed || f.columns == nil {
		return &out, nil
	}
	var table map[string]json.RawMessage
	if err := json.Unmarshal(out.Object, &table); err != nil {
		return nil, err
	}
	table["columnDefinitions"] = f.columns
	raw, err := json.Marshal(table)
	f.headed, f.columns = true, nil
	out.Object = raw
	return &out, err
}

// update replaces the visible set. It returns false if a namespace became visible or invisible
// by a change of rights alone: no event of the API server tells the client then.
func (f *namespaceFilter) update(now *visibleNamespaces) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.all != f.visible.all || !slices.Equal(now.owned, f.visible.owned) {
		return false
	}
	for name := range now.names {
		if _, shown := f.shown[name]; !shown && !f.visible.names[name] {
			f.pending[name] = true
		}
	}
	for name := range f.visible.names {
		if m, shown := f.shown[name]; !now.names[name] && shown && !now.owns(m.labels) {
			return false
		}
	}
	f.visible = now
	for name := range f.pending {
		if set, ok := f.known(name); ok && now.names[name] && now.foreign(set) {
			return false
		}
	}
	return true
}
