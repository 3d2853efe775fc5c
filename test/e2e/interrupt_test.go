package e2e

import (
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// interrupts is n if a command is interrupted before every nth of its writes. `make test-all` gives
// 5; with 1, which takes hours, each is tried.
var interrupts = flag.Int("interrupts", 25, "interrupt commands before every `n`th of their writes to the cluster")

// interruption counts the writes of a command to a cluster, and ends the command before one of them.
type interruption struct {
	// kubeconfig is the file with which the command comes here as cluster admin.
	kubeconfig string

	count, killed atomic.Int64
}

// interrupt returns an interruption that calls kill before the command's next write after a number of
// writes, and answers no further write. With a negative number it lets the command end.
func (r run) interrupt(writes int, kill func()) *interruption {
	r.t.Helper()
	server, err := url.Parse(r.REST.Host)
	if err != nil {
		r.t.Fatal(err)
	}
	transport, err := rest.TransportFor(r.REST)
	if err != nil {
		r.t.Fatal(err)
	}
	i := &interruption{kubeconfig: filepath.Join(r.t.TempDir(), "kubeconfig")}
	forward := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(server) },
		ErrorLog:  log.New(io.Discard, "", 0), // a command that is killed has requests under way
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if n := i.count.Add(1); writes >= 0 && n > int64(writes) {
				i.killed.Add(1)
				kill()
				panic(http.ErrAbortHandler)
			}
		}
		forward.ServeHTTP(w, r)
	}))
	r.t.Cleanup(proxy.Close)
	write(r.t, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nclusters: [{name: x, cluster: {server: '"+proxy.URL+"'}}]\nusers: [{name: x, user: {}}]\n", i.kubeconfig)
	return i
}

// ended reports whether the command was killed.
func (i *interruption) ended() bool { return i.killed.Load() > 0 }

// writes returns how many writes the command has sent.
func (i *interruption) writes() int { return int(i.count.Load()) }

// TestBootstrapInterrupted kills `tenure bootstrap` before more and more of its writes to the cluster.
// Each run goes on from what the last one has left, and the one that is not killed completes it.
func TestBootstrapInterrupted(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	r := bootstrapped{run{testcluster.Start(t, localcluster.Options{
		Maps:    parseMaps(t, fleetURL+"#main="+t.TempDir()),
		Private: []network.Private{{URL: fleetURL, Credentials: githost.Credentials{Token: "t0ken"}}},
	}), t}, filepath.Join(bin, "tenure")}
	args := []string{"GIT_PASSWORD=t0ken", "--url=" + fleetURL, "--token-auth", "--ca-file", r.authority(), "--manager-image", "registry.example.com/acme/tenure-server:v0.1.0"}
	bootstrap := func(writes int) *interruption {
		var s *session
		started := make(chan struct{})
		i := r.interrupt(writes, func() {
			<-started
			s.signal(syscall.SIGKILL)
		})
		s = r.bootstrap(append(args, "--kubeconfig", i.kubeconfig)...)
		close(started)
		select {
		case <-s.done:
		case <-time.After(patience):
			t.Fatalf("the run before write %d does not end:\n%s", writes+1, s.out.String())
		}
		if code := s.cmd.ProcessState.ExitCode(); !i.ended() && code != 0 {
			t.Fatalf("after runs that were killed before write %d or earlier, bootstrap exits with %d:\n%s", writes+1, code, s.out.String())
		}
		return i
	}
	var last *interruption
	runs := 0
	for writes := 0; ; writes += *interrupts {
		if last = bootstrap(writes); !last.ended() {
			break
		}
		runs++
	}
	t.Logf("bootstrap has %d writes, and was killed %d times", last.writes(), runs)
	if runs < 3 {
		t.Errorf("bootstrap was killed %d times, want at least 3", runs)
	}
	expectNothing(t, "all is ready after the runs that were killed", r.settle())
	head, _ := r.Git.Head(fleetURL, "main")
	bootstrap(-1)
	if now, _ := r.Git.Head(fleetURL, "main"); now != head {
		t.Error("a run where all is done has pushed")
	}
}
