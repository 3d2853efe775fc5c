package proxy

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// withRequestInfo parses a request. It refuses a request without a credential, and a request in
// which the proxy and the API server could read different credentials or users.
func (p *Proxy) withRequestInfo(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		parsed, err := parseRequest(r, p.checks)
		if err != nil {
			return err
		}
		*c = *parsed
		c.auditID = w.auditID
		next.ServeHTTP(w, r.WithContext(withCall(r.Context(), c)))
		return nil
	})
}

// requestCall holds the parsed properties of a request.
type requestCall struct {
	// withRequestInfo sets these fields. impersonation is nil for a request without it.
	credential    credential
	impersonation *impersonation
	info          *request.RequestInfo
	// unambiguous reports that the path is canonical, that the query is valid and that the request
	// is no upgrade. The proxy answers only such requests itself.
	unambiguous bool
	upgrade     bool
	// auditID returns the audit ID of the request.
	auditID func() string

	// caller is the user of the credential: withAuthentication sets it.
	caller user.Info
	// impersonated is the user after impersonation: identity sets it.
	impersonated user.Info
	// flowKey is the key under which the limits count the caller, also if it impersonates.
	// withUserLimits sets it and memory.
	flowKey string
	// memory limits the bytes of the request and of its answer that are in memory at the same
	// time.
	memory *budget.Reservation
}

// infos parses requests as the API server does.
var infos = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// requestCheck reads or checks one property of a request. Its error refuses the request.
type requestCheck struct {
	name string
	do   func(*http.Request, *requestCall) error
}

// requestChecks returns the checks of every request, in order.
func requestChecks(certificates bool) []requestCheck {
	return []requestCheck{
		{"fields", func(r *http.Request, _ *requestCall) error { return checkFields(r) }},
		{"hops", func(r *http.Request, _ *requestCall) error { return checkHops(r) }},
		{"credential", func(r *http.Request, c *requestCall) (err error) {
			c.credential, err = readCredential(r, certificates)
			return err
		}},
		{"impersonation", func(r *http.Request, c *requestCall) (err error) {
			c.impersonation, err = readImpersonation(r.Header)
			return err
		}},
		{"masters", func(_ *http.Request, c *requestCall) error { return c.impersonation.checkGroups() }},
		{"path", func(r *http.Request, _ *requestCall) error {
			if !strings.HasPrefix(r.URL.Path, "/") || r.URL.Opaque != "" {
				return badRequest("path", "the address of the request is not a path")
			}
			return nil
		}},
	}
}

// parseRequest returns the parsed request, or the error of the first check that fails.
func parseRequest(r *http.Request, checks []requestCheck) (*requestCall, error) {
	c := &requestCall{upgrade: isUpgrade(r)}
	for _, check := range checks {
		if err := check.do(r, c); err != nil {
			return nil, err
		}
	}
	info, infoErr := infos.NewRequestInfo(r)
	if infoErr != nil {
		info = &request.RequestInfo{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	}
	_, queryErr := url.ParseQuery(r.URL.RawQuery)
	c.info = info
	c.unambiguous = infoErr == nil && queryErr == nil && !c.upgrade && r.URL.EscapedPath() == canonical(info)
	return c, nil
}

// canonical returns the canonical path of a request that the proxy may answer, and ""
// for all other requests.
func canonical(info *request.RequestInfo) string {
	if !info.IsResourceRequest || info.Subresource != "" {
		return ""
	}
	path := "/" + info.APIPrefix
	if info.APIGroup != "" {
		path += "/" + info.APIGroup
	}
	path += "/" + info.APIVersion + "/" + info.Resource
	if len(info.Parts) > 1 {
		path += "/" + url.PathEscape(info.Parts[1])
	}
	return path
}

// longRunning reports whether the request has no time limit: a watch, an upgrade, or a log,
// exec, attach, port-forward or proxy request. A request that could not be parsed is none.
func (c *requestCall) longRunning() bool {
	if c.info == nil {
		return false
	}
	if c.upgrade || c.info.Verb == "watch" || c.info.Verb == "proxy" {
		return true
	}
	switch c.info.Subresource {
	case "proxy", "exec", "attach", "portforward", "log":
		return true
	}
	return false
}

type contextKey struct{}

func withCall(ctx context.Context, c *requestCall) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// callFrom returns the requestCall that withCall stored in a context, or nil.
func callFrom(ctx context.Context) *requestCall {
	c, _ := ctx.Value(contextKey{}).(*requestCall)
	return c
}
