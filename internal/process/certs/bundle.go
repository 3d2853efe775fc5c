// Package certs issues and rotates the serving certificate of the webhook or the proxy. All
// replicas share the certificate in one Secret, and callers get the authorities to trust.
//
// Each certificate has its own authority, whose key is discarded, so that the authority cannot
// issue another certificate. A new certificate is trusted for some time before it is served,
// and the old one as long as it is valid. So no call fails during a rotation, even if a
// replica or a caller sees the change late.
//
// Libraries for this keep the key of the authority, and remove the trust in the old
// certificate at the moment when they start to serve the new one.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

const (
	// validity is the validity period of a certificate.
	validity = 90 * 24 * time.Hour
	// renewal is the remaining validity at which a certificate gets a successor.
	renewal = 30 * 24 * time.Hour
	// backdated is how far certificates begin in the past, to allow for clock skew: see the
	// library.
	backdated = time.Hour
	// settling is how long a certificate is trusted before it is served, so that every caller has
	// the new trust by then, also if the replica that issued it has a clock that is an hour slow.
	settling = backdated + 10*time.Minute
)

// Pair is a serving certificate, its authority's behind it, and its key: PEM.
type Pair struct{ Cert, Key []byte }

// Bundle is the content of the Secret.
type Bundle struct {
	// Current is the certificate that is served.
	Current Pair
	// Next is the certificate that will be served, or empty.
	Next Pair
	// Trusted are the authorities of the certificates that may be served, in PEM.
	Trusted []byte
}

// Issue returns a new certificate for DNS names and IP addresses, at least one. It is valid
// from now on for 90 days. It returns an error if the certificate cannot be generated.
func Issue(names []string, _ time.Time) (Pair, error) {
	options := certutil.SelfSignedCertKeyOptions{Host: names[0], MaxAge: validity}
	for _, name := range names[1:] {
		if ip := net.ParseIP(name); ip != nil {
			options.AlternateIPs = append(options.AlternateIPs, ip)
			continue
		}
		options.AlternateDNS = append(options.AlternateDNS, name)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(options)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot make a certificate: %w", err)
	}
	return Pair{Cert: cert, Key: key}, nil
}

// Advance returns the new content of the Secret: with a first certificate, with a successor
// that is trusted but not served yet, or with the successor in place of the current
// certificate. It replaces an unusable certificate; the new one keeps the names of the old one
// unless that has expired. It returns the error of issue, if issue fails.
func (b Bundle) Advance(names []string, now time.Time, issue func([]string, time.Time) (Pair, error)) (Bundle, error) {
	b.Trusted = stillValid(b.Trusted, now)
	current, err := b.Current.check(names, b.Trusted, now)
	if next, nextErr := b.Next.check(names, b.Trusted, now); nextErr == nil {
		if err != nil || !now.Before(next.NotBefore.Add(backdated+settling)) {
			b.Current, b.Next = b.Next, Pair{}
			return b, nil
		}
		return b, nil
	}
	b.Next = Pair{}
	if err == nil && now.Before(current.NotAfter.Add(-renewal)) {
		return b, nil
	}
	if err != nil {
		names = b.Current.withNames(names, now)
	}
	made, issueErr := issue(names, now)
	if issueErr != nil {
		return Bundle{}, issueErr
	}
	b.Trusted = append(bytes.Clone(b.Trusted), authority(made.Cert)...)
	if err != nil {
		b.Current = made
		return b, nil
	}
	b.Next = made
	return b, nil
}

// Equal reports whether two Bundles are equal.
func (b Bundle) Equal(o Bundle) bool {
	return bytes.Equal(b.Current.Cert, o.Current.Cert) && bytes.Equal(b.Current.Key, o.Current.Key) &&
		bytes.Equal(b.Next.Cert, o.Next.Cert) && bytes.Equal(b.Next.Key, o.Next.Key) && bytes.Equal(b.Trusted, o.Trusted)
}

// check returns the certificate if a client that trusts the authorities accepts it for all the
// names.
func (p Pair) check(names []string, trusted []byte, now time.Time) (*x509.Certificate, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		return nil, errors.New("cannot use the certificate: nobody trusts it")
	}
	for _, name := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return nil, fmt.Errorf("cannot use the certificate: %w", err)
		}
	}
	return pair.Leaf, nil
}

// withNames returns the names, together with the names of the certificate unless it has
// expired. During a rollout, replicas may have different names; without the old names, they
// would replace each other's certificates. The successor of the certificate no longer has the
// old names.
func (p Pair) withNames(names []string, now time.Time) []string {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil || now.After(pair.Leaf.NotAfter) {
		return names
	}
	all := slices.Clone(names)
	for _, name := range pair.Leaf.DNSNames {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, ip := range pair.Leaf.IPAddresses {
		if name := ip.String(); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// authority returns the last certificate of a chain in PEM.
func authority(chain []byte) []byte {
	var last *pem.Block
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		last = block
	}
	if last == nil {
		return nil
	}
	return pem.EncodeToMemory(last)
}

// stillValid returns the certificates that have not expired.
func stillValid(all []byte, now time.Time) []byte {
	var kept []byte
	for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(cert.NotAfter) {
			kept = append(kept, pem.EncodeToMemory(block)...)
		}
	}
	return kept
}
