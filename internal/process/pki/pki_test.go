package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func certificate(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	pair, err := p.TLS()
	if err != nil {
		t.Fatalf("certificate and key do not belong together: %v", err)
	}
	return pair.Leaf
}

func TestIssue(t *testing.T) {
	t.Parallel()
	ours, theirs := authority(t), authority(t)
	for name, tc := range map[string]struct {
		reason string
		req    Request
		usage  x509.ExtKeyUsage
		host   string
		by     *Authority
		want   string
	}{
		"Client":        {"Without hosts it is a client.", Request{CommonName: "c"}, x509.ExtKeyUsageClientAuth, "", ours, ""},
		"ClientServes":  {"A client's certificate must not serve.", Request{CommonName: "c"}, x509.ExtKeyUsageServerAuth, "", ours, "incompatible key usage"},
		"ServerByName":  {"A name is a DNS name.", Request{CommonName: "s", Hosts: []string{"a.example"}}, x509.ExtKeyUsageServerAuth, "a.example", ours, ""},
		"ServerByIP":    {"An address is an IP name.", Request{CommonName: "s", Hosts: []string{"127.0.0.1", "::1"}}, x509.ExtKeyUsageServerAuth, "::1", ours, ""},
		"OtherHost":     {"Only the hosts that were named count.", Request{CommonName: "s", Hosts: []string{"a.example"}}, x509.ExtKeyUsageServerAuth, "b.example", ours, "not b.example"},
		"NotCommonName": {"The common name is no host.", Request{CommonName: "b.example", Hosts: []string{"a.example"}}, x509.ExtKeyUsageServerAuth, "b.example", ours, "not b.example"},
		"Stranger":      {"Another authority of the same name signs nothing of ours.", Request{CommonName: "c"}, x509.ExtKeyUsageClientAuth, "", theirs, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair, err := tc.by.Issue(tc.req)
			if err != nil {
				t.Fatal(err)
			}
			_, err = certificate(t, pair).Verify(x509.VerifyOptions{Roots: ours.Pool(), DNSName: tc.host, KeyUsages: []x509.ExtKeyUsage{tc.usage}})
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestIssuedSubject(t *testing.T) {
	t.Parallel()
	pair, err := authority(t).Issue(Request{CommonName: "user", Organizations: []string{"group", "other"}})
	if err != nil {
		t.Fatal(err)
	}
	cert := certificate(t, pair)
	if diff := cmp.Diff([]string{"user", "group", "other"}, append([]string{cert.Subject.CommonName}, cert.Subject.Organization...)); diff != "" {
		t.Errorf("user and groups (-want +got):\n%s", diff)
	}
	if cert.IsCA {
		t.Error("a leaf must not sign others")
	}
	if now := time.Now(); !cert.NotBefore.Before(now) || !cert.NotAfter.After(now.Add(Validity-time.Hour)) {
		t.Errorf("valid from %s to %s, want from before now for %s", cert.NotBefore, cert.NotAfter, Validity)
	}
}

func TestLoadAuthority(t *testing.T) {
	t.Parallel()
	a := authority(t)
	loaded, err := LoadAuthority(a.CertPEM, a.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := loaded.Issue(Request{CommonName: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := certificate(t, pair).Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("what a loaded authority signs is not of the same authority: %v", err)
	}
	for reason, broken := range map[string][2][]byte{
		"no PEM":             {[]byte("x"), a.KeyPEM},
		"nothing":            {nil, nil},
		"a key of another":   {a.CertPEM, authority(t).KeyPEM},
		"cut short":          {a.CertPEM, a.KeyPEM[:len(a.KeyPEM)/2]},
		"a key in its place": {a.KeyPEM, a.KeyPEM},
		"not what it says":   {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), a.KeyPEM},
	} {
		if _, err := LoadAuthority(broken[0], broken[1]); err == nil || !strings.HasPrefix(err.Error(), "cannot load the authority") {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

// FuzzLoadAuthority checks that loading any files yields an error or an authority that can
// sign.
func FuzzLoadAuthority(f *testing.F) {
	a, err := NewAuthority("fuzz")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(a.CertPEM, a.KeyPEM)
	f.Add(a.KeyPEM, a.CertPEM)
	f.Add([]byte{}, []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		loaded, err := LoadAuthority(bytes.Clone(cert), bytes.Clone(key))
		if err != nil {
			return
		}
		if _, err := loaded.Issue(Request{CommonName: "c"}); err != nil {
			t.Errorf("a loaded authority cannot sign: %v", err)
		}
	})
}
