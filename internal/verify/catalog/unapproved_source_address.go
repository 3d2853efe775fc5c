package catalog

import (
	"context"
	"maps"
	"net/url"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	of := func(apiVersion, kind string, fields ...map[string]any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			spec := map[string]any{"interval": "1h", "suspend": true}
			for _, f := range fields {
				maps.Copy(spec, f)
			}
			return object(apiVersion, kind, e.Namespace, name("s9"), map[string]any{"spec": spec})
		}
	}
	source := func(what, apiVersion, kind string, fields ...map[string]any) request {
		return request{what: what, aimed: creating(of(apiVersion, kind, fields...))}
	}
	// by adds a field to an approved source.
	by := func(what, kind, field string, value any) request {
		return request{what: what, aimed: ifServed(field, of(sourceAPI, kind, e.approved(ctx, kind), map[string]any{field: value}))}
	}
	unapproved := func(apiVersion, kind string, where map[string]any) request {
		return source("have a "+kind+" fetch from an address that is not approved", apiVersion, kind, where)
	}
	all := []request{
		unapproved(sourceAPI, "GitRepository", map[string]any{"url": "https://git.unapproved.example.net/any/thing"}),
		unapproved(sourceAPI, "HelmRepository", map[string]any{"url": "https://charts.unapproved.example.net"}),
		unapproved(sourceAPI, "HelmRepository", map[string]any{"type": "oci", "url": "oci://charts.unapproved.example.net/any"}),
		unapproved(sourceAPI, "OCIRepository", map[string]any{"url": "oci://images.unapproved.example.net/any"}),
		unapproved(sourceAPI, "Bucket", map[string]any{"endpoint": "buckets.unapproved.example.net", "bucketName": "any"}),
		unapproved(imageAPI, "ImageRepository", map[string]any{"image": "images.unapproved.example.net/any"}),
		unapproved(operatorAPI, "ResourceSetInputProvider", map[string]any{"type": "ExternalService", "url": "https://inputs.unapproved.example.net/any"}),
		source("name a Service of the cluster as a Git host", sourceAPI, "GitRepository", map[string]any{"url": "http://source-controller." + e.Platform + ".svc.cluster.local/any"}),
	}
	for _, kind := range []string{"GitRepository", "HelmRepository", "OCIRepository"} {
		approved := e.approved(ctx, kind)
		address, _ := approved["url"].(string)
		for _, address := range lookalikes(address) {
			all = append(all, source("have a "+kind+" fetch from a host that looks like an approved one", sourceAPI, kind, approved, map[string]any{"url": address}))
		}
	}
	const throughProxy = " fetch through a proxy of its own, which answers for every host"
	proxy := map[string]any{"name": "any"}
	return requests(append(all,
		by("have a GitRepository"+throughProxy, "GitRepository", "proxySecretRef", proxy),
		by("have an OCIRepository"+throughProxy, "OCIRepository", "proxySecretRef", proxy),
		by("have a Bucket"+throughProxy, "Bucket", "proxySecretRef", proxy),
		by("have a GitRepository fetch submodules from any address", "GitRepository", "recurseSubmodules", true),
		by("have a Bucket get its credentials from a Service of the cluster", "Bucket", "sts", map[string]any{
			"provider": "ldap", "endpoint": "https://source-controller." + e.Platform + ".svc.cluster.local",
		}),
	)...)(ctx, e)
}

// lookalikes returns addresses of other hosts that begin as an address does.
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
