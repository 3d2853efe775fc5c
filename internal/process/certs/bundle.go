// Package certs makes, keeps and rotates a certificate of Tenure's own, that of the
// webhook or of the proxy, in one Secret that all replicas share, and tells those who
// call whom to trust.
//
// Each certificate has an authority of its own, whose key is thrown away: nobody
// can make another one. A new one is trusted for a while before it is served, and
// the old one for as long as it is valid, so that no call fails in between,
// however late a replica or a caller learns of it.
//
// Libraries for this keep the key of the authority, and take the old certificate's
// trust away in the same moment in which the new one begins to be served.
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
	// validity is how long a certificate is valid.
	validity = 90 * 24 * time.Hour
	// renewal is how long before its end a certificate gets a successor.
	renewal = 30 * 24 * time.Hour
	// settling is how long a certificate is trusted before it is served: long
	// enough for every caller to have learned of it.
	settling = 10 * time.Minute
	// backdated is how far certificates begin in the past, for clocks that differ:
	// see the library.
	backdated = time.Hour
)

// Pair is a serving certificate, its authority's behind it, and its key: PEM.
type Pair struct{ Cert, Key []byte }

// Bundle is what the Secret holds.
type Bundle struct {
	// Current is what is served.
	Current Pair
	// Next is what will be served, or is empty.
	Next Pair
	// Trusted are the authorities whose certificates may be served. PEM.
	Trusted []byte
}

// Issue makes a certificate for DNS names and IP addresses, at least one, that begins
// now, and is valid for 90 days.
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

// Advance returns what the Secret should hold now: a first certificate, a
// successor that is only trusted yet, or the successor in the place of the one
// that ends. What cannot be used is made anew; if only a name is missing, with the names
// that it has.
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

// Equal says whether two Secrets hold the same.
func (b Bundle) Equal(o Bundle) bool {
	return bytes.Equal(b.Current.Cert, o.Current.Cert) && bytes.Equal(b.Current.Key, o.Current.Key) &&
		bytes.Equal(b.Next.Cert, o.Next.Cert) && bytes.Equal(b.Next.Key, o.Next.Key) && bytes.Equal(b.Trusted, o.Trusted)
}

// check returns the certificate if it can be served under all the names to
// somebody who trusts what is trusted.
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

// withNames returns the names and those of the certificate, unless that has ended: a
// replica that is called by other names, as while a Deployment is on its way, would
// otherwise replace each certificate of this one, and this one all of its. What is not
// a name any more goes with the successor.
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

// authority returns the last certificate of a chain.
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

// stillValid returns the certificates that have not ended.
func stillValid(all []byte, now time.Time) []byte {
	var kept []byte
	for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(cert.NotAfter) {
			kept = append(kept, pem.EncodeToMemory(block)...)
		}
	}
	return kept
}
