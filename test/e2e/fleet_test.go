package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// patience is the timeout of every wait for Flux. It is far more than Flux needs, since
// several clusters share the machine. A program with its own timeout gets the same one with
// atMost, and is killed after hung.
const (
	patience = 5 * time.Minute
	atMost   = "--timeout=5m"
	hung     = patience + 30*time.Second
)

// example is a copy of the example fleet and its tenants that a test may change.
type example struct{ platform, devTeam, billing, charts, bootstrap string }

func copyExample(t *testing.T) example {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", "fleet"))); err != nil {
		t.Fatal(err)
	}
	return example{
		platform:  filepath.Join(dir, "platform"),
		devTeam:   filepath.Join(dir, "dev-team"),
		billing:   filepath.Join(dir, "billing"),
		bootstrap: filepath.Join(dir, "bootstrap"),
		charts:    filepath.Join(root, "examples", "charts"),
	}
}

// options returns the options of `make up`, with the given folder of a cluster.
func (e example) options(t *testing.T, path string, maps ...string) localcluster.Options {
	t.Helper()
	return localcluster.Options{
		Fleet: e.platform, Path: path, Apply: []string{e.bootstrap},
		Maps: parseMaps(t, append(maps,
			"https://git.example.com/acme/dev-team#main="+e.devTeam,
			"https://charts.example.com="+e.charts)...),
	}
}

func parseMaps(t *testing.T, values ...string) []network.Map {
	t.Helper()
	var maps []network.Map
	for _, value := range values {
		m, err := network.ParseMap(value)
		if err != nil {
			t.Fatal(err)
		}
		maps = append(maps, m)
	}
	return maps
}

// run is a cluster with the test that uses it.
type run struct {
	*localcluster.Cluster
	t *testing.T
}

// start starts a cluster with a fleet, waits until the fleet has settled, and returns the
// failures by object.
func start(t *testing.T, opts localcluster.Options) (run, map[string]string) {
	t.Helper()
	began := time.Now()
	r := run{testcluster.Start(t, opts), t}
	failed := r.settle()
	t.Logf("settled %.1fs after the start", time.Since(began).Seconds())
	return r, failed
}

// with returns the same cluster for a subtest.
func (r run) with(t *testing.T) run { return run{r.Cluster, t} }

func (r run) rows() []flux.Row {
	r.t.Helper()
	return r.lister()()
}

// lister returns a function that lists all objects of Flux with one client.
func (r run) lister() func() []flux.Row {
	r.t.Helper()
	kube, err := flux.NewClient(r.REST)
	if err != nil {
		r.t.Fatal(err)
	}
	return func() []flux.Row {
		r.t.Helper()
		rows, err := flux.List(r.t.Context(), kube, flux.Selection{Kinds: flux.AllKinds()})
		if err != nil {
			r.t.Fatal(err)
		}
		return rows
	}
}

// A fleet has settled when it is found settled in more than settledTimes checks in a row: newly
// applied objects may be missing at first, for longer on a busy machine, where a check takes
// longer as well. lackingFor is how long it must stay settled if an object is missing that the
// manager may still create.
const (
	settledTimes = 5
	lackingFor   = 20 * time.Second
)

// settle waits until the fleet stays settled, and returns the failures by object.
func (r run) settle() map[string]string {
	r.t.Helper()
	list := r.lister()
	failed, quiet, since := map[string]string{}, 0, time.Time{}
	testwait.For(r.t, "the fleet to settle", patience, func() (bool, string) {
		rows := list()
		now := flux.Assess(rows)
		if len(rows) < 3 || !now.Settled() {
			quiet = 0
			return false, fmt.Sprintf("%+v", now.Awaited)
		}
		quiet++
		clear(failed)
		for _, f := range now.Failed {
			failed[f.Row.Ref().String()] = f.Reason
		}
		if quiet == 1 {
			since = time.Now()
		}
		lacks := slices.ContainsFunc(now.Failed, func(f flux.Finding) bool { return f.Lacks })
		return quiet > settledTimes && (!lacks || time.Since(since) > lackingFor), "settled, but not for long"
	})
	return failed
}

// row returns an object by Kind/namespace/name.
func (r run) row(ref string) (flux.Row, bool) {
	r.t.Helper()
	return find(r.rows(), ref)
}

func find(rows []flux.Row, ref string) (flux.Row, bool) {
	for _, row := range rows {
		if row.Ref().String() == ref {
			return row, true
		}
	}
	return flux.Row{}, false
}

// until waits until ok accepts the state of an object.
func (r run) until(ref, reason string, ok func(flux.Row) bool) flux.Row {
	r.t.Helper()
	list := r.lister()
	var row flux.Row
	testwait.For(r.t, ref+" "+reason, patience, func() (bool, string) {
		var found bool
		row, found = find(list(), ref)
		return found && ok(row), fmt.Sprintf("it says %s %s %q", row.Ready, row.Revision, row.Message)
	})
	return row
}

func (r run) kubectl(stdin string, args ...string) string {
	r.t.Helper()
	return mustKubectl(r.t, r.Cluster, stdin, args...)
}

// process is one of the fleet's controllers as it really runs.
type process struct {
	pid     string
	command []string
	args    []string // arguments in its Pod
}

// processOf waits until the only Pod of a Deployment in flux-system is ready, and returns its
// process with the command line from the operating system.
func (r run) processOf(deployment string) process {
	r.t.Helper()
	var p process
	testwait.For(r.t, deployment+" to be one ready process", patience, func() (bool, string) {
		var missing string
		p, missing = r.readyProcess(deployment)
		return missing == "", missing
	})
	p.command = commandOf(r.t, p.pid)
	return p
}

// readyProcess returns the process of a Deployment, or why it is not ready.
func (r run) readyProcess(deployment string) (p process, missing string) {
	r.t.Helper()
	var pods struct {
		Items []struct {
			Spec struct {
				Containers []struct {
					Args []string `json:"args"`
				} `json:"containers"`
			} `json:"spec"`
			Status struct {
				ContainerStatuses []struct {
					ContainerID string `json:"containerID"`
					Ready       bool   `json:"ready"`
				} `json:"containerStatuses"`
			} `json:"status"`
		} `json:"items"`
	}
	out := r.kubectl("", "-n", "flux-system", "get", "pods", "-l", "app="+deployment, "-o", "json")
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		r.t.Fatal(err)
	}
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		return process{}, "there is not one Pod with one container: " + out
	}
	status := pods.Items[0].Status.ContainerStatuses[0]
	pid, ok := strings.CutPrefix(status.ContainerID, "process://")
	if !ok || !status.Ready {
		return process{}, fmt.Sprintf("it is no ready process: %+v", status)
	}
	return process{pid: pid, args: pods.Items[0].Spec.Containers[0].Args}, ""
}

func commandOf(t *testing.T, pid string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-ww", "-o", "args=", "-p", pid).Output()
	if err != nil {
		t.Fatalf("cannot see process %s: %v", pid, err)
	}
	return strings.Fields(string(out))
}

// edit replaces a string in a file that must be there.
func edit(t *testing.T, old, replacement string, file ...string) {
	t.Helper()
	name := filepath.Join(file...)
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s does not hold %q:\n%s", name, old, content)
	}
	write(t, strings.ReplaceAll(string(content), old, replacement), name)
}

func write(t *testing.T, content string, file ...string) {
	t.Helper()
	name := filepath.Join(file...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// git runs git in a folder, without the user's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", append([]string{
		"-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false",
	}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func expectNothing(t *testing.T, reason string, failed map[string]string) {
	t.Helper()
	if diff := cmp.Diff(map[string]string{}, failed); diff != "" {
		t.Errorf("%s: -want +got:\n%s", reason, diff)
	}
}
