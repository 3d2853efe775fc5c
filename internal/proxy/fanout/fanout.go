// Package fanout answers lists and watches in all namespaces for callers that may read the
// objects in some namespaces only. It sends a request for each of these namespaces to the
// API server, with the caller's credentials, and joins the answers. It has no credentials
// of its own, so that the API server refuses a namespace that the caller may not read.
//
// It joins answers without knowledge of the kinds: it splits a list into its items and
// passes the items on unchanged. It supports JSON only; clients that ask for protobuf also
// accept JSON.
package fanout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Visible returns the sorted namespaces in which an identity has the right that a request
// needs, and a channel that is closed when the namespaces may have changed.
type Visible func() (namespaces []string, changed <-chan struct{})

// Request is a request for objects in all namespaces.
type Request struct {
	// Identity identifies the caller. Two identities have different texts.
	Identity string
	// FlowKey is the quota key under which the memory of an answer is counted: see [Server].
	// "" is a valid key.
	FlowKey string
	// Prefix is the path up to the resource, such as /api/v1 or
	// /apis/apps/v1.
	Prefix string
	// Resource is the plural name of the resource.
	Resource string
	// Watch is true for a watch.
	Watch bool
	// Visible returns the namespaces to read.
	Visible Visible
	// Grow is called when a watch reads more namespaces, with their number. It returns false if
	// they are too many. nil allows any number.
	Grow func(namespaces int) bool
}

// Server merges lists and watches. It may be used from many goroutines. It buffers a list
// until it has sent the list, and rejects a list that exceeds the limits of Memory.
type Server struct {
	// Transport sends requests to the API server. It adds no credentials: the request has
	// the caller's.
	Transport http.RoundTripper
	// Base is the address of the API server.
	Base *url.URL
	// Memory limits the bytes that lists and the events of watches buffer.
	Memory *budget.Budget

	positions positions
}

// Answer answers a request. The request r is the caller's, with all headers for the API
// server. Answer returns false and writes nothing if the kind is cluster-scoped or does not
// exist.
func (s *Server) Answer(w http.ResponseWriter, r *http.Request, q Request) (answered bool) {
	accept, err := Accepted(r.Header)
	if err == nil && q.Watch {
		err = s.watch(w, r, q, accept)
	} else if err == nil {
		err = s.list(w, r, q, accept)
	}
	if apierrors.IsNotFound(err) {
		return false
	}
	if err != nil {
		refuse(w, err)
	}
	return true
}

// parallel is the maximum number of namespaces that one list reads at the same time.
const parallel = 8

// list answers with the objects of all visible namespaces at one resource version.
func (s *Server) list(w http.ResponseWriter, r *http.Request, q Request, accept string) error {
	query := r.URL.Query()
	namespaces, _ := q.Visible()
	l := &lister{server: s, request: r, q: q, header: passedOn(r.Header, accept), memory: s.Memory.Open(q.FlowKey)}
	defer l.memory.Close()
	joined, err := l.collect(query, namespaces)
	if err != nil {
		return err
	}
	if joined.Metadata.Continue == "" && query.Get("continue") == "" {
		at := map[string]string{}
		for _, namespace := range namespaces {
			at[namespace] = joined.Metadata.ResourceVersion
		}
		s.positions.set(q.FlowKey, q.key(query, joined.Metadata.ResourceVersion), at)
	}
	head, err := joined.head()
	if err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	out := bufio.NewWriterSize(w, writeSize)
	_, _ = out.Write(head)
	joined.writeMembers(out)
	_ = out.Flush() // the caller may be gone
	return nil
}

// lister is one list of a caller, joined from one list for each namespace.
type lister struct {
	server  *Server
	request *http.Request
	q       Request
	header  http.Header // of the requests to the API server
	// memory limits the bytes of the list.
	memory *budget.Reservation
}

// collect reads the list, or the page of it that the query asks for.
func (l *lister) collect(query url.Values, namespaces []string) (*collection, error) {
	limit := 0
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			return nil, apierrors.NewBadRequest("limit is not a number")
		}
	}
	if token := query.Get("continue"); token != "" {
		from, err := decodePageToken(token)
		if err != nil {
			return nil, err
		}
		at, _ := slices.BinarySearch(namespaces, from.Namespace)
		return l.page(query, namespaces[at:], limit, from)
	}
	if limit > 0 {
		return l.page(query, namespaces, limit, pageToken{})
	}
	return l.listAll(query, namespaces)
}

// listAll reads all namespaces. It reads the other namespaces at the resource version of
// the first answer.
func (l *lister) listAll(query url.Values, namespaces []string) (*collection, error) {
	var joined *collection
	rest := namespaces
	for joined == nil && len(rest) > 0 {
		first, err := l.listNamespace(l.request.Context(), query, rest[0])
		if err != nil {
			return nil, err
		}
		joined, rest = first, rest[1:]
	}
	if joined == nil {
		return nil, nowhere(l.q)
	}
	query = exact(query, joined.Metadata.ResourceVersion)
	parts := make([]*collection, len(rest))
	group, ctx := errgroup.WithContext(l.request.Context())
	group.SetLimit(parallel)
	for i, namespace := range rest {
		group.Go(func() (err error) {
			parts[i], err = l.listNamespace(ctx, query, namespace)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, part := range parts {
		joined.add(part)
	}
	return joined, nil
}

// page reads namespaces one after the other until it has limit objects; 0 means no limit.
func (l *lister) page(query url.Values, namespaces []string, limit int, from pageToken) (*collection, error) {
	var joined *collection
	version := from.Version
	for i, namespace := range namespaces {
		asked := query
		if version != "" {
			asked = exact(query, version)
		}
		asked.Del("continue")
		if from.Continue != "" && namespace == from.Namespace {
			asked.Del("resourceVersion")
			asked.Del("resourceVersionMatch")
			asked.Set("continue", from.Continue)
		}
		if limit > 0 {
			asked.Set("limit", strconv.Itoa(limit-joined.size()))
		}
		part, err := l.listNamespace(l.request.Context(), asked, namespace)
		if err != nil {
			return nil, err
		}
		if part == nil {
			continue
		}
		if joined == nil {
			joined, version = part, part.Metadata.ResourceVersion
		} else {
			joined.Metadata.Continue = part.Metadata.Continue
			joined.add(part)
		}
		joined.Metadata.RemainingItemCount = nil
		switch {
		case joined.Metadata.Continue != "":
			joined.Metadata.Continue = pageToken{namespace, joined.Metadata.Continue, version}.encode()
			return joined, nil
		case limit > 0 && joined.size() >= limit && i+1 < len(namespaces):
			joined.Metadata.Continue = pageToken{namespaces[i+1], "", version}.encode()
			return joined, nil
		}
	}
	switch {
	case joined == nil && from.Version != "":
		return nil, expired("the namespaces of the rest of the list are gone: list again from the beginning")
	case joined == nil:
		return nil, nowhere(l.q)
	}
	return joined, nil
}

// listNamespace reads one namespace. It returns nil if the API server answers with 403: the
// caller may have lost the right a moment ago.
func (l *lister) listNamespace(ctx context.Context, query url.Values, namespace string) (*collection, error) {
	response, err := l.server.send(ctx, l.q, namespace, l.header, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // it has been read
	body, err := io.ReadAll(l.memory.Reader(response.Body))
	var full *apierrors.StatusError
	switch {
	case errors.As(err, &full):
		return nil, full
	case err != nil:
		return nil, fmt.Errorf("cannot read the answer for namespace %s: %w", namespace, err)
	case response.StatusCode == http.StatusForbidden:
		return nil, nil
	case response.StatusCode != http.StatusOK:
		return nil, errorOf(response.StatusCode, body)
	}
	var part collection
	if err := json.Unmarshal(body, &part); err != nil {
		return nil, fmt.Errorf("cannot read the answer for namespace %s: %w", namespace, err)
	}
	return &part, nil
}

// exact returns a copy of a query that asks for the objects at exactly one resource
// version.
func exact(query url.Values, version string) url.Values {
	out := url.Values{}
	for name, values := range query {
		out[name] = slices.Clone(values)
	}
	out.Set("resourceVersion", version)
	out.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
	return out
}

// collection is a list or a Table. Its items and rows are not decoded.
type collection struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   metav1.ListMeta   `json:"metadata"`
	Columns    json.RawMessage   `json:"columnDefinitions,omitempty"`
	Rows       []json.RawMessage `json:"rows,omitzero"`
	Items      []json.RawMessage `json:"items,omitzero"`
}

// head returns the JSON of a collection without its items and rows and without the closing
// brace.
func (c *collection) head() ([]byte, error) {
	text, err := json.Marshal(collection{Kind: c.Kind, APIVersion: c.APIVersion, Metadata: c.Metadata, Columns: c.Columns})
	return bytes.TrimSuffix(text, []byte("}")), err
}

// writeMembers writes the items and rows and the closing brace. It writes one member after
// the other, because one text of all members would need their memory a second time. The
// writer keeps the first error.
func (c *collection) writeMembers(w *bufio.Writer) {
	for _, part := range []struct {
		name    string
		members []json.RawMessage
	}{{"rows", c.Rows}, {"items", c.Items}} {
		if part.members == nil {
			continue
		}
		_, _ = w.WriteString(`,"` + part.name + `":[`)
		for i, member := range part.members {
			if i > 0 {
				_ = w.WriteByte(',')
			}
			_, _ = w.Write(member)
		}
		_ = w.WriteByte(']')
	}
	_, _ = w.WriteString("}\n")
}

func (c *collection) size() int {
	if c == nil {
		return 0
	}
	return len(c.Items) + len(c.Rows)
}

func (c *collection) add(part *collection) {
	if part == nil {
		return
	}
	c.Items = append(c.Items, part.Items...)
	c.Rows = append(c.Rows, part.Rows...)
}

// writeSize is the size of the write buffer of an answer, in bytes.
const writeSize = 32 << 10

// pageToken is the content of a continue token: the next namespace, the API server's own
// token within that namespace if there is one, and the resource version of all pages.
type pageToken struct {
	Namespace string `json:"n"`
	Continue  string `json:"c,omitempty"`
	Version   string `json:"v"`
}

func (t pageToken) encode() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // three strings
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodePageToken(text string) (t pageToken, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.Namespace == "" || t.Version == "" {
		return pageToken{}, apierrors.NewBadRequest("continue key is not valid")
	}
	return t, nil
}
