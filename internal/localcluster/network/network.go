// Package network is the network of the processes of a local cluster.
//
// Flux's controllers reach all addresses through two proxies, HTTP and SOCKS5, which
// their environment names (see [Network.Env]); the API server reaches webhooks,
// aggregated APIs and the node through a third proxy on a Unix socket (see
// [EgressConfig]). All three route a host by the same rules:
//
//  1. a mapped host is served here, by a handler;
//  2. a Service name, cluster IP or Pod IP leads to the loopback port where the
//     node serves that Pod;
//  3. an address of this machine or of its link is refused: a fleet must not
//     reach other programs on this machine;
//  4. every other host fails at once, with the flag that would map it, unless the
//     network is online.
package network

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/process/pki"
	"golang.org/x/sync/errgroup"
)

// Config configures a Network.
type Config struct {
	// CA issues certificates for mapped hosts. Every process with the environment of
	// Env trusts its certificate, so the key must not leave memory.
	CA *pki.Authority
	// Dir is the folder for the CA bundle that Env names.
	Dir string
	// EgressSocket is the path of the API server's Unix socket.
	EgressSocket string
	// Online lets connections to hosts that are not mapped through to the real
	// network.
	Online bool
	// Log gets every refused request. It must not be nil.
	Log *slog.Logger

	// dialOutside connects to the real network; nil means [dialOutside]. Tests
	// replace it, since they have no network.
	dialOutside dialer
}

// dialer connects to an address; see [net.Dialer.DialContext].
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Network is a set of proxies. New opens their listeners and Run serves them.
type Network struct {
	cfg    Config
	certs  *certificates
	http   net.Listener
	socks  net.Listener
	egress net.Listener
	bundle string

	mu       sync.RWMutex
	resolver Resolver
	hosts    map[string]*host
	direct   map[string]bool
	refused  map[string]*Refusal

	// secret is the password of the proxies: every user of this machine can reach
	// loopback, but must not read the mapped folders.
	secret string

	// plain and secure accept the connections to mapped hosts, without and with TLS.
	plain, secure *queue
	clients       tracker
	// inside forwards requests to the cluster, outside to the real network, and proxied to proxies in the cluster.
	inside, outside, proxied *http.Transport
}

// New opens the listeners on free loopback ports and on the egress socket. It returns an error if
// a listener cannot be opened or a certificate cannot be written.
func New(cfg Config) (_ *Network, err error) {
	if cfg.dialOutside == nil {
		cfg.dialOutside = dialOutside
	}
	n := &Network{
		cfg:     cfg,
		certs:   &certificates{ca: cfg.CA},
		bundle:  filepath.Join(cfg.Dir, "network-ca.crt"),
		hosts:   map[string]*host{},
		direct:  map[string]bool{},
		refused: map[string]*Refusal{},
		secret:  rand.Text(),
		plain:   newQueue(),
		secure:  newQueue(),
		inside:  newTransport((&net.Dialer{}).DialContext),
		outside: newTransport(cfg.dialOutside),
		proxied: newProxied(),
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	trusted := cfg.CA.CertPEM
	if cfg.Online {
		trusted = append(append([]byte{}, trusted...), systemRoots()...)
	}
	if err := os.WriteFile(n.bundle, trusted, 0o600); err != nil {
		return nil, fmt.Errorf("cannot write the network's certificates: %w", err)
	}
	if n.http, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("cannot open the network's proxy: %w", err)
	}
	if n.socks, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("cannot open the network's proxy: %w", err)
	}
	if n.egress, err = net.Listen("unix", cfg.EgressSocket); err != nil {
		return nil, fmt.Errorf("cannot open the API server's proxy: %w", err)
	}
	return n, nil
}

func (n *Network) close() {
	for _, l := range []net.Listener{n.http, n.socks, n.egress, n.plain, n.secure} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// SetServices sets the resolver of the cluster's addresses. Before that, no Service
// can be reached.
func (n *Network) SetServices(r Resolver) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.resolver = r
}

// AllowEgress lets the API server reach an address of this machine, as host:port.
// The node's endpoint needs it.
func (n *Network) AllowEgress(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.direct[address] = true
}

// proxyUser is the user name of the proxies.
const proxyUser = "tenure"

// Env returns the environment that makes a process use the proxies. The variables are those of its
// container: proxies in its own Pod, whose IP address podIP is, limit what the process reaches. With the environment, the
// process trusts only the network's CA, and the system's CAs too if the network is
// online. It contains the proxies' secret: every process with it can read the mapped
// folders.
func (n *Network) Env(vars map[string]string, podIP string) []string {
	proxy := "http://" + limitsOf(vars, podIP).user() + ":" + n.secret + "@" + n.http.Addr().String()
	socks := "socks5h://" + proxyUser + ":" + n.secret + "@" + n.socks.Addr().String()
	const local = "127.0.0.1,localhost"
	env := []string{
		"HTTP_PROXY=" + proxy, "http_proxy=" + proxy,
		"HTTPS_PROXY=" + proxy, "https_proxy=" + proxy,
		"ALL_PROXY=" + socks, "all_proxy=" + socks,
		"NO_PROXY=" + local, "no_proxy=" + local,
		"SSL_CERT_FILE=" + n.bundle,
		// Go also reads the system's folders unless this variable names another
		// folder.
		"SSL_CERT_DIR=" + filepath.Join(n.cfg.Dir, "no-certificates"),
		"GIT_SSL_CAINFO=" + n.bundle,
	}
	return env
}

// Go clients may keep connections open forever. Request headers must arrive within
// headerPatience, and requests that are still served at the end delay the cluster by
// at most stopPatience.
const (
	headerPatience = 30 * time.Second
	stopPatience   = 2 * time.Second
)

// Run serves until the context ends, then closes every connection. It returns the first error of a
// listener.
func (n *Network) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	serve := func(run func() error, stop func() error) {
		group.Go(func() error {
			if err := run(); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		group.Go(func() error {
			<-ctx.Done()
			return stop()
		})
	}
	for _, s := range []struct {
		listener net.Listener
		handler  http.Handler
	}{
		{trackedListener{n.http, &n.clients}, n.proxyHandler()},
		{trackedListener{n.egress, &n.clients}, n.egressHandler()},
		{n.plain, n.mappedHandler()},
	} {
		server := n.server(ctx, s.handler)
		serve(func() error { return server.Serve(s.listener) }, server.Close)
	}
	secure := n.server(ctx, n.mappedHandler())
	secure.TLSConfig = &tls.Config{GetCertificate: n.certs.get, MinVersion: tls.VersionTLS12}
	serve(func() error { return secure.ServeTLS(n.secure, "", "") }, secure.Close)
	serve(func() error { return n.serveSOCKS(ctx, trackedListener{n.socks, &n.clients}) }, n.socks.Close)
	err := group.Wait()
	if left := n.clients.close(stopPatience); left != nil {
		n.cfg.Log.Warn("the network has ended too early", "reason", left)
	}
	n.inside.CloseIdleConnections()
	n.outside.CloseIdleConnections()
	n.proxied.CloseIdleConnections()
	return err
}

// server returns a server whose requests have the context ctx.
func (n *Network) server(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !n.clients.begin() {
				http.Error(w, "the cluster is being stopped", http.StatusServiceUnavailable)
				return
			}
			defer n.clients.serving.Done()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerPatience,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       rememberMapped,
		ErrorLog:          slog.NewLogLogger(n.cfg.Log.Handler(), slog.LevelDebug),
	}
}
