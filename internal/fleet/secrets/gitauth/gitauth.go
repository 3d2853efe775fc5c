// Package gitauth builds the Secret with which Flux reads a private Git repository: an SSH key
// pair with the host's keys, a user with a password, or a token. The fields are the fields of
// `flux create secret git`.
package gitauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// ErrInvalid reports that a value is invalid. The message never contains a secret.
var ErrInvalid = errors.New("cannot be used")

// The algorithms and curves of keys, as Flux names them.
const (
	RSA     = "rsa"
	ECDSA   = "ecdsa"
	Ed25519 = "ed25519"
)

// KeyOptions describe a new key. The zero value is Flux's default, ECDSA on the curve P-384.
type KeyOptions struct {
	// Algorithm is RSA, ECDSA or Ed25519.
	Algorithm string
	// RSABits is from 2048 to 8192, in steps of 8; 0 means 2048.
	RSABits int
	// Curve is p256, p384 or p521.
	Curve string
}

// KeyPair is an SSH key pair.
type KeyPair struct {
	// Private is a PEM block, Public a line of authorized_keys.
	Private, Public []byte
	// Password is the password of the private key, or "".
	Password string
}

// Generate returns a new key pair without a password. It returns an error for an unknown
// algorithm, size or curve.
func Generate(o KeyOptions) (KeyPair, error) {
	key, err := o.generate()
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot make an SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot make an SSH key: %w", err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return KeyPair{}, fmt.Errorf("cannot make an SSH key: %w", err)
	}
	return KeyPair{Private: pem.EncodeToMemory(block), Public: ssh.MarshalAuthorizedKey(public)}, nil
}

func (o KeyOptions) generate() (crypto.Signer, error) {
	switch o.Algorithm {
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case RSA:
		bits := o.RSABits
		if bits == 0 {
			bits = 2048
		}
		if bits < 2048 || bits > 8192 || bits%8 != 0 {
			return nil, fmt.Errorf("%d bits %w: from 2048 to 8192, in steps of 8", bits, ErrInvalid)
		}
		return rsa.GenerateKey(rand.Reader, bits)
	case ECDSA, "":
		curves := map[string]elliptic.Curve{"": elliptic.P384(), "p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521()}
		curve, ok := curves[o.Curve]
		if !ok {
			return nil, fmt.Errorf("the curve %q %w: p256, p384 or p521", o.Curve, ErrInvalid)
		}
		return ecdsa.GenerateKey(curve, rand.Reader)
	}
	return nil, fmt.Errorf("the algorithm %q %w: ecdsa, ed25519 or rsa", o.Algorithm, ErrInvalid)
}

// ParseKey returns the key pair of an existing private key. It does not remove the password of the
// key: Flux takes the password from the Secret. It returns [ErrInvalid] for a key that cannot be
// parsed or whose password is missing.
func ParseKey(private []byte, password string) (KeyPair, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		if password == "" {
			return KeyPair{}, fmt.Errorf("the private key %w without its password", ErrInvalid)
		}
		signer, err = ssh.ParsePrivateKeyWithPassphrase(private, []byte(password))
	} else {
		password = ""
	}
	if err != nil {
		return KeyPair{}, fmt.Errorf("the private key %w: %w", ErrInvalid, err)
	}
	return KeyPair{Private: private, Public: ssh.MarshalAuthorizedKey(signer.PublicKey()), Password: password}, nil
}

// Signer returns a signer for the private key. It returns [ErrInvalid] if the key cannot be
// parsed.
func (k KeyPair) Signer() (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(k.Private)
	if k.Password != "" {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(k.Private, []byte(k.Password))
	}
	if err != nil {
		return nil, fmt.Errorf("the private key %w: %w", ErrInvalid, err)
	}
	return signer, nil
}

// Credentials are the credentials for a repository.
type Credentials struct {
	// Key and KnownHosts are for SSH.
	Key        *KeyPair
	KnownHosts []byte
	// Username and Password are for HTTPS, or Token in their place.
	Username, Password, Token string
	// CA is the authority of the host's certificate, or nil.
	CA []byte
}

// Check returns an error if the credentials do not fit the address. Passwords are never sent
// without TLS.
func (c Credentials) Check(address *url.URL) error {
	switch {
	case address.Scheme == "ssh" && (c.Key == nil || len(c.KnownHosts) == 0):
		return fmt.Errorf("credentials without a key or without the host's keys %w for ssh://%s", ErrInvalid, address.Host)
	case address.Scheme == "ssh" && (c.Username != "" || c.Token != "" || c.Password != "" || c.CA != nil):
		return fmt.Errorf("a user, a token or a CA certificate %w for ssh://%s: they are for https", ErrInvalid, address.Host)
	case address.Scheme == "http":
		return fmt.Errorf("credentials %w for http://%s: they would be sent in clear", ErrInvalid, address.Host)
	case address.Scheme == "https" && c.Key != nil:
		return fmt.Errorf("an SSH key %w for https://%s: use an address that begins with ssh://", ErrInvalid, address.Host)
	case address.Scheme == "https" && c.Token != "" && (c.Username != "" || c.Password != ""):
		return fmt.Errorf("a token and a password together %w: give one of them", ErrInvalid)
	case address.Scheme == "https" && c.Token == "" && (c.Username == "" || c.Password == ""):
		return fmt.Errorf("credentials without a token, or without user and password, %w for https://%s", ErrInvalid, address.Host)
	}
	return nil
}

// Secret returns the Kubernetes object. Its content is not encrypted.
func (c Credentials) Secret(namespace, name string, labels map[string]string) map[string]any {
	data := map[string]any{}
	set := func(key, value string) {
		if value != "" {
			data[key] = value
		}
	}
	if c.Key != nil {
		set("identity", string(c.Key.Private))
		set("identity.pub", string(c.Key.Public))
		set("known_hosts", strings.TrimSpace(string(c.KnownHosts)))
		set("password", c.Key.Password)
	}
	set("username", c.Username)
	if c.Key == nil {
		set("password", c.Password)
	}
	set("bearerToken", c.Token)
	set("ca.crt", string(c.CA))
	metadata := map[string]any{"name": name, "namespace": namespace}
	if len(labels) > 0 {
		sorted := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			sorted[key] = labels[key]
		}
		metadata["labels"] = sorted
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}
}
