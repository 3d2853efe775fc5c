package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// namespacesPath is the path of all namespaces.
const namespacesPath = "/api/v1/namespaces"

// serveNewNamespace answers a get of a namespace that does not exist with NotFound, if the caller
// owns a Tenant and may create the namespace: `kubectl apply` gets an object before it creates the
// object. It returns false for all other names, so that the API server answers.
//
// It asks the API server with a dry run of the creation, as the caller. So NotFound tells the
// caller nothing that the caller's own request would not tell. It does so for each name that the
// caller may not get, existing or not: the time of an answer must not tell which names exist.
func (p *Proxy) serveNewNamespace(w http.ResponseWriter, r *http.Request, c *requestCall, who user.Info) (done bool, err error) {
	get := attributes{verb: c.info.Verb, resource: c.info.Resource, name: c.info.Name}
	if len(p.cache.owned(who)) == 0 || within(p.cache, who, get, c.info.Name) {
		return false, nil
	}
	body, err := json.Marshal(corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: c.info.Name},
	})
	if err != nil {
		return true, err
	}
	create := r.Clone(r.Context())
	create.Method, create.URL.Path, create.URL.RawPath, create.URL.RawQuery = http.MethodPost, namespacesPath, "", "dryRun=All"
	create.Body, create.ContentLength, create.TransferEncoding, create.Trailer = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil, nil
	create.Header.Set("Content-Type", runtime.ContentTypeJSON)
	create.Header.Set("Accept", runtime.ContentTypeJSON)
	for _, name := range []string{"Accept-Encoding", "Content-Encoding", "Content-Length", "Expect"} {
		create.Header.Del(name)
	}
	answer := &bufferedResponse{header: http.Header{}, memory: c.memory}
	p.reverseProxy.ServeHTTP(answer, create)
	// The API server's answer to the get does not share the memory.
	c.memory.Close()
	if answer.full != nil || answer.code != http.StatusCreated {
		return false, nil
	}
	w.Header().Set(auditHeader, c.auditID())
	writeStatus(w, r.Header.Get("Accept"), apierrors.NewNotFound(corev1.Resource("namespaces"), c.info.Name).Status())
	return true, nil
}
