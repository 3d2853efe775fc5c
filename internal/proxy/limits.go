package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

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

const (
	defaultWatches = 1000
	defaultLists   = 50
	// maxAllWatches limits the watches, logs and upgraded connections of all users. At 60
	// KB each, they take 600 MB of the memory in config/proxy.
	maxAllWatches = 10_000
	// namespacesPerWatch is the number of namespaces for which a watch of -A counts as one
	// more: the proxy opens a watch of about 10 KB for each namespace.
	namespacesPerWatch = 4
)

// Limits are the limits that an admin can choose; 0 means the default. Each has a flag of the command `proxy`.
type Limits struct {
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
}

// orDefaults returns the limits with their defaults.
func (l Limits) orDefaults() Limits {
	return Limits{
		MaxInFlight: cmp.Or(l.MaxInFlight, defaultInFlight),
		MaxWatches:  cmp.Or(l.MaxWatches, defaultWatches),
		MaxLists:    cmp.Or(l.MaxLists, defaultLists),
	}
}

// ReceiveBuffer is the maximum number of bytes of a request's body, over HTTP/2, that an
// http.Server which serves a [Proxy] may hold for a handler that has not read them.
const ReceiveBuffer = 64 << 10

const (
	// maxFields is the maximum number of fields in the header of a request.
	maxFields = 256
	// fieldSize is the memory of a field in addition to its name and its value, and ordinaryHeader
	// the memory of a header that the budget does not count: it holds a token and the fields of
	// kubectl.
	fieldSize, ordinaryHeader = 128, 8 << 10
)

// checkFields refuses a request with too many fields in its header. Each takes many times the
// memory of its text.
func checkFields(r *http.Request) error {
	if fieldsOf(r.Header) > maxFields {
		return &refusal{"fields", metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestHeaderFieldsTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: fmt.Sprintf("the header of the request has more than %d fields", maxFields),
		}}
	}
	return nil
}

func fieldsOf(h http.Header) int {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	return n
}

// retained returns the bytes that a request takes for as long as it is open: its header, without an
// ordinary one, and a body that nobody reads.
func retained(r *http.Request) int64 {
	size := len(r.RequestURI) + fieldSize*fieldsOf(r.Header)
	for name, values := range r.Header {
		size += len(name)
		for _, v := range values {
			size += len(v)
		}
	}
	taken := int64(max(0, size-ordinaryHeader))
	if r.ProtoMajor > 1 && r.ContentLength != 0 {
		taken += ReceiveBuffer
	}
	return taken
}

// clientTimeouts holds the time limits for slow clients: bodyTimeout and writeTimeout, except in
// tests.
type clientTimeouts struct{ body, write time.Duration }

// withInFlightLimit limits how many requests the proxy handles at a time, and the time and
// the body of each. A long-running request has none of these limits, but see [Proxy.authenticate].
func (p *Proxy) withInFlightLimit(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		if c.longRunning() {
			defer w.unbound()()
			next.ServeHTTP(w, r)
			return nil
		}
		if !p.inFlight.take("", 1) {
			return tooMany("in-flight", "the proxy has too many requests, try again later")
		}
		defer p.inFlight.giveBack("", 1)
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		p.boundBody(w, r)
		next.ServeHTTP(w, r)
		return nil
	})
}

// boundBody limits the size of a request's body and the time to read it.
func (p *Proxy) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(p.timeouts.body))
}

// withUserLimits limits the requests of each user and the memory that they take, so that slow
// requests of one user do not delay the requests of another.
func (p *Proxy) withUserLimits(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		c.flowKey = p.cache.flowKeyOf(c.caller)
		if c.longRunning() {
			if !p.watches.take(c.flowKey, 1) {
				return p.tooManyWatches(c.flowKey)
			}
			defer p.watches.giveBack(c.flowKey, 1)
			c.memory = p.memory.OpenExact(c.flowKey)
		} else {
			if !p.perUser.take(c.flowKey, 1) {
				return tooMany("quota", "%q has too many requests under way: at most %d at a time", c.flowKey, p.perUser.max)
			}
			defer p.perUser.giveBack(c.flowKey, 1)
			c.memory = p.memory.Open(c.flowKey)
		}
		defer c.memory.Close()
		if c.longRunning() {
			if err := c.memory.Take(retained(r)); err != nil {
				return err
			}
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// tooManyWatches returns the refusal of a watch, log or connection.
func (p *Proxy) tooManyWatches(flowKey string) error {
	return tooMany("quota", "%q has too many watches, logs and connections open, or all users together have: at most %d and %d at a time", flowKey, p.watches.max, p.watches.all)
}

// flowKeyOf returns the key under which the limits count a user. The service
// accounts of a tenant have one key, and so have the service accounts of a namespace
// without a tenant, because an account there can create more accounts. Callers use the same
// key for take and giveBack: a namespace may join a tenant in between.
func (v *authorizationCache) flowKeyOf(who user.Info) string {
	namespace, _, err := serviceaccount.SplitUsername(who.GetName())
	if err != nil {
		return who.GetName()
	}
	if tenant, _ := v.tenantNamed(namespace); tenant != "" {
		return "the service accounts of tenant " + tenant
	}
	return "the service accounts of namespace " + namespace
}

// quota limits how many units each user may hold at a time, and all users together.
type quota struct {
	max, all int // 0 means no limit

	mu    sync.Mutex
	taken map[string]int
	sum   int
}

func newQuota(maximum, all int) *quota {
	return &quota{max: maximum, all: all, taken: map[string]int{}}
}

// take takes n units for a key, or returns false if the key or all keys together would hold more
// than the maximum. Call giveBack after take returned true.
func (q *quota) take(who string, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.max > 0 && q.taken[who]+n > q.max || q.all > 0 && q.sum+n > q.all {
		return false
	}
	q.taken[who] += n
	q.sum += n
	return true
}

func (q *quota) giveBack(who string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum -= n
	if q.taken[who] -= n; q.taken[who] <= 0 {
		delete(q.taken, who)
	}
}
