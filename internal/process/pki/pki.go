// Package pki issues the certificates of one local cluster. An Authority lives as long as its
// cluster; its key is written only where the caller specifies.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Validity is the validity period of certificates. A local cluster should not outlive a
// development cycle; a durable one gets new leaf certificates at every start.
const Validity = 365 * 24 * time.Hour

// backdate tolerates a clock that steps back a little.
const backdate = time.Hour

// Authority is a certificate authority.
type Authority struct {
	// CertPEM is the authority's certificate, PEM encoded.
	CertPEM []byte
	// KeyPEM is the private key of the authority, PKCS #8, PEM encoded. Keep it secret.
	KeyPEM []byte

	cert *x509.Certificate
	key  crypto.Signer
}

// Request describes a certificate. Hosts that parse as IP addresses become IP subject
// alternative names.
type Request struct {
	// CommonName is the subject; for Kubernetes clients the user name.
	CommonName string
	// Organizations are the subject's organizations; for Kubernetes clients
	// the groups.
	Organizations []string
	// Hosts are DNS names and IP addresses. A certificate with hosts may be used by a server and
	// by a client; a certificate without hosts only by a client.
	Hosts []string
}

// Pair is a certificate and its key, PEM encoded.
type Pair struct {
	CertPEM []byte
	KeyPEM  []byte
}

// TLS returns the pair as a crypto/tls certificate. It returns an error if the certificate or
// the key is not valid PEM, or if they do not match.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.CertPEM, p.KeyPEM) }

// NewAuthority returns an authority with a new ECDSA P-256 key. It returns an error if the
// system has no randomness for the key.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make the key of authority %q: %w", commonName, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign authority %q: %w", commonName, err)
	}
	keyPEM, err := EncodeKey(key)
	if err != nil {
		return nil, err
	}
	return LoadAuthority(encodeCert(der), keyPEM)
}

// LoadAuthority reads back an authority from its certificate and key. It returns an error if
// these are not valid PEM, if they do not match, or if the key cannot sign.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("cannot load the authority: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("cannot load the authority: a %T cannot sign", pair.PrivateKey)
	}
	return &Authority{CertPEM: certPEM, KeyPEM: keyPEM, cert: pair.Leaf, key: key}, nil
}

// Issue generates a key and signs a certificate for it. It returns an error if the key cannot
// be generated or the certificate cannot be signed.
func (a *Authority) Issue(r Request) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot make a key for %q: %w", r.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(r.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, h)
	}
	der, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("cannot sign a certificate for %q: %w", r.CommonName, err)
	}
	keyPEM, err := EncodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{CertPEM: encodeCert(der), KeyPEM: keyPEM}, nil
}

// Pool returns a pool that trusts the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// EncodeKey writes a private key as PKCS #8 in PEM. It returns an error for a type of key that
// PKCS #8 does not support.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func sign(template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-backdate)
	template.NotAfter = time.Now().Add(Validity)
	return x509.CreateCertificate(rand.Reader, template, parent, pub, key)
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
