package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// Timeouts for operations that take a second or less on an idle machine, and for the start of
// a cluster. They only keep a test from hanging on a very busy machine.
const (
	moment  = 3 * time.Minute
	startup = 5 * time.Minute
)

// home returns a TENURE_HOME for one test, with a path short enough for sockets. At the end of
// the test it must be gone.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	t.Cleanup(func() {
		nothingLeft(t, home)
		_ = os.RemoveAll(dir)
	})
	return home
}

// nothingLeft fails unless the folder and every process that works in it vanish.
func nothingLeft(t *testing.T, home string) {
	t.Helper()
	deadline := time.Now().Add(moment)
	// Do not use testwait: its context has ended when tests clean up.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := processes(t, home)
		_, err := os.Lstat(home)
		if len(left) == 0 && errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			files, _ := filepath.Glob(filepath.Join(home, "*"))
			t.Errorf("left behind: %s with %q, processes %v", home, files, left)
			return
		}
		<-tick.C
	}
}

// processes returns the command lines that contain all the words, by PID.
func processes(t *testing.T, words ...string) map[int]string {
	t.Helper()
	out, err := exec.Command("ps", "-axww", "-o", "pid=,command=").Output()
	if err != nil {
		t.Fatalf("cannot list processes: %v", err)
	}
	found := map[int]string{}
line:
	for line := range strings.Lines(string(out)) {
		pid, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, word := range words {
			if !strings.Contains(command, word) {
				continue line
			}
		}
		if n, err := strconv.Atoi(pid); err == nil {
			found[n] = command
		}
	}
	return found
}

// kill sends SIGKILL to the only process with the words in its command line.
func kill(t *testing.T, words ...string) {
	t.Helper()
	var pid int
	testwait.For(t, "a process to kill", moment, func() (bool, string) {
		found := processes(t, words...)
		for pid = range found {
			break
		}
		return len(found) == 1, strings.Join(words, " ")
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("cannot kill %q: %v", words, err)
	}
}

// output collects the output of a program.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// session is a running program.
type session struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  output // both streams
	done chan struct{}
}

// command returns tenure, to be run with a TENURE_HOME.
func command(t *testing.T, home string, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "tenure"), args...)
	cmd.Env = append(os.Environ(), "TENURE_HOME="+home)
	return cmd
}

// tenure starts tenure. The program is interrupted if the test ends first.
func tenure(t *testing.T, home string, args ...string) *session {
	t.Helper()
	return launch(t, command(t, home, args...))
}

func launch(t *testing.T, cmd *exec.Cmd) *session {
	t.Helper()
	r := &session{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v said:\n%s", cmd.Args, r.out.String())
		}
		r.signal(syscall.SIGINT)
		select {
		case <-r.done:
		case <-time.After(moment):
			r.signal(syscall.SIGKILL)
		}
	})
	return r
}

func (r *session) signal(s syscall.Signal) {
	select {
	case <-r.done:
	default:
		_ = r.cmd.Process.Signal(s)
	}
}

// says waits until the output after an offset matches the expression, and returns the offset
// after the match.
func (r *session) says(from int, expression string, patience time.Duration) int {
	r.t.Helper()
	re := regexp.MustCompile(expression)
	end := 0
	testwait.For(r.t, "tenure to say "+expression, patience, func() (bool, string) {
		ended := r.ended()
		said := r.out.String()[from:]
		if at := re.FindStringIndex(said); at != nil {
			end = from + at[1]
			return true, ""
		}
		if ended {
			r.t.Fatalf("tenure ended without saying %q", expression)
		}
		return false, said
	})
	return end
}

func (r *session) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// exits waits for the end and compares the exit code.
func (r *session) exits(code int, patience time.Duration) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("tenure did not end within %s", patience)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("exit code %d (%v), want %d", got, r.cmd.ProcessState, code)
	}
}

// fails waits for exit code 1 and checks that the output has all the words.
func (r *session) fails(reason string, patience time.Duration, words ...string) {
	r.t.Helper()
	r.exits(1, patience)
	said := r.out.String()
	for _, word := range words {
		if !strings.Contains(said, word) {
			r.t.Errorf("%s: it does not say %q:\n%s", reason, word, said)
		}
	}
}

const ready = "everything is ready"

// writeFiles writes files, by their paths below a folder.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
