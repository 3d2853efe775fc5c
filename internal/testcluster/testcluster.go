// Package testcluster gives tests a local cluster: a private one with [Start],
// or one per test program with [Shared]. It needs the programs in bin/ at the
// repository's root; `make test` builds them. A test that fails is shown the
// ends of the logs of everything that ran.
package testcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/supervise"
)

// Start starts a cluster that is the test's own and stops it when the test
// ends. Name, Root, BinDir and Report of the options are set here.
func Start(t testing.TB, opts localcluster.Options) *localcluster.Cluster {
	t.Helper()
	cluster, err := start(t.Context(), opts, t.Logf)
	if err != nil {
		t.Fatalf("cannot start a cluster for the test: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(Logs(cluster, 15))
		}
		if err := stop(cluster); err != nil {
			t.Errorf("cannot stop the test's cluster: %v", err)
		}
	})
	return cluster
}

func start(ctx context.Context, opts localcluster.Options, logf func(string, ...any)) (*localcluster.Cluster, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	// Not in t.TempDir(), whose path can be too long for sockets.
	if opts.Root, err = os.MkdirTemp("", "tenure-test-"); err != nil {
		return nil, err
	}
	opts.Name, opts.BinDir = "test", bin
	opts.Report = func(err error) { logf("the cluster reports: %v", err) }
	cluster, err := localcluster.Start(ctx, opts)
	if err != nil {
		_ = os.RemoveAll(opts.Root)
		return nil, err
	}
	return cluster, nil
}

func stop(cluster *localcluster.Cluster) error {
	err := cluster.Stop()
	_ = os.RemoveAll(filepath.Dir(cluster.Dir))
	return err
}

var shared struct {
	sync.Mutex
	cluster *localcluster.Cluster
	err     error
	once    sync.Once
}

// Shared returns a bare cluster, without a fleet and without Flux, that all
// tests of the program share: keep to namespaces of your own. The program's
// TestMain must call [Main].
func Shared(t testing.TB) *localcluster.Cluster {
	t.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = start(context.Background(), localcluster.Options{}, func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, format+"\n", args...)
		})
	})
	if shared.err != nil {
		t.Fatalf("cannot start the shared cluster: %v", shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(Logs(shared.cluster, 15))
		}
	})
	return shared.cluster
}

// Main runs the tests of a program and stops the shared cluster after them. It
// returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.cluster == nil {
		return code
	}
	if err := stop(shared.cluster); err != nil {
		fmt.Fprintf(os.Stderr, "cannot stop the shared cluster: %v\n", err)
		return 1
	}
	return code
}

// Logs returns the last lines of every log of the cluster.
func Logs(cluster *localcluster.Cluster, lines int) string {
	var out strings.Builder
	for _, file := range cluster.Logs() {
		fmt.Fprintf(&out, "--- %s\n", filepath.Base(file))
		for _, line := range supervise.Tail(file, lines) {
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

// Repository returns the root of Tenure's source tree.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = parent
	}
}

// BinDir returns the folder of the built programs.
func BinDir() (string, error) {
	root, err := Repository()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if _, err := os.Stat(filepath.Join(bin, "tenure-cluster")); err != nil {
		return "", fmt.Errorf("the programs are not built: run `make build`: %w", err)
	}
	return bin, nil
}
