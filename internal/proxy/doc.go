// Package proxy is an HTTP proxy between tenants and the API server. It filters a few
// cluster-wide lists and watches, so that `kubectl get namespaces` shows a tenant the
// tenant's own namespaces. It passes all other requests on unchanged.
//
// # Rights of the proxy
//
// The proxy passes a request on with the caller's own token. The API server authenticates,
// authorizes and audits the caller, so that a mistake of this package cannot give a caller
// more rights. The proxy reads namespaces, Tenants, TenancyProfiles, RBAC and the shared
// kinds, and no Secrets except the Secret of its own certificate. It impersonates users for
// client certificates only: see [Options.ClientCertificates].
//
// # Requests that the proxy answers
//
// The proxy answers a list, watch or get to which the caller has no right, if the kind has
// a [Rule] or if objects of the kind are shared with the caller. It authenticates the
// caller by a SelfSubjectReview with the caller's token, adds a selector to the request,
// and sends the request with its own credentials. It streams the API server's answer
// without parsing it, so that tables, protobuf, pages, resource versions and bookmarks stay
// unchanged. It parses lists and events of namespaces only for a user who also sees
// namespaces of other tenants, because no single selector selects these namespaces.
//
// Package fanout answers lists and watches in all namespaces with the caller's own token.
//
// A request passes a chain of filters, which filters.go names in order. docs/design/walks.md
// tells which files a request takes, and docs/design/proxy.md gives the reasons.
package proxy
