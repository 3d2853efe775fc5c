package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"testing"
	"time"
)

// TestCertificateExpires checks that a client certificate is no credential after its expiry, also on
// a connection that began before, and that its open watches end.
func TestCertificateExpires(t *testing.T) {
	t.Parallel()
	now := time.Now()
	certificate := func(name string, expires time.Time) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: expires}
	}
	later, earlier := now.Add(time.Hour), now.Add(-time.Second)
	for _, tc := range []struct {
		reason string
		chains [][]*x509.Certificate
		valid  bool
	}{
		{"a valid certificate", [][]*x509.Certificate{{certificate("ann", later), certificate("ca", later)}}, true},
		{"an expired certificate", [][]*x509.Certificate{{certificate("ann", earlier), certificate("ca", later)}}, false},
		{"an expired CA", [][]*x509.Certificate{{certificate("ann", later), certificate("ca", earlier)}}, false},
		{"one of two CAs has expired", [][]*x509.Certificate{{certificate("ann", later), certificate("ca", earlier)}, {certificate("ann", later), certificate("ca", later)}}, true},
	} {
		r := &http.Request{Header: http.Header{}, TLS: &tls.ConnectionState{VerifiedChains: tc.chains}}
		got, err := readCredential(r, true)
		if (err == nil) != tc.valid || tc.valid && got.certificateUser.GetName() != "ann" {
			t.Errorf("%s: got %v, %v", tc.reason, got.certificateUser, err)
		}
	}
	p := &Proxy{}
	for expires, want := range map[time.Time]bool{later: false, earlier: true} {
		c := &requestCall{}
		c.credential.certificateUser, _ = userOfCertificate(certificate("ann", expires))
		c.credential.expires = expires
		if got := p.credentialRevoked(t.Context(), c); got != want {
			t.Errorf("a watch of a certificate that expires at %s: revoked is %t", expires, got)
		}
	}
}
