package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster/port"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == process.ReapCommand {
		process.RunReaper(os.Stdin, os.Args[2:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// plane returns a control plane whose program is a shell script. In the script, $1
// is the component and $PORT the API server's port.
func plane(t *testing.T, script string) *ControlPlane {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenure-plane-") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	script = "#!/bin/sh\nfor a; do case $a in --secure-port=*) PORT=${a#*=};; esac; done\n" + script
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	testprogram.Write(t, program, []byte(script))
	group, err := process.NewGroup(process.Options{Reaper: []string{os.Args[0], process.ReapCommand}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close(context.Background()) })
	c := &ControlPlane{cfg: Config{
		Program: program, Dir: dir, Data: filepath.Join(dir, "data"), Group: group,
		OnCrash: func(e *process.CrashError) { t.Errorf("reported: %v", e) },
	}, reservePort: port.Reserve, releasePort: func() {}}
	if err := c.makeKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// answer serves /readyz with a certificate of the keys, as the API server does, and
// returns the port.
func answer(t *testing.T, keys *Keys) int {
	t.Helper()
	pair, err := keys.CA.Issue(pki.Request{CommonName: "test", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// ports returns a function that returns the given ports in turn and counts its
// calls.
func ports(picked *int, all ...int) func() (int, func(), error) {
	return func() (int, func(), error) {
		*picked++
		return all[*picked-1], func() {}, nil
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	const taken1, taken2, taken3 = 1, 2, 3
	const program = `if [ $PORT -lt 10 ]; then echo "failed to listen on 127.0.0.1:$PORT: listen tcp 127.0.0.1:$PORT: bind: address already in use"; exit 1; fi
exec sleep 300`
	t.Run("OneIsLeft", func(t *testing.T) {
		t.Parallel()
		c, picked := plane(t, program), 0
		free := answer(t, c.Keys)
		c.reservePort = ports(&picked, taken1, taken2, free)
		if err := c.startAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("https://127.0.0.1:%d", free); c.Server != want || picked != 3 {
			t.Errorf("the server is %s after %d ports, want %s after 3", c.Server, picked, want)
		}
	})
	t.Run("NoneIsLeft", func(t *testing.T) {
		t.Parallel()
		c, picked := plane(t, program), 0
		c.reservePort = ports(&picked, taken1, taken2, taken3)
		if err := c.startAPIServer(t.Context()); !errors.Is(err, errPortTaken) || !strings.Contains(err.Error(), "127.0.0.1:3") {
			t.Errorf("got %v, want %v and the last port", err, errPortTaken)
		}
	})
	t.Run("NoneCanBeReserved", func(t *testing.T) {
		t.Parallel()
		c, exhausted := plane(t, program), errors.New("no ports are left")
		c.reservePort = func() (int, func(), error) { return 0, nil, exhausted }
		if err := c.startAPIServer(t.Context()); !errors.Is(err, exhausted) {
			t.Errorf("got %v, want %v", err, exhausted)
		}
		c.Stop(t.Context()) // Stop releases nothing, and does not panic
	})
	t.Run("AnotherReason", func(t *testing.T) {
		t.Parallel()
		c, picked := plane(t, `echo "127.0.0.1:99999: bind: address already in use"; echo last words; exit 7`), 0
		c.reservePort = ports(&picked, taken1, taken2, taken3)
		err := c.startAPIServer(t.Context())
		if picked != 1 {
			t.Errorf("%d ports were tried for a crash that has another reason, want 1", picked)
		}
		for _, want := range []string{"kube-apiserver", "exit status 7", "last words"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
	})
}

// TestEtcdEndsAtOnce checks that a failed start is not retried: the error of the
// start reports it once.
func TestEtcdEndsAtOnce(t *testing.T) {
	t.Parallel()
	c := plane(t, `echo no space left on device; exit 1`)
	var crash *process.CrashError
	if err := c.startEtcd(t.Context()); !errors.As(err, &crash) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v, want a crash with its last words", err)
	}
}

// TestEtcdEndsBehindTheAPIServer covers a crash of etcd after it has begun to
// listen: etcd listens before it knows that it can write.
func TestEtcdEndsBehindTheAPIServer(t *testing.T) {
	t.Parallel()
	c := plane(t, `if [ $1 = etcd ]; then echo no space left on device; exit 1; fi; exec sleep 300`)
	spec := c.spec("etcd", nil)
	p, err := c.cfg.Group.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	c.started = []component{{p, spec}}
	err = c.startAPIServer(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "etcd ended") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v, want what has happened to etcd", err)
	}
}

func TestInterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	c := plane(t, `echo up; exec sleep 300`)
	cause := errors.New("interrupted by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, start := range map[string]func(context.Context) error{"etcd": c.startEtcd, "kube-apiserver": c.startAPIServer} {
		if err := start(ctx); !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want the cause", name, err)
		}
	}
}

// TestGOGC checks that the components inherit GOGC, and nothing else, from the environment.
func TestGOGC(t *testing.T) {
	c := &ControlPlane{cfg: Config{Dir: "/state"}}
	t.Setenv("GODEBUG", "x=1")
	t.Setenv("GOGC", "200")
	want := []string{"HOME=/state", "TMPDIR=/state", "PATH=/usr/bin:/bin", "GOGC=200"}
	if got := c.spec("etcd", nil).Env; !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
}
