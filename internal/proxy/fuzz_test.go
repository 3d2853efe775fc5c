package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// worldTokens maps the tokens of the fuzzer to users. The lender may impersonate alice, who
// owns the same tenant as the owner. The guest also owns it, and may get the namespace of
// the other tenant by RBAC.
var worldTokens = map[string]string{
	"token-of-owner-5b1f": "system:serviceaccount:a1:owner", "token-of-bob-8c22": "bob",
	"token-of-lender-90de": "lender", "token-of-stranger-17aa": "stranger", "token-of-guest-3d4e": "guest",
}

// worldSees maps users to the marks of the objects that they may see, by themselves or by
// impersonation. The mark of an object names its tenant.
var worldSees = map[string][]string{
	"system:serviceaccount:a1:owner": {"mark-of-a"}, "bob": {"mark-of-b"}, "lender": {"mark-of-a"}, "stranger": nil,
	"guest": {"mark-of-a", "mark-of-b"},
}

var marks = []string{"mark-of-a", "mark-of-b", "mark-of-c", "mark-of-system"}

// worldNamespaces maps namespaces to tenants.
var worldNamespaces = map[string]string{"a1": "a", "b1": "b", "c1": "c", "kube-system": ""}

func mark1(tenant string) string {
	if tenant == "" {
		return "mark-of-system"
	}
	return "mark-of-" + tenant
}

// world returns a proxy before a fake API server.
func world(f testing.TB) *Proxy {
	f.Helper()
	p, err := New(Options{Config: &rest.Config{Host: "https://127.0.0.1:1"}})
	if err != nil {
		f.Fatal(err)
	}
	p.reviews.client = roundTripper(asCaller)
	p.transports = transports{short: roundTripper(asCaller), long: roundTripper(asCaller), own: asProxy(f), ownLong: asProxy(f)}
	add := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	for name, tenant := range worldNamespaces {
		add(p.cache.namespaces.GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelTenant: tenant}}}))
		subject := rbacv1.Subject{Kind: "User", Name: map[string]string{"a1": "system:serviceaccount:a1:owner", "b1": "bob", "c1": "carol"}[name]}
		add(p.cache.bound.GetIndexer().Add(&rbacv1.RoleBinding{ObjectMeta: objectMeta(name, "read"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "read"}, Subjects: []rbacv1.Subject{subject}}))
	}
	add(p.cache.clusterRoles.GetIndexer().Add(&rbacv1.ClusterRole{ObjectMeta: objectMeta("", "read"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}}))
	add(p.cache.tenants.GetIndexer().Add(&v1alpha1.Tenant{ObjectMeta: objectMeta("", "a"), Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: "ServiceAccount", Namespace: "a1", Name: "owner"}, {Kind: "User", Name: "alice"}, {Kind: "User", Name: "guest"}}}}))
	add(p.cache.clusterRoles.GetIndexer().Add(&rbacv1.ClusterRole{ObjectMeta: objectMeta("", "get"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}}}}))
	for _, in := range []string{"b1", "kube-system"} {
		add(p.cache.bound.GetIndexer().Add(&rbacv1.RoleBinding{ObjectMeta: objectMeta(in, "get"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "get"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "guest"}}}))
	}
	add(p.cache.tenants.GetIndexer().Add(&v1alpha1.Tenant{ObjectMeta: objectMeta("", "b"), Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: "User", Name: "bob"}}}}))
	p.cache.begun.Store(true)
	return p
}

func answerOf(r *http.Request, code int, object any) (*http.Response, error) {
	body, err := json.Marshal(object)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(string(body) + "\n")),
	}, err
}

func status(r *http.Request, code int) (*http.Response, error) {
	return answerOf(r, code, map[string]any{"kind": "Status", "apiVersion": "v1", "code": code})
}

// collected returns a list of objects, or the events of a watch.
func collected(r *http.Request, objects []any) (*http.Response, error) {
	if watching := r.URL.Query().Get("watch"); watching == "" || watching == "0" || watching == "false" {
		return answerOf(r, http.StatusOK, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": objects})
	}
	response, err := status(r, http.StatusOK)
	var body strings.Builder
	for _, o := range objects {
		line, _ := json.Marshal(map[string]any{"type": "ADDED", "object": o})
		body.WriteString(string(line) + "\n")
	}
	response.Body = io.NopCloser(strings.NewReader(body.String()))
	return response, err
}

func worldObject(name, tenant string) any {
	return map[string]any{"metadata": map[string]any{"name": name, "resourceVersion": "7", "uid": mark1(tenant), "labels": map[string]any{v1alpha1.LabelTenant: tenant}}}
}

// asCaller answers as the API server does for callers: it knows the tokens, and allows what
// RBAC allows.
func asCaller(r *http.Request) (*http.Response, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name := worldTokens[token]
	if !ok || name == "" || len(r.Header.Values("Authorization")) != 1 {
		return status(r, http.StatusUnauthorized)
	}
	switch r.URL.Path {
	case selfReviewPath:
		return answerOf(r, http.StatusCreated, &authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: name, Groups: []string{"system:authenticated"}}},
		})
	case accessReviewPath:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		review := &authorizationv1.SelfSubjectAccessReview{}
		if runtime.DecodeInto(protobufCodec, body, review) != nil || review.Spec.ResourceAttributes == nil {
			return status(r, http.StatusBadRequest)
		}
		asked := review.Spec.ResourceAttributes
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
		review.Status.Allowed = name == "lender" && asked.Verb == "impersonate" && asked.Resource == "users" && asked.Name == "alice"
		return answerOf(r, http.StatusCreated, review)
	}
	for header := range r.Header {
		if strings.HasPrefix(header, "Impersonate") {
			return status(r, http.StatusForbidden) // alice has no rights of her own
		}
	}
	namespace, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	namespace, rest, _ := strings.Cut(namespace, "/")
	if tenant := worldNamespaces[namespace]; ok && rest == "configmaps" && r.Method == http.MethodGet && tenant != "" && slices.Contains(worldSees[name], mark1(tenant)) && name != "lender" {
		return collected(r, []any{worldObject("in-"+namespace, tenant)})
	}
	return status(r, http.StatusForbidden)
}

// asProxy returns the API server for the proxy itself, which may read all namespaces and
// Tenants.
func asProxy(f testing.TB) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		label, labelErr := labels.Parse(query.Get("labelSelector"))
		field, fieldErr := fields.ParseSelector(query.Get("fieldSelector"))
		if r.Method != http.MethodGet || labelErr != nil || fieldErr != nil || r.Header.Get("Authorization") != "" {
			f.Errorf("the proxy asks %s %s", r.Method, r.URL)
			return status(r, http.StatusBadRequest)
		}
		const tenantsPath, namespacesPath = "/apis/tenure.dev/v1alpha1/tenants", "/api/v1/namespaces"
		var found []any
		add := func(name, tenant string) {
			set := labels.Set{corev1.LabelMetadataName: name, v1alpha1.LabelTenant: tenant}
			if label.Matches(set) && field.Matches(fields.Set{"metadata.name": name}) {
				found = append(found, worldObject(name, tenant))
			}
		}
		name, one := strings.CutPrefix(r.URL.Path, tenantsPath+"/")
		switch {
		case one && (name == "a" || name == "b"):
			return answerOf(r, http.StatusOK, worldObject(name, name))
		case r.URL.Path == tenantsPath:
			add("a", "a")
			add("b", "b")
		case r.URL.Path == namespacesPath:
			for name, tenant := range worldNamespaces {
				add(name, tenant)
			}
		default:
			return status(r, http.StatusForbidden)
		}
		return collected(r, found)
	}
}

// FuzzProxy sends requests with a user's token and any path, query, headers and body, and
// checks that no object that the user may not read reaches the client.
func FuzzProxy(f *testing.F) {
	const list = "/api/v1/namespaces"
	for _, seed := range []struct{ method, target, header, body string }{
		{"GET", list, "", ""},
		{"GET", list + "?watch=true", "Accept: application/json", ""},
		{"GET", list + "?watch=true&resourceVersion=7&labelSelector=tenure.dev%2Ftenant", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json", ""},
		{"GET", list + "?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6N30", "", ""},
		{"GET", list + "?labelSelector=tenure.dev%2Ftenant%3Db", "Impersonate-User: alice", ""},
		{"GET", list + "?fieldSelector=metadata.name%3Dkube-system&labelSelector=!x", "Impersonate-User: bob\r\nImpersonate-Group: system:masters", ""},
		{"GET", "/api/v1/configmaps?watch=1&resourceVersion=7", "Impersonate-User: system:serviceaccount:a1:owner", ""},
		{"GET", "/api/v1/configmaps?limit=1&continue=eyJuIjoiYjEiLCJ2IjoiNyJ9", "Accept: */*", ""},
		{"GET", "/api/v1/namespaces/b1/configmaps", "Connection: Impersonate-User\r\nImpersonate-User: bob", ""},
		{"GET", "/apis/tenure.dev/v1alpha1/tenants/b", "X-Remote-User: bob", ""},
		{"GET", "/apis/tenure.dev/v1alpha1/tenants?watch=true", "Impersonate_User: bob", ""},
		{"GET", "/api/v1/namespaces/a1/../b1//configmaps", "", ""},
		{"GET", "http://elsewhere/api/v1/namespaces", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-Websocket-Protocol: x", ""},
		{"POST", accessReviewPath, "Content-Length: 2", "{}"},
	} {
		for token := range worldTokens {
			f.Add(token, seed.method, seed.target, seed.header, seed.body)
		}
	}
	p := world(f)
	f.Fuzz(func(t *testing.T, token, method, target, header, body string) {
		name, known := worldTokens[token]
		if known {
			header = "Authorization: Bearer " + token + "\r\n" + header
		}
		for other := range worldTokens {
			if strings.Contains(target+header+body, other) && other != token {
				return // the header has the token of another user, who sees other objects
			}
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: proxy\r\n%s\r\n\r\n%s", method, target, strings.Trim(header, "\r\n"), body))))
		if err != nil {
			return // no server accepts it as a request
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r.WithContext(ctx))
		if ctx.Err() != nil {
			t.Errorf("the request is not answered")
		}
		for _, mark := range marks {
			if strings.Contains(w.Body.String(), mark) && !slices.Contains(worldSees[name], mark) && !strings.Contains(target+header+body, mark) {
				t.Errorf("%s is shown to %q: %d %s", mark, name, w.Code, w.Body)
			}
		}
	})
}

// TestWorld checks, as the positive control of FuzzProxy, that users see the objects that
// they may see.
func TestWorld(t *testing.T) {
	t.Parallel()
	p := world(t)
	for _, tc := range []struct{ token, path, header, want string }{
		{"token-of-owner-5b1f", "/api/v1/namespaces", "", "mark-of-a"},
		{"token-of-owner-5b1f", "/api/v1/namespaces?watch=true", "", "mark-of-a"},
		{"token-of-bob-8c22", "/apis/tenure.dev/v1alpha1/tenants/b", "", "mark-of-b"},
		{"token-of-bob-8c22", "/api/v1/configmaps", "", "mark-of-b"},
		{"token-of-bob-8c22", "/api/v1/configmaps?watch=true", "", "mark-of-b"},
		{"token-of-bob-8c22", "/api/v1/namespaces/b1/configmaps", "", "mark-of-b"},
		{"token-of-lender-90de", "/api/v1/namespaces", "alice", "mark-of-a"},
		{"token-of-guest-3d4e", "/api/v1/namespaces", "", "mark-of-b"},
		{"token-of-guest-3d4e", "/api/v1/namespaces?watch=true", "", "mark-of-a"},
		{"token-of-guest-3d4e", "/api/v1/namespaces?watch=true&resourceVersion=7", "", "mark-of-b"},
	} {
		r := httptest.NewRequest(http.MethodGet, tc.path, nil)
		r.Header.Set("Authorization", "Bearer "+tc.token)
		if tc.header != "" {
			r.Header.Set("Impersonate-User", tc.header)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s: got %d %s", tc.token, tc.path, w.Code, w.Body)
		}
	}
}
