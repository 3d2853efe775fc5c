package proxy

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// TestNewNamespace checks that an owner gets NotFound for a namespace that does not exist and that
// the owner may create, and that all other callers and names get the API server's refusal.
func TestNewNamespace(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("newly-a", "newly")+namespace("newly-victim", "newly-other")+namespace("foreign-old", "newly-other")+tenant("newly", accountOwner("newly-a", "owner"), accountOwner("newly-a", "reader"), "{kind: User, name: newly-ann}")+
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: newly}, rules: [{apiGroups: [""], resources: [namespaces], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: newly-lender}, rules: [
  {apiGroups: [""], resources: [users], resourceNames: [newly-ann], verbs: [impersonate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: newly-lender}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: newly-lender},
 subjects: [{kind: ServiceAccount, name: stranger, namespace: newly-a}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: newly}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: newly},
 subjects: [{kind: ServiceAccount, name: owner, namespace: newly-a}, {kind: ServiceAccount, name: stranger, namespace: newly-a}, {kind: User, name: newly-ann}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: newly}, spec: {
 matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [namespaces], operations: [CREATE]}]},
 validations: [{expression: "!object.metadata.name.startsWith('foreign-') || !request.userInfo.username.startsWith('system:serviceaccount:newly-a:')"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: newly}, spec: {policyName: newly, validationActions: [Deny]}}`)
	owner, reader, stranger := account(t, "newly-a", "owner"), account(t, "newly-a", "reader"), account(t, "newly-a", "stranger")
	sees(t, newClient(t, s.as(owner)), "newly-a")
	get := func(token, name string, header ...string) (int, string, http.Header) {
		r := s.request(t, http.MethodGet, namespacesPath+"/"+name, token)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return s.raw(t, r)
	}
	testwait.For(t, "the policy to be in force, and a new name not to be found", patience, func() (bool, string) {
		refused, _, _ := get(owner, "foreign-x")
		code, body, _ := get(owner, "newly-new")
		return refused == http.StatusForbidden && code == http.StatusNotFound, body
	})
	for _, tc := range []struct {
		reason, token, name string
		header              []string
		code                int
	}{
		{"a new name", owner, "newly-new", nil, http.StatusNotFound},
		{"a new name, with the headers of a body", owner, "newly-new", []string{"Content-Type", "application/yaml", "Content-Encoding", "gzip", "Accept-Encoding", "gzip"}, http.StatusNotFound},
		{"another tenant's namespace", owner, "newly-victim", nil, http.StatusForbidden},
		{"the platform's namespace", owner, "kube-system", nil, http.StatusForbidden},
		{"a name that the rules refuse", owner, "foreign-new", nil, http.StatusForbidden},
		{"a name that the rules refuse, which exists", owner, "foreign-old", nil, http.StatusForbidden},
		{"no name of a namespace", owner, "Fresh_New", nil, http.StatusForbidden},
		{"an owner who may not create", reader, "newly-new", nil, http.StatusForbidden},
		{"who may create, and owns no tenant", stranger, "newly-new", nil, http.StatusForbidden},
		{"who impersonates an owner", stranger, "newly-new", []string{"Impersonate-User", "newly-ann"}, http.StatusNotFound},
		{"who impersonates an owner, and the namespace exists", stranger, "newly-victim", []string{"Impersonate-User", "newly-ann"}, http.StatusForbidden},
	} {
		code, body, header := get(tc.token, tc.name, tc.header...)
		if code != tc.code || !strings.Contains(body, `"kind":"Status"`) || header.Get(auditHeader) == "" {
			t.Errorf("%s: want %d, got %d %s %v", tc.reason, tc.code, code, body, header)
		}
	}
	// The time of an answer must not tell whether another tenant's namespace exists.
	counted := *s
	counted.proxy = newProxy(t, s.rest, Options{})
	counted.server = serve(counted.proxy)
	t.Cleanup(counted.server.Close)
	var requests atomic.Int64
	short := counted.proxy.transports.short
	counted.proxy.transports.short = roundTripper(func(r *http.Request) (*http.Response, error) {
		requests.Add(1)
		return short.RoundTrip(r)
	})
	for _, name := range []string{"foreign-new", "foreign-old", "foreign-older"} {
		requests.Store(0)
		code, body, _ := counted.raw(t, counted.request(t, http.MethodGet, namespacesPath+"/"+name, owner))
		if got := requests.Load(); code != http.StatusForbidden || got != 2 {
			t.Errorf("%s: got %d after %d requests to the API server: %s", name, code, got, body)
		}
	}
	file := filepath.Join(t.TempDir(), "namespace.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: newly-applied}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := s.kubectl(t.Context(), t, owner, "apply", "-f", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "namespace/newly-applied created") {
		t.Errorf("kubectl apply: %v %s", err, out)
	}
	if code, body, _ := get(owner, "newly-new"); code != http.StatusNotFound {
		t.Errorf("the dry run has made the namespace: %d %s", code, body)
	}
}

// TestOneNameAcrossNamespaces checks lists and watches of all namespaces that a field selector
// restricts to one name.
func TestOneNameAcrossNamespaces(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("named-a", "named")+namespace("named-b", "named")+namespace("named-c", "named-other")+`
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: named-a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: named-a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: named-b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: named-c}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all, namespace: named-a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: owner, namespace: named-a}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: m, namespace: named-b}, rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [m], verbs: [list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: m, namespace: named-b}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: m}, subjects: [{kind: ServiceAccount, name: owner, namespace: named-a}]}`)
	token := account(t, "named-a", "owner")
	for _, tc := range []struct{ reason, args, want string }{
		{"one name, in the namespaces where it may be listed", "get configmaps -A -o name --field-selector metadata.name=m", "configmap/m\nconfigmap/m\n"},
		{"another name", "get configmaps -A -o name --field-selector metadata.name=other", "configmap/other\n"},
		{"a name that is nowhere", "get configmaps -A -o name --field-selector metadata.name=x", ""},
		{"another selector", "get configmaps -A -o name --field-selector metadata.name!=kube-root-ca.crt", "configmap/m\nconfigmap/other\n"},
		{"a cluster-scoped kind", "get nodes -o name --field-selector metadata.name=x", "Error from server (Forbidden)"},
	} {
		testwait.For(t, tc.reason, patience, func() (bool, string) {
			out, _ := s.kubectl(t.Context(), t, token, strings.Fields(tc.args)...).CombinedOutput()
			return string(out) == tc.want || tc.want != "" && strings.HasPrefix(tc.want, "Error") && strings.HasPrefix(string(out), tc.want), string(out)
		})
	}
	code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/api/v1/configmaps?watch=true&timeoutSeconds=3&fieldSelector=metadata.name%3Dm", token))
	if code != http.StatusOK || strings.Count(body, `"type":"ADDED"`) != 2 || strings.Contains(body, "named-c") {
		t.Errorf("a watch of one name: got %d %s", code, body)
	}
}
