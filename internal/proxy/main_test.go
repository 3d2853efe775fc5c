package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

// patience is the maximum time for one step on a busy machine.
const patience = 2 * time.Minute

// setup is a cluster behind a proxy with the rights of config/proxy and no others.
type setup struct {
	admin  client.Client
	rest   *rest.Config // the admin's
	proxy  *Proxy
	server *httptest.Server
}

var shared struct {
	sync.Once
	setup
}

// fixture returns the proxy that all tests share.
func fixture(t testing.TB) *setup {
	t.Helper()
	c := testcluster.Shared(t)
	shared.Do(func() {
		shared.rest = rest.CopyConfig(c.REST)
		shared.rest.QPS = -1
		var err error
		if shared.admin, err = client.New(shared.rest, client.Options{Scheme: scheme}); err != nil {
			t.Fatal(err)
		}
		apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}`)
		apply(t, string(config.CRDs()))
		for crd := range strings.SplitSeq(string(config.CapsuleCRDs()), "---\n") {
			if strings.Contains(crd, "proxysettings") { // two kinds called tenants would confuse kubectl
				apply(t, crd)
			}
		}
		apply(t, string(config.CapsuleRoles()))
		apply(t, string(config.Proxy()))
		apply(t, string(config.ProxyVolumes()))
		shared.proxy = newProxy(t, c.REST, Options{Capsule: true})
		shared.server = serve(shared.proxy)
	})
	return &shared.setup
}

// newProxy returns a running proxy with the rights of its service account.
func newProxy(t testing.TB, admin *rest.Config, o Options) *Proxy {
	t.Helper()
	o.Config = rest.CopyConfig(admin)
	o.Config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:tenure-proxy"}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	// The proxy runs until the process ends: other tests share it.
	if err := p.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return p
}

func serve(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

// apply applies manifests as the admin.
func apply(t testing.TB, manifests string) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	var wanted []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			wanted = append(wanted, o)
		}
	}
	if err := flux.ApplyManifests(context.Background(), shared.rest, wanted); err != nil {
		t.Fatal(err)
	}
}

// account creates a service account and returns a token of it.
func account(t testing.TB, namespace, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{}
	sa.Namespace, sa.Name = namespace, name
	if err := client.IgnoreAlreadyExists(shared.admin.Create(t.Context(), sa)); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := shared.admin.SubResource("token").Create(t.Context(), sa, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// as returns the configuration of a client of the proxy with a token.
func (s *setup) as(token string) *rest.Config {
	return &rest.Config{
		Host: s.server.URL, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// kubeconfig writes a kubeconfig for the proxy with a token, and returns its path.
func (s *setup) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.server.URL, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func newClient(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// list returns the names of the namespaces that a client sees.
func list(t testing.TB, c client.Reader, opts ...client.ListOption) string {
	t.Helper()
	var all corev1.NamespaceList
	if err := c.List(t.Context(), &all, opts...); err != nil {
		return err.Error()
	}
	var names []string
	for _, ns := range all.Items {
		names = append(names, ns.Name)
	}
	return strings.Join(names, " ")
}

// sees waits until a client sees the namespaces: the proxy knows rights and Tenants a
// moment later than the API server.
func sees(t testing.TB, c client.Reader, want string) {
	t.Helper()
	testwait.For(t, "the namespaces to be "+want, patience, func() (bool, string) {
		got := list(t, c)
		return got == want, got
	})
}

func tenant(name string, owners ...string) string {
	return fmt.Sprintf("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: {owners: [%s]}}\n---\n", name, strings.Join(owners, ", "))
}

func namespace(name, tenant string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {tenure.dev/tenant: %s}}}\n---\n", name, tenant)
}

func accountOwner(namespace, name string) string {
	return fmt.Sprintf("{kind: ServiceAccount, namespace: %s, name: %s}", namespace, name)
}

// raw sends a request to the proxy unchanged over HTTP/1.1, and returns the code, the body
// and the header.
func (s *setup) raw(t testing.TB, request *http.Request) (int, string, http.Header) {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableCompression: true,
	}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer response.Body.Close()
	return response.StatusCode, readAll(response), response.Header
}

func (s *setup) request(t testing.TB, method, path, token string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// readAll returns the body of an answer, or the error.
func readAll(response *http.Response) string {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// informOf runs an informer and returns a function that returns the sorted content of its
// store.
func informOf(t *testing.T, informer cache.SharedIndexInformer) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		informer.RunWithContext(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() []string { return slices.Sorted(slices.Values(informer.GetStore().ListKeys())) }
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}
