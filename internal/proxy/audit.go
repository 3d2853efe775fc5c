package proxy

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Annotations of the proxy's audit events.
const (
	annotationDecision = "authorization.k8s.io/decision" // as at the API server
	annotationAnswer   = "proxy.tenure.dev/answer"
	annotationReason   = "proxy.tenure.dev/reason"
)

// maxAudited is the maximum length, in bytes, of a client's text in an event: a client
// without credentials must not fill the log.
const maxAudited = 2 << 10

// auditor logs what the API server's audit log lacks: the caller of each request that the
// proxy answers itself, and each request that the proxy refuses. It does not log requests
// that the proxy passes on, because the API server logs their callers.
//
// An event is one line of JSON, of type audit.k8s.io/v1 and level Metadata. The API server
// gets the same audit ID, so that both logs can be joined by auditID.
type auditor struct {
	log *slog.Logger

	mu sync.Mutex
	to io.Writer // nil discards the events
}

// audited holds the data of an audit event.
type audited struct {
	request *http.Request
	call    *requestCall // empty if the request could not be parsed
	stage   auditv1.Stage
	answer  string
	reason  string
	code    int
	began   time.Time
	id      string
}

// event returns the audit event. The user agent is the only header in it.
func (a audited) event(now time.Time) *auditv1.Event {
	e := &auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:                    auditv1.LevelMetadata,
		AuditID:                  types.UID(a.id),
		Stage:                    a.stage,
		RequestURI:               bounded(a.request.RequestURI),
		Verb:                     bounded(strings.ToLower(a.request.Method)),
		UserAgent:                bounded(a.request.UserAgent()),
		ResponseStatus:           &metav1.Status{Code: int32(a.code)}, // an HTTP status code
		RequestReceivedTimestamp: metav1.NewMicroTime(a.began),
		StageTimestamp:           metav1.NewMicroTime(now),
		Annotations:              map[string]string{annotationAnswer: a.answer, annotationDecision: "allow"},
	}
	if address, _, err := net.SplitHostPort(a.request.RemoteAddr); err == nil {
		e.SourceIPs = []string{address}
	}
	if a.reason != "" {
		e.Annotations[annotationReason] = a.reason
	}
	if a.code == http.StatusUnauthorized || a.code == http.StatusForbidden || a.code == http.StatusBadRequest {
		e.Annotations[annotationDecision] = "forbid"
	}
	a.call.describe(e)
	return e
}

// describe adds the caller, the verb and the resource to an event.
func (c *requestCall) describe(e *auditv1.Event) {
	if c.caller != nil {
		e.User = userInfo(c.caller)
	}
	switch {
	case c.impersonated != nil && c.impersonated != c.caller:
		acting := userInfo(c.impersonated)
		e.ImpersonatedUser = &acting
	case c.impersonation != nil:
		// The right to impersonate was denied or not checked.
		e.ImpersonatedUser = &authenticationv1.UserInfo{Username: bounded(c.impersonation.user), UID: bounded(c.impersonation.uid), Groups: boundedAll(c.impersonation.groups)}
	}
	if c.info == nil {
		return
	}
	e.Verb = bounded(c.info.Verb)
	if c.info.IsResourceRequest {
		e.ObjectRef = &auditv1.ObjectReference{
			APIGroup: bounded(c.info.APIGroup), APIVersion: bounded(c.info.APIVersion), Resource: bounded(c.info.Resource),
			Subresource: bounded(c.info.Subresource), Namespace: bounded(c.info.Namespace), Name: bounded(c.info.Name),
		}
	}
}

func userInfo(who user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// bounded returns a text, cut to maxAudited bytes.
func bounded(text string) string {
	if len(text) > maxAudited {
		return strings.ToValidUTF8(text[:maxAudited], "") + "…"
	}
	return text
}

// boundedAll returns the first maxImpersonated texts, each cut to maxAudited bytes.
func boundedAll(texts []string) []string {
	var all []string
	for _, text := range texts[:min(len(texts), maxImpersonated)] {
		all = append(all, bounded(text))
	}
	return all
}

// write writes an event. It logs an error and returns none: the request continues, as at
// the API server.
func (a *auditor) write(what audited) {
	if a.to == nil {
		return
	}
	line, err := json.Marshal(what.event(time.Now()))
	if err == nil {
		a.mu.Lock()
		_, err = a.to.Write(append(line, '\n'))
		a.mu.Unlock()
	}
	if err != nil {
		a.log.Error("cannot write an audit event", "error", err)
	}
}

// auditHeader is the header with the ID of an audit event, in requests to the API server
// and in answers to the client.
var auditHeader = http.CanonicalHeaderKey(audit.HeaderAuditID)
