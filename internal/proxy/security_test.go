package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secure creates a tenant with an owner, and another tenant with a namespace that the owner
// must never see. It returns the tokens of the owner, of a user without rights, and of a
// user who may impersonate the owner.
func secure(t *testing.T) (s *setup, owner, stranger, lender string) {
	t.Helper()
	s = fixture(t)
	apply(t, namespace("secure-a", "secure")+namespace("secure-victim", "victim")+
		tenant("secure", accountOwner("secure-a", "owner"), "{kind: User, name: secure-alice}", "{kind: Group, name: secure-team}")+
		tenant("victim", "{kind: User, name: victim}", "{kind: Group, name: \"victims\"}")+
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: secure-lender}, rules: [
  {apiGroups: [""], resources: [users], resourceNames: [secure-alice], verbs: [impersonate]},
  {apiGroups: [""], resources: [groups], resourceNames: [secure-team, "system:masters"], verbs: [impersonate]},
  {apiGroups: [""], resources: [serviceaccounts], resourceNames: [owner], verbs: [impersonate]},
  {apiGroups: [authentication.k8s.io], resources: [uids], resourceNames: ["1"], verbs: [impersonate]},
  {apiGroups: [authentication.k8s.io], resources: [userextras/scopes], resourceNames: [view], verbs: [impersonate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: secure-lender}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: secure-lender},
 subjects: [{kind: ServiceAccount, name: lender, namespace: secure-a}]}`)
	owner, stranger, lender = account(t, "secure-a", "owner"), account(t, "secure-a", "stranger"), account(t, "secure-a", "lender")
	sees(t, newClient(t, s.as(owner)), "secure-a")
	testwait.For(t, "the lender to have the right", patience, func() (bool, string) {
		r := s.request(t, http.MethodGet, "/api/v1/namespaces", lender)
		r.Header.Set("Impersonate-User", "secure-alice")
		code, body, _ := s.raw(t, r)
		return code == http.StatusOK && strings.Contains(body, "secure-a"), body
	})
	return s, owner, stranger, lender
}

const ownerName = "system:serviceaccount:secure-a:owner"

// TestIdentity checks that the proxy verifies or refuses the identity in a request.
func TestIdentity(t *testing.T) {
	t.Parallel()
	s, owner, stranger, lender := secure(t)
	const listed, nothing = `"name":"secure-a"`, `"items":[]`
	for _, tc := range []struct {
		reason, token string
		header        [][2]string
		code          int
		want          string
	}{
		{"nobody", "", nil, 401, "Unauthorized"},
		{"an empty token", "", [][2]string{{"Authorization", "Bearer "}}, 401, ""},
		{"a token after two spaces", "", [][2]string{{"Authorization", "Bearer  " + owner}}, 401, ""},
		{"a token and something else", "", [][2]string{{"Authorization", "Bearer " + owner + " x"}}, 401, ""},
		{"two tokens with a comma", "", [][2]string{{"Authorization", "Bearer " + owner + ",Bearer"}}, 401, ""},
		{"another scheme", "", [][2]string{{"Authorization", "Basic YWRtaW46YWRtaW4="}}, 401, ""},
		{"a wrong token", "wrong", nil, 401, ""},
		{"a token that is cut", owner[:len(owner)-3], nil, 401, ""},
		{"two headers", owner, [][2]string{{"Authorization", "Bearer " + stranger}}, 400, "given 2 times"},
		{"a scheme in another case", "", [][2]string{{"Authorization", "bEARER " + owner}}, 200, listed},
		{"a front proxy's headers", stranger, [][2]string{{"X-Remote-User", ownerName}, {"X-Remote-Group", "system:masters"}}, 200, nothing},
		{"a token that the connection takes off", owner, [][2]string{{"Connection", "Authorization"}}, 400, "Connection"},
		{"an impersonation that the connection takes off", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Connection", "keep-alive, Impersonate-User"}}, 400, "Connection"},

		{"itself", owner, [][2]string{{"Impersonate-User", ownerName}}, 200, listed},
		{"itself with its groups", owner, [][2]string{{"Impersonate-User", ownerName}, {"Impersonate-Group", "system:serviceaccounts:secure-a"}, {"Impersonate-Group", "system:serviceaccounts"}}, 200, listed},
		{"itself with one more group", owner, [][2]string{{"Impersonate-User", ownerName}, {"Impersonate-Group", "victims"}}, 403, "impersonate"},
		{"itself with fewer groups is somebody else", owner, [][2]string{{"Impersonate-User", ownerName}, {"Impersonate-Group", "system:serviceaccounts"}}, 403, "impersonate"},
		{"itself with another UID", owner, [][2]string{{"Impersonate-User", ownerName}, {"Impersonate-Uid", "1"}}, 403, "impersonate"},
		{"itself with an extra", owner, [][2]string{{"Impersonate-User", ownerName}, {"Impersonate-Extra-Scopes", "view"}}, 403, "impersonate"},
		{"the owner, by somebody who may not", stranger, [][2]string{{"Impersonate-User", ownerName}}, 403, "cannot impersonate"},
		{"the owner in another case", owner, [][2]string{{"Impersonate-User", strings.ToUpper(ownerName)}}, 403, "cannot impersonate"},
		{"a user, by somebody who may", lender, [][2]string{{"Impersonate-User", "secure-alice"}}, 200, listed},
		{"an account, by somebody who may", lender, [][2]string{{"Impersonate-User", ownerName}}, 200, listed},
		{"an account of the same name elsewhere", lender, [][2]string{{"Impersonate-User", "system:serviceaccount:secure-victim:owner"}}, 200, nothing},
		{"a user and a group, by somebody who may", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "secure-team"}}, 200, listed},
		{"all of it, by somebody who may", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Uid", "1"}, {"Impersonate-Extra-Scopes", "view"}}, 200, listed},
		{"a group that it may not", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "victims"}}, 403, "groups"},
		{"a group that it may not, after one that it may", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "secure-team"}, {"Impersonate-Group", "victims"}}, 403, "groups"},
		{"a UID that it may not", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Uid", "2"}}, 403, "uids"},
		{"an extra that it may not", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Extra-Scopes", "edit"}}, 403, "userextras"},
		{"an extra, escaped, that it may not", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Extra-Scopes%2fx", "view"}}, 403, "userextras"},
		{"masters first", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "system:masters"}, {"Impersonate-Group", "secure-team"}}, 403, "system:masters"},
		{"masters last", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", "secure-team"}, {"Impersonate-Group", "system:masters"}}, 403, "system:masters"},
		{"masters for itself", owner, [][2]string{{"Impersonate-User", ownerName}, {"Impersonate-Group", "system:masters"}}, 403, "system:masters"},
		{"nobody in particular", lender, [][2]string{{"Impersonate-User", "system:anonymous"}}, 403, ""},
		{"a group without a user", lender, [][2]string{{"Impersonate-Group", "secure-team"}}, 400, "no user"},
		{"a UID without a user", lender, [][2]string{{"Impersonate-Uid", "1"}}, 400, "no user"},
		{"an empty user", lender, [][2]string{{"Impersonate-User", ""}}, 400, "empty"},
		{"an empty group", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Group", ""}}, 400, "empty"},
		{"two users", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-User", "victim"}}, 400, "2 times"},
		{"two UIDs", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Uid", "1"}, {"Impersonate-Uid", "1"}}, 400, "2 times"},
		{"a header that nobody knows", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Role", "x"}}, 400, "does not know"},
		{"an extra without a key", lender, [][2]string{{"Impersonate-User", "secure-alice"}, {"Impersonate-Extra-", "x"}}, 400, "does not know"},
		{"a header with another line", lender, [][2]string{{"Impersonate_User", "victim"}}, 400, "does not know"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			r := s.request(t, http.MethodGet, "/api/v1/namespaces", tc.token)
			for _, h := range tc.header {
				r.Header.Add(h[0], h[1])
			}
			code, body, _ := s.raw(t, r)
			if code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("want %d with %q, got %d %s", tc.code, tc.want, code, body)
			}
			if strings.Contains(body, "secure-victim") || strings.Contains(body, "kube-system") {
				t.Errorf("the answer shows what is somebody else's: %s", body)
			}
			if code >= 400 && !strings.Contains(body, `"kind":"Status"`) {
				t.Errorf("the refusal is no Status: %s", body)
			}
		})
	}
}

// TestPassedOn checks that the proxy passes a request on as the caller: the API server
// decides about impersonation, and the request gets none of the proxy's rights.
func TestPassedOn(t *testing.T) {
	t.Parallel()
	s, owner, stranger, lender := secure(t)
	for _, tc := range []struct {
		reason, token, path string
		header              [][2]string
		code                int
		want                string
	}{
		{"what only the proxy may read", stranger, "/apis/tenure.dev/v1alpha1/tenants/victim", nil, 403, `secure-a:stranger`},
		{"roles, which only the proxy may read", stranger, "/apis/rbac.authorization.k8s.io/v1/clusterroles", nil, 403, `secure-a:stranger`},
		{"an impersonation that is allowed", lender, "/api/v1/namespaces/secure-a/pods", [][2]string{{"Impersonate-User", "secure-alice"}}, 403, `User \"secure-alice\" cannot list`},
		{"an impersonation that is not", stranger, "/api/v1/namespaces/secure-a/pods", [][2]string{{"Impersonate-User", "secure-alice"}}, 403, "cannot impersonate"},
		{"itself, as Flux does it", owner, "/api/v1/namespaces/secure-a/pods", [][2]string{{"Impersonate-User", ownerName}}, 403, "cannot list resource"},
		{"nobody, where everybody may read", "", "/version", nil, 401, "Unauthorized"},
		{"a wrong token, where everybody may read", "wrong", "/version", nil, 401, "Unauthorized"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			r := s.request(t, http.MethodGet, tc.path, tc.token)
			for _, h := range tc.header {
				r.Header.Add(h[0], h[1])
			}
			if code, body, _ := s.raw(t, r); code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("want %d with %q, got %d %s", tc.code, tc.want, code, body)
			}
		})
	}
}

// TestPaths checks that no form of the path or the query shows objects of another tenant.
func TestPaths(t *testing.T) {
	t.Parallel()
	s, owner, _, _ := secure(t)
	victims := "/api/v1/namespaces/secure-victim"
	if err := s.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: objectMeta("secure-victim", "treasure"), StringData: map[string]string{"x": "dug-up"}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	for _, target := range []string{
		"/api/v1/namespaces/secure-a/../secure-victim", "/api/v1/namespaces/secure-a/%2e%2e/secure-victim",
		"//api/v1/namespaces", "/api//v1/namespaces", "/api/v1//namespaces", "/api/v1/namespaces//", "/api/v1/namespaces/",
		"/api/v1/namespaces%2f", "/api/v1%2fnamespaces", "/api/v1/namespaces%2fsecure-victim", "/api/v1/%6eamespaces",
		"/API/v1/namespaces", "/api/V1/namespaces", "/api/v1/Namespaces", "/api/v1/NAMESPACES", "/./api/v1/namespaces", "/x/../api/v1/namespaces",
		"/api/v1/watch/namespaces", "/api/v1/watch/namespaces/secure-victim", "/api/v1/proxy/namespaces/secure-victim",
		victims, victims + "/status", victims + "/secrets", victims + "/secrets/treasure", "/api/v1/secrets",
		"/apis//v1/namespaces", "/apis/v1/namespaces", "/apis/tenure.dev/v1alpha1/tenants/victim", "/apis/tenure.dev/v1alpha1/tenants/secure/../victim",
		"/apis/tenure.dev/v1alpha1/namespaces/secure-victim/tenants", "/apis/tenure.dev/v2/tenants",
		"/api/v1/namespaces?labelSelector=tenure.dev/tenant=victim", "/api/v1/namespaces?labelSelector=a&labelSelector=tenure.dev/tenant=victim",
		"/api/v1/namespaces?labelSelector=" + "x)+or+(tenure.dev/tenant", "/api/v1/namespaces?labelSelector=,,,", "/api/v1/namespaces?labelSelector=%00",
		"/api/v1/namespaces?labelSelector=!kubernetes.io/metadata.name", "/api/v1/namespaces?fieldSelector=metadata.name=secure-victim",
		"/api/v1/namespaces?fieldSelector=metadata.name%3Dsecure-a&fieldSelector=metadata.name%3Dsecure-victim",
		"/api/v1/namespaces?x=%zz", "/api/v1/namespaces?a=b;labelSelector=x", "/api/v1/namespaces?watch=true&watch=false&timeoutSeconds=1", "/api/v1/namespaces?watch=TRUE&timeoutSeconds=1",
		"/api/v1/namespaces?watch=1&timeoutSeconds=1", "/api/v1/namespaces?watch=nonsense&timeoutSeconds=1", "/api/v1/namespaces?continue=nonsense", "/api/v1/namespaces?resourceVersion=0",
		"/api/v1/namespaces?allowWatchBookmarks=true&watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"/openapi/../api/v1/namespaces", "/version/../api/v1/namespaces",
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, "get", "LIST"} {
				code, answer := s.line(t, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, target, owner))
				for _, secret := range []string{`"name":"secure-victim"`, `"name":"kube-system"`, "dug-up", "ZHVnLXVw", `"name":"victim"`} {
					if strings.Contains(answer, secret) && code < 300 {
						t.Errorf("%s: got %d with %s: %s", method, code, secret, answer)
					}
				}
				if (code == 0 && method != http.MethodHead) || code >= 500 && code != 503 {
					t.Errorf("%s: got %d %s", method, code, answer)
				}
			}
		})
	}
}

// line sends bytes over a new connection and returns the code and the rest of the answer,
// including bytes after it if the connection is to be closed.
func (s *setup) line(t *testing.T, request string) (int, string) {
	t.Helper()
	conn := s.dial(t)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var answer bytes.Buffer
	reader := bufio.NewReader(io.TeeReader(io.LimitReader(conn, 1<<20), &answer))
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return 0, answer.String()
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.Close {
		_, _ = io.Copy(io.Discard, reader)
	}
	return response.StatusCode, answer.String()
}

func (s *setup) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", s.server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSmuggling checks that a malformed request gets at most one answer, which shows
// nothing that the caller may not see.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	s, owner, stranger, _ := secure(t)
	inner := "GET /api/v1/namespaces HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer " + owner + "\r\n\r\n"
	head := "POST /api/v1/namespaces/secure-a/pods HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer " + stranger + "\r\nConnection: close\r\n"
	for _, tc := range []struct{ reason, request string }{
		{"a length and chunks", head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", len(inner)+5, inner)},
		{"two lengths", head + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n%s", len(inner), inner)},
		{"an encoding in disguise", head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner},
		{"an encoding with a space", head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner},
		{"a folded header", head + "X: y\r\n Impersonate-User: secure-alice\r\nContent-Length: 0\r\n\r\n" + inner},
		{"a bare line feed in a header", head + "X: y\nImpersonate-User: secure-alice\nContent-Length: 0\n\n" + inner},
		{"an upgrade to plain HTTP/2", "GET /api/v1/namespaces HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer " + stranger + "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"},
		{"an upgrade that the API server does not know", "GET /api/v1/namespaces HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer " + stranger + "\r\nConnection: Upgrade, close\r\nUpgrade: x\r\n\r\n"},
		{"a whole address", "GET http://other/api/v1/namespaces HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer " + stranger + "\r\nConnection: close\r\n\r\n"},
		{"no path", "GET * HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer " + stranger + "\r\nConnection: close\r\n\r\n"},
		{"a tunnel", "CONNECT kubernetes:443 HTTP/1.1\r\nHost: kubernetes:443\r\nAuthorization: Bearer " + stranger + "\r\nConnection: close\r\n\r\n"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			code, answer := s.line(t, tc.request)
			if strings.Contains(answer, `"name":"secure-`) {
				t.Errorf("got %d with what the stranger may not see: %s", code, answer)
			}
			if strings.Count(answer, "HTTP/1.1 ") > 1 {
				t.Errorf("one request has two answers: %s", answer)
			}
		})
	}
}

// TestWebsocket checks tokens among the subprotocols of a websocket.
func TestWebsocket(t *testing.T) {
	t.Parallel()
	s, owner, stranger, _ := secure(t)
	encoded := base64.RawURLEncoding.EncodeToString([]byte(owner))
	for _, tc := range []struct {
		reason, protocols, more, want string
	}{
		{"a token and a protocol", protocolPrefix + encoded + ", base64.binary.k8s.io", "", "HTTP/1.1 403"},
		{"a wrong token", protocolPrefix + "d3Jvbmc, base64.binary.k8s.io", "", "HTTP/1.1 401"},
		{"no token", "base64.binary.k8s.io", "", "HTTP/1.1 401"},
		{"an empty token", protocolPrefix + ", base64.binary.k8s.io", "", "HTTP/1.1 401"},
		{"not base64", protocolPrefix + "%%, base64.binary.k8s.io", "", "HTTP/1.1 401"},
		{"a token alone", protocolPrefix + encoded, "", "HTTP/1.1 400"},
		{"two tokens", protocolPrefix + encoded + "," + protocolPrefix + encoded + ", x", "", "HTTP/1.1 400"},
		{"a token here and another there", protocolPrefix + encoded + ", x", "Authorization: Bearer " + stranger + "\r\n", "HTTP/1.1 400"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			_, answer := s.line(t, "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: "+tc.protocols+"\r\n"+tc.more+"\r\n")
			if !strings.HasPrefix(answer, tc.want) {
				t.Errorf("want %s, got %s", tc.want, answer)
			}
			if tc.want == "HTTP/1.1 403" && !strings.Contains(answer, ownerName) {
				t.Errorf("the API server does not know the caller: %s", answer)
			}
		})
	}
}

// TestTokensEnd checks that a token is not accepted for longer than documented after it has
// expired or its service account was deleted.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	s, _, _, _ := secure(t)
	token := account(t, "secure-a", "short")
	apply(t, tenant("short", accountOwner("secure-a", "short"))+namespace("short-a", "short"))
	sees(t, newClient(t, s.as(token)), "short-a")
	sa := &corev1.ServiceAccount{ObjectMeta: objectMeta("secure-a", "short")}
	if err := s.admin.Delete(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	testwait.For(t, "the token of an account that is gone to be refused", tokenTTL+patience, func() (bool, string) {
		code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/api/v1/namespaces", token))
		return code == http.StatusUnauthorized, body
	})
	// The API server itself caches a token for 10 s; the rest is for a busy machine.
	if took := time.Since(began); took > 2*tokenTTL+20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestTokenEnds checks that the proxy refuses a cached token from the expiry in the token.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, token string
		want          bool
	}{
		{"in the past", jwt(`{"exp":1000}`), true},
		{"now", jwt(`{"exp":2000}`), true},
		{"later", jwt(`{"exp":2001}`), false},
		{"a fraction", jwt(`{"exp":1999.5}`), true},
		{"no claim", jwt(`{}`), false},
		{"not JSON", jwt(`x`), false},
		{"opaque", "abc.def", false},
	} {
		asked, now := 0, time.Unix(500, 0)
		who := authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "somebody"}}}
		answer, err := runtime.Encode(protobufCodec, &who)
		if err != nil {
			t.Fatal(err)
		}
		i := newReviews(&url.URL{Scheme: "https", Host: "server"}, roundTripper(func(*http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: http.StatusCreated, Body: io.NopCloser(bytes.NewReader(answer))}, nil
		}), func(bool) {})
		i.now = func() time.Time { return now }
		if _, err := i.user(t.Context(), tc.token); err != nil {
			t.Errorf("%s: got %v at first", tc.reason, err)
		}
		now = time.Unix(2000, 0)
		_, err = i.user(t.Context(), tc.token)
		if (err != nil) != tc.want || asked != 1 {
			t.Errorf("%s: got %v after %d questions", tc.reason, err, asked)
		}
	}
}

func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".e30"
}

// TestLargeBody checks that the proxy or the API server refuses bodies that are too large.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	s, owner, _, _ := secure(t)
	for _, path := range []string{"/api/v1/namespaces/secure-a/configmaps", accessReviewPath} {
		r := s.request(t, http.MethodPost, path, owner)
		r.Body = io.NopCloser(bytes.NewReader(make([]byte, maxBody+2)))
		r.Header.Set("Content-Type", "application/json")
		if code, body, _ := s.raw(t, r); code != http.StatusRequestEntityTooLarge && code != http.StatusForbidden {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
}
