package certs_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process/certs"
	"github.com/tenure-dev/tenure/internal/process/pki"
)

// TestAuthoritiesRotate rotates the authority of clients under a running server.
func TestAuthoritiesRotate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	put := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	former, next := authorityOf(t), authorityOf(t)
	put(former.CertPEM)
	var late atomic.Int64 // what the clock has gone on
	clock := func() time.Time { return start.Add(time.Duration(late.Load())) }
	authorities, err := certs.ReadAuthorities(file, clock)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	pair, err := former.Issue(pki.Request{CommonName: "server"})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}
	authorities.Require(server.TLS, tls.RequireAndVerifyClientCert)
	server.StartTLS()
	t.Cleanup(server.Close)
	both := append(append([]byte(nil), former.CertPEM...), next.CertPEM...)
	for _, tc := range []struct {
		reason       string
		content      []byte
		pause        time.Duration
		former, next bool
	}{
		{"only the first authority", former.CertPEM, time.Minute, true, false},
		{"the next one is added, and the file was read a moment ago", both, time.Second, true, false},
		{"the next one is added", both, time.Minute, true, true},
		{"the file is being written", nil, time.Minute, true, true},
		{"the first one is removed", next.CertPEM, time.Minute, false, true},
		{"the clock goes back, and the first one is there again", both, -time.Hour, true, true},
	} {
		put(tc.content)
		late.Add(int64(tc.pause))
		if got := admits(t, server.URL, former); got != tc.former {
			t.Errorf("%s: a client of the first authority is accepted: %v, want %v", tc.reason, got, tc.former)
		}
		if got := admits(t, server.URL, next); got != tc.next {
			t.Errorf("%s: a client of the next authority is accepted: %v, want %v", tc.reason, got, tc.next)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	late.Add(int64(time.Minute))
	if !admits(t, server.URL, next) {
		t.Error("a client is refused while the file is missing")
	}
	if _, err := certs.ReadAuthorities(file, clock); err == nil {
		t.Error("a server starts without the file")
	}
}

func authorityOf(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("clients")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// admits reports whether a server accepts a new connection of a client of an authority.
func admits(t *testing.T, url string, authority *pki.Authority) bool {
	t.Helper()
	pair, err := authority.Issue(pki.Request{CommonName: "client"})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err == nil {
		_ = response.Body.Close()
	}
	return err == nil
}
