package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// withImpersonation removes the impersonation headers of a caller that impersonates itself.
// All other headers stay: the API server or [Proxy.identity] decides about them.
func (p *Proxy) withImpersonation(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		if c.impersonation != nil && c.credential.certificateUser != nil {
			return forbidden("impersonation", "a client certificate cannot impersonate through the proxy: use a token")
		}
		if c.impersonation != nil && c.impersonation.isSelf(c.caller) {
			stripImpersonation(r.Header)
			c.impersonation = nil
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// identity returns the user of a request after impersonation. The proxy's answers depend on
// this user.
func (p *Proxy) identity(ctx context.Context, c *requestCall) (user.Info, error) {
	if c.impersonation == nil {
		return c.caller, nil
	}
	if err := p.mayImpersonate(ctx, c.credential.token, c.caller, c.impersonation); err != nil {
		return nil, err
	}
	who, err := c.impersonation.identity()
	c.impersonated = who
	return who, err
}

// impersonation holds the values of the headers Impersonate-* of a request.
type impersonation struct {
	user, uid string
	groups    []string
	// extra maps keys to values. A key is as in the header's name: in lower case and
	// escaped.
	extra map[string][]string
}

// readImpersonation parses the headers, and returns nil for a request without impersonation.
// It refuses headers that it does not know: if the proxy dropped a header, the caller would
// keep the rights that it meant to give up.
func readImpersonation(h http.Header) (*impersonation, error) {
	var as *impersonation
	for name, values := range h {
		const all = "impersonate"
		if len(name) < len(all) || !strings.EqualFold(name[:len(all)], all) {
			continue
		}
		if as == nil {
			as = &impersonation{extra: map[string][]string{}}
		}
		for _, v := range values {
			if !isFieldValue(v) || !utf8.ValidString(v) {
				return nil, badRequest("impersonation", "the header %s is empty, is not text, or has a space at its begin or end", name)
			}
		}
		if err := as.add(name, values); err != nil {
			return nil, err
		}
	}
	if as == nil {
		return nil, nil
	}
	if as.user == "" {
		return nil, badRequest("impersonation", "the request impersonates groups, a UID or extra fields, but no user: add the header Impersonate-User")
	}
	return as, nil
}

// checkGroups refuses the group system:masters, for which the API server checks no rights.
func (as *impersonation) checkGroups() error {
	if as != nil && slices.Contains(as.groups, user.SystemPrivilegedGroup) {
		return forbidden("masters", "the proxy does not impersonate group %s", user.SystemPrivilegedGroup)
	}
	return nil
}

func (as *impersonation) add(name string, values []string) error {
	single := func(to *string) error {
		if len(values) != 1 {
			return badRequest("impersonation", "the header %s is given %d times", name, len(values))
		}
		*to = values[0]
		return nil
	}
	switch name {
	case authenticationv1.ImpersonateUserHeader:
		return single(&as.user)
	case http.CanonicalHeaderKey(authenticationv1.ImpersonateUIDHeader):
		return single(&as.uid)
	case authenticationv1.ImpersonateGroupHeader:
		as.groups = values
		return nil
	}
	key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
	if !ok || key == "" {
		return badRequest("impersonation", "the proxy does not know the header %s", name)
	}
	as.extra[strings.ToLower(key)] = values
	return nil
}

// isSelf reports whether a user impersonates itself, which needs no right. Flux does so with
// every kubeconfig.
func (as *impersonation) isSelf(who user.Info) bool {
	if as.user != who.GetName() || (as.uid != "" && as.uid != who.GetUID()) || len(as.extra) > 0 {
		return false
	}
	return len(as.groups) == 0 || maps.Equal(set(as.groups), set(who.GetGroups()))
}

// set returns the groups as a set, without the group of all authenticated users.
func set(groups []string) map[string]bool {
	s := map[string]bool{}
	for _, g := range groups {
		if g != user.AllAuthenticated {
			s[g] = true
		}
	}
	return s
}

// identity returns the impersonated user, with the groups that the API server would add.
func (as *impersonation) identity() (user.Info, error) {
	groups := slices.Clone(as.groups)
	if as.user == user.Anonymous || slices.Contains(groups, user.AllUnauthenticated) {
		return nil, unauthorized("anonymous")
	}
	if len(groups) == 0 {
		if namespace, _, err := serviceaccount.SplitUsername(as.user); err == nil {
			groups = serviceaccount.MakeGroupNames(namespace)
		}
	}
	if !slices.Contains(groups, user.AllAuthenticated) {
		groups = append(groups, user.AllAuthenticated)
	}
	return &user.DefaultInfo{Name: as.user, UID: as.uid, Groups: groups}, nil
}

// isFieldValue reports whether the API server gets a value of a header as it is: it is not empty,
// has no control characters, and no space at its begin or end. HTTP/2 and certificates keep such a
// space, and HTTP/1.1 removes it: "system:masters " would become another group.
func isFieldValue(v string) bool {
	return v != "" && v == textproto.TrimString(v) && httpguts.ValidHeaderFieldValue(v)
}

// stripImpersonation removes the impersonation headers.
func stripImpersonation(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate") {
			delete(h, name)
		}
	}
}

// mayImpersonate checks that the user of the token may impersonate the user, each group, the UID
// and the extras. It caches the result for 5 s.
func (v *reviews) mayImpersonate(ctx context.Context, token string, who user.Info, as *impersonation) error {
	attributes, err := as.attributes()
	if err != nil {
		return err
	}
	key, err := json.Marshal([]any{who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra(), attributes})
	if err != nil {
		return unavailable(err)
	}
	sum := sha256.Sum256(key)
	if _, known := v.rights.Get(sum); known {
		return nil
	}
	for _, a := range attributes {
		answer := &authorizationv1.SelfSubjectAccessReview{}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		err := v.post(ctx, token, accessReviewPath, review, answer)
		if errors.Is(err, errDenied) {
			return unauthorized("token")
		}
		if err != nil {
			return unavailable(err)
		}
		if !answer.Status.Allowed || answer.Status.Denied {
			return forbidden("impersonation", "User %q cannot impersonate resource %q in API group %q: %q", who.GetName(), a.Resource, a.Group, a.Name)
		}
	}
	v.rights.Add(sum, true, impersonationTTL)
	return nil
}

// attributes returns the rights that the impersonation needs, as
// k8s.io/apiserver/pkg/endpoints/filters/impersonation checks them.
func (as *impersonation) attributes() ([]authorizationv1.ResourceAttributes, error) {
	all := []authorizationv1.ResourceAttributes{{Verb: "impersonate", Resource: "users", Name: as.user}}
	if namespace, name, err := serviceaccount.SplitUsername(as.user); err == nil {
		all[0] = authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: name}
	}
	for _, g := range as.groups {
		all = append(all, authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "groups", Name: g})
	}
	const group = authenticationv1.GroupName
	if as.uid != "" {
		all = append(all, authorizationv1.ResourceAttributes{Verb: "impersonate", Group: group, Resource: "uids", Name: as.uid})
	}
	for escaped, values := range as.extra {
		key, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, badRequest("impersonation", "the header Impersonate-Extra-%s is not well escaped", escaped)
		}
		for _, v := range values {
			all = append(all, authorizationv1.ResourceAttributes{Verb: "impersonate", Group: group, Resource: "userextras", Subresource: key, Name: v})
		}
	}
	if len(all) > maxImpersonated {
		return nil, badRequest("impersonation", "the request needs %d rights to impersonate, which is more than the maximum of %d", len(all), maxImpersonated)
	}
	slices.SortFunc(all, func(a, b authorizationv1.ResourceAttributes) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}
