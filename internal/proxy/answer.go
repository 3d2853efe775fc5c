package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	agent = "tenure-proxy"
	// maxSelector is the maximum size of the selectors of one request, in bytes. With the
	// rest of the request, the selectors have to fit into the 1 MiB of headers that an API
	// server reads.
	maxSelector = 512 << 10
)

// serveFiltered answers a read that RBAC does not allow the caller, if the kind has a rule,
// if objects of the kind are shared with the caller, or if the read is a list or watch in
// all namespaces. It returns false for all other requests, which the proxy passes on.
func (p *Proxy) serveFiltered(w http.ResponseWriter, r *http.Request, c *requestCall) (bool, error) {
	if r.Method != http.MethodGet || !c.plain {
		return false, nil
	}
	read := c.info.Verb == "list" || c.info.Verb == "watch"
	kind := schema.GroupResource{Group: c.info.APIGroup, Resource: c.info.Resource}
	rule := p.rules[kind]
	across := rule == nil && read && c.info.Namespace == "" && c.info.Name == ""
	given := rule == nil && p.view.isShared(kind)
	if rule == nil && !across && !given || !read && c.info.Verb != "get" {
		return false, nil
	}
	who, err := p.identity(r.Context(), c)
	if err != nil {
		return true, err
	}
	if err := p.view.ready(); err != nil {
		return true, err
	}
	if everywhere(p.view, who, question{verb: c.info.Verb, group: c.info.APIGroup, resource: c.info.Resource, name: c.info.Name}) {
		return false, nil
	}
	if given {
		if done, err := p.serveShared(w, r, c, who); done || err != nil {
			return done, err
		}
	}
	if across {
		return p.serveAllNamespaces(w, r, c, who)
	}
	if rule == nil {
		return false, nil
	}
	if !read {
		// The API server refuses the names that the caller may not see.
		if !slices.Contains(rule.Select(who).Names, c.info.Name) {
			return false, nil
		}
		return true, p.serveAsProxy(w, r, c, who, nil)
	}
	return true, p.serveAsProxy(w, r, c, who, rule)
}

// serveAsProxy sends the request with the proxy's own credentials and the rule's selector,
// and passes the answer on. If there is no rule, the path alone selects the objects.
func (p *Proxy) serveAsProxy(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info, rule Rule) error {
	watching := c.info.Verb == "watch"
	limit, transport := p.lists, p.transports.own
	if watching {
		limit, transport = p.watches, p.transports.ownLong
	}
	if !limit.take(c.flowKey) {
		return tooMany("quota", "%q has too many requests open, or all together have: at most %d at a time", c.flowKey, limit.max)
	}
	defer limit.giveBack(c.flowKey)
	// Get the channel before the selection, so that no change in between is missed.
	changed, began := p.view.change.changed(), time.Now()
	var chosen Selection
	query := r.URL.Query()
	if rule != nil {
		chosen = rule.Select(who)
		if chosen.reach == nil {
			if err := narrow(query, chosen); err != nil {
				return err
			}
		}
	}
	// A client that continues a watch may have missed changes of its rights.
	from, goesOn := continued(query.Get("resourceVersion"), query.Get("sendInitialEvents") == "true")
	_, byName := rule.(sharedRule)
	missed := func() bool {
		return watching && goesOn && p.view.history.since(who, p.view.tenantsOf(who), from, began, byName)
	}
	if missed() {
		return refuse("expired", apierrors.NewResourceExpired(changedMessage))
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	response, some, err := p.openStream(ctx, transport, reader{p, r, c, who}, query, chosen.reach, goesOn)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		// The API server refused the proxy and not the client: its answer would mislead the
		// client.
		p.log.Error("the API server refuses the proxy itself", "code", response.StatusCode, "path", c.info.Path)
		return fmt.Errorf("the API server refuses the proxy with %s", response.Status)
	}
	copyHeader(w.Header(), response.Header)
	if !watching || response.StatusCode != http.StatusOK {
		w.WriteHeader(response.StatusCode)
		buffer := p.buffers.Get()
		defer p.buffers.Put(buffer)
		_, _ = io.CopyBuffer(onlyWriter{w}, response.Body, buffer)
		return nil
	}
	frames, expired := framingOf(response.Header.Get("Content-Type"))
	if frames == nil {
		return fmt.Errorf("the API server answers a watch with the type %q", response.Header.Get("Content-Type"))
	}
	p.metrics.watches.Inc()
	defer p.metrics.watches.Dec()
	w.WriteHeader(response.StatusCode)
	s := &stream{to: w, frames: frames, stop: cancel}
	s.flush()
	same := func() bool { return sameSelection(chosen, rule.Select(who)) && !missed() }
	if some != nil {
		same = func() bool { return some.keep(p.view.visibleNamespacesOf(who)) && !missed() }
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		p.follow(ctx, c, s, expired, changed, same)
	}()
	// No goroutine may write to the answer after the request.
	defer func() {
		cancel()
		<-followed
	}()
	if some == nil {
		s.copyFrom(response.Body)
		return nil
	}
	if err := some.copyTo(s, response.Body); err != nil {
		p.log.Error("a watch of namespaces has been ended", "reason", err)
	}
	return nil
}

// openStream sends a list or watch with the proxy's own credentials. A list that no single
// selector describes is read in parts. The events of such a watch pass the returned filter.
func (p *Proxy) openStream(ctx context.Context, transport http.RoundTripper, by reader, query url.Values, see *visibleNamespaces, goesOn bool) (*http.Response, *filter, error) {
	var some *filter
	var err error
	watching := by.call.info.Verb == "watch"
	if watching {
		leave, err := p.opening.enter(ctx, p.view.flowKeyOf(by.who))
		if err != nil {
			return nil, nil, err
		}
		defer leave()
	}
	switch {
	case see != nil && watching:
		some, err = by.watch(ctx, query, see, goesOn)
	case see != nil:
		err = by.list(ctx, query, see)
	}
	if err != nil {
		return nil, nil, err
	}
	out, err := p.ownRequest(ctx, by.request, by.call, by.who, query)
	if err != nil {
		return nil, nil, err
	}
	if some != nil {
		out.Header.Set("Accept", some.accept)
	}
	response, err := transport.RoundTrip(out)
	return response, some, err
}

// onlyWriter hides all methods but Write, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// follow ends a watch when the visible objects change, when the proxy stops, or when the
// caller's credential is revoked.
func (p *Proxy) follow(ctx context.Context, c *requestCall, s *stream, expired []byte, changed <-chan struct{}, same func() bool) {
	ask := time.NewTimer(p.untilReauthentication())
	defer ask.Stop()
	for {
		select {
		case <-ask.C:
			if p.credentialRevoked(ctx, c) {
				s.end(nil)
				return
			}
			ask.Reset(p.untilReauthentication())
			continue
		case <-ctx.Done():
			return
		case <-p.draining:
			s.end(nil)
			return
		case <-changed:
		}
		changed = p.view.change.changed()
		if !same() {
			s.end(expired)
			return
		}
	}
}

// sameSelection reports whether two selections select the same objects.
func sameSelection(a, b Selection) bool {
	text := func(s Selection) [3]string {
		t := [3]string{2: s.Refusal}
		if s.Labels != nil {
			t[0] = s.Labels.String()
		}
		if s.Fields != nil {
			t[1] = s.Fields.String()
		}
		return t
	}
	return text(a) == text(b) && (a.reach == nil) == (b.reach == nil)
}

// narrow adds a selection to the selectors of a query, combined by AND: the client's own
// selectors cannot select more objects.
func narrow(query url.Values, chosen Selection) error {
	if chosen.Refusal != "" {
		return forbidden("selector", "%s", chosen.Refusal)
	}
	if chosen.Labels == nil && chosen.Fields == nil {
		chosen.Labels = emptySelector
	}
	for _, name := range []string{"labelSelector", "fieldSelector", "watch", "continue", "limit"} {
		if len(query[name]) > 1 {
			return badRequest("selector", "the parameter %s is given %d times", name, len(query[name]))
		}
	}
	if chosen.Labels != nil {
		selector, err := labels.Parse(query.Get("labelSelector"))
		if err != nil {
			return badRequest("selector", "unable to parse the label selector: %v", err)
		}
		wanted, selectable := chosen.Labels.Requirements()
		if !selectable {
			wanted, _ = emptySelector.Requirements()
		}
		query.Set("labelSelector", selector.Add(wanted...).String())
	}
	if chosen.Fields != nil {
		selector, err := fields.ParseSelector(query.Get("fieldSelector"))
		if err != nil {
			return badRequest("selector", "unable to parse the field selector: %v", err)
		}
		query.Set("fieldSelector", fields.AndSelectors(selector, chosen.Fields).String())
	}
	if len(query.Get("labelSelector"))+len(query.Get("fieldSelector")) > maxSelector {
		return forbidden("selector", "you may see more objects than can be listed at once: select some by their labels")
	}
	return nil
}

// ownRequest returns a request of the proxy with the path and query of the client's
// request and the headers that choose the format of the answer. The API server's audit log
// names the proxy as the user. The user agent names the caller, and the audit ID is the ID
// of the proxy's own audit event.
func (p *Proxy) ownRequest(ctx context.Context, r *http.Request, c *requestCall, who user.Info, query url.Values) (*http.Request, error) {
	target := *p.host
	target.Path, target.RawQuery = canonical(c.info), query.Encode()
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if accept := acceptedType(r.Header.Get("Accept")); accept != "" {
		out.Header.Set("Accept", accept)
	}
	if encoding := r.Header.Get("Accept-Encoding"); encoding != "" && c.info.Verb != "watch" {
		out.Header.Set("Accept-Encoding", encoding)
	}
	out.Header.Set(auditHeader, c.auditID())
	out.Header.Set("User-Agent", fmt.Sprintf("%s (for %+q) %s", agent, who.GetName(), r.UserAgent()))
	return out, nil
}

// acceptedType returns the accepted media types in which the proxy can find the end of an event.
func acceptedType(accept string) string {
	var kept []string
	for entry := range strings.SplitSeq(accept, ",") {
		if !strings.Contains(strings.ToLower(entry), "cbor") {
			kept = append(kept, entry)
		}
	}
	return strings.Join(kept, ",")
}

// copyHeader copies the header of an answer without the hop-by-hop fields.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		if !fanout.PerConnection(name) {
			to[name] = values
		}
	}
}

// answer answers a request itself, or passes it on to the API server.
func (p *Proxy) answer(w *recorder, r *http.Request, c *requestCall) error {
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
		if !p.watches.take(c.flowKey) {
			return tooMany("quota", "%q has too many watches, logs and connections open, or all together have: at most %d and %d at a time", c.flowKey, p.watches.max, p.watches.all)
		}
		defer p.watches.giveBack(c.flowKey)
		if c.info.Verb == "watch" {
			p.metrics.watches.Inc()
			defer p.metrics.watches.Dec()
		}
	}
	p.pass.ServeHTTP(w, r)
	return nil
}
