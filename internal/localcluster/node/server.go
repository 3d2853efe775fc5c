package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/tenure-dev/tenure/internal/process"
)

// listen opens the port of the kubelet endpoint.
func (n *Node) listen() error {
	pair, err := n.cfg.Serving.TLS()
	if err != nil {
		return fmt.Errorf("cannot use the certificate of the kubelet endpoint: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(n.cfg.ClientCAs) {
		return errors.New("cannot use the client authorities of the kubelet endpoint: they hold no certificate")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(hostIP, "0"))
	if err != nil {
		return fmt.Errorf("cannot listen for the kubelet endpoint: %w", err)
	}
	n.listener = tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	})
	n.endpoint = &http.Server{
		Handler:           n.onlyFor(n.cfg.ClientName, n.endpoints()),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	return nil
}

// Endpoint returns the address of the kubelet endpoint, as host:port. The API server
// reads logs there.
func (n *Node) Endpoint() string { return n.listener.Addr().String() }

func (n *Node) port() int { return n.listener.Addr().(*net.TCPAddr).Port }

func (n *Node) serve() error {
	if err := n.endpoint.Serve(n.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve the kubelet endpoint: %w", err)
	}
	return nil
}

// onlyFor returns a handler that refuses clients with any other common name.
func (n *Node) onlyFor(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != name {
			http.Error(w, "only the API server may call this endpoint", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// endpoints returns a handler for the parts of a kubelet's API that the API server
// calls for kubectl logs, exec, attach and port-forward.
func (n *Node) endpoints() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	mux.HandleFunc("POST /portForward/{namespace}/{pod}", n.servePortForward)
	for _, verb := range []string{"exec", "attach", "run"} {
		mux.HandleFunc("/"+verb+"/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the local cluster has no containers: "+verb+" is not possible, kubectl logs and port-forward are", http.StatusNotImplemented)
		})
	}
	return mux
}

// simulatedLog is the log of a simulated container.
const simulatedLog = "This container is simulated: the local cluster runs only Flux and Tenure, so there is no output.\n"

// logOptions are the supported fields of PodLogOptions.
type logOptions struct {
	follow, previous bool
	tail             int64 // lines; negative means all
	limit            int64 // bytes; negative means all
}

func parseLogOptions(q url.Values) (logOptions, error) {
	o := logOptions{tail: -1, limit: -1}
	for name, b := range map[string]*bool{"follow": &o.follow, "previous": &o.previous} {
		if v := q.Get(name); v != "" {
			parsed, err := strconv.ParseBool(v)
			if err != nil {
				return o, fmt.Errorf("%s must be true or false, not %q", name, v)
			}
			*b = parsed
		}
	}
	for name, n := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit} {
		if v := q.Get(name); v != "" {
			parsed, err := strconv.ParseInt(v, 10, 64)
			if err != nil || parsed < 0 {
				return o, fmt.Errorf("%s must be a number that is not negative, not %q", name, v)
			}
			*n = parsed
		}
	}
	return o, nil
}

func (n *Node) serveLogs(w http.ResponseWriter, r *http.Request) {
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := n.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil {
		http.Error(w, "the Pod does not run on this node", http.StatusNotFound)
		return
	}
	run, simulated, err := p.logOf(r.PathValue("container"), options.previous)
	if err != nil {
		// The API server passes the text of this status on to the user.
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if simulated {
		_, _ = io.WriteString(w, simulatedLog)
		return
	}
	if err := copyLog(r.Context(), w, run, options); err != nil && r.Context().Err() == nil {
		n.log.Warn("cannot send a log", "namespace", p.namespace, "pod", p.name, "error", err)
	}
}

// logOf returns the run of a container whose log was requested.
func (p *podState) logOf(container string, previous bool) (run *attempt, simulated bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runners[container]
	if r == nil {
		for _, c := range p.pod.Spec.InitContainers {
			simulated = simulated || c.Name == container
		}
		if _, known := p.states[container]; !known && !simulated {
			return nil, false, fmt.Errorf("container %s in pod %s is not available", container, p.name)
		}
		if previous {
			return nil, false, fmt.Errorf("previous terminated container %q in pod %q not found", container, p.name)
		}
		return nil, true, nil
	}
	run = r.current
	if previous {
		run = r.previous
		// While the process waits for its restart, the last run is the previous one.
		if s := p.states[container]; s.state.Running == nil && r.current != nil {
			run = r.current
		}
		if run == nil {
			return nil, false, fmt.Errorf("previous terminated container %q in pod %q not found", container, p.name)
		}
	}
	if run == nil {
		reason := "it has not started yet"
		if s := p.states[container]; s.state.Waiting != nil {
			reason = s.state.Waiting.Reason + " " + s.state.Waiting.Message
		}
		return nil, false, fmt.Errorf("container %q in pod %q is waiting to start: %s", container, p.name, reason)
	}
	return run, false, nil
}

// followInterval is the interval of reads of a followed log.
const followInterval = 100 * time.Millisecond

// copyLog writes a log. If the log is followed, copyLog also writes its additions
// until the process ends.
func copyLog(ctx context.Context, w http.ResponseWriter, run *attempt, o logOptions) error {
	f, err := os.Open(run.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if o.tail >= 0 {
		if err := seekTail(f, o.tail); err != nil {
			return err
		}
	}
	left := o.limit
	flush := http.NewResponseController(w).Flush
	for {
		ended := !o.follow
		select {
		case <-run.ended:
			ended = true
		default:
		}
		var src io.Reader = f
		if left >= 0 {
			src = io.LimitReader(f, left)
		}
		n, err := io.Copy(w, src)
		if err != nil {
			return err
		}
		if left >= 0 {
			left -= n
		}
		// All output before the end of the process has been copied by now.
		if ended || left == 0 {
			return nil
		}
		if n > 0 {
			if err := flush(); err != nil {
				return err
			}
		}
		if !process.Pause(ctx, followInterval) {
			return nil
		}
	}
}

// seekTail moves to the start of the last lines of a file.
func seekTail(f *os.File, lines int64) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 {
		return err
	}
	const block = 32 << 10
	buf := make([]byte, block)
	found, pos := int64(0), end
	for pos > 0 {
		size := min(pos, block)
		pos -= size
		if _, err := f.ReadAt(buf[:size], pos); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			// A final line feed ends the last line and starts no new one.
			if buf[i] != '\n' || pos+i == end-1 {
				continue
			}
			if found++; found == lines {
				_, err := f.Seek(pos+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}
