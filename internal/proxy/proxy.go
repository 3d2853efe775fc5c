package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// Options configures a [Proxy]. Config is required; the zero values of all other fields
// are the defaults.
type Options struct {
	// Config is the connection to the API server, with the proxy's own credentials. Its
	// address must have no path.
	Config *rest.Config
	// Rules are additional rules for cluster-scoped kinds other than namespaces and
	// Tenants.
	Rules []Rule
	// ClientCertificates accepts a client certificate that the TLS listener has verified as
	// a credential. The API server does not receive the certificate, so the proxy
	// impersonates the user and needs the right to do so.
	ClientCertificates bool
	// Capsule also reads Capsule's ProxySettings and GlobalProxySettings
	// (capsule.clastix.io), whose CRDs must exist.
	Capsule bool
	// Limits are the limits that an admin can choose.
	Limits Limits
	// Registry registers the metrics; nil means a new registry.
	Registry prometheus.Registerer
	// Audit receives audit events (audit.k8s.io/v1, one per line of JSON) for each request
	// that the proxy answers or refuses itself: the API server's own log does not name the
	// caller of these requests. nil discards the events.
	Audit io.Writer
	// Log receives warnings and errors and, at debug level, every request. The proxy logs
	// no token, query or body. nil discards all messages.
	Log *slog.Logger
}

// AnswerTimeout is the WriteTimeout of an http.Server that serves a [Proxy]: the maximum
// time from the start of a request to the last byte of its answer. The Proxy cannot set
// this limit itself. The value leaves time to report that the API server has not answered
// in time. The Proxy removes the limit for watches, upgrades and logs.
const AnswerTimeout = requestTimeout + 5*time.Second

// Proxy is the http.Handler of all requests. Until Run has filled the caches, the Proxy
// refuses the reads that need them.
type Proxy struct {
	host                     *url.URL
	log                      *slog.Logger
	metrics                  *metrics
	transports               transports
	reviews                  *reviews
	mayImpersonate           func(ctx context.Context, token string, who user.Info, as *impersonation) error
	cache                    *authorizationCache
	kinds                    namespacedKinds
	scopes                   scopes
	fanout                   *fanout.Server
	memory                   *budget.Budget
	rules                    map[schema.GroupResource]Rule
	reverseProxy             *httputil.ReverseProxy
	buffers                  buffers
	handler                  http.Handler
	inFlight                 *quota // limits the requests of all users
	entering                 *quota // limits the long-running requests of unknown callers
	perUser                  *quota // limits the requests of each user
	watches                  *quota
	lists                    *quota
	watchGate                *watchGate
	audit                    *auditor
	checks                   []requestCheck
	timeouts                 clientTimeouts
	reauthenticationInterval time.Duration // defaultReauthenticationInterval, except in tests
	draining                 chan struct{}
	drainOnce                sync.Once
}

// New returns a Proxy. It opens no connection. It returns an error if the API server's address or
// the TLS configuration is invalid, or if a metric cannot be registered.
func New(o Options) (*Proxy, error) {
	host, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server: %w", err)
	}
	if host.Path != "" && host.Path != "/" {
		return nil, fmt.Errorf("cannot use the API server %s: its address has a path", host)
	}
	host.Path = ""
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	limits := o.Limits.orDefaults()
	p := &Proxy{
		host: host, log: o.Log,
		rules:                    map[schema.GroupResource]Rule{},
		inFlight:                 newQuota(0, limits.MaxInFlight),
		entering:                 newQuota(0, limits.MaxInFlight),
		watches:                  newQuota(limits.MaxWatches, maxAllWatches),
		lists:                    newQuota(limits.MaxLists, 0),
		perUser:                  newQuota(max(1, limits.MaxInFlight/inFlightShare), 0),
		watchGate:                newGate(maxOpening, maxOpeningEach),
		memory:                   budget.New(budget.Default()),
		audit:                    &auditor{to: o.Audit, log: o.Log},
		checks:                   requestChecks(o.ClientCertificates),
		timeouts:                 clientTimeouts{body: bodyTimeout, write: writeTimeout},
		reauthenticationInterval: defaultReauthenticationInterval,
		draining:                 make(chan struct{}),
	}
	if p.metrics, err = newMetrics(o.Registry); err != nil {
		return nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	if p.transports, err = newTransports(o.Config); err != nil {
		return nil, fmt.Errorf("cannot reach the API server: %w", err)
	}
	if p.cache, err = newAuthorizationCache(o.Config, o.Capsule); err != nil {
		return nil, err
	}
	if p.kinds, err = newKinds(o.Config); err != nil {
		return nil, fmt.Errorf("cannot read the kinds of the API server: %w", err)
	}
	p.scopes = scopes{client: p.kinds.client, known: map[schema.GroupVersion]scope{}}
	p.fanout = &fanout.Server{Transport: &p.transports, Base: p.host, Memory: p.memory}
	p.reviews = newReviews(host, p.transports.short, p.metrics.lookup)
	p.mayImpersonate = p.reviews.mayImpersonate
	for _, rule := range append([]Rule{namespaces{p.cache}, tenants{p.cache}}, o.Rules...) {
		if p.rules[rule.Resource()] != nil {
			return nil, fmt.Errorf("cannot use two rules for %s", rule.Resource())
		}
		p.rules[rule.Resource()] = rule
	}
	p.reverseProxy = p.newReverseProxy()
	p.handler = p.filterChain()
	return p, nil
}

// Run starts the proxy's caches, which run until the context ends. It returns when they are
// filled, or with the context's error if the context ends before.
func (p *Proxy) Run(ctx context.Context) error { return p.cache.run(ctx) }

// Ready returns an error if the proxy is stopping, if it has not filled its caches, or if
// the API server is not ready. It sends a request to the API server, and returns when the
// context ends at the latest.
func (p *Proxy) Ready(ctx context.Context) error {
	select {
	case <-p.draining:
		return errors.New("the proxy is being stopped")
	default:
	}
	if err := p.cache.ready(); err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.host.JoinPath("/readyz").String(), nil)
	if err != nil {
		return err
	}
	response, err := p.transports.own.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("cannot reach the API server: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server is not ready: %s", response.Status)
	}
	return nil
}

// Drain ends all watches without an error, so that clients start new ones, and makes [Proxy.Ready]
// fail. The proxy still answers requests.
func (p *Proxy) Drain() { p.drainOnce.Do(func() { close(p.draining) }) }
