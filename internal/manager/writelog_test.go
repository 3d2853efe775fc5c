package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/ui"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
)

// answering is an API server that answers everything with one status.
type answering int

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

func TestLogWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, method, path string
		code                 answering
		level                slog.Level
		want                 string // "" for no line
	}{
		{"an applied object", http.MethodPatch, "/apis/networking.k8s.io/v1/namespaces/apps/networkpolicies/tenure-isolation?fieldManager=tenure&force=true", 200, slog.LevelInfo, `msg=changed tenant=team object="networkpolicies.networking.k8s.io apps/tenure-isolation"`},
		{"an applied object that did not exist", http.MethodPatch, "/api/v1/namespaces/apps/resourcequotas/tenure?fieldManager=tenure", 201, slog.LevelInfo, `msg=created tenant=team object="resourcequotas apps/tenure"`},
		{"a created object without a name that can be read", http.MethodPost, "/api/v1/namespaces/apps/serviceaccounts", 201, slog.LevelInfo, `msg=created tenant=team object="serviceaccounts apps"`},
		{"a namespace without a name that can be read", http.MethodPost, "/api/v1/namespaces", 201, slog.LevelInfo, `msg=created tenant=team object=namespaces`},
		{"a changed namespace", http.MethodPatch, "/api/v1/namespaces/apps", 200, slog.LevelInfo, `msg=changed tenant=team object="namespaces apps"`},
		{"a deleted object of the cluster", http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterroles/x", 200, slog.LevelInfo, `msg=deleted tenant=team object="clusterroles.rbac.authorization.k8s.io x"`},
		{"a status is for debugging", http.MethodPut, "/apis/tenure.dev/v1alpha1/tenants/team/status", 200, slog.LevelInfo, ""},
		{"a status while debugging", http.MethodPut, "/apis/tenure.dev/v1alpha1/tenants/team/status", 200, slog.LevelDebug, `msg=changed tenant=team subresource=status code=200 object="tenants.tenure.dev team"`},
		{"a refusal is for debugging", http.MethodPatch, "/api/v1/namespaces/apps/resourcequotas/q", 409, slog.LevelInfo, ""},
		{"a refusal while debugging", http.MethodPatch, "/api/v1/namespaces/apps/resourcequotas/q", 409, slog.LevelDebug, `code=409 object="resourcequotas apps/q"`},
		{"nothing is written", http.MethodGet, "/api/v1/namespaces/apps", 200, slog.LevelDebug, ""},
		{"a dry run", http.MethodPost, "/api/v1/namespaces/apps/pods?dryRun=All", 201, slog.LevelDebug, ""},
		{"a lease", http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/flux-system/leases/tenure-manager", 200, slog.LevelDebug, ""},
		{"an event", http.MethodPost, "/apis/events.k8s.io/v1/namespaces/apps/events", 201, slog.LevelDebug, ""},
		{"a core event", http.MethodPost, "/api/v1/namespaces/apps/events", 201, slog.LevelDebug, ""},
		{"a review", http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", 201, slog.LevelDebug, ""},
		{"no object", http.MethodPost, "/healthz", 200, slog.LevelDebug, ""},
	} {
		var out bytes.Buffer
		log := logr.FromSlogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: tc.level}))
		ctx := ctrl.LoggerInto(context.Background(), log.WithValues("tenant", "team"))
		request, err := http.NewRequestWithContext(ctx, tc.method, "https://cluster.example.com"+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := logWrites(tc.code).RoundTrip(request)
		if err != nil || resp.StatusCode != int(tc.code) {
			t.Errorf("%s: got %v, %v", tc.reason, resp, err)
		}
		_ = resp.Body.Close()
		if got := out.String(); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
		}
	}
}

// TestLogCreated checks that the line of an object that is created by POST has the name from the body.
func TestLogCreated(t *testing.T) {
	t.Parallel()
	binary := func(object runtime.Object, gvk schema.GroupVersionKind) string {
		var out bytes.Buffer
		serializer := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
		object.GetObjectKind().SetGroupVersionKind(gvk)
		if err := serializer.Encode(object, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, tc := range []struct{ reason, path, body, want string }{
		{"a namespace in JSON", "/api/v1/namespaces", `{"kind":"Namespace","metadata":{"name":"team-apps"}}`, `object="namespaces team-apps"`},
		{"an object of a kind of Tenure", "/apis/tenure.dev/v1alpha1/namespaces/apps/tenantparameters", `{"metadata":{"name":"tenant"},"spec":{}}`, `object="tenantparameters.tenure.dev apps/tenant"`},
		{"a name of the API server's choice", "/api/v1/namespaces/apps/configmaps", `{"metadata":{"generateName":"part-"}}`, `object="configmaps apps/part-*"`},
		{"an object in protobuf", "/api/v1/namespaces/apps/serviceaccounts", binary(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "flux"}}, corev1.SchemeGroupVersion.WithKind("ServiceAccount")), `object="serviceaccounts apps/flux"`},
		{"a token, whose account is in the path", "/api/v1/namespaces/apps/serviceaccounts/flux/token", `{"metadata":{"name":"other"}}`, `subresource=token code=201 object="serviceaccounts apps/flux"`},
		{"a body that is no object", "/api/v1/namespaces/apps/configmaps", "no object", `object="configmaps apps"`},
	} {
		var out bytes.Buffer
		log := logr.FromSlogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		request, err := http.NewRequestWithContext(ctrl.LoggerInto(context.Background(), log), http.MethodPost, "https://cluster.example.com"+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := logWrites(answering(http.StatusCreated)).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := out.String(); !strings.Contains(got, tc.want) {
			t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
		}
	}
}

// TestErrorKey holds the key under which a log line has the error.
func TestErrorKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := newLogger(ui.IO{Err: &out}, "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Error(errors.New("refused"), "Reconciler error", "tenant", "team")
	if got := out.String(); !strings.Contains(got, `"error":"refused","tenant":"team"`) {
		t.Errorf("the error is not under the documented key: %s", got)
	}
}

// TestReadinessLog checks that the log names the reason why the manager is not ready, once, and not each
// failed probe.
func TestReadinessLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := newLogger(ui.IO{Err: &out}, "info")
	if err != nil {
		t.Fatal(err)
	}
	var reason error
	check := logReason(log, "rules", func(*http.Request) error { return reason })
	for _, reason = range []error{errors.New("not read"), errors.New("not read"), errors.New("not enforced"), nil, nil, errors.New("not read")} {
		if err := check(nil); !errors.Is(err, reason) {
			t.Errorf("want %v, got %v", reason, err)
		}
		log.WithName("healthz").Info("healthz check failed", "statuses", []string{"rules"})
	}
	var messages []string
	for line := range strings.Lines(out.String()) {
		var fields struct{ Msg, Reason string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, strings.TrimSpace(fields.Msg+" "+fields.Reason))
	}
	want := []string{"not ready not read", "not ready not enforced", "ready", "not ready not read"}
	if diff := cmp.Diff(want, messages); diff != "" {
		t.Errorf("unexpected lines (-want +got):\n%s", diff)
	}
}
