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
	// Config leads to the API server, with the proxy's own credentials. The
	// address must have no path.
	Config *rest.Config
	// Rules are for cluster-scoped kinds beside namespaces and Tenants.
	Rules []Rule
	// ClientCertificates makes a client certificate that the TLS listener has
	// verified a credential. The API server cannot see it, so the proxy
	// impersonates the user, for which it needs the right.
	ClientCertificates bool
	// Capsule also reads ProxySettings and GlobalProxySettings of Capsule's
	// (capsule.clastix.io), whose CRDs have to be there.
	Capsule bool
	// MaxInFlight bounds the requests at a time that are no watches, upgrades or
	// logs; 0 is 400, as at the API server.
	MaxInFlight int
	// MaxWatches is the maximum number of open watches of one user that the proxy answers,
	// and of open watches, logs and upgraded connections that it passes on; 0 is 1,000. The
	// service accounts of a tenant, or of a namespace without a tenant, count as one user.
	MaxWatches int
	// MaxLists bounds the lists that the proxy answers for one user at a time,
	// since to the API server they are all the proxy's; 0 is 50.
	MaxLists int
	// Registry is where the metrics are registered; nil is a new one.
	Registry prometheus.Registerer
	// Audit gets an event of audit.k8s.io/v1, as a line of JSON, for each request
	// that the proxy answers or refuses itself: the API server's own log does not
	// name the caller of these. nil is nowhere.
	Audit io.Writer
	// Log receives warnings and errors and, at debug level, every request. The proxy logs
	// no token, query or body. nil discards all messages.
	Log *slog.Logger
}

// The API server's own bounds.
const (
	defaultInFlight = 400
	maxBody         = 3 << 20
	requestTimeout  = 65 * time.Second // the API server's 60 s come first
	bodyTimeout     = 60 * time.Second
	// writeTimeout is the maximum time that a client may take to read a part of an answer.
	// It frees the memory of answers that a client does not read.
	writeTimeout = 60 * time.Second
	// inFlightShare is the part of the requests in flight that one user may have:
	// one of four.
	inFlightShare = 4
)

// AnswerTimeout is the WriteTimeout of a server of a [Proxy]: how long after the
// beginning of a request the last of its answer may be sent, which the Proxy cannot
// bound itself. It leaves time to say that the API server has not answered in time. The
// Proxy takes it off watches, upgrades and logs.
const AnswerTimeout = requestTimeout + 5*time.Second

const (
	defaultWatches = 1000
	defaultLists   = 50
	// maxAllWatches limits the watches, logs and upgraded connections of all users. At 60
	// KB each, they take 600 MB of the memory in config/proxy.
	maxAllWatches = 10_000
)

// slowness is how slow clients may be: bodyTimeout and writeTimeout, other than in
// tests.
type slowness struct{ body, write time.Duration }

// Proxy is the handler of all requests. Run it before it serves.
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
	perUser                  *quota // of the requests in flight
	opening                  *watchGate
	audit                    *auditor
	checks                   []requestCheck
	slow                     slowness
	reauthenticationInterval time.Duration // defaultReauthenticationInterval, other than in tests
	draining                 chan struct{}
	drainOnce                sync.Once
}

// New makes a proxy. It makes no connection.
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

// Ready says why the proxy cannot work: it asks the API server, for at most as long
// as the context lasts.
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

// Drain ends all watches in good order and makes [Proxy.Ready] fail. Requests are
// answered all the same.
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
				panic(http.ErrAbortHandler) // ends the connection: the answer is not whole
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

// boundBody bounds the size of a body and how long it may take.
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

// refuse tells the client about an error.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused := asRefusal(err)
	if recorded, ok := w.(*recorder); ok {
		if recorded.code != 0 {
			return // something has been said already
		}
		recorded.answer, recorded.reason = "refused", refused.label
		w.Header().Set(auditHeader, recorded.auditID())
	}
	p.metrics.refusals.WithLabelValues(refused.label).Inc()
	writeStatus(w, r.Header.Get("Accept"), refused.status)
}
