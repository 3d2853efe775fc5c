// Package artifactproxy is the HTTP proxy of kustomize-controller.
//
// A kustomization.yaml may name files by their URLs, and kustomize-controller fetches them. It has to
// reach source-controller, which serves the artifacts of all tenants without authentication: with lists of
// folders, and with names such as latest.tar.gz. The proxy runs in the Pod of kustomize-controller. It passes on a
// request that names an artifact by its commit or digest, and refuses all others: a tenant who may not read
// a source or its status does not know this name.
package artifactproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Refused is the status code of refusals (RFC 9110, 15.5.20: Misdirected Request). A tenant sees only this
// code in the status of a Kustomization, so it is not the one that other servers and proxies refuse with.
const Refused = http.StatusMisdirectedRequest

// DefaultListen is the default address of the proxy. No other Pod can reach it.
const DefaultListen = "127.0.0.1:9080"

// artifactPath matches the path of an artifact: KIND/NAMESPACE/NAME/REVISION.tar.gz, with the kinds that a
// Kustomization may name as its source. The revision is the commit (SHA-1 or SHA-256) of a GitRepository, the digest of
// a Bucket, or that of an OCIRepository with its algorithm before it: nobody can guess them. source-watcher names the
// archives of ExternalArtifacts by a checksum of 32 bits in decimal; they are told apart from lists and links, and whoever
// fetches through kustomize-controller has one guess for each build. Charts and indexes have names that
// can be guessed, and only source-controller and helm-controller read them.
// See https://pkg.go.dev/github.com/fluxcd/pkg/artifact/storage and https://github.com/fluxcd/source-watcher.
var artifactPath = regexp.MustCompile(`^/((gitrepository|bucket)/` + objectPath + `/` + hexHash +
	`|ocirepository/` + objectPath + `/(sha(256|384|512):)?` + hexHash +
	`|externalartifact/` + objectPath + `/(` + hexHash + `|[0-9]{1,10}))\.tar\.gz$`)

const (
	// objectPath is the expression of a namespace and a name, hexHash that of a commit or a digest.
	objectPath = `[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*`
	hexHash    = `[0-9a-f]{40,128}`
)

const (
	// headerPatience is the maximum time until a client has sent the header of a request, and until a server has
	// sent the header of its answer.
	headerPatience = 30 * time.Second
	// stopPatience limits the time that open requests may take after the context ends.
	stopPatience = 10 * time.Second
)

// New returns the proxy. Servers are the hosts that serve artifacts, at port 80 unless they have another one.
// It returns an error for a server that is no host, and without servers.
func New(servers []string, log *slog.Logger) (http.Handler, error) {
	if len(servers) == 0 {
		return nil, errors.New("cannot serve without a host that serves artifacts (--server)")
	}
	var allowed []string
	for _, server := range servers {
		if !hostname.MatchString(server) {
			return nil, fmt.Errorf("cannot use the server %q: write a host such as source-controller.flux-system.svc.cluster.local, with a port if it is not 80", server)
		}
		allowed = append(allowed, canonical(server))
	}
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelError)
	transport := &http.Transport{
		// On a cluster, the proxy's container names no further proxy.
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: headerPatience}).DialContext,
		ResponseHeaderTimeout: headerPatience,
		IdleConnTimeout:       headerPatience,
		DisableCompression:    true,
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			// The server gets nothing that the client chose but the address.
			r.Out.Header = http.Header{}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      errorLog,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.Error("cannot reach the server of an artifact", "url", r.URL.Redacted(), "error", err)
			http.Error(w, "cannot reach "+r.URL.Host+": "+err.Error(), http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := refusal(r, allowed); why != "" {
			log.Info("refused a request", "method", r.Method, "url", r.URL.Redacted(), "host", r.Host, "reason", why)
			http.Error(w, "tenure: "+why, Refused)
			return
		}
		forward.ServeHTTP(w, r)
	}), nil
}

// hostname is the syntax of a server.
var hostname = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]*(:[0-9]{1,5})?$`)

// refusal returns why the proxy does not pass a request on, or "".
func refusal(r *http.Request, servers []string) string {
	switch u := r.URL; {
	case !u.IsAbs():
		return "this proxy serves nothing itself"
	case r.Method != http.MethodGet || u.Scheme != "http" || !slices.Contains(servers, canonical(u.Host)):
		return "kustomize-controller reaches no other hosts: put the file into the repository"
	// With a RawPath, the server may read another path than this proxy does.
	case u.RawPath != "" || u.RawQuery != "" || u.User != nil || !artifactPath.MatchString(u.Path):
		return "kustomize-controller fetches artifacts of sources alone, by their digest: name the source in spec.sourceRef"
	}
	return ""
}

// canonical returns a host in comparable form: in lower case, without the port 80 and without a dot at its end.
func canonical(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(host), ":80"), ".")
}

// Run serves the proxy at a listen address until the context ends. It returns an error if it cannot listen there.
func Run(ctx context.Context, listen string, proxy http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", listen, err)
	}
	log.Info("serving", "address", listener.Addr().String())
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: headerPatience, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}
	stopped := make(chan error, 1)
	end := context.AfterFunc(ctx, func() {
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		stopped <- server.Shutdown(patient)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		end()
		return fmt.Errorf("cannot serve at %s: %w", listen, err)
	}
	return <-stopped
}
