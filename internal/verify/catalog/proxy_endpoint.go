package catalog

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// proxyLabels are the labels of all objects of the proxy; see config/proxy.
var proxyLabels = client.MatchingLabels{"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "proxy"}

// ProxyAddress finds the fleet's proxy for tenants. It returns the host and port of its Service,
// and the CA of its certificate in PEM, as in the kubeconfigs of tenants. The address is empty if
// there is no proxy. If there are several, it returns the first by namespace and name. It returns
// an error if Services or the ConfigMap with the CA cannot be read.
func ProxyAddress(ctx context.Context, c client.Reader) (address string, trusted []byte, err error) {
	var services corev1.ServiceList
	if err := c.List(ctx, &services, proxyLabels); err != nil {
		return "", nil, fmt.Errorf("cannot look for a proxy: %w", err)
	}
	if len(services.Items) == 0 || len(services.Items[0].Spec.Ports) == 0 {
		return "", nil, nil
	}
	s := services.Items[0]
	var trust corev1.ConfigMapList
	if err := c.List(ctx, &trust, proxyLabels, client.InNamespace(s.Namespace)); err != nil {
		return "", nil, fmt.Errorf("cannot look for the proxy's authority: %w", err)
	}
	for _, cm := range trust.Items {
		trusted = append(trusted, cm.Data["ca.crt"]...)
	}
	return s.Name + "." + s.Namespace + ".svc:" + strconv.Itoa(int(s.Spec.Ports[0].Port)), trusted, nil
}

// proxyEndpoint is a fleet's proxy for tenants.
type proxyEndpoint struct {
	// address is the host and port of the proxy, and trusted the certificate authority of its certificate.
	address string
	trusted *x509.CertPool
}

// findProxyEndpoint finds the proxy, or returns nil if the fleet has none.
func findProxyEndpoint(ctx context.Context, admin client.Reader) (*proxyEndpoint, error) {
	address, trusted, err := ProxyAddress(ctx, admin)
	if err != nil || address == "" {
		return nil, err
	}
	d := &proxyEndpoint{address: address, trusted: x509.NewCertPool()}
	d.trusted.AppendCertsFromPEM(trusted)
	return d, nil
}

// rawRequest is a request to the proxy that is sent exactly as the attack writes it.
type rawRequest struct {
	// what completes "it could …".
	what string
	// method is GET if it is empty; body is JSON.
	method, body string
	// path is the path with the query, which is sent unchanged. An absolute address begins with two
	// slashes.
	path string
	// token is the bearer token, "" for none.
	token string
	// header are the headers, which are sent in this order and spelling.
	header [][2]string
	// certificate is the client certificate, or nil.
	certificate *tls.Certificate
	// breach reports whether an answer shows that the request got through. It is nil for requests that the
	// proxy must not answer with success at all.
	breach func(context.Context, rawResponse) (bool, error)
}

// rawResponse is an answer of the proxy.
type rawResponse struct {
	code int
	body []byte
}

// ok reports whether the proxy answered a request with success, or switched to another protocol.
func (r rawResponse) ok() bool {
	return r.code >= 200 && r.code < 300 || r.code == http.StatusSwitchingProtocols
}

// maxRawResponse is the maximum number of bytes that are read from an answer.
const maxRawResponse = 16 << 20

// proxyClient sends requests to the proxy with a token.
type proxyClient struct {
	scenario *Scenario
	who      discovery.Account
	token    string
	endpoint *proxyEndpoint
	// transport keeps its connections; [proxyClient.close] closes them.
	transport *http.Client
}

// newProxyClient returns a client that sends requests to the proxy as an account.
func (e *Scenario) newProxyClient(who discovery.Account, token string) (*proxyClient, error) {
	way, err := e.proxyEndpoint.client(e.outside, nil)
	return &proxyClient{scenario: e, who: who, token: token, endpoint: e.proxyEndpoint, transport: way}, err
}

func (c *proxyClient) close() { c.transport.CloseIdleConnections() }

// tokenOf creates a token of an account, as Kubernetes does for a Pod of the account. It is valid for ten
// minutes, the minimum.
func (e *Scenario) tokenOf(ctx context.Context, account discovery.Account, spec authenticationv1.TokenRequestSpec) (string, error) {
	spec.ExpirationSeconds = new(int64(600))
	request := &authenticationv1.TokenRequest{Spec: spec}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := e.Admin.SubResource("token").Create(ctx, of, request); err != nil {
		return "", fmt.Errorf("cannot make a token of %s: %w", account, err)
	}
	return request.Status.Token, nil
}

// self returns the account that attacks.
func (e *Scenario) self() discovery.Account {
	if e.Owner != nil {
		return discovery.Account{Namespace: e.Owner.Namespace, Name: e.Owner.Name}
	}
	return e.Account
}

// client returns a client that sends requests to the proxy as the cluster's processes do. It uses HTTP/1.1,
// which can express all requests of the attacks.
func (d *proxyEndpoint) client(outside Outside, certificate *tls.Certificate) (*http.Client, error) {
	c := outside.Client()
	way, ok := c.Transport.(*http.Transport)
	if !ok {
		return nil, errNoOutside
	}
	way = way.Clone()
	way.TLSClientConfig = &tls.Config{RootCAs: d.trusted, MinVersion: tls.VersionTLS12}
	if certificate != nil {
		way.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	}
	way.DisableCompression = true
	c.Transport = way
	return c, nil
}

// send sends one request and reads the answer.
func (c *proxyClient) send(ctx context.Context, k rawRequest) (rawResponse, error) {
	way := c.transport
	if k.certificate != nil {
		own, err := c.endpoint.client(c.scenario.outside, k.certificate)
		if err != nil {
			return rawResponse{}, err
		}
		defer own.CloseIdleConnections()
		way = own
	}
	path, query, _ := strings.Cut(k.path, "?")
	request := (&http.Request{
		Method: cmp.Or(k.method, http.MethodGet),
		URL:    &url.URL{Scheme: "https", Host: c.endpoint.address, Opaque: path, RawQuery: query},
		Header: http.Header{},
	}).WithContext(ctx)
	if k.body != "" {
		// The transport opens a new connection if the proxy has closed the old one.
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(k.body)), nil }
		request.Body, request.ContentLength = io.NopCloser(strings.NewReader(k.body)), int64(len(k.body))
		request.Header.Set("Content-Type", "application/json")
	}
	if k.token != "" {
		request.Header.Set("Authorization", "Bearer "+k.token)
	}
	for _, h := range k.header {
		if h[0] == "Host" {
			request.Host = h[1]
			continue
		}
		request.Header[h[0]] = append(request.Header[h[0]], h[1])
	}
	response, err := way.Do(request)
	if err != nil {
		return rawResponse{}, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return rawResponse{code: response.StatusCode}, nil
	}
	body, err := readRawResponse(response.Body)
	return rawResponse{response.StatusCode, body}, err
}

// initialEvents is the annotation of the bookmark that ends the initial events of a watch.
const initialEvents = "k8s.io/initial-events-end"

// readRawResponse reads an answer to its end, or a watch to the end of its initial events.
func readRawResponse(from io.Reader) ([]byte, error) {
	var body []byte
	buffer := make([]byte, 32<<10)
	for len(body) < maxRawResponse {
		n, err := from.Read(buffer)
		body = append(body, buffer[:n]...)
		tail := body[max(0, len(body)-n-len(initialEvents)):]
		switch {
		case errors.Is(err, io.EOF) || strings.Contains(string(tail), initialEvents):
			return body, nil
		case err != nil:
			return body, err
		}
	}
	return body, fmt.Errorf("the answer is longer than %d bytes", maxRawResponse)
}
