// Package fanout answers lists and watches of namespaced objects across all
// namespaces for identities that may read them in some namespaces only: it asks
// the API server for each of these namespaces, as the caller, and joins the
// answers. It has no rights of its own, so that a namespace that should not be
// among them is refused by the API server.
//
// Answers are joined without knowing the kinds: lists are taken apart into their
// items, which are passed on as they are. Only JSON is spoken; clients that ask
// for protobuf accept it too.
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

// Visible says in which namespaces an identity may do what a request asks for, in
// order, and gives a channel that is closed when that may have changed.
type Visible func() (namespaces []string, changed <-chan struct{})

// Question is a request that goes across all namespaces.
type Question struct {
	// Who is the identity that asks, as a text that no other identity has.
	Who string
	// Payer is for whom the memory that an answer takes is counted: see [Server]. "" is a payer,
	// too.
	Payer string
	// Prefix is the path up to the resource, such as /api/v1 or
	// /apis/apps/v1.
	Prefix string
	// Resource is the plural name of the resource.
	Resource string
	// Watch says that it is a watch.
	Watch bool
	// Visible are the namespaces to look in.
	Visible Visible
}

// Server merges lists. It may be used from many goroutines. It buffers a list until it
// has sent it, and rejects the list if Memory has no room for it.
type Server struct {
	// Transport reaches the API server. It adds no credentials: those of the
	// caller are in the request.
	Transport http.RoundTripper
	// Base is the address of the API server.
	Base *url.URL
	// Memory limits the bytes that lists buffer.
	Memory *budget.Budget

	positions positions
}

// Answer answers a question. The request is that of the caller, with all headers
// that the API server is to see. It returns false, without having said anything,
// when the kind is in no namespace, or is not there.
func (s *Server) Answer(w http.ResponseWriter, r *http.Request, q Question) (answered bool) {
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

// ask sends a request for one namespace.
func (s *Server) ask(r *http.Request, q Question, namespace, accept string, query url.Values) (*http.Response, error) {
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

// PerConnection says whether a header, by its canonical name, speaks of one connection
// alone, so that a proxy does not pass it on (RFC 9110, section 7.6.1).
func PerConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// passedOn is a caller's header without what is not for the API server: what speaks of
// the connection, or of an encoding that is not passed through, and the names of a
// front proxy, which we are not.
func passedOn(header http.Header) http.Header {
	out := header.Clone()
	maps.DeleteFunc(out, func(name string, _ []string) bool {
		return PerConnection(name) || name == "Accept-Encoding" || name == "Content-Length" || strings.HasPrefix(name, "X-Remote-")
	})
	return out
}

// Accepted returns the media types of JSON among those that a caller accepts. The error
// is an *errors.StatusError 406: nothing of it is JSON.
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

// statusError is an error as the API server gives it.
func statusError(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// expired tells a client to list anew.
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
		panic(err) // a Status can be written
	}
	w.Header().Set("Content-Type", "application/json")
	if known.ErrStatus.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(budget.RetryAfter))
	}
	w.WriteHeader(int(known.ErrStatus.Code))
	_, _ = w.Write(append(body, '\n'))
}
