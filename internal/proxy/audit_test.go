package proxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// eventLog is a buffer of audit events. It can be read during writes.
type eventLog struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (e *eventLog) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all.Write(b)
}

// read returns the text of the log, and the events by stage and ID.
func (e *eventLog) read(t *testing.T) (string, map[string]auditv1.Event) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	byID := map[string]auditv1.Event{}
	for line := range strings.Lines(e.all.String()) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("no event: %s: %v", line, err)
		}
		byID[string(event.Stage)+" "+string(event.AuditID)] = event
	}
	return e.all.String(), byID
}

// TestAudit checks that the audit log has each request that the proxy answers or refuses,
// under the ID in the API server's log, and that it has no credential.
func TestAudit(t *testing.T) {
	t.Parallel()
	s, owner, stranger, lender := secure(t)
	var written eventLog
	p := newProxy(t, s.rest, Options{Audit: &written})
	s = &setup{proxy: p, server: serve(p)}
	t.Cleanup(s.server.Close)
	const list = "/api/v1/namespaces"
	for _, tc := range []struct {
		reason, path, token string
		header              [][2]string
		code                int
		want                string // the event as returned by short; "" if there is none
	}{
		{"a list", list, owner, nil, 200, ownerName + "  list namespaces allow filtered "},
		{"a list with the client's own ID", list, owner, [][2]string{{"Audit-ID", "mine"}}, 200, ownerName + "  list namespaces allow filtered "},
		{"a list as somebody else", list, lender, [][2]string{{"Impersonate-User", "secure-alice"}}, 200, "system:serviceaccount:secure-a:lender secure-alice list namespaces allow filtered "},
		{"a list as somebody that one may not be", list, stranger, [][2]string{{"Impersonate-User", "secure-alice"}}, 403, "system:serviceaccount:secure-a:stranger secure-alice list namespaces forbid refused impersonation"},
		{"a watch", list + "?watch=true&timeoutSeconds=1", owner, nil, 200, ownerName + "  watch namespaces allow filtered "},
		{"a group", list, lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "system:masters"}}, 403, "  get  forbid refused masters"},
		{"nobody", list, "", nil, 401, "  get  forbid refused anonymous"},
		{"a wrong token", list, stranger + "x", nil, 401, "  list namespaces forbid refused token"},
		{"what is passed on", list + "/secure-a/pods", owner, nil, 403, ""},
		{"a token among the subprotocols, alone", list, "", [][2]string{{"Sec-WebSocket-Protocol", protocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(owner))}}, 400, "  get  forbid refused credentials"},
	} {
		r := s.request(t, http.MethodGet, tc.path, tc.token)
		for _, h := range tc.header {
			r.Header.Add(h[0], h[1])
		}
		// This proxy may know a right later than the proxy of the other tests.
		var code int
		var body string
		var header http.Header
		testwait.For(t, tc.reason, patience, func() (bool, string) {
			code, body, header = s.raw(t, r)
			return code == tc.code, fmt.Sprint(code, " ", body)
		})
		id := header.Get("Audit-Id")
		if id == "" || id == "mine" && tc.want != "" {
			t.Errorf("%s: the answer has the ID %q", tc.reason, id)
		}
		stages := []auditv1.Stage{auditv1.StageResponseComplete}
		if strings.Contains(tc.path, "watch=true") {
			stages = append(stages, auditv1.StageResponseStarted)
		}
		for _, stage := range stages {
			event := auditv1.Event{}
			got := ""
			testwait.For(t, "the event of "+tc.reason, patience, func() (bool, string) {
				_, all := written.read(t)
				var found bool
				event, found = all[string(stage)+" "+id]
				return found || tc.want == "", fmt.Sprint(len(all), " others")
			})
			if event.AuditID != "" {
				got = short(event)
			}
			if got != tc.want {
				t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
			}
			if tc.want != "" && (event.ResponseStatus.Code != int32(tc.code) || event.RequestURI != tc.path || len(event.SourceIPs) != 1 || event.StageTimestamp.Before(&event.RequestReceivedTimestamp)) {
				t.Errorf("%s: the event is %+v", tc.reason, event)
			}
		}
	}
	text, _ := written.read(t)
	for name, token := range map[string]string{"owner": owner, "stranger": stranger, "lender": lender} {
		signature := token[strings.LastIndex(token, ".")+1:]
		for _, part := range []string{signature, base64.RawURLEncoding.EncodeToString([]byte(token))[:64], "Bearer"} {
			if strings.Contains(text, part) {
				t.Errorf("the token of %s is in the audit log", name)
			}
		}
	}
}

// short returns the tested fields of an event.
func short(e auditv1.Event) string {
	as, resource := "", ""
	if e.ImpersonatedUser != nil {
		as = e.ImpersonatedUser.Username
	}
	if e.ObjectRef != nil {
		resource = e.ObjectRef.Resource
	}
	return strings.Join([]string{e.User.Username, as, e.Verb, resource, e.Annotations[annotationDecision], e.Annotations[annotationAnswer], e.Annotations[annotationReason]}, " ")
}

// TestAuditBounds checks that a request without credentials cannot fill the log, and that
// an error of the log stops no request.
func TestAuditBounds(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/"+strings.Repeat("ä", 40_000), nil)
	r.Header.Set("User-Agent", strings.Repeat("x", 60_000))
	a := audited{request: r, answer: "refused", code: http.StatusUnauthorized, call: &requestCall{impersonation: &impersonation{
		user: strings.Repeat("u", 60_000), groups: strings.Split(strings.Repeat("g,", 1000), ","),
	}}}
	line, err := json.Marshal(a.event(time.Now()))
	if err != nil || len(line) > 8*maxAudited {
		t.Errorf("an event of %d bytes, %v", len(line), err)
	}
	var said bytes.Buffer
	(&auditor{to: broken{}, log: slog.New(slog.NewTextHandler(&said, nil))}).write(a)
	if !strings.Contains(said.String(), "cannot write an audit event") {
		t.Errorf("nobody is told: %q", said.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }
