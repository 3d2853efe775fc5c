package proxy

import (
	"context"
	"net/http"
	"slices"

	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Rule selects the objects of a cluster-scoped kind that a user may see. The proxy calls
// Select for users who may not list the kind by RBAC: once for a list or get, and again
// while a watch is open. Select must not block.
type Rule interface {
	// Resource returns the kind.
	Resource() schema.GroupResource
	// Select returns the objects that a user may see; the zero Selection selects none.
	Select(who user.Info) Selection
}

// Selection selects the objects that match all its fields. The zero value selects none.
type Selection struct {
	// Labels and Fields are selectors; nil matches all objects. At least one of them
	// must be set.
	Labels labels.Selector
	Fields fields.Selector
	// Names are the objects for which the proxy answers a get by name. They are empty if
	// RBAC alone decides about a get.
	Names []string
	// Refusal is the message to the client if no request can select the objects, and ""
	// otherwise.
	Refusal string
	// namespaces is set if no selector selects the visible namespaces: the proxy then
	// selects them by name and labels.
	namespaces *visibleNamespaces
}

// withFilteredReads answers a list, watch or get that RBAC does not allow the caller, with the
// objects that the caller may see.
func (p *Proxy) withFilteredReads(next http.Handler) http.Handler {
	return answerOr(next, "filtered", p.serveFiltered)
}

// serveFiltered answers a read if the kind has a rule, if objects of the kind are shared, or if
// the read is a list or watch in all namespaces. It returns false for all other requests.
func (p *Proxy) serveFiltered(w http.ResponseWriter, r *http.Request, c *requestCall) (done bool, err error) {
	if r.Method != http.MethodGet || !c.unambiguous {
		return false, nil
	}
	kind := schema.GroupResource{Group: c.info.APIGroup, Resource: c.info.Resource}
	collection := c.info.Verb == "list" || c.info.Verb == "watch"
	rule := p.rules[kind]
	shared := rule == nil && p.cache.isShared(kind)
	allNamespaces := rule == nil && collection && c.info.Namespace == ""
	if rule == nil && !shared && !allNamespaces || !collection && c.info.Verb != "get" {
		return false, nil
	}
	who, err := p.identity(r.Context(), c)
	if err != nil {
		return true, err
	}
	if err := p.cache.ready(); err != nil {
		return true, err
	}
	if everywhere(p.cache, who, attributes{verb: c.info.Verb, group: c.info.APIGroup, resource: c.info.Resource, name: c.info.Name}) {
		return false, nil
	}
	if shared {
		if done, err := p.serveShared(w, r, c, who, kind); done || err != nil {
			return done, err
		}
	}
	switch {
	case allNamespaces:
		return p.serveAllNamespaces(w, r, c, who)
	case rule == nil:
		return false, nil
	case c.info.Verb == "watch":
		return true, p.serveWatch(w, r, c, who, rule)
	case c.info.Verb == "list":
		selected := rule.Select(who)
		return true, p.serveAsProxy(w, r, c, who, &selected)
	case slices.Contains(rule.Select(who).Names, c.info.Name):
		return true, p.serveAsProxy(w, r, c, who, nil)
	case kind == corev1.Resource("namespaces"):
		return p.serveNewNamespace(w, r, c, who)
	}
	// The API server refuses the names that the caller may not see.
	return false, nil
}

// serveShared answers a read of a cluster-scoped kind if objects of the kind are shared
// with the caller. It returns false if no objects are shared, so that the API server
// refuses the request.
func (p *Proxy) serveShared(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info, kind schema.GroupResource) (done bool, err error) {
	shares := p.cache.shares(who, kind, c.info.Verb)
	if shares.empty() {
		return false, nil
	}
	// A list of a namespaced kind in all namespaces would show the objects of all tenants.
	if inCluster, err := p.scopes.inCluster(c.info.APIGroup, c.info.APIVersion, c.info.Resource); err != nil || !inCluster {
		return false, err
	}
	rule := sharedRule{p.cache, kind, c.info.Verb}
	switch c.info.Verb {
	case "get":
		return p.serveSharedObject(w, r, c, who, shares)
	case "watch":
		return true, p.serveWatch(w, r, c, who, rule)
	}
	selected := rule.Select(who)
	return true, p.serveAsProxy(w, r, c, who, &selected)
}

// serveAsProxy sends a list with the proxy's own credentials and the selection's selectors,
// and passes the answer on. A get has no selection: its path selects the object.
func (p *Proxy) serveAsProxy(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info, selected *Selection) error {
	if !p.lists.take(c.flowKey, 1) {
		return tooMany("quota", "%q has %d requests for shared objects open, which is the limit: wait until one ends", c.flowKey, p.lists.max)
	}
	defer p.lists.giveBack(c.flowKey, 1)
	query, err := r.URL.Query(), error(nil)
	switch {
	case selected == nil:
	case selected.namespaces != nil:
		err = namespaceReader{p, r, c, who}.selectByName(r.Context(), query, selected.namespaces)
	default:
		err = narrow(query, *selected)
	}
	if err != nil {
		return err
	}
	out, err := p.ownRequest(r.Context(), r, c, who, query)
	if err != nil {
		return err
	}
	response, err := p.sendOwn(p.transports.own, out)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	p.copyResponse(w, response)
	return nil
}

// serveAllNamespaces answers a list or watch of all namespaces with the objects of the
// namespaces that the caller may read. It uses the caller's own credentials. It returns
// false for a cluster-scoped kind, for a caller without a right in any namespace, and for a
// caller with a client certificate, which the proxy cannot pass on. The API server then
// answers.
func (p *Proxy) serveAllNamespaces(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info) (done bool, err error) {
	if c.credential.certificateUser != nil {
		return false, nil
	}
	visible := func() ([]string, <-chan struct{}) {
		changed := p.cache.change.changed()
		return p.cache.visible(who, attributes{verb: c.info.Verb, group: c.info.APIGroup, resource: c.info.Resource, name: c.info.Name}), changed
	}
	namespaces, _ := visible()
	if len(namespaces) == 0 {
		return false, nil
	}
	// withUserLimits has counted a watch as one.
	more := 0
	grow := func(namespaces int) bool {
		added := max(0, namespaces/namespacesPerWatch-more)
		if !p.watches.take(c.flowKey, added) {
			return false
		}
		more += added
		return true
	}
	defer func() { p.watches.giveBack(c.flowKey, more) }()
	watching := c.info.Verb == "watch"
	if watching {
		if !grow(len(namespaces)) {
			return true, p.tooManyWatches(c.flowKey)
		}
		p.metrics.watches.Inc()
		defer p.metrics.watches.Dec()
	} else {
		if !p.lists.take(c.flowKey, 1) {
			return true, tooMany("quota", "%q has too many requests open: at most %d at a time", c.flowKey, p.lists.max)
		}
		defer p.lists.giveBack(c.flowKey, 1)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if watching {
		go func() {
			if p.isUnauthorized(ctx, c) {
				cancel()
			}
		}()
	}
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header.Set(auditHeader, c.auditID())
	prefix := "/" + c.info.APIPrefix
	if c.info.APIGroup != "" {
		prefix += "/" + c.info.APIGroup
	}
	return p.fanout.Answer(w, r, fanout.Request{
		Identity: identityText(who), FlowKey: c.flowKey, Prefix: prefix + "/" + c.info.APIVersion, Resource: c.info.Resource, Watch: watching, Visible: visible, Grow: grow,
	}), nil
}
