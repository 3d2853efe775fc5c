package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func tenantObject(spec map[string]any) *unstructured.Unstructured {
	return object("tenure.dev/v1alpha1", "Tenant", "", "team", map[string]any{"spec": spec})
}

// TestPrepareOwners checks that of similar owners only one attacks, and that no owner attacks that is
// already an attacking account.
func TestPrepareOwners(t *testing.T) {
	t.Parallel()
	e := env("team", "", "")
	e.config = &rest.Config{Host: "http://127.0.0.1:0"}
	e.who = identity{user: "system:serviceaccount:team:team"}
	e.Tenant.Owners = []discovery.Owner{
		{Kind: rbacv1.UserKind, Name: "ann", Shape: "a"}, {Kind: rbacv1.UserKind, Name: "bob", Shape: "a"},
		{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "team", Shape: "b"}, {Kind: rbacv1.GroupKind, Name: "devs", Shape: "c"},
	}
	if err := e.prepareOwners(); err != nil {
		t.Fatal(err)
	}
	var got []identity
	for _, owner := range e.owners {
		got = append(got, owner.who)
	}
	want := []identity{
		{name: "User ann", user: "ann", groups: []string{"system:authenticated"}},
		{name: "Group devs", user: "tenure-attack-member", groups: []string{"devs", "system:authenticated"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(identity{})); diff != "" {
		t.Errorf("who attacks (-want +got):\n%s", diff)
	}
}

// TestBoundedNamespaces checks that an owner who may create namespaces needs a webhook that counts them.
func TestBoundedNamespaces(t *testing.T) {
	t.Parallel()
	quota := func(n int64) *unstructured.Unstructured {
		return tenantObject(map[string]any{"namespaces": map[string]any{"quota": n, "prefix": true, "required": map[string]any{"labels": map[string]any{"cost": "c-*"}}}})
	}
	for name, tc := range map[string]struct {
		reason  string
		tenant  *unstructured.Unstructured
		answer  error
		counted bool
		want    Outcome
	}{
		"no Tenant":   {"nobody would stop it", nil, nil, true, GotThrough},
		"no quota":    {"the webhook counts nothing without one", tenantObject(map[string]any{}), nil, true, GotThrough},
		"too many":    {"a quota of very many is none", quota(maxObjects + 1), nil, true, GotThrough},
		"not counted": {"a quota that nobody looks at is none", quota(3), nil, false, GotThrough},
		"counted":     {"the webhook has seen it", quota(3), nil, true, Stopped},
		"used up":     {"a refusal of the webhook's is one", quota(3), forbidden(`admission webhook "namespaces.tenure.dev" denied the request: has 3 of 3`), false, Stopped},
		"away":        {"a webhook that does not answer proves nothing", quota(3), apierrors.NewInternalError(context.DeadlineExceeded), false, NotProven},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []client.Object
			if tc.tenant != nil {
				objects = append(objects, tc.tenant)
			}
			e := newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				labels := o.GetLabels()
				if tc.tenant != nil && tc.want == Stopped && (o.GetName() != "team-tenure-attack-a2-team" || labels["cost"] != "c-x") {
					t.Errorf("the namespace is not as the Tenant wants it: %s %v", o.GetName(), labels)
				}
				all := map[string]string{corev1.LabelMetadataName: o.GetName()}
				for k, v := range labels {
					all[k] = v
				}
				if tc.counted {
					all["pod-security.kubernetes.io/enforce"] = "baseline"
				}
				o.SetLabels(all)
				return tc.answer
			}}, objects...)
			if got := e.boundedNamespaces(t.Context()); got.Outcome != tc.want {
				t.Errorf("%s: got %s (%s%s), want %s", tc.reason, got.Outcome, got.Evidence, got.Reason, tc.want)
			}
		})
	}
}

// A name that no object can have is refused, and nothing else that is invalid.
func TestCheckedName(t *testing.T) {
	t.Parallel()
	invalid := func(path ...string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "Kube-x", field.ErrorList{field.Invalid(field.NewPath(path[0], path[1:]...), "Kube-x", "must be lower case")})
	}
	for _, tc := range []struct {
		reason string
		answer error
		want   Outcome
	}{
		{"the name", invalid("metadata", "name"), Stopped},
		{"something else", invalid("metadata", "labels"), NotProven},
		{"accepted", nil, GotThrough},
	} {
		err := checkedName(func(context.Context, *Scenario) error { return tc.answer })(t.Context(), nil)
		if got := judge(err, "it could"); got.Outcome != tc.want {
			t.Errorf("%s: got %s by %q", tc.reason, got.Outcome, got.Control)
		}
	}
}

// TestEditsItsBounds checks that the attack tries the existing objects that restrict a tenant.
func TestEditsItsBounds(t *testing.T) {
	t.Parallel()
	binding := object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "tenure-bounds", nil)
	patched := map[string]bool{}
	e := newFakeEnv(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if strings.HasPrefix(o.GetName(), name("i17")) {
				return forbidden(`User "x" cannot create resource "validatingadmissionpolicybindings"`)
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			patched[o.GetObjectKind().GroupVersionKind().Kind] = true
			return forbidden(`User "x" cannot patch resource "things"`)
		},
	}, tenantObject(map[string]any{}), binding, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	if f := editsItsBounds(t.Context(), e); f.Outcome != Stopped {
		t.Errorf("got %s: %s%s", f.Outcome, f.Evidence, f.Reason)
	}
	if diff := cmp.Diff(map[string]bool{"Tenant": true, "ValidatingAdmissionPolicyBinding": true}, patched); diff != "" {
		t.Errorf("what was attacked (-want +got):\n%s", diff)
	}
}

// The client repeats a request after a conflict, and not after a refusal.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "tenure", errors.New("modified"))
	for name, tc := range map[string]struct {
		answers []error
		want    error
	}{
		"a race that is lost twice": {[]error{conflict, conflict, nil}, nil},
		"a refusal":                 {[]error{conflict, forbidden("no")}, forbidden("no")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			c := newFakeEnv(interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				asked++
				return tc.answers[asked-1]
			}}).As
			if err := createWithRetry(t.Context(), c, configMap("team", "x")); fmt.Sprint(err) != fmt.Sprint(tc.want) || asked != len(tc.answers) {
				t.Errorf("got %v after %d requests, want %v after %d", err, asked, tc.want, len(tc.answers))
			}
		})
	}
}

// The client of the platform repeats such requests too: it prepares what the attacks need
// while they create objects in the same namespace.
func TestNewClientCreatesAgain(t *testing.T) {
	t.Parallel()
	asked := 0
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "tenure", errors.New("modified")).Status()
	conflict.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case r.Method == http.MethodPost:
			if asked++; asked == 1 {
				w.WriteHeader(http.StatusConflict)
				answer = conflict
				break
			}
			answer = configMap("team", "x")
		case r.URL.Path == "/api":
			answer = metav1.APIVersions{Versions: []string{"v1"}}
		case r.URL.Path == "/apis":
			answer = metav1.APIGroupList{}
		case r.URL.Path == "/api/v1":
			answer = metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	c, err := newClient(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), configMap("team", "x")); err != nil || asked != 2 {
		t.Errorf("got %v after %d requests, want none after 2", err, asked)
	}
}

// A webhook that did not answer in time gets the request again, and other errors do not.
func TestRetryIfLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, retriesIfLate)
}

func retriesIfLate(t *testing.T) {
	const webhook = `Internal error occurred: failed calling webhook "p.kyverno.svc": failed to call webhook: Post "https://x.x.svc:443/validate?timeout=10s": `
	for _, tc := range []struct {
		reason  string
		answers []string
		want    int
		says    string
	}{
		{"it answers the third time", []string{webhook + "context deadline exceeded", webhook + "net/http: request canceled (Client.Timeout exceeded while awaiting headers)", ""}, 3, ""},
		{"its Pod becomes ready", []string{webhook + "proxy error, code 502: no Pod behind the Service is ready: x/x (1 are not ready)", ""}, 2, ""},
		{"it never answers", []string{webhook + "context deadline exceeded"}, maxLate, "run verify again"},
		{"no program answers", []string{webhook + "connection refused"}, 1, "neither a success nor a known refusal"},
	} {
		asked := 0
		e := newFakeEnv(interceptor.Funcs{})
		c := interceptor.NewClient(interceptor.NewClient(e.Admin, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				answer := tc.answers[min(asked, len(tc.answers)-1)]
				if asked++; answer != "" {
					return apierrors.NewInternalError(errors.New(answer))
				}
				return nil
			},
		}), asRecommended(nil))
		f := judge(c.Create(t.Context(), configMap("team", "x")), "")
		if asked != tc.want || !strings.Contains(f.Reason, tc.says) || (f.Outcome == GotThrough) != (tc.says == "") {
			t.Errorf("%s: %d requests: %s %s", tc.reason, asked, f.Outcome, f.Reason)
		}
	}
}
