package proxy

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// entering is kubectl with the kubeconfig of a user who may exec into Pods.
type entering struct {
	t    *testing.T
	file string
	// env selects the protocol: by default kubectl uses websockets.
	env []string
}

func (e entering) kubectl(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	e.t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		e.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), append([]string{"--kubeconfig", e.file, "--cache-dir", filepath.Dir(e.file)}, args...)...)
	cmd.Env = append(os.Environ(), e.env...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = patience
	return cmd
}

// begins starts a command that runs until the test ends, and returns its output.
func (e entering) begins(args ...string) *bufio.Reader {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	cmd := e.kubectl(ctx, "", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // the context has ended it
	})
	return bufio.NewReader(out)
}

func (e entering) reads(from *bufio.Reader, want string) {
	e.t.Helper()
	if got, err := from.ReadString('\n'); err != nil || got != want+"\n" {
		e.t.Fatalf("want %q, got %q, %v", want, got, err)
	}
}

// TestEnter checks that kubectl exec, port-forward and logs -f work through the proxy in
// the tenant's own namespace and in no other, by both protocols of kubectl.
func TestEnter(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("enter-a", "enter")+namespace("enter-b", "enter-other")+governs("enter-a", "enter-a", "owner")+
		tenant("enter", accountOwner("enter-a", "owner")))
	token := account(t, "enter-a", "owner")
	account(t, "enter-b", "owner")
	sees(t, newClient(t, s.as(token)), "enter-a")
	k := startKubelet(t, "enter")
	k.runs("enter", "enter-a", "mine")
	k.runs("enter", "enter-b", "theirs")
	file := s.kubeconfig(t, token)
	for protocol, env := range map[string][]string{
		"websocket": nil,
		"SPDY/3.1":  {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			seen, server := upgrades(t, s.proxy)
			testEnter(entering{t, (&setup{server: server}).kubeconfig(t, token), env})
			// kubectl falls back to SPDY without a message if websockets fail.
			if got := seen(); len(got) != 1 || !got[protocol] {
				t.Errorf("kubectl has used %v", got)
			}
		})
	}
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		e := entering{t, file, nil}
		log := e.begins("logs", "-f", "-n", "enter-a", "mine")
		e.reads(log, "mine says one")
		close(k.more)
		e.reads(log, "and two")
	})
	t.Run("another tenant's", func(t *testing.T) {
		t.Parallel()
		for _, args := range []string{"exec -i theirs -- sh", "port-forward pod/theirs :80", "logs -f theirs", "attach theirs", "cp theirs:/x /dev/null"} {
			e := entering{t, file, nil}
			out, err := e.kubectl(t.Context(), "", append([]string{"-n", "enter-b"}, strings.Fields(args)...)...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "forbidden") {
				t.Errorf("kubectl %s: want a refusal, got %v\n%s", args, err, out)
			}
		}
	})
}

// upgrades serves the proxy, and records to which protocols requests upgrade.
func upgrades(t *testing.T, proxy http.Handler) (seen func() map[string]bool, server *httptest.Server) {
	t.Helper()
	var mu sync.Mutex
	protocols := map[string]bool{}
	server = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if protocol := r.Header.Get("Upgrade"); protocol != "" {
			mu.Lock()
			protocols[protocol] = true
			mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(protocols)
	}, server
}

func testEnter(e entering) {
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	// The input is larger than all buffers between kubectl and the Pod.
	stdin := strings.Repeat("what goes in\n", 20_000)
	var errs strings.Builder
	cmd := e.kubectl(ctx, stdin, "exec", "-i", "-n", "enter-a", "mine", "--", "sh", "-c", "x")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || string(out) != "mine runs sh -c x\n"+stdin || errs.String() != "to the error stream\n" {
		e.t.Errorf("exec: %v, %d bytes came back of %d, and %q", err, len(out), len(stdin), errs.String())
	}

	forwarding := e.begins("port-forward", "-n", "enter-a", "pod/mine", ":80")
	said, err := forwarding.ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(said)
	if err != nil || address == "" {
		e.t.Fatalf("port-forward: %q, %v", said, err)
	}
	for range 2 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			e.t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		e.reads(reader, "port 80 of mine")
		fmt.Fprintln(conn, "ping")
		e.reads(reader, "ping")
		_ = conn.Close()
	}
}
