package kubeflags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestLocalHint checks which local cluster the hint suggests to a user without a kubeconfig.
func TestLocalHint(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	for _, step := range []struct{ reason, cluster, want string }{
		{"nothing runs, so the way to start one", "", "what now?; `tenure up` starts a local one and prints its kubeconfig"},
		{"that of a verify, which ends with it", localcluster.VerifyPrefix + "17", "what now?; `tenure up` starts a local one and prints its kubeconfig"},
		{"the only one that runs", "other", "what now?; for the local cluster other that runs here: export KUBECONFIG=" + filepath.Join(root, "other", "kubeconfig")},
		{"of several the one without a name", localcluster.DefaultName, "what now?; for the local cluster default that runs here: export KUBECONFIG=" + filepath.Join(root, "default", "kubeconfig")},
		{"the default one wins against those before it", "another", "what now?; for the local cluster default that runs here: export KUBECONFIG=" + filepath.Join(root, "default", "kubeconfig")},
	} {
		if step.cluster != "" {
			state, err := localcluster.AcquireState(t.Context(), root, step.cluster)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := state.Release(); err != nil {
					t.Error(err)
				}
			})
		}
		if got := LocalHint(root, "what now?"); got != step.want {
			t.Errorf("%s: want %q, got %q", step.reason, step.want, got)
		}
	}
}

// TestExplain checks which errors get the advice to look whether the cluster runs.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		cause  error
		want   bool
	}{
		{"the connection is refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{"the server does not answer in time", context.DeadlineExceeded, true},
		{"the server answers something else", errors.New("malformed HTTP response"), false},
	} {
		err := Explain(fmt.Errorf("cannot list the Tenants: %w", &url.Error{Op: "Get", URL: "https://127.0.0.1:1/api", Err: tc.cause}))
		var out strings.Builder
		ui.PrintError(ui.NewScreen(&out), err)
		if got := strings.Contains(out.String(), "check that the cluster is running"); got != tc.want {
			t.Errorf("%s: advice %t, want %t:\n%s", tc.reason, got, tc.want, out.String())
		}
	}
}

// TestExplainRefusals checks the advice about requests that the API server refuses.
func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "tenants"}, "shop", nil)
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"a token has expired", apierrors.NewUnauthorized(""), "has expired"},
		{"a tenant's kubeconfig lacks a right", forbidden, "needs more rights"},
		{"the command says more about the right", ui.WithHint(forbidden, "ask an admin"), "ask an admin"},
	} {
		hints := ui.Hints(Explain(fmt.Errorf("cannot read the Tenant: %w", tc.err)))
		if len(hints) != 1 || !strings.Contains(hints[0], tc.want) {
			t.Errorf("%s: want one hint with %q, got %q", tc.reason, tc.want, hints)
		}
	}
}

// TestRequestTimeout checks how long a command waits for a server that accepts requests and does not answer
// them, also for a request without a context. A response whose headers came in time may take longer.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	interrupted := errors.New("interrupted")
	client := func(limit time.Duration) (*http.Client, context.CancelCauseFunc) {
		kubeconfig := filepath.Join(t.TempDir(), "config")
		config := clientcmdapi.Config{
			CurrentContext: "c",
			Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
			Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		}
		if err := clientcmd.WriteToFile(config, kubeconfig); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		flags := Flags{Kubeconfig: kubeconfig, RequestTimeout: limit}
		found, err := flags.REST(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c, err := rest.HTTPClientFor(found)
		if err != nil {
			t.Fatal(err)
		}
		return c, cancel
	}

	c, cancel := client(50 * time.Millisecond)
	_, err := get(c, server.URL+"/api")
	if err == nil || !strings.Contains(err.Error(), "did not answer within 50ms (--request-timeout)") {
		t.Errorf("want the limit in the error, got %v", err)
	}
	if len(ui.Hints(Explain(err))) == 0 {
		t.Errorf("want advice for %v", err)
	}
	watch, err := get(c, server.URL+"/watch")
	if err != nil {
		t.Fatalf("the watch has headers, so the limit does not end it: %v", err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(watch.Body)
		read <- errors.Join(err, watch.Body.Close())
	}()
	select {
	case err := <-read:
		t.Errorf("the limit ended the watch: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	cancel(interrupted)
	if err := <-read; err == nil {
		t.Error("the end of the command must end the watch")
	}

	c, cancel = client(0)
	time.AfterFunc(50*time.Millisecond, func() { cancel(interrupted) })
	if _, err := get(c, server.URL+"/api"); !errors.Is(err, interrupted) {
		t.Errorf("the end of the command must end a request without a context, got %v", err)
	}
}

// get sends a request without a context. The caller closes the body.
func get(c *http.Client, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return c.Do(request)
}
