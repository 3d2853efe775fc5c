package ablation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The fleet's proxy has no switch that disables a control, and must not have one. So another proxy with an
// admin's rights runs in front of it. For the requests that one control affects, this proxy behaves like a
// proxy without the control; it forwards all other requests unchanged.

// naive is the proxy in front of the fleet's proxy.
type naive struct {
	admin  client.Client
	api    http.Handler // forwards requests to the API server with an admin's rights
	next   http.Handler // forwards requests unchanged to the fleet's proxy
	world  *http.Client
	takes  fault
	server *http.Server
}

// fault handles the requests that a removed control affects, and reports whether it handled a request.
type fault func(n *naive, w http.ResponseWriter, r *http.Request) bool

// proxyRows returns the rows of the proxy's controls.
func proxyRows() []Row {
	row := func(c Control, attacks ...string) Row {
		return Row{Controls: []Control{c}, Attacks: attacks, Via: catalog.Proxy}
	}
	return []Row{
		row(before("that refuses requests without an identity", "passes requests without a valid token on with its own rights", nobodyFallsThrough), "I14-proxy"),
		row(before("that applies or refuses impersonation", "sends the client's impersonation headers on with its own rights", lendsImpersonation), "I8-proxy", "I14-proxy"),
		row(before("that refuses header names in Connection", "impersonates the caller, and then removes the headers that the client's header Connection names", takesOffHops), "I14-proxy"),
		row(before("that reads as the caller", "reads with its own rights", readsAsItself), "I12-proxy", "I14-proxy", "W2-proxy"),
		row(before("that identifies an account by namespace and name", "identifies an account by its name alone", mistakes(func(_, name string) string { return name })), "I12-proxy"),
		row(before("that never joins namespace and name into one string", "identifies an account by namespace and name as one string", mistakes(func(namespace, name string) string { return namespace + "-" + name })), "I12-proxy"),
		row(before("that connects to one server only", "connects to the address in the client's request", goesElsewhere), "I13-proxy"),
		row(before("that limits the size of a body", "reads bodies of any size to their end", readsWholeBodies), "A8-proxy"),
	}
}

// before returns the control of the proxy that is removed by another proxy in front of it.
func before(name, instead string, takes fault) Control {
	return Control{
		Name: "proxy " + name,
		Away: "another proxy before it " + instead,
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			world := t.opts.Attack.Network
			restore := func(context.Context) error { return nil }
			address, trusted, err := catalog.ProxyAddress(ctx, t.admin)
			if err == nil && address == "" {
				err = errors.New("the fleet has no proxy")
			}
			if err != nil {
				return restore, err
			}
			n, err := t.newNaive(world.Client(), address, trusted)
			if err != nil {
				return restore, err
			}
			n.takes = takes
			at, err := n.serve(ctx, t, address)
			if err != nil {
				return restore, err
			}
			t.opts.Attack.Network = diverted{world, address, at}
			return func(context.Context) error {
				t.opts.Attack.Network = world
				return n.server.Close()
			}, nil
		},
	}
}

// diverted is an outside network in which the address of the fleet's proxy leads to another proxy.
type diverted struct {
	catalog.Outside
	address, to string
}

// Client implements catalog.Outside.
func (d diverted) Client() *http.Client {
	c := d.Outside.Client()
	way, ok := c.Transport.(*http.Transport)
	if !ok {
		return c
	}
	way = way.Clone()
	usual := way.Proxy
	way.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == d.address {
			return nil, nil
		}
		return usual(r)
	}
	way.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == d.address {
			address = d.to
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	c.Transport = way
	return c
}

func (t *target) newNaive(world *http.Client, address string, trusted []byte) (*naive, error) {
	way, ok := world.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("the fleet's proxy cannot be reached from here")
	}
	toProxy := way.Clone()
	toProxy.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	toProxy.TLSClientConfig.RootCAs.AppendCertsFromPEM(trusted)
	toProxy.DisableCompression = true
	powerful, err := rest.TransportFor(t.opts.Attack.Config)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(t.opts.Attack.Config)
	if err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	return &naive{
		admin: t.admin,
		world: world,
		next:  unchanged{address, toProxy},
		api: &httputil.ReverseProxy{
			Transport: powerful,
			ErrorLog:  quiet,
			Rewrite: func(pr *httputil.ProxyRequest) {
				pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = server.Scheme, server.Host, ""
				pr.Out.Header.Del("Authorization")
			},
		},
		server: &http.Server{ErrorLog: quiet, ReadHeaderTimeout: patience},
	}, nil
}

// serve listens on loopback with the certificate of the fleet's proxy, and returns the address.
func (n *naive) serve(ctx context.Context, t *target, address string) (string, error) {
	namespace := strings.Split(address, ".")[1]
	var pair corev1.Secret
	if err := t.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "tenure-proxy-own"}, &pair); err != nil {
		return "", fmt.Errorf("cannot read the certificate of the proxy: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Data[corev1.TLSCertKey], pair.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return "", fmt.Errorf("cannot use the certificate of the proxy: %w", err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return "", err
	}
	n.server.Handler = n
	go func() { _ = n.server.Serve(listener) }()
	return listener.Addr().String(), nil
}

// ServeHTTP implements http.Handler.
func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !n.takes(n, w, r) {
		n.next.ServeHTTP(w, r)
	}
}

// unchanged forwards requests unchanged. A reverse proxy of the standard library removes headers, and the
// attacks depend on headers.
type unchanged struct {
	address string
	way     http.RoundTripper
}

// ServeHTTP implements http.Handler.
func (u unchanged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if _, address, whole := strings.Cut(path, "://"); whole {
		path = "//" + address
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.URL = "", &url.URL{Scheme: "https", Host: u.address, Opaque: path, RawQuery: query}
	response, err := u.way.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}

// caller asks the API server for the user of the request's token. It returns false if the
// token is invalid.
func (n *naive) caller(r *http.Request) (authenticationv1.UserInfo, bool) {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if token == "" || n.admin.Create(r.Context(), review) != nil {
		return authenticationv1.UserInfo{}, false
	}
	return review.Status.User, review.Status.Authenticated
}

// impersonates reports whether a request has impersonation headers.
func impersonates(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate") {
			return true
		}
	}
	return false
}

func nobodyFallsThrough(n *naive, w http.ResponseWriter, r *http.Request) bool {
	if _, somebody := n.caller(r); somebody || impersonates(r) {
		return false
	}
	n.api.ServeHTTP(w, r)
	return true
}

func lendsImpersonation(n *naive, w http.ResponseWriter, r *http.Request) bool {
	if _, somebody := n.caller(r); !somebody || !impersonates(r) || r.Header.Get("Connection") != "" {
		return false
	}
	n.api.ServeHTTP(w, r)
	return true
}

func takesOffHops(n *naive, w http.ResponseWriter, r *http.Request) bool {
	who, somebody := n.caller(r)
	if !somebody || !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "impersonate") {
		return false
	}
	r.Header.Set("Impersonate-User", who.Username)
	for name := range strings.SplitSeq(r.Header.Get("Connection"), ",") {
		r.Header.Del(strings.TrimSpace(name))
	}
	n.api.ServeHTTP(w, r)
	return true
}

func readsAsItself(n *naive, w http.ResponseWriter, r *http.Request) bool {
	if _, somebody := n.caller(r); !somebody || impersonates(r) || r.Method != http.MethodGet || r.Header.Get("Connection") != "" {
		return false
	}
	n.api.ServeHTTP(w, r)
	return true
}

// mistakes returns the fault of a proxy that compares service accounts as text: it shows a Tenant to an
// account that has the same text as an owner.
func mistakes(text func(namespace, name string) string) fault {
	return func(n *naive, w http.ResponseWriter, r *http.Request) bool {
		who, somebody := n.caller(r)
		name, isAccount := strings.CutPrefix(who.Username, "system:serviceaccount:")
		if !somebody || !isAccount || impersonates(r) || !strings.HasSuffix(r.URL.Path, "/tenants") {
			return false
		}
		namespace, name, _ := strings.Cut(name, ":")
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenantList"))
		if err := n.admin.List(r.Context(), all); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return true
		}
		for _, t := range all.Items {
			owners, _, _ := unstructured.NestedSlice(t.Object, "spec", "owners")
			if slices.ContainsFunc(owners, func(o any) bool {
				owner, _ := o.(map[string]any)
				in, _ := owner["namespace"].(string)
				called, _ := owner["name"].(string)
				return owner["kind"] == rbacv1.ServiceAccountKind && text(in, called) == text(namespace, name)
			}) {
				r.URL.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + t.GetName()}}.Encode()
				n.api.ServeHTTP(w, r)
				return true
			}
		}
		return false
	}
}

func readsWholeBodies(n *naive, w http.ResponseWriter, r *http.Request) bool {
	const limit = 3 << 20
	if _, somebody := n.caller(r); !somebody || r.ContentLength <= limit {
		return false
	}
	if _, err := io.ReadAll(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return true
	}
	w.WriteHeader(http.StatusCreated)
	return true
}

func goesElsewhere(n *naive, w http.ResponseWriter, r *http.Request) bool {
	if !r.URL.IsAbs() {
		return false
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil) //nolint:gosec // that is the fault
	if err != nil {
		return false
	}
	response, err := n.world.Do(request) //nolint:gosec // that is the fault
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return true
	}
	defer response.Body.Close()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
	return true
}
