package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/internal/proxy/fanout"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// metadata reads the metadata of one object with the proxy's credentials. It returns nil if
// the object does not exist.
func (p *Proxy) metadata(ctx context.Context, path string, memory *budget.Reservation) (*metav1.PartialObjectMetadata, error) {
	target := *p.host
	target.Path = path
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	out.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	out.Header.Set("User-Agent", agent)
	object, err := p.readAll(out, memory)
	if err != nil {
		return nil, err
	}
	switch object.status {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusBadRequest: // no object can have the name ".."
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

// sendOwn sends a request with the proxy's credentials. It returns an error if the API server
// refuses the proxy: if the client got this refusal, it would take it for a refusal of its own
// rights.
func (p *Proxy) sendOwn(transport http.RoundTripper, out *http.Request) (*http.Response, error) {
	response, err := transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
		_ = response.Body.Close() // nothing of it is used
		p.log.Error("the API server refuses the proxy itself", "code", response.StatusCode, "path", out.URL.Path)
		return nil, fmt.Errorf("the API server refuses the proxy with %s", response.Status)
	}
	return response, nil
}

// readAll sends a request with the proxy's credentials and reads the complete answer. It
// takes the bytes of the answer from memory.
func (p *Proxy) readAll(out *http.Request, memory *budget.Reservation) (*fullResponse, error) {
	response, err := p.sendOwn(p.transports.own, out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(memory.Reader(io.LimitReader(response.Body, maxObject+1)))
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

// copyHeader copies the header of an answer without the hop-by-hop fields.
func copyHeader(to, from http.Header) {
	for name, values := range from {
		if !fanout.PerConnection(name) {
			to[name] = values
		}
	}
}

const (
	agent = "tenure-proxy"
	// maxSelector is the maximum size of the selectors of one request, in bytes. With the
	// rest of the request, the selectors have to fit into the 1 MiB of headers that an API
	// server reads.
	maxSelector = 512 << 10
)

// copyResponse passes a response of the API server on.
func (p *Proxy) copyResponse(w http.ResponseWriter, response *http.Response) {
	copyHeader(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	buffer := p.buffers.Get()
	defer p.buffers.Put(buffer)
	_, _ = io.CopyBuffer(onlyWriter{w}, response.Body, buffer)
}

// onlyWriter hides all methods but Write, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }
