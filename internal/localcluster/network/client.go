package network

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// clientPatience limits a request of [Network.Client], its body included.
const clientPatience = 10 * time.Second

// Client returns an HTTP client with the network of the cluster's processes: it
// reaches mapped hosts and Services, but nothing else on this machine. It follows no
// redirects. Requests take at most 10 s. The caller should close its idle
// connections after use.
func (n *Network) Client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(n.cfg.CA.CertPEM)
	proxy := &url.URL{Scheme: "http", User: url.UserPassword(proxyUser, n.secret), Host: n.http.Addr().String()}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:           http.ProxyURL(proxy),
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       clientPatience,
	}
}

// Forget removes a handler of [Network.Handle]. A host without any handler is no
// longer mapped.
func (n *Network) Forget(hostname, prefix string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := cleanHost(hostOnly(hostname))
	h := n.hosts[name]
	if h == nil {
		return
	}
	delete(h.handlers, strings.TrimSuffix(prefix, "/"))
	if len(h.handlers) == 0 && h.ssh == nil {
		delete(n.hosts, name)
	}
}
