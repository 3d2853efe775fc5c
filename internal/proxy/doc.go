// Package proxy stands between tenants and the API server. It answers a few
// cluster-wide reads with what the caller may see of them, so that `kubectl get
// namespaces` works for somebody who may not list all namespaces, and passes
// everything else on as it came.
//
// # What it may do
//
// Little. A request is passed on with the caller's own token: the API server
// authenticates, authorizes and audits the caller itself, and nothing that this
// package gets wrong about such a request gives anybody a right. The proxy has no
// Secrets, impersonates nobody (but for client certificates, see
// [Options.ClientCertificates]) and reads namespaces, Tenants and RBAC.
//
// # What it answers
//
// A read for which there is a [Rule] and which the caller may not do by itself. The
// proxy asks who the caller is, by a SelfSubjectReview with the caller's token, and
// sends the same request as itself with one more selector. What comes back is the
// API server's own answer and is streamed through unread, so tables, protobuf,
// pages, resource versions and bookmarks are what they always are.
//
// docs/design/proxy.md says why it is so.
package proxy
