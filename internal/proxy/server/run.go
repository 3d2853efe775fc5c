package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/internal/process/httpserver"
	"github.com/tenure-dev/tenure/internal/proxy"
)

const (
	maxHeader     = 64 << 10
	maxFrame      = 16 << 10 // of HTTP/2
	headerTimeout = 15 * time.Second
	idleTimeout   = 2 * time.Minute
	readyTimeout  = 2 * time.Second
	// qps and burst limit the requests of the proxy's own clients.
	qps, burst = 50, 100
)

// Run serves until the context ends. It then waits for open requests, for at most the shutdown
// timeout. It writes audit events to events, unless events is nil. It returns an error if the
// options are invalid, if an address cannot be opened, or if a server fails.
func Run(ctx context.Context, config *rest.Config, o Options, events io.Writer, log *slog.Logger) error {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = qps, burst
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler, err := proxy.New(proxy.Options{
		Config: config, ClientCertificates: o.ClientCAFile != "", Registry: registry, Log: log, Capsule: o.Capsule,
		Limits: o.Limits, Audit: events,
	})
	if err != nil {
		return err
	}
	// The caches have to follow the cluster until the last request has ended.
	life, die := context.WithCancel(context.WithoutCancel(ctx))
	defer die()
	tlsConfig, served, err := o.loadTLS(life, config, log)
	if err != nil {
		return err
	}
	var servers servers
	if err := servers.add(o.MetricsAddr, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil, log); err != nil {
		return fmt.Errorf("cannot serve metrics: %w", err)
	}
	if err := servers.add(o.HealthAddr, health(handler, served), nil, log); err != nil {
		return fmt.Errorf("cannot serve health: %w", err)
	}
	// Serve requests from the start: requests that are passed on do not need the caches.
	if err := servers.add(o.Listen, handler, tlsConfig, log); err != nil {
		return fmt.Errorf("cannot serve requests: %w", err)
	}
	group, failed := errgroup.WithContext(ctx)
	for _, s := range servers {
		group.Go(s.serve)
	}
	group.Go(func() error {
		// Run returns an error only if the context ends before the caches are filled.
		_ = handler.Run(life)
		return nil
	})
	group.Go(func() error {
		<-failed.Done()
		defer die()
		handler.Drain()
		return servers.stop(context.WithoutCancel(ctx), o.ShutdownTimeout)
	})
	return group.Wait()
}

// health returns the handler of /healthz and /readyz. /readyz succeeds if there is a
// certificate and if the proxy is ready.
func health(p *proxy.Proxy, served func(*http.Request) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := errors.Join(served(r), p.Ready(ctx)); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

type server struct {
	*http.Server
	listener net.Listener
}

type servers []server

// add opens a listener at an address, and none for "0".
func (all *servers) add(address string, h http.Handler, config *tls.Config, log *slog.Logger) error {
	if address == "0" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	served := &http.Server{
		Handler: h, TLSConfig: config, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			// Go's defaults of 1 MiB each let a client without a credential fill the memory.
			MaxReadFrameSize:              maxFrame,
			MaxReceiveBufferPerConnection: proxy.ReceiveBuffer, MaxReceiveBufferPerStream: proxy.ReceiveBuffer,
		},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: proxy.AnswerTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	*all = append(*all, server{Server: served, listener: httpserver.BoundWaiting(served, listener)})
	return nil
}

func (s server) serve() error {
	err := error(nil)
	if s.TLSConfig != nil {
		err = s.ServeTLS(s.listener, "", "")
	} else {
		err = s.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// stop stops the server of requests first, so that the servers of health and metrics answer
// until the end.
func (all servers) stop(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i := len(all) - 1; i >= 0; i-- {
		if err := all[i].Shutdown(ctx); err != nil {
			_ = all[i].Close() // close the connections of requests that take longer
		}
	}
	return nil
}
