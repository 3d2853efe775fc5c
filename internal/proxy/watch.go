package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// serveWatch sends a watch with the proxy's own credentials and the rule's selectors, and passes
// the events on. It ends the watch when the visible objects change by a change of rights.
func (p *Proxy) serveWatch(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info, rule Rule) error {
	// Get the channel before the selection, so that no change in between is missed.
	changed, began := p.cache.change.changed(), time.Now()
	selected, query := rule.Select(who), r.URL.Query()
	if selected.namespaces == nil {
		if err := narrow(query, selected); err != nil {
			return err
		}
	}
	// A client that continues a watch may have missed changes of its rights.
	from, continues := continued(query.Get("resourceVersion"), query.Get("sendInitialEvents") == "true")
	_, ofNamespaces := rule.(sharedRule)
	missed := func() bool {
		return continues && p.cache.history.since(who, p.cache.tenantsOf(who), from, began, ofNamespaces)
	}
	if missed() {
		return refuse("expired", apierrors.NewResourceExpired(changedMessage))
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	response, events, err := p.openWatch(ctx, namespaceReader{p, r, c, who}, query, selected.namespaces, continues)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		p.copyResponse(w, response)
		return nil
	}
	frames, expired := framingOf(response.Header.Get("Content-Type"))
	if frames == nil {
		return fmt.Errorf("the API server answers a watch with the type %q", response.Header.Get("Content-Type"))
	}
	copyHeader(w.Header(), response.Header)
	p.metrics.watches.Inc()
	defer p.metrics.watches.Dec()
	w.WriteHeader(response.StatusCode)
	s := &stream{to: w, frames: frames, stop: cancel}
	s.flush()
	same := func() bool { return sameSelection(selected, rule.Select(who)) && !missed() }
	if events != nil {
		same = func() bool { return events.update(p.cache.visibleNamespacesOf(who)) && !missed() }
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
	if events == nil {
		s.copyFrom(response.Body)
		return nil
	}
	if err := events.copyTo(s, response.Body); err != nil {
		p.log.Error("a watch of namespaces has been ended", "reason", err)
	}
	return nil
}

// openWatch sends a watch with the proxy's own credentials. If no single selector selects the
// visible namespaces, the watch is of all namespaces, and its events pass the returned filter.
func (p *Proxy) openWatch(ctx context.Context, reader namespaceReader, query url.Values, visible *visibleNamespaces, continues bool) (*http.Response, *namespaceFilter, error) {
	leave, err := p.watchGate.enter(ctx, reader.call.flowKey)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	var events *namespaceFilter
	if visible != nil {
		if events, err = reader.watch(ctx, query, visible, continues); err != nil {
			return nil, nil, err
		}
	}
	out, err := p.ownRequest(ctx, reader.request, reader.call, reader.who, query)
	if err != nil {
		return nil, nil, err
	}
	if events != nil {
		out.Header.Set("Accept", events.accept)
	}
	response, err := p.sendOwn(p.transports.ownLong, out)
	return response, events, err
}

// follow ends a watch when the visible objects change, when the proxy stops, or when the
// caller's credential is revoked.
func (p *Proxy) follow(ctx context.Context, c *requestCall, s *stream, expired []byte, changed <-chan struct{}, same func() bool) {
	timer := time.NewTimer(p.untilReauthentication())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if p.credentialRevoked(ctx, c) {
				s.end(nil)
				return
			}
			timer.Reset(p.untilReauthentication())
			continue
		case <-ctx.Done():
			return
		case <-p.draining:
			s.end(nil)
			return
		case <-changed:
		}
		changed = p.cache.change.changed()
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
	return text(a) == text(b) && (a.namespaces == nil) == (b.namespaces == nil)
}
