package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n <= 1 {
		t.Fatalf("%q is not the number of a process (%v)", text, err)
	}
	return n
}

// access is a cluster that is reached as a user does.
type access struct{ bin, file string }

func kubeconfig(t *testing.T, home, name string) access {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	return access{bin, filepath.Join(home, name, "kubeconfig")}
}

func (a access) kubectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(a.bin, "kubectl"), args...)
	cmd.Env = []string{"KUBECONFIG=" + a.file, "HOME=" + filepath.Dir(a.file), "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (a access) must(t *testing.T, args ...string) {
	t.Helper()
	if out, err := a.kubectl(args...); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// rolledOut waits until a workload matches its spec.
func (a access) rolledOut(t *testing.T, workload string) {
	t.Helper()
	testwait.For(t, workload+" to be rolled out", startup, func() (bool, string) {
		out, err := a.kubectl("rollout", "status", workload, "--timeout=20s")
		return err == nil, out
	})
}

// otherBin returns a folder with a copy of tenure and links to all other programs except
// leftOut.
func otherBin(t *testing.T, leftOut ...string) string {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	entries, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, e := range entries {
		for _, name := range append(leftOut, "tenure") {
			if e.Name() == name {
				continue next
			}
		}
		if err := os.Symlink(filepath.Join(bin, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(filepath.Join(bin, "tenure"))
	if err != nil {
		t.Fatal(err)
	}
	testprogram.Write(t, filepath.Join(dir, "tenure"), program)
	return dir
}

func TestMissingPrograms(t *testing.T) {
	t.Parallel()
	t.Run("TheControlPlane", func(t *testing.T) {
		t.Parallel()
		cmd := exec.Command(filepath.Join(otherBin(t, "tenure-cluster"), "tenure"), "up")
		cmd.Env = append(os.Environ(), "TENURE_HOME="+home(t))
		launch(t, cmd).fails("It is named, with the way to get it.", moment, "tenure-cluster", "make build")
	})
	t.Run("Git", func(t *testing.T) {
		t.Parallel()
		cmd := command(t, home(t), "up")
		cmd.Env = append(cmd.Env, "PATH="+t.TempDir())
		launch(t, cmd).fails("Mapped folders are served with it.", moment, "git", "PATH", "install git")
	})
}

func TestUnusableStateFolder(t *testing.T) {
	t.Parallel()
	file, open := filepath.Join(t.TempDir(), "file"), t.TempDir()
	if err := errors.Join(os.WriteFile(file, []byte("mine"), 0o600), os.Chmod(open, 0o755)); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, home string
		words        []string
	}{
		"File":     {"It is the user's.", file, []string{file, "TENURE_HOME"}},
		"Open":     {"Others could put their files in the place of ours.", open, []string{open, "0755", "chmod 700", "TENURE_HOME"}},
		"TooLong":  {"A socket's path is bounded.", filepath.Join(t.TempDir(), strings.Repeat("long", 30)), []string{"too long", "TENURE_HOME"}},
		"ReadOnly": {"Nobody can make a folder there.", "/dev/null/tenure", []string{"/dev/null", "TENURE_HOME"}},
	}
	if runtime.GOOS == "linux" {
		cases["System"] = cases["ReadOnly"]
		c := cases["System"]
		c.home, c.words = "/proc/tenure", []string{"/proc/tenure", "TENURE_HOME"}
		cases["System"] = c
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenure(t, tc.home, "up").fails(tc.reason, moment, tc.words...)
		})
	}
	t.Cleanup(func() {
		if content, err := os.ReadFile(file); err != nil || string(content) != "mine" {
			t.Errorf("the user's file was touched: %q (%v)", content, err)
		}
	})
}

// TestFullDisk limits the size of files, which gives programs the errors of a full disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, blocks := range map[string]int{"Nothing": 0, "Etcd": 20000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := home(t)
			program := command(t, h, "up")
			cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf(`ulimit -f %d; exec "$0" up`, blocks), program.Path)
			cmd.Env = program.Env
			launch(t, cmd).fails("There is no room for state.", startup, "no room", h, "TENURE_HOME")
			nothingLeft(t, h)
		})
	}
}

// TestClustersSideBySide checks that clusters of two names run side by side, that a second
// cluster of the same name is refused, and that the death of a cluster removes only its
// children and its folder.
func TestClustersSideBySide(t *testing.T) {
	t.Parallel()
	h := home(t)
	one := tenure(t, h, "up")
	one.says(0, ready, startup)
	two := tenure(t, h, "up", "--name", "two")
	two.says(0, ready, startup)

	refused := tenure(t, h, "up")
	refused.fails("The name is taken.", moment, "default", strconv.Itoa(one.cmd.Process.Pid), "tenure down --name default")

	one.signal(syscall.SIGKILL)
	<-one.done
	// At once, while the dead one is being cleaned up.
	again := tenure(t, h, "up")
	again.says(0, ready, startup)
	for _, name := range []string{"default", "two"} {
		kubeconfig(t, h, name).must(t, "get", "namespace", "default")
	}

	tenure(t, h, "down", "--name", "three").fails("There is none of that name.", moment, "three", "running: default, two")
	tenure(t, h, "down", "--name", "two").exits(0, moment)
	two.exits(0, moment)
	again.signal(syscall.SIGKILL)
	<-again.done
	nothingLeft(t, h)
	tenure(t, h, "down").fails("It has gone with its process.", moment, "no local cluster", "tenure up")
}

// TestDetachedBare checks that $(tenure up --detach) returns: no process holds its output
// open.
func TestDetachedBare(t *testing.T) {
	t.Parallel()
	h := home(t)
	program := command(t, h, "up")
	cmd := exec.Command("/bin/sh", "-c", `said=$("$0" up --detach); code=$?; echo "$said" | grep -c "`+ready+`"; exit $code`, program.Path)
	cmd.Dir = t.TempDir() // no fleet is there or below
	cmd.Env = program.Env
	r := launch(t, cmd)
	r.exits(0, startup)
	if got := "\n" + strings.TrimSpace(r.out.String()); !strings.HasSuffix(got, "\n1") {
		t.Errorf("the output does not say %q: %s", ready, got)
	}
	kubeconfig(t, h, "default").must(t, "get", "namespace", "default")
	tenure(t, h, "down").exits(0, moment)
	nothingLeft(t, h)
}

// TestCrashingComponents checks that a crashed component is restarted, and that a component
// that keeps crashing ends the command with its last output.
func TestCrashingComponents(t *testing.T) {
	t.Parallel()
	bin := otherBin(t, "tenure-cluster")
	built, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	// A program that can fail later.
	broken := filepath.Join(bin, "broken")
	script := fmt.Sprintf("#!/bin/sh\nif [ $1 = etcd ] && [ -e %s ]; then echo my last words; exit 3; fi\nexec %s \"$@\"\n", broken, filepath.Join(built, "tenure-cluster"))
	testprogram.Write(t, filepath.Join(bin, "tenure-cluster"), []byte(script))
	h := home(t)
	cmd := exec.Command(filepath.Join(bin, "tenure"), "up")
	cmd.Env = append(os.Environ(), "TENURE_HOME="+h)
	r := launch(t, cmd)
	at := r.says(0, ready, startup)
	k := kubeconfig(t, h, "default")

	kill(t, h, "kube-scheduler")
	at = r.says(at, `(?m)^! kube-scheduler ended \(signal: killed\) and is restarted`, moment)
	kill(t, h, "etcd", "--data-dir")
	at = r.says(at, `(?m)^! etcd ended \(signal: killed\) and is restarted`, moment)
	testwait.For(t, "the cluster to take objects again", startup, func() (bool, string) {
		out, err := k.kubectl("create", "deployment", "web", "--image=images.example.com/web:1")
		return err == nil || strings.Contains(out, "already exists"), out
	})
	testwait.For(t, "a Pod to be scheduled and to run", startup, func() (bool, string) {
		out, err := k.kubectl("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}")
		return err == nil && out == "1", out
	})

	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, h, "etcd", "--data-dir")
	r.says(at, `(?m)^✗ etcd ended \(exit status 3, given up after \d restarts\)`, 2*startup)
	r.fails("It was given up.", moment, "my last words")
	nothingLeft(t, h)
}

// TestDurable checks that the data of a durable cluster outlives it, and that no other cluster
// can use its folder.
func TestDurable(t *testing.T) {
	t.Parallel()
	h, data := home(t), filepath.Join(t.TempDir(), "data")
	k := kubeconfig(t, h, "default")
	first := tenure(t, h, "up", "--data", data)
	first.says(0, ready, startup)
	k.must(t, "create", "configmap", "kept", "--from-literal=value=kept")
	k.must(t, "create", "deployment", "web", "--image=images.example.com/web:1")
	k.rolledOut(t, "deployment/web")
	second := tenure(t, h, "up", "--name", "second", "--data", data)
	second.fails("Two clusters would ruin the folder.", moment, data, "tenure down", "--data")
	first.signal(syscall.SIGINT)
	first.exits(0, moment)
	nothingLeft(t, h)

	again := tenure(t, h, "up", "--data", data)
	again.says(0, ready, startup)
	if out, err := k.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.value}"); err != nil || out != "kept" {
		t.Errorf("the object did not outlive the cluster: %q (%v)", out, err)
	}
	k.must(t, "scale", "deployment/web", "--replicas=2")
	k.rolledOut(t, "deployment/web")
	began := time.Now()
	again.signal(syscall.SIGTERM)
	again.exits(0, moment)
	t.Logf("a durable cluster stopped in %s", time.Since(began).Round(time.Millisecond))
}
