package certs_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process/certs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var (
	names = []string{"tenure-webhook.flux-system.svc"}
	start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// issue returns a certificate like the library's, for any time.
func issue(names []string, now time.Time) (certs.Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certs.Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return certs.Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()}, DNSNames: names,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(90 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return certs.Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return certs.Pair{}, err
	}
	return certs.Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// TestAdvance advances a Bundle every few hours for a year, and checks that clients and
// replicas with older state still work.
func TestAdvance(t *testing.T) {
	t.Parallel()
	bundle, err := certs.Bundle{}.Advance(names, start, issue)
	if err != nil {
		t.Fatal(err)
	}
	if len(bundle.Next.Cert) > 0 {
		t.Error("the first certificate has a successor")
	}
	rotations, before := 0, bundle
	for now := start; now.Before(start.AddDate(1, 0, 0)); {
		if bundle, err = before.Advance(names, now, issue); err != nil {
			t.Fatal(err)
		}
		if err := serves(before.Current, bundle.Trusted, now); err != nil {
			t.Fatalf("%s: a replica that knows the Secret from before is not trusted: %v", now, err)
		}
		if err := serves(bundle.Current, before.Trusted, now); err != nil {
			t.Fatalf("%s: an API server that knows the Secret from before does not trust: %v", now, err)
		}
		if !bytes.Equal(before.Current.Cert, bundle.Current.Cert) {
			rotations++
		}
		if n := bytes.Count(bundle.Trusted, []byte("BEGIN")); n > 2 {
			t.Fatalf("%s: %d authorities are trusted", now, n)
		}
		before = bundle
		now = now.Add(12 * time.Hour)
		if len(bundle.Next.Cert) > 0 {
			now = now.Add(4*time.Minute - 12*time.Hour)
		}
	}
	if rotations != 6 {
		t.Errorf("%d rotations in a year, want one every 60 days", rotations)
	}
}

func serves(pair certs.Pair, trusted []byte, now time.Time) error {
	served, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	_, err = served.Leaf.Verify(x509.VerifyOptions{DNSName: names[0], Roots: roots, CurrentTime: now})
	return err
}

// TestAdvanceClockSkew advances one Secret for a year by two replicas whose clocks differ by an
// hour. An API server with the time between theirs, which knows the Secret of a minute ago, accepts
// the certificate that is served at any time.
func TestAdvanceClockSkew(t *testing.T) {
	t.Parallel()
	const skew = 30 * time.Minute
	var bundle certs.Bundle
	var trusted []byte
	rotations := 0
	for now := start; now.Before(start.AddDate(1, 0, 0)); {
		for _, replica := range []time.Duration{-skew, skew} {
			before := bundle
			var err error
			if bundle, err = before.Advance(names, now.Add(replica), issue); err != nil {
				t.Fatal(err)
			}
			if trusted == nil {
				trusted = bundle.Trusted // the first certificate
			}
			if err := serves(bundle.Current, trusted, now); err != nil {
				t.Fatalf("%s: the API server does not trust what the replica with the skew %s serves: %v", now, replica, err)
			}
			if !bytes.Equal(before.Current.Cert, bundle.Current.Cert) {
				rotations++
			}
		}
		trusted = bundle.Trusted
		now = now.Add(12 * time.Hour)
		if len(bundle.Next.Cert) > 0 {
			now = now.Add(time.Minute - 12*time.Hour)
		}
	}
	if rotations != 7 {
		t.Errorf("%d certificates were served in a year, want the first one and one every 60 days", rotations)
	}
}

// TestAdvanceOtherNames advances one Secret by two replicas with different names, as during a
// rollout, and checks that they agree at once.
func TestAdvanceOtherNames(t *testing.T) {
	t.Parallel()
	var bundle, settled certs.Bundle
	begin := time.Now() // the library uses the real time
	for i := range 5 {
		now := begin.Add(time.Duration(i) * time.Minute)
		for _, name := range []string{"10.0.0.1", "proxy.example.com"} {
			var err error
			if bundle, err = bundle.Advance([]string{name}, now, certs.Issue); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			settled = bundle
		}
		if !bundle.Equal(settled) {
			t.Fatalf("minute %d: the certificate changes, and %d authorities are trusted", i, bytes.Count(bundle.Trusted, []byte("BEGIN")))
		}
	}
}

func TestAdvanceRepairs(t *testing.T) {
	t.Parallel()
	good, err := certs.Bundle{}.Advance(names, start, issue)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		change func(*certs.Bundle)
		at     time.Time
		names  []string
		same   bool
	}{
		{"nothing is wrong", func(*certs.Bundle) {}, start, names, true},
		{"no certificate", func(b *certs.Bundle) { b.Current = certs.Pair{} }, start, names, false},
		{"a key of another", func(b *certs.Bundle) { b.Current.Key = []byte("x") }, start, names, false},
		{"nobody trusts it", func(b *certs.Bundle) { b.Trusted = nil }, start, names, false},
		{"it has ended", func(*certs.Bundle) {}, start.AddDate(1, 0, 0), names, false},
		{"another name", func(*certs.Bundle) {}, start, []string{"other.svc"}, false},
		{"a successor that cannot be read", func(b *certs.Bundle) { b.Next = certs.Pair{Cert: []byte("x")} }, start, names, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bundle := good
			tc.change(&bundle)
			got, err := bundle.Advance(tc.names, tc.at, issue)
			if err != nil {
				t.Fatal(err)
			}
			if same := bytes.Equal(got.Current.Cert, good.Current.Cert); same != tc.same {
				t.Errorf("the same certificate: %v, want %v", same, tc.same)
			}
			if len(got.Next.Cert) > 0 {
				t.Error("there is a successor")
			}
			if again, err := got.Advance(tc.names, tc.at, issue); err != nil || !again.Equal(got) {
				t.Errorf("it changes again: %v", err)
			}
		})
	}
	if _, err := (certs.Bundle{}).Advance(names, start, func([]string, time.Time) (certs.Pair, error) { return certs.Pair{}, errIssue }); !errors.Is(err, errIssue) {
		t.Errorf("got %v, want %v", err, errIssue)
	}
}

var errIssue = errors.New("no entropy")

// TestKeepers rotates a certificate that two replicas share, with a client that trusts the
// published authorities.
func TestKeepers(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "shared"}},
	).Build()
	now := start
	var told []byte
	replica := func() *certs.Keeper {
		return &certs.Keeper{
			Client: c, Namespace: "flux-system", Secret: "shared", Names: names, Issue: issue, Now: func() time.Time { return now },
			Trust: func(_ context.Context, trusted []byte) error { told = trusted; return nil },
		}
	}
	one, two := replica(), replica()
	if err := one.Ready(nil); err == nil {
		t.Error("a replica is ready before it has a certificate")
	}
	call := func(k *certs.Keeper) {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(told)
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{GetCertificate: k.Certificate, MinVersion: tls.VersionTLS13}
		server.StartTLS()
		defer server.Close()
		dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: names[0], Time: func() time.Time { return now }, MinVersion: tls.VersionTLS13}}
		conn, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatalf("%s: a call fails: %v", now, err)
		}
		_ = conn.Close()
	}
	for _, k := range []*certs.Keeper{one, two} {
		if err := k.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := one.Certificate(nil)
	for _, step := range []time.Duration{0, 60 * 24 * time.Hour, 71 * time.Minute, 5 * time.Minute} {
		now = now.Add(step)
		if err := one.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		call(one)
		call(two) // which has not run Keep since
		if err := two.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		call(two)
	}
	last, _ := one.Certificate(nil)
	other, _ := two.Certificate(nil)
	if bytes.Equal(first.Certificate[0], last.Certificate[0]) || !bytes.Equal(last.Certificate[0], other.Certificate[0]) {
		t.Error("the replicas do not serve the same new certificate")
	}
}

// TestKeeperUntold checks that a certificate is not served if its authority cannot be
// published.
func TestKeeperUntold(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "shared"}},
	).Build()
	k := &certs.Keeper{
		Client: c, Namespace: "flux-system", Secret: "shared", Names: names, Issue: issue, Now: func() time.Time { return start },
		Trust: func(context.Context, []byte) error { return errIssue },
	}
	if err := k.Keep(t.Context()); !errors.Is(err, errIssue) {
		t.Errorf("got %v, want %v", err, errIssue)
	}
	if err := k.Ready(nil); err == nil {
		t.Error("it serves a certificate that nobody trusts")
	}
}

// TestIssue checks the certificates that the library issues.
func TestIssue(t *testing.T) {
	t.Parallel()
	bundle, err := certs.Bundle{}.Advance(names, time.Now(), certs.Issue)
	if err != nil {
		t.Fatal(err)
	}
	if err := serves(bundle.Current, bundle.Trusted, time.Now().Add(89*24*time.Hour)); err != nil {
		t.Error(err)
	}
	if err := serves(bundle.Current, bundle.Trusted, time.Now().Add(90*24*time.Hour)); err == nil {
		t.Error("the certificate is valid for more than 90 days")
	}
	// A certificate for addresses must pass its own check; otherwise each check would issue
	// another.
	mixed := []string{"proxy.example.com", "192.0.2.1", "2001:db8::1", "proxy.svc"}
	bundle, err = certs.Bundle{}.Advance(mixed, time.Now(), certs.Issue)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := bundle.Advance(mixed, time.Now(), certs.Issue); err != nil || !again.Equal(bundle) {
		t.Errorf("a certificate with addresses is made again: %v", err)
	}
}
