package catalog

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answering is an API server that answers each request by its method and path.
func answering(t *testing.T, answers map[string]int) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case "/api/v1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"secrets","namespaced":true,"kind":"Secret","verbs":["create"]},{"name":"pods","namespaced":true,"kind":"Pod","verbs":["create"]},{"name":"namespaces","namespaced":false,"kind":"Namespace","verbs":["patch"]}]}`)
		default:
			status := answers[r.Method+" "+r.URL.Path]
			w.WriteHeader(status)
			if status >= 300 {
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no"}`)
				return
			}
			_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}`)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// TestRepeat gives the command for the request that decided, as who made it.
func TestRepeat(t *testing.T) {
	t.Parallel()
	config := answering(t, map[string]int{
		"POST /api/v1/namespaces/theirs/secrets": http.StatusForbidden, "POST /api/v1/namespaces/own/secrets": http.StatusCreated,
		"PATCH /api/v1/namespaces/own/status": http.StatusOK, "DELETE /api/v1/namespaces/own/secrets/x": http.StatusForbidden,
		"GET /api/v1/namespaces/theirs/secrets/x": http.StatusOK, "PUT /api/v1/namespaces/own/secrets/x": http.StatusUnprocessableEntity,
		"PATCH /api/v1/namespaces/own/secrets/x": http.StatusOK, "POST /api/v1/namespaces/own/pods/x/exec": http.StatusBadRequest,
	})
	team := identity{user: "system:serviceaccount:own:team", groups: []string{"system:authenticated", "it's odd"}}
	as, err := asIdentity(config, team, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := asIdentity(config, identity{user: "made-up"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := func(namespace string) *corev1.Secret {
		s := &corev1.Secret{}
		s.Namespace, s.Name = namespace, "x"
		return s
	}
	const who = ` --as system:serviceaccount:own:team --as-group system:authenticated --as-group 'it'\''s odd'`
	for name, tc := range map[string]struct {
		reason string
		run    func(context.Context)
		found  Outcome
		want   string
	}{
		"refused": {
			"the first that is refused, and not what works beside it",
			func(ctx context.Context) {
				_ = as.Create(ctx, secret("own"))
				_ = as.Create(ctx, secret("theirs"), client.DryRunAll)
			},
			Stopped, "kubectl create" + who + " -n theirs --dry-run=server --validate=ignore -f - <<'EOF'\napiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n  namespace: theirs\nEOF",
		},
		"entered": {
			"the request to run a command, which lacks one",
			func(ctx context.Context) {
				_ = as.SubResource("exec").Create(ctx, object("v1", "Pod", "own", "x", nil), object("v1", "PodExecOptions", "", "", nil))
			},
			GotThrough, "kubectl create" + who + " --raw /api/v1/namespaces/own/pods/x/exec -f - <<'EOF'\n{\"apiVersion\":\"v1\",\"kind\":\"PodExecOptions\",\"metadata\":{\"name\":\"x\"}}\nEOF",
		},
		"refused later": {
			"where all was accepted, a controller refused what was written first",
			func(ctx context.Context) { _ = as.Create(ctx, secret("own")) },
			Stopped, "kubectl create" + who + " -n own --validate=ignore -f - <<'EOF'\napiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n  namespace: own\nEOF",
		},
		"through": {
			"the last that was accepted",
			func(ctx context.Context) {
				_ = as.Create(ctx, secret("own"))
				ns := &corev1.Namespace{}
				ns.Name = "own"
				_ = as.SubResource("status").Patch(ctx, ns, client.RawPatch(types.MergePatchType, []byte(`{"a":"it's"}`)))
				_ = as.Get(ctx, client.ObjectKey{Namespace: "theirs", Name: "x"}, &corev1.Secret{})
			},
			GotThrough, "kubectl patch namespaces own" + who + ` --subresource status --type merge -p '{"a":"it'\''s"}'`,
		},
		"changed": {
			"the attack has deleted the object that it changed",
			func(ctx context.Context) {
				_ = as.Create(ctx, secret("own"))
				_ = as.Patch(ctx, secret("own"), client.RawPatch(types.MergePatchType, []byte(`{"a":"b"}`)), client.DryRunAll)
			},
			GotThrough, "kubectl create" + who + " -n own --validate=ignore -f - <<'EOF'\napiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n  namespace: own\nEOF\n" +
				"kubectl patch secrets x" + who + ` -n own --dry-run=server --type merge -p '{"a":"b"}'` + "\nkubectl delete --raw /api/v1/namespaces/own/secrets/x",
		},
		"read": {
			"reading is enough where nothing was written",
			func(ctx context.Context) {
				_ = as.Get(ctx, client.ObjectKey{Namespace: "theirs", Name: "x"}, &corev1.Secret{})
			},
			GotThrough, "kubectl get" + who + " --raw /api/v1/namespaces/theirs/secrets/x",
		},
		"deleted": {
			"a dry run is one",
			func(ctx context.Context) { _ = as.Delete(ctx, secret("own"), client.DryRunAll) },
			Stopped, "kubectl delete" + who + " --raw /api/v1/namespaces/own/secrets/x -f - <<'EOF'\n" + `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}` + "\nEOF",
		},
		"replaced": {
			"by its address",
			func(ctx context.Context) { _ = as.Update(ctx, secret("own"), client.DryRunAll) },
			Stopped, "kubectl replace" + who + " --raw '/api/v1/namespaces/own/secrets/x?dryRun=All' -f - <<'EOF'\n" + `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","namespace":"own"}}` + "\nEOF",
		},
		"too long": {
			"nobody pastes a flood",
			func(ctx context.Context) {
				s := secret("theirs")
				s.StringData = map[string]string{"a": strings.Repeat("a", maxRepeated)}
				_ = as.Create(ctx, s)
			},
			Stopped, "",
		},
		"as somebody else": {"whom the attack made is not there", func(ctx context.Context) { _ = other.Create(ctx, secret("own")) }, GotThrough, ""},
		"not proven":       {"there is nothing to show", func(ctx context.Context) { _ = as.Create(ctx, secret("theirs")) }, NotProven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Attack{Run: func(ctx context.Context, _ *Scenario) Finding {
				tc.run(ctx)
				return Finding{Outcome: tc.found}
			}}
			if got := a.run(t.Context(), &Scenario{who: team}).Repeat; got != tc.want {
				t.Errorf("%s:\ngot\n%s\nwant\n%s", tc.reason, got, tc.want)
			}
		})
	}
}
