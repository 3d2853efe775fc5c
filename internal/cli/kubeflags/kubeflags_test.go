package kubeflags

import (
	"path/filepath"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
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
