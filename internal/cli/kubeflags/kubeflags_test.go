package kubeflags

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
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
