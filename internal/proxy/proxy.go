package proxy

import (
	"cmp"
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
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
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
	// MaxInFlight is the maximum number of concurrent requests other than watches, upgrades
	// and logs; 0 means 400, the API server's default.
	MaxInFlight int
	// MaxWatches is the maximum number of open watches of one user that the proxy answers,
	// and of open watches, logs and upgraded connections that it passes on; 0 means 1,000.
	// The service accounts of a tenant, or of a namespace without a tenant, count as one
	// user.
	MaxWatches int
	// MaxLists is the maximum number of lists that the proxy answers for one user at a
	// time; 0 means 50. To the API server, the lists of all users come from the proxy.
	MaxLists int
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

// Limits of requests. defaultInFlight and maxBody are the API server's defaults.
const (
	defaultInFlight = 400
	maxBody         = 3 << 20
	requestTimeout  = 65 * time.Second // the API server's 60 s come first
	bodyTimeout     = 60 * time.Second
	// writeTimeout is the maximum time that a client may take to read a part of an answer.
	// It frees the memory of answers that a client does not read.
	writeTimeout = 60 * time.Second
	// inFlightShare divides MaxInFlight: one user may have a quarter of the requests in
	// flight.
	inFlightShare = 4
)

// AnswerTimeout is the WriteTimeout of an http.Server that serves a [Proxy]: the maximum
// time from the start of a request to the last byte of its answer. The Proxy cannot set
// this limit itself. The value leaves time to report that the API server has not answered
// in time. The Proxy removes the limit for watches, upgrades and logs.
const AnswerTimeout = requestTimeout + 5*time.Second

const (
	defaultWatches = 1000
	defaultLists   = 50
	// maxAllWatches limits the watches, logs and upgraded connections of all users. At 60
	// KB each, they take 600 MB of the memory in config/proxy.
	maxAllWatches = 10_000
)

// slowness holds the time limits for slow clients: bodyTimeout and writeTimeout, except in
// tests.
type slowness struct{ body, write time.Duration }

// Proxy is the http.Handler of all requests. Until Run has filled the caches, the Proxy
// refuses the reads that need them.
type Proxy struct {
	options                  Options
	host                     *url.URL
	log                      *slog.Logger
	metrics                  *metrics
	transports               transports
	identities               *identities
	mayBe                    func(ctx context.Context, token string, who user.Info, as *impersonation) error
	view                     *authorizationCache
	kinds                    namespacedKinds
	scopes                   scopes
	across                   *fanout.Server
	memory                   *budget.Budget
	rules                    map[schema.GroupResource]Rule
	pass                     *httputil.ReverseProxy
	buffers                  buffers
	inFlight                 chan struct{}
	watches                  *quota
	lists                    *quota
	perUser                  *quota // limits the requests in flight
	opening                  *watchGate
	audit                    *auditor
	checks                   []requestCheck
	slow                     slowness
	reauthenticationInterval time.Duration // defaultReauthenticationInterval, except in tests
	draining                 chan struct{}
	drainOnce                sync.Once
}

// New returns a Proxy. It opens no connection.
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
	p := &Proxy{
		options: o, host: host, log: o.Log,
		rules:                    map[schema.GroupResource]Rule{},
		inFlight:                 make(chan struct{}, cmp.Or(o.MaxInFlight, defaultInFlight)),
		watches:                  newQuota(cmp.Or(o.MaxWatches, defaultWatches), maxAllWatches),
		lists:                    newQuota(cmp.Or(o.MaxLists, defaultLists), 0),
		perUser:                  newQuota(max(1, cmp.Or(o.MaxInFlight, defaultInFlight)/inFlightShare), 0),
		opening:                  newGate(maxOpening, maxOpeningEach),
		memory:                   budget.New(budget.Default()),
		audit:                    &auditor{to: o.Audit, log: o.Log},
		checks:                   requestChecks(o.ClientCertificates),
		slow:                     slowness{body: bodyTimeout, write: writeTimeout},
		reauthenticationInterval: defaultReauthenticationInterval,
		draining:                 make(chan struct{}),
	}
	if p.metrics, err = newMetrics(o.Registry); err != nil {
		return nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	if p.transports, err = newTransports(o.Config); err != nil {
		return nil, fmt.Errorf("cannot reach the API server: %w", err)
	}
	if p.view, err = newAuthorizationCache(o.Config, o.Capsule); err != nil {
		return nil, err
	}
	if p.kinds, err = newKinds(o.Config); err != nil {
		return nil, fmt.Errorf("cannot ask for kinds: %w", err)
	}
	p.scopes = scopes{client: p.kinds.client, known: map[schema.GroupVersion]scope{}}
	p.across = &fanout.Server{Transport: &p.transports, Base: p.host, Memory: p.memory}
	p.identities = newIdentities(host, p.transports.short, p.metrics.lookup)
	p.mayBe = p.identities.mayBe
	for _, rule := range append([]Rule{namespaces{p.view}, tenants{p.view}}, o.Rules...) {
		if p.rules[rule.Resource()] != nil {
			return nil, fmt.Errorf("cannot use two rules for %s", rule.Resource())
		}
		p.rules[rule.Resource()] = rule
	}
	p.pass = p.newPass()
	return p, nil
}

// Run starts the proxy's caches, which run until the context ends. It returns when they are
// filled, or with the context's error if the context ends before.
func (p *Proxy) Run(ctx context.Context) error { return p.view.run(ctx) }

// Ready returns an error if the proxy is stopping, if it has not filled its caches, or if
// the API server is not ready. It sends a request to the API server, and returns when the
// context ends at the latest.
func (p *Proxy) Ready(ctx context.Context) error {
	select {
	case <-p.draining:
		return errors.New("the proxy is being stopped")
	default:
	}
	if err := p.view.ready(); err != nil {
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

// Drain ends all watches without an error, so that clients start new ones, and makes
// [Proxy.Ready] fail. The proxy continues to answer requests.
func (p *Proxy) Drain() { p.drainOnce.Do(func() { close(p.draining) }) }

// Visible returns the sorted namespaces in which RBAC lets a user do something with a kind,
// and a channel that is closed after a change on which the result may depend. It does not
// count bindings that tenants made for groups of other users. It knows a change a few
// milliseconds after the API server. For cluster-scoped kinds other than namespaces the
// result is not defined.
func (p *Proxy) Visible(_ context.Context, who user.Info, verb, group, resource string) ([]string, <-chan struct{}) {
	changed := p.view.change.changed()
	return p.view.visible(who, question{verb: verb, group: group, resource: resource}), changed
}

// ServeHTTP implements http.Handler. It always answers.
func (p *Proxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	start := time.Now()
	w := newRecorder(rw, p.slow.write)
	c, err := parseRequest(r, p.checks)
	entry := func(stage auditv1.Stage) {
		if w.answer != "passed" {
			p.audit.write(audited{request: r, call: c, stage: stage, answer: w.answer, reason: w.reason, code: w.code, began: start, id: w.auditID()})
		}
	}
	defer func() {
		if reason := recover(); reason != nil {
			if aborted, ok := reason.(error); !ok || !errors.Is(aborted, http.ErrAbortHandler) {
				p.log.Error("a request made the proxy panic", "reason", reason)
			}
			if w.code != 0 {
				panic(http.ErrAbortHandler) // closes the connection: the answer is incomplete
			}
			p.refuse(w, r, unavailable(errors.New("the proxy has a fault")))
		}
		p.metrics.request(w.answer, w.code, time.Since(start), c != nil && c.longRunning())
		entry(auditv1.StageResponseComplete)
		if p.log.Enabled(r.Context(), slog.LevelDebug) {
			p.log.Debug("request", "method", r.Method, "path", r.URL.Path, "code", w.code, "answer", w.answer, "took", time.Since(start))
		}
	}()
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	c.auditID = w.auditID
	if c.longRunning() {
		w.begun = func() { entry(auditv1.StageResponseStarted) }
		defer w.unbound()()
	}
	if err := p.serve(w, r, c); err != nil {
		p.refuse(w, r, err)
	}
}

// serve answers a request or passes it on. The client gets the returned error.
func (p *Proxy) serve(w *recorder, r *http.Request, c *requestCall) error {
	ctx := r.Context()
	if !c.longRunning() {
		select {
		case p.inFlight <- struct{}{}:
			defer func() { <-p.inFlight }()
		default:
			return tooMany("in-flight", "the proxy has too many requests, try again later")
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	r = r.WithContext(withCall(ctx, c))
	if !c.longRunning() {
		p.boundBody(w, r)
	}
	who, err := p.callerOf(r.Context(), c)
	if err != nil {
		return err
	}
	payer := p.view.flowDistinguisher(who)
	if !c.longRunning() {
		// The slow requests of one user must not delay other users.
		if !p.perUser.take(payer) {
			return tooMany("quota", "%q has too many requests under way: at most %d at a time", payer, p.perUser.max)
		}
		defer p.perUser.giveBack(payer)
	}
	c.room = p.memory.Open(payer)
	if c.longRunning() {
		c.room = p.memory.OpenExact(payer)
	}
	defer c.room.Close()
	if err := settleImpersonation(r, c); err != nil {
		return err
	}
	for _, step := range []struct {
		answer string
		try    func(http.ResponseWriter, *http.Request, *requestCall) (bool, error)
	}{{"filtered", p.serveFiltered}, {"reviewed", p.reviewed}, {"reviewed", p.rulesReviewed}} {
		w.answer = step.answer
		if done, err := step.try(w, r, c); done || err != nil {
			return err
		}
	}
	w.answer = "passed"
	if c.longRunning() {
		if !p.watches.take(payer) {
			return tooMany("quota", "%q has too many watches, logs and connections open, or all together have: at most %d and %d at a time", payer, p.watches.max, p.watches.all)
		}
		defer p.watches.giveBack(payer)
		if c.info.Verb == "watch" {
			p.metrics.watches.Inc()
			defer p.metrics.watches.Dec()
		}
	}
	p.pass.ServeHTTP(w, r)
	return nil
}

// boundBody limits the size of a request's body and the time to read it.
func (p *Proxy) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.slow.body))
}

// settleImpersonation removes the impersonation headers of a caller that impersonates
// itself. All other headers stay: the API server or [Proxy.identity] decides about them.
func settleImpersonation(r *http.Request, c *requestCall) error {
	if c.as == nil {
		return nil
	}
	if c.credential.certified != nil {
		return forbidden("impersonation", "a client certificate cannot impersonate through the proxy: use a token")
	}
	if c.as.isSelf(c.caller) {
		stripImpersonation(r.Header)
		c.as = nil
	}
	return nil
}

// refuse answers a request with the Status of an error.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused := asRefusal(err)
	if recorded, ok := w.(*recorder); ok {
		if recorded.code != 0 {
			return // the header has been sent
		}
		recorded.answer, recorded.reason = "refused", refused.label
		w.Header().Set(auditHeader, recorded.auditID())
	}
	p.metrics.refusals.WithLabelValues(refused.label).Inc()
	writeStatus(w, r.Header.Get("Accept"), refused.status)
}
