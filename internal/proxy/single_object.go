package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// maxObject is the maximum size of a single object, in bytes: more than an API server
	// stores.
	maxObject = 8 << 20
	// attempts is how often the proxy reads a single object that changes meanwhile.
	attempts = 5
)

// serveShared answers a read of a cluster-scoped kind if objects of the kind are shared
// with the caller. It returns false if no objects are shared, so that the API server
// refuses the request.
func (p *Proxy) serveShared(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info) (bool, error) {
	kind := schema.GroupResource{Group: c.info.APIGroup, Resource: c.info.Resource}
	given := p.view.shares(who, kind, c.info.Verb)
	if given.empty() {
		return false, nil
	}
	// A list of a namespaced kind in all namespaces would show the objects of all tenants.
	if inCluster, err := p.scopes.inCluster(c.info.APIGroup, c.info.APIVersion, c.info.Resource); err != nil || !inCluster {
		return false, err
	}
	if c.info.Verb == "get" {
		return p.serveSharedObject(w, r, c, who, given)
	}
	return true, p.serveAsProxy(w, r, c, who, sharedRule{p.view, kind, c.info.Verb})
}

// serveSharedObject answers a get of one object if its labels match a shared selector. A
// get has no label selector, so serveSharedObject reads the labels before and after the
// get: if the resource version is the same both times, the object between them has the same
// labels.
func (p *Proxy) serveSharedObject(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info, given share) (bool, error) {
	if !p.lists.take(c.flowKey) {
		return true, tooMany("quota", "%q has too many requests open: at most %d at a time", c.flowKey, p.lists.max)
	}
	defer p.lists.giveBack(c.flowKey)
	path, query := canonical(c.info), r.URL.Query()
	// The newest version satisfies every resourceVersion that a client asks for.
	query.Del("resourceVersion")
	for range attempts {
		before, err := p.metadata(r.Context(), path, c.room)
		if err != nil || before == nil || !given.matches(before.Labels) {
			return false, err
		}
		out, err := p.ownRequest(r.Context(), r, c, who, query)
		if err != nil {
			return true, err
		}
		object, err := p.readAll(out, c.room)
		if err != nil {
			return true, err
		}
		after, err := p.metadata(r.Context(), path, c.room)
		if err != nil {
			return true, err
		}
		if after == nil || after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
			c.room.Close() // release the memory of this attempt
			continue
		}
		copyHeader(w.Header(), object.header)
		w.WriteHeader(object.status)
		_, _ = w.Write(object.body)
		return true, nil
	}
	return true, refuse("changing", apierrors.NewServiceUnavailable("the object changes all the time: try again"))
}

// metadata reads the metadata of one object with the proxy's credentials. It returns nil if
// the object does not exist.
func (p *Proxy) metadata(ctx context.Context, path string, room *budget.Reservation) (*metav1.PartialObjectMetadata, error) {
	target := *p.host
	target.Path = path
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	out.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	out.Header.Set("User-Agent", agent)
	object, err := p.readAll(out, room)
	if err != nil {
		return nil, err
	}
	switch object.status {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("the API server refuses the proxy with %d", object.status)
	}
	found := &metav1.PartialObjectMetadata{}
	if err := runtime.DecodeInto(codecs.UniversalDeserializer(), object.body, found); err != nil {
		return nil, fmt.Errorf("cannot read the metadata of an object: %w", err)
	}
	return found, nil
}

// fullResponse is a completely read answer.
type fullResponse struct {
	status int
	header http.Header
	body   []byte
}

// readAll sends a request with the proxy's credentials and reads the complete answer. It
// takes the bytes of the answer from room.
func (p *Proxy) readAll(out *http.Request, room *budget.Reservation) (*fullResponse, error) {
	response, err := p.transports.own.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		p.log.Error("the API server refuses the proxy itself", "code", response.StatusCode, "path", out.URL.Path)
		return nil, fmt.Errorf("the API server refuses the proxy with %s", response.Status)
	}
	body, err := io.ReadAll(room.Reader(io.LimitReader(response.Body, maxObject+1)))
	if err == nil && len(body) > maxObject {
		err = errors.New("the object is too large")
	}
	if err != nil {
		return nil, err
	}
	return &fullResponse{response.StatusCode, response.Header, body}, nil
}

// pathOf returns the path of an object of a cluster-scoped kind.
func pathOf(kind schema.GroupVersionResource, name string) string {
	prefix := "/api/" + kind.Version
	if kind.Group != "" {
		prefix = "/apis/" + kind.Group + "/" + kind.Version
	}
	return prefix + "/" + kind.Resource + "/" + url.PathEscape(name)
}
