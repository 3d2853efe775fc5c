package catalog

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addUnapprovedSourceAddress(register func(...Attack)) {
	register(Attack{
		ID: "S9", Via: API,
		Kinds:      []string{"Bucket", "GitRepository", "HelmRepository", "ImageRepository", "OCIRepository", "ResourceSetInputProvider"},
		Slow:       true,
		Title:      "fetches from an address that is not approved, or from inside the cluster, with a source of any kind",
		Controls:   []string{"policy on the addresses of sources"},
		References: []string{"flux2-multi-tenancy: tenancy policies"},
		Fix:        Fix{Advice: "allow sources of tenants by address, with a ValidatingAdmissionPolicy on GitRepository, HelmRepository, OCIRepository, Bucket, ImageRepository and ResourceSetInputProvider, which compares the whole host and refuses spec.proxySecretRef, spec.sts and spec.recurseSubmodules"},
		Run:        fetchesFromAnywhere,
	})
}

// fetchesFromAnywhere tries unapproved addresses, addresses whose host looks like an approved one,
// and approved addresses with a field that leads to another one.
func fetchesFromAnywhere(ctx context.Context, e *Scenario) Finding {
	kinds := map[string]sourceKind{}
	// aimed adds the request for a source of a kind that differs from an accepted source in some fields. If
	// another rule of Tenure refuses a kind of source at every address, a refusal says nothing about
	// addresses.
	var all []request
	add := func(what, apiVersion, kind string, try func(context.Context, *Scenario, *unstructured.Unstructured) error, fields map[string]any) {
		of, known := kinds[kind]
		if !known {
			of = e.sourceKind(ctx, apiVersion, kind)
			kinds[kind] = of
		}
		if of.closed {
			return
		}
		r := request{what: what, aimed: func(ctx context.Context, e *Scenario) error { return try(ctx, e, of.with(e, fields)) }}
		if of.known {
			r.own = creating(func(e *Scenario) *unstructured.Unstructured { return of.with(e, nil) })
		}
		all = append(all, r)
	}
	create := func(ctx context.Context, e *Scenario, u *unstructured.Unstructured) error {
		return creating(func(*Scenario) *unstructured.Unstructured { return u })(ctx, e)
	}
	source := func(what, apiVersion, kind string, fields map[string]any) {
		add(what, apiVersion, kind, create, fields)
	}
	unapproved := func(apiVersion, kind string, where map[string]any) {
		source("have a "+kind+" fetch from an address that is not approved", apiVersion, kind, where)
	}
	unapproved(sourceAPI, "GitRepository", map[string]any{"url": "https://git.unapproved.example.net/any/thing"})
	unapproved(sourceAPI, "HelmRepository", map[string]any{"url": "https://charts.unapproved.example.net", "type": "default"})
	unapproved(sourceAPI, "HelmRepository", map[string]any{"type": "oci", "url": "oci://charts.unapproved.example.net/any"})
	unapproved(sourceAPI, "OCIRepository", map[string]any{"url": "oci://images.unapproved.example.net/any"})
	unapproved(sourceAPI, "Bucket", map[string]any{"endpoint": "buckets.unapproved.example.net", "bucketName": "any"})
	unapproved(imageAPI, "ImageRepository", map[string]any{"image": "images.unapproved.example.net/any"})
	unapproved(operatorAPI, "ResourceSetInputProvider", map[string]any{"type": "ExternalService", "url": "https://inputs.unapproved.example.net/any"})
	source("name a Service of the cluster as a Git host", sourceAPI, "GitRepository", map[string]any{"url": "http://source-controller." + e.Platform + ".svc.cluster.local/any"})
	for _, kind := range []string{"GitRepository", "HelmRepository", "OCIRepository"} {
		address, _ := kinds[kind].spec["url"].(string)
		for _, address := range lookalikes(address) {
			source("have a "+kind+" fetch from a host that looks like an approved one", sourceAPI, kind, map[string]any{"url": address})
		}
	}
	const throughProxy = " fetch through a proxy of its own, which answers for every host"
	// by adds a field to an approved source.
	by := func(what, kind, field string, value any) {
		served := func(ctx context.Context, e *Scenario, u *unstructured.Unstructured) error {
			return ifServed(field, func(*Scenario) *unstructured.Unstructured { return u })(ctx, e)
		}
		add(what, sourceAPI, kind, served, map[string]any{field: value})
	}
	proxy := map[string]any{"name": "any"}
	by("have a GitRepository"+throughProxy, "GitRepository", "proxySecretRef", proxy)
	by("have an OCIRepository"+throughProxy, "OCIRepository", "proxySecretRef", proxy)
	by("have a Bucket"+throughProxy, "Bucket", "proxySecretRef", proxy)
	by("have a GitRepository fetch submodules from any address", "GitRepository", "recurseSubmodules", true)
	by("have a Bucket get its credentials from a Service of the cluster", "Bucket", "sts", map[string]any{
		"provider": "ldap", "endpoint": "https://source-controller." + e.Platform + ".svc.cluster.local",
	})
	if len(all) == 0 {
		return notProven("other rules refuse sources of every kind, so that nothing is known about their addresses")
	}
	return requests(all...)(ctx, e)
}

// sourceKind is a source of the tenant at an approved address. The sources of the attack differ from it.
type sourceKind struct {
	apiVersion, kind string
	spec             map[string]any
	// known is set if an approved address is known. closed is set if a rule about something other than
	// addresses refuses the source.
	known, closed bool
}

// sourceKind returns the source of a kind that the API server accepts: with an approved address and the
// signatures that the platform demands, or else a copy of the tenant's own source.
func (e *Scenario) sourceKind(ctx context.Context, apiVersion, kind string) sourceKind {
	of := sourceKind{apiVersion: apiVersion, kind: kind, spec: map[string]any{"interval": "1h", "suspend": true}}
	if kind == "ResourceSetInputProvider" {
		return of // no list contains approved addresses
	}
	own, approved := e.ownSource(ctx, apiVersion, kind), e.approved(ctx, kind)
	of.known = own != nil || !strings.Contains(fmt.Sprint(approved), ".unapproved.example.net")
	maps.Copy(of.spec, approved)
	maps.Copy(of.spec, e.verification(ctx, kind, approved))
	refusal := e.tryCreate(ctx, of.with(e, nil))
	if refusal == nil {
		of.known = true
		return of
	}
	if own != nil {
		same := of
		same.spec = maps.Clone(own)
		same.spec["suspend"] = true
		if e.tryCreate(ctx, same.with(e, nil)) == nil {
			return same
		}
	}
	_, of.closed = otherRule(ctx, refusal.Error())
	return of
}

// ownSource returns the spec of a source of the tenant, or nil if the tenant has no source of the kind.
func (e *Scenario) ownSource(ctx context.Context, apiVersion, kind string) map[string]any {
	own := &unstructured.UnstructuredList{}
	own.SetGroupVersionKind(object(apiVersion, kind+"List", "", "", nil).GroupVersionKind())
	if err := e.Admin.List(ctx, own, client.InNamespace(e.Namespace), client.Limit(1)); err != nil || len(own.Items) == 0 {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(own.Items[0].Object, "spec")
	return spec
}

// with returns the source with some fields changed.
func (k sourceKind) with(e *Scenario, fields map[string]any) *unstructured.Unstructured {
	spec := maps.Clone(k.spec)
	maps.Copy(spec, fields)
	return object(k.apiVersion, k.kind, e.Namespace, name("s9"), map[string]any{"spec": spec})
}

// lookalikes returns addresses of other hosts that begin like an address.
func lookalikes(address string) []string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil
	}
	longer, user := *u, *u
	longer.Host = u.Hostname() + ".unapproved.example.net"
	user.User, user.Host = url.User(u.Hostname()), "git.unapproved.example.net"
	return []string{longer.String(), user.String()}
}
