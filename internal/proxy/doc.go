// Package proxy is an HTTP proxy between tenants and the API server. It filters a few
// cluster-wide lists and watches, so that `kubectl get namespaces` shows a tenant the
// tenant's own namespaces. It passes all other requests on unchanged.
//
// # Rights of the proxy
//
// The proxy passes a request on with the caller's own token. The API server authenticates,
// authorizes and audits the caller, so that a mistake of this package cannot give a caller
// more rights. The proxy reads namespaces, Tenants and RBAC, and no Secrets. It impersonates
// users for client certificates only: see [Options.ClientCertificates].
//
// # Requests that the proxy answers
//
// The proxy answers a list, watch or get for which a [Rule] exists and to which the caller
// has no right. It authenticates the caller by a SelfSubjectReview with the caller's token,
// adds a selector to the request, and sends the request with its own credentials. It streams
// the API server's answer without parsing it, so that tables, protobuf, pages, resource
// versions and bookmarks stay unchanged.
//
// docs/design/proxy.md gives the reasons.
package proxy
