package catalog

import (
	"context"
	"net/http"
	"strings"
)

// oversized is the size, in bytes, of a body that no API server reads: the API server's limit is 3 MiB.
const oversized = 3<<20 + 1024

func addOversizedBodyProxy(register func(...Attack)) {
	register(Attack{
		ID: "A8", Via: Proxy,
		Kinds:    []string{},
		Title:    "makes the proxy buffer a request body that is larger than any object, in memory that other tenants need",
		Controls: []string{"the proxy, which limits the size of a body before it reads it"},
		Fix:      Fix{Advice: proxyAdvice + ": it limits what it buffers for one request, for one user and in total"},
		Run: onProxy(func(_ context.Context, c *proxyClient) ([]rawRequest, error) {
			return []rawRequest{c.large()}, nil
		}),
	})
}

// large returns a review that the proxy has to read in order to answer it.
//
// No attack exhausts the proxy's limits for one user or in total: the proxy would then refuse the requests
// of concurrent attacks. The tests of slow clients and of memory in internal/proxy exhaust them.
func (c *proxyClient) large() rawRequest {
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","metadata":{"annotations":{"a8":"`
	return rawRequest{
		what:   "have the proxy hold a body of more than 3 MiB",
		method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", token: c.token,
		body: review + strings.Repeat("a", oversized) + `"}},"spec":{"resourceAttributes":{"verb":"list","resource":"namespaces"}}}`,
	}
}
