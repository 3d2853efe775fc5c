package proxy

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// maxObject is the maximum size of a single object, in bytes: more than an API server
	// stores.
	maxObject = 8 << 20
	// attempts is how often the proxy reads a single object that changes meanwhile.
	attempts = 5
)

// serveSharedObject answers a get of one object if its labels match a shared selector. A
// get has no label selector, so serveSharedObject reads the labels before and after the
// get: if the resource version is the same both times, the object between them has the same
// labels.
func (p *Proxy) serveSharedObject(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info, shares share) (bool, error) {
	if !p.lists.take(c.flowKey, 1) {
		return true, tooMany("quota", "%q has too many requests open: at most %d at a time", c.flowKey, p.lists.max)
	}
	defer p.lists.giveBack(c.flowKey, 1)
	path, query := canonical(c.info), r.URL.Query()
	// The newest version satisfies every resourceVersion that a client asks for.
	query.Del("resourceVersion")
	for range attempts {
		before, err := p.metadata(r.Context(), path, c.memory)
		if err != nil || before == nil || !shares.matches(before.Labels) {
			return false, err
		}
		out, err := p.ownRequest(r.Context(), r, c, who, query)
		if err != nil {
			return true, err
		}
		object, err := p.readAll(out, c.memory)
		if err != nil {
			return true, err
		}
		after, err := p.metadata(r.Context(), path, c.memory)
		if err != nil {
			return true, err
		}
		if after == nil || after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
			c.memory.Close() // release the memory of this attempt
			continue
		}
		copyHeader(w.Header(), object.header)
		w.WriteHeader(object.status)
		_, _ = w.Write(object.body)
		return true, nil
	}
	return true, refuse("changing", apierrors.NewServiceUnavailable("the object changes all the time: try again"))
}
