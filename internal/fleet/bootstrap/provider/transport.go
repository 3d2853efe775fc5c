package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// responseTimeout bounds the wait for the answer to a request.
const responseTimeout = 30 * time.Second

// transport sends the requests of one [Host], one after the other.
type transport struct {
	base *http.Transport
	host string
	// ctx ends the requests: some methods of the package have no context.
	ctx context.Context
	// status is the status of the last response; 0 if there was none.
	status int
}

func newTransport(c Config) (*transport, error) {
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: responseTimeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if len(c.CA) > 0 {
		base.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !base.TLSClientConfig.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("cannot use the CA certificate of the provider: it is not a certificate in PEM")
		}
	}
	host := c.Hostname
	if c.Kind == GitHub && host == "github.com" {
		host = "api.github.com"
	}
	return &transport{base: base, host: host}, nil
}

// RoundTrip implements [http.RoundTripper]. The requests carry the token, so it refuses to follow a
// redirect to another host or to http.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.status = 0
	if r.URL.Host != t.host || r.URL.Scheme != "https" {
		return nil, fmt.Errorf("%s redirects to %s://%s", t.host, r.URL.Scheme, r.URL.Host)
	}
	response, err := t.base.RoundTrip(r.WithContext(t.ctx))
	if err == nil {
		t.status = response.StatusCode
	}
	return response, err
}
