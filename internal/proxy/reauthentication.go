package proxy

import (
	"context"
	"net/http"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
)

// defaultReauthenticationInterval is the interval, with a jitter of a tenth, at which the
// proxy checks the credential of an open watch again. The API server checks a credential
// only when a watch begins, and the watches that the proxy answers run with the proxy's
// credentials: only the proxy can end them.
const defaultReauthenticationInterval = time.Minute

// untilReauthentication returns the time until the next check of a watch's credential. The
// jitter spreads the checks of watches that began together.
func (p *Proxy) untilReauthentication() time.Duration {
	return wait.Jitter(p.reauthenticationInterval, 0.1)
}

// isUnauthorized waits until the proxy stops or the caller's credential is revoked, and
// returns true: the watch has to end. It returns false if the context ends before.
func (p *Proxy) isUnauthorized(ctx context.Context, c *requestCall) bool {
	timer := time.NewTimer(p.untilReauthentication())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.draining:
			return true
		case <-timer.C:
			if p.credentialRevoked(ctx, c) {
				return true
			}
			timer.Reset(p.untilReauthentication())
		}
	}
}

// credentialRevoked reports whether the credential of a request has expired, belongs to
// another user, or no longer gives the right to impersonate. It returns false while the API
// server does not answer: there are no events then. A client certificate is valid until it expires.
func (p *Proxy) credentialRevoked(ctx context.Context, c *requestCall) bool {
	if c.credential.certificateUser != nil {
		return time.Now().After(c.credential.expires)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	who, err := p.reviews.user(ctx, c.credential.token)
	if err == nil && c.impersonation != nil && c.impersonated != nil {
		err = p.mayImpersonate(ctx, c.credential.token, who, c.impersonation)
	}
	if err != nil {
		code := asRefusal(err).status.Code
		return code == http.StatusUnauthorized || code == http.StatusForbidden
	}
	return identityText(who) != identityText(c.caller)
}

// identityText returns a text of a user's name, UID and groups. Users that differ in one of
// these have different texts.
func identityText(who user.Info) string {
	groups := append([]string(nil), who.GetGroups()...)
	sort.Strings(groups)
	return strings.Join(append([]string{who.GetName(), who.GetUID()}, groups...), "\x00")
}
