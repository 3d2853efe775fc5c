package fanout

import (
	"context"
	"encoding/json"
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
)

// errUnreachable says that a request to the API server failed.
var errUnreachable = errors.New("cannot reach the API server")

// send sends the request for one namespace to the API server. It does not change the header.
func (s *Server) send(ctx context.Context, q Request, namespace string, header http.Header, query url.Values) (*http.Response, error) {
	address := *s.Base
	address.Path = strings.TrimSuffix(address.Path, "/") + q.Prefix + "/namespaces/" + namespace + "/" + q.Resource
	address.RawPath = ""
	address.RawQuery = query.Encode()
	one, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	one.Header = header
	response, err := s.Transport.RoundTrip(one)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
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

// passedOn returns the header of requests to the API server: the caller's, with other media types, without the hop-by-hop fields, Accept-Encoding,
// Content-Length, and the X-Remote-* fields that only a front proxy may set.
func passedOn(header http.Header, accept string) http.Header {
	out := header.Clone()
	maps.DeleteFunc(out, func(name string, _ []string) bool {
		return PerConnection(name) || name == "Accept-Encoding" || name == "Content-Length" || strings.HasPrefix(name, "X-Remote-")
	})
	out.Set("Accept", accept)
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
		return "", statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "the proxy merges the objects of several namespaces, and sends them as application/json only: accept that media type")
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

// refuse answers with an error, as the API server does. The client does not see the reason of a failed connection, which
// contains the address of the API server.
func refuse(w http.ResponseWriter, err error) {
	var known *apierrors.StatusError
	if !errors.As(err, &known) {
		if errors.Is(err, errUnreachable) {
			err = errUnreachable
		}
		known = statusError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error())
	}
	known.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(known.ErrStatus)
	if err != nil {
		panic(err) // a Status can always be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	if code := known.ErrStatus.Code; code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(budget.RetryAfter))
	}
	w.WriteHeader(int(known.ErrStatus.Code))
	_, _ = w.Write(append(body, '\n'))
}

// nowhere returns the error for a caller without the right in any namespace.
func nowhere(q Request) error {
	return statusError(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("%s is forbidden: there is no namespace in which you may list them", q.Resource))
}

// errorOf returns the error of an answer of the API server.
func errorOf(code int, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" || status.Code == 0 {
		return statusError(int32(code), metav1.StatusReasonUnknown, http.StatusText(code)) // an HTTP status code
	}
	return &apierrors.StatusError{ErrStatus: status}
}
