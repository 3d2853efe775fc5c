package proxy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// visibleNamespaces is the set of namespaces that a user may see: the namespaces of the
// Tenants that the user owns, and the namespaces of other tenants that RBAC lets the user
// get. No single selector describes this set, but the name and the labels of a namespace
// decide whether it belongs to the set. So the decision about one version of a namespace
// needs no other object.
type visibleNamespaces struct {
	// owned are names of Tenants, sorted.
	owned []string
	// names are the namespaces that RBAC names, which may not exist. all means that RBAC
	// allows every namespace.
	names map[string]bool
	all   bool
}

// visibleNamespacesOf returns the set of namespaces that a user may see now.
func (v *authorizationCache) visibleNamespacesOf(who user.Info) *visibleNamespaces {
	a := attributes{verb: "get", resource: "namespaces"}
	if everywhere(v, who, a) {
		return &visibleNamespaces{owned: v.owned(who), all: true}
	}
	return &visibleNamespaces{owned: v.owned(who), names: v.granted(who, a)}
}

// sees reports whether a namespace with this name and these labels is visible.
func (r *visibleNamespaces) sees(name string, set map[string]string) bool {
	return r.owns(set) || (r.all || r.names[name]) && ofTenant(set)
}

// owns reports whether a namespace with these labels belongs to a Tenant that the user
// owns.
func (r *visibleNamespaces) owns(set map[string]string) bool {
	return set[v1alpha1.LabelTenant] != "" && slices.Contains(r.owned, set[v1alpha1.LabelTenant])
}

// foreign reports whether a namespace with these labels belongs to another tenant, so that
// it is visible only by RBAC.
func (r *visibleNamespaces) foreign(set map[string]string) bool { return ofTenant(set) && !r.owns(set) }

// seesMore reports whether the user may see namespaces of other tenants.
func (v *authorizationCache) seesMore(r *visibleNamespaces) bool {
	if r.all {
		return true
	}
	for name := range r.names {
		if ns, ok := v.namespace(name); ok && r.foreign(ns.Labels) {
			return true
		}
	}
	return false
}

// selectors returns selectors that together select all visible namespaces, and maybe others.
func (r *visibleNamespaces) selectors() []labels.Selector {
	if r.all {
		// No selector selects objects that have one of several labels.
		return []labels.Selector{labels.Everything()}
	}
	var parts []labels.Selector
	if len(r.owned) > 0 {
		parts = append(parts, oneOf(v1alpha1.LabelTenant, r.owned))
	}
	return append(parts, oneOf(corev1.LabelMetadataName, slices.Sorted(maps.Keys(r.names))))
}

// ofTenant reports whether a namespace with these labels belongs to a tenant, by any of the
// tenant labels.
func ofTenant(set map[string]string) bool {
	return slices.ContainsFunc(tenantLabels, func(label string) bool { return set[label] != "" })
}

const (
	// namespacePage is the page size of the lists that find the visible namespaces.
	namespacePage = 500
	// metadataList is the media type of a list that has the smallest answer.
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// namespaceVersion is a version of a namespace.
type namespaceVersion struct {
	name, version string
	labels        map[string]string
	// object is the namespace as in an event of a watch: the object itself, or a Table of
	// one row.
	object json.RawMessage
}

// namespaceReader reads namespaces with the proxy's credentials, for one request of a user.
type namespaceReader struct {
	proxy   *Proxy
	request *http.Request
	call    *requestCall
	who     user.Info
}

// readAt reads the visible namespaces in a media type, at the resource version that the query
// asks for, and returns them with that version. It reads all parts at the same version and
// keeps the selectors of the query.
func (r namespaceReader) readAt(ctx context.Context, query url.Values, accept string, visible *visibleNamespaces) (map[string]namespaceVersion, string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seen, version := map[string]namespaceVersion{}, ""
	for _, part := range visible.selectors() {
		one := url.Values{"limit": {strconv.Itoa(namespacePage)}}
		for _, name := range []string{"labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "includeObject"} {
			if len(query[name]) > 0 {
				one[name] = slices.Clone(query[name])
			}
		}
		if version != "" {
			exactly(one, version)
		}
		if err := narrow(one, Selection{Labels: part}); err != nil {
			return nil, "", err
		}
		for more := true; more; {
			page, err := r.page(ctx, one, accept)
			if err != nil {
				return nil, "", err
			}
			version = page.Metadata.ResourceVersion
			namespaces, err := page.namespaces()
			if err != nil {
				return nil, "", err
			}
			for _, m := range namespaces {
				if !visible.sees(m.name, m.labels) {
					continue
				}
				if err := r.call.memory.Take(int64(len(m.object))); err != nil {
					return nil, "", err
				}
				seen[m.name] = m
			}
			one.Del("resourceVersion")
			one.Del("resourceVersionMatch")
			one.Set("continue", page.Metadata.Continue)
			more = page.Metadata.Continue != ""
		}
	}
	return seen, version, nil
}

// exactly sets a query to one resource version.
func exactly(query url.Values, version string) {
	query.Set("resourceVersion", version)
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
}

// page reads one page of a list. Any other answer of the API server is an error.
func (r namespaceReader) page(ctx context.Context, query url.Values, accept string) (*page, error) {
	out, err := r.proxy.ownRequest(ctx, r.request, r.call, r.who, query)
	if err != nil {
		return nil, err
	}
	out.Header.Set("Accept", accept)
	out.Header.Del("Accept-Encoding")
	answer, err := r.proxy.readAll(out, r.call.memory)
	if err != nil {
		return nil, err
	}
	// The objects that are kept are copies, so the text itself is released.
	defer func() { _ = r.call.memory.Take(-int64(len(answer.body))) }()
	if answer.status != http.StatusOK {
		status := &apierrors.StatusError{}
		if err := json.Unmarshal(answer.body, &status.ErrStatus); err != nil || status.ErrStatus.Code == 0 {
			return nil, fmt.Errorf("the API server answers a list with %d", answer.status)
		}
		return nil, refuse("list", status)
	}
	list := &page{}
	if err := json.Unmarshal(answer.body, list); err != nil {
		return nil, fmt.Errorf("cannot read a list of namespaces: %w", err)
	}
	return list, nil
}

// page is a list or a Table in JSON.
type page struct {
	Kind       string
	APIVersion string
	Metadata   metav1.ListMeta
	Items      []map[string]json.RawMessage
	Rows       []json.RawMessage
}

// namespaces returns the objects of a page, in the form in which an event would hold them.
func (p *page) namespaces() ([]namespaceVersion, error) {
	var all []namespaceVersion
	add := func(object any) error {
		raw, err := json.Marshal(object)
		if err != nil {
			return err
		}
		m, err := readNamespaceVersion(raw)
		if err == nil && m.name == "" {
			err = errNameless
		}
		all = append(all, m)
		return err
	}
	for _, item := range p.Items {
		// The items of a list have no kind and no apiVersion.
		for name, value := range map[string]string{"kind": listed(p.Kind), "apiVersion": p.APIVersion} {
			text, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			item[name] = text
		}
		if err := add(item); err != nil {
			return nil, err
		}
	}
	for _, row := range p.Rows {
		if err := add(map[string]any{
			"kind": p.Kind, "apiVersion": p.APIVersion, "metadata": struct{}{}, "columnDefinitions": nil, "rows": []json.RawMessage{row},
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// listed returns the kind of the items of a list kind.
func listed(kind string) string {
	const suffix = "List"
	if len(kind) > len(suffix) && kind[len(kind)-len(suffix):] == suffix {
		return kind[:len(kind)-len(suffix)]
	}
	return kind
}

var errNameless = errors.New("cannot find the name of the namespace in an event or in a list")

// readNamespaceVersion reads the object of an event. The name is "" in a bookmark.
func readNamespaceVersion(raw json.RawMessage) (namespaceVersion, error) {
	type meta struct {
		Metadata struct {
			Name            string
			ResourceVersion string
			Labels          map[string]string
		}
	}
	var object struct {
		meta
		Rows []struct{ Object meta }
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return namespaceVersion{}, fmt.Errorf("cannot read a namespace: %w", err)
	}
	if len(object.Rows) > 1 {
		return namespaceVersion{}, errNameless
	}
	found := object.meta
	if len(object.Rows) == 1 {
		found = object.Rows[0].Object
	}
	return namespaceVersion{found.Metadata.Name, found.Metadata.ResourceVersion, found.Metadata.Labels, raw}, nil
}

// selectByName changes a query so that it selects the visible namespaces by name, at the resource
// version at which they were found. So the list is complete at its version, and a watch can
// continue from it.
func (r namespaceReader) selectByName(ctx context.Context, query url.Values, visible *visibleNamespaces) error {
	asked := url.Values{}
	for _, name := range []string{"labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch"} {
		if len(query[name]) > 0 {
			asked[name] = query[name]
		}
	}
	token := query.Get("continue")
	if token != "" {
		// All pages have the resource version of the first page.
		version, err := versionOf(token)
		if err != nil {
			return err
		}
		exactly(asked, version)
	}
	seen, version, err := r.readAt(ctx, asked, metadataList, visible)
	if err != nil {
		return err
	}
	if token == "" {
		exactly(query, version)
	}
	return narrow(query, Selection{Labels: oneOf(corev1.LabelMetadataName, slices.Sorted(maps.Keys(seen)))})
}

// versionOf returns the resource version in the API server's continue token: see
// k8s.io/apiserver/pkg/storage, continue.go. A token without a version means "the rest, at
// the current version". versionOf returns the error for an expired token then.
func versionOf(token string) (string, error) {
	var content struct {
		Version  string `json:"v"`
		Resource int64  `json:"rv"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(raw, &content)
	}
	if err != nil || content.Version != "meta.k8s.io/v1" {
		return "", badRequest("selector", "the parameter continue is not valid: list again from the beginning")
	}
	if content.Resource <= 0 {
		return "", refuse("expired", apierrors.NewResourceExpired("the parameter continue is too old: list again from the beginning"))
	}
	return strconv.FormatInt(content.Resource, 10), nil
}

// namespaces selects the namespaces of the tenants that a user owns, and the tenants'
// namespaces that RBAC lets the user get.
type namespaces struct{ *authorizationCache }

func (namespaces) Resource() schema.GroupResource { return corev1.Resource("namespaces") }

func (n namespaces) Select(who user.Info) Selection {
	r := n.visibleNamespacesOf(who)
	if n.seesMore(r) {
		return Selection{namespaces: r}
	}
	// By label and not by name: the API server has a new namespace before the cache has it.
	return Selection{Labels: oneOf(v1alpha1.LabelTenant, r.owned)}
}
