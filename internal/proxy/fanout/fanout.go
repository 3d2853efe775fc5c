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
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
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
}

// Server merges lists and watches. It may be used from many goroutines. It buffers a list
// until it has sent the list, and rejects a list that exceeds the limits of Memory.
type Server struct {
	// Transport sends requests to the API server. It adds no credentials: the request has
	// the caller's.
	Transport http.RoundTripper
	// Base is the address of the API server.
	Base *url.URL
	// Memory limits the bytes that lists buffer.
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

// send sends the request for one namespace to the API server.
func (s *Server) send(r *http.Request, q Request, namespace, accept string, query url.Values) (*http.Response, error) {
	address := *s.Base
	address.Path = strings.TrimSuffix(address.Path, "/") + q.Prefix + "/namespaces/" + namespace + "/" + q.Resource
	address.RawPath = ""
	address.RawQuery = query.Encode()
	one, err := http.NewRequestWithContext(r.Context(), http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	one.Header = passedOn(r.Header)
	one.Header.Set("Accept", accept)
	response, err := s.Transport.RoundTrip(one)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the API server: %w", err)
	}
	return response, nil
}

// PerConnection reports whether a header, by its canonical name, is a hop-by-hop field,
// which a proxy does not pass on (RFC 9110, section 7.6.1).
func PerConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// passedOn returns the caller's header without the hop-by-hop fields, Accept-Encoding,
// Content-Length, and the X-Remote-* fields that only a front proxy may set.
func passedOn(header http.Header) http.Header {
	out := header.Clone()
	maps.DeleteFunc(out, func(name string, _ []string) bool {
		return PerConnection(name) || name == "Accept-Encoding" || name == "Content-Length" || strings.HasPrefix(name, "X-Remote-")
	})
	return out
}

// Accepted returns the media types of JSON among the media types that a caller accepts. It
// returns an *errors.StatusError 406 if the caller does not accept JSON.
func Accepted(header http.Header) (string, error) {
	var kept []string
	all := strings.Join(header.Values("Accept"), ",")
	if strings.TrimSpace(all) == "" {
		return "application/json", nil
	}
	for part := range strings.SplitSeq(all, ",") {
		kind, parameters, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		switch kind {
		case "application/json":
			kept = append(kept, mime.FormatMediaType(kind, parameters))
		case "*/*", "application/*":
			kept = append(kept, "application/json")
		}
	}
	if len(kept) == 0 {
		return "", statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only application/json is served of what is put together from several tenants or namespaces")
	}
	return strings.Join(slices.Compact(kept), ","), nil
}

// statusError returns an error in the form of the API server's errors.
func statusError(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// expired returns the error after which a client lists again.
func expired(message string) *apierrors.StatusError {
	return statusError(http.StatusGone, metav1.StatusReasonExpired, message)
}

// refuse answers with an error, as the API server does.
func refuse(w http.ResponseWriter, err error) {
	var known *apierrors.StatusError
	if !errors.As(err, &known) {
		known = statusError(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, err.Error())
	}
	known.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(known.ErrStatus)
	if err != nil {
		panic(err) // a Status can always be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	if known.ErrStatus.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(budget.RetryAfter))
	}
	w.WriteHeader(int(known.ErrStatus.Code))
	_, _ = w.Write(append(body, '\n'))
}
