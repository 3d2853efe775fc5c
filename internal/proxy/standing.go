package proxy

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// standingAge is how long, and a tenth more, somebody may have a watch open without
// being asked about. The API server asks when a watch begins and never again; but
// what the proxy answers it reads as itself, so that nobody else would end it.
const standingAge = time.Minute

// untilAsked is how long it is until somebody is asked about again: not the same for
// all, so that those who came at once do not ask at once.
func (p *Proxy) untilAsked() time.Duration { return wait.Jitter(p.standing, 0.1) }

// over waits until a watch is to end in good order: because the proxy stops, or
// because of its caller. It returns false when the context ends before.
func (p *Proxy) over(ctx context.Context, c *call) bool {
	ask := time.NewTimer(p.untilAsked())
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.draining:
			return true
		case <-ask.C:
			if p.lost(ctx, c) {
				return true
			}
			ask.Reset(p.untilAsked())
		}
	}
}

// lost says whether the credential of a request has ended, belongs to somebody else,
// or gives the right no more to be whom the request is made as. While the API server
// cannot be asked nothing is lost: there are no events then. What a certificate says
// stays.
func (p *Proxy) lost(ctx context.Context, c *call) bool {
	if c.credential.certified != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	who, err := p.identities.who(ctx, c.credential.token)
	if err == nil && c.as != nil && c.acting != nil {
		err = p.mayBe(ctx, c.credential.token, who, c.as)
	}
	if err != nil {
		code := asRefusal(err).status.Code
		return code == http.StatusUnauthorized || code == http.StatusForbidden
	}
	return identityText(who) != identityText(c.caller)
}
