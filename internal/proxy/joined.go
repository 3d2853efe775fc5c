package proxy

import (
	"context"
	"net/http"
	"sort"
	"strings"

	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// serveAllNamespaces answers a list or watch of all namespaces with the objects of the
// namespaces that the caller may read. It uses the caller's own credentials. It returns
// false for a cluster-scoped kind, for a caller without a right in any namespace, and for a
// caller with a client certificate, which the proxy cannot pass on. The API server then
// answers.
func (p *Proxy) serveAllNamespaces(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info) (bool, error) {
	if c.credential.certified != nil {
		return false, nil
	}
	visible := func() ([]string, <-chan struct{}) {
		changed := p.view.change.changed()
		return p.view.visible(who, question{verb: c.info.Verb, group: c.info.APIGroup, resource: c.info.Resource}), changed
	}
	if namespaces, _ := visible(); len(namespaces) == 0 {
		return false, nil
	}
	watching, limit := c.info.Verb == "watch", p.lists
	if watching {
		limit = p.watches
		p.metrics.watches.Inc()
		defer p.metrics.watches.Dec()
	}
	if !limit.take(c.flowKey) {
		return true, tooMany("quota", "%q has too many requests open: at most %d at a time", c.flowKey, limit.max)
	}
	defer limit.giveBack(c.flowKey)
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
	return p.across.Answer(w, r, fanout.Question{
		Who: identityText(who), FlowKey: c.flowKey, Prefix: prefix + "/" + c.info.APIVersion, Resource: c.info.Resource, Watch: watching, Visible: visible,
	}), nil
}

// identityText returns a text of a user's name, UID and groups. Users that differ in one of
// these have different texts.
func identityText(who user.Info) string {
	groups := append([]string(nil), who.GetGroups()...)
	sort.Strings(groups)
	return strings.Join(append([]string{who.GetName(), who.GetUID()}, groups...), "\x00")
}

// joins reports whether a question is about a list or watch in all namespaces that the
// proxy answers with the objects of some namespaces.
func (p *Proxy) joins(who user.Info, a *authorizationv1.ResourceAttributes) bool {
	if a == nil || (a.Verb != "list" && a.Verb != "watch") || a.Name != "" || a.Subresource != "" || a.Namespace != "" ||
		p.rules[schema.GroupResource{Group: a.Group, Resource: a.Resource}] != nil {
		return false
	}
	return len(p.view.visible(who, question{verb: a.Verb, group: a.Group, resource: a.Resource})) > 0 && p.kinds.namespaced(a.Group, a.Resource)
}
