package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

// errPassword reports that the password of a key is wrong.
var errPassword = errors.New("the password is wrong: set COSIGN_PASSWORD")

// errKey reports that a file is not a private key in cosign's format.
var errKey = errors.New("it is no private key as `cosign generate-key-pair` makes it: ECDSA P-256 in PEM")

// signer signs with a key of cosign's.
type signer struct{ key *ecdsa.PrivateKey }

// readSigner reads a private key in PEM: one of cosign's, which a password protects, or
// PKCS 8 or SEC 1 without a password.
func readSigner(text, password []byte) (*signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errKey
	}
	der := block.Bytes
	switch block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		var err error
		if der, err = decrypt(block.Bytes, password); err != nil {
			return nil, err
		}
	case "EC PRIVATE KEY":
		key, err := x509.ParseECPrivateKey(der)
		if err != nil || key.Curve != elliptic.P256() {
			return nil, errKey
		}
		return &signer{key}, nil
	case "PRIVATE KEY":
	default:
		return nil, errKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errKey
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errKey
	}
	return &signer{key}, nil
}

// Maximum values of scrypt's parameters in a key file. Cosign uses 65536, 8 and 1.
const (
	maxScryptN = 1 << 20
	maxScryptR = 16
	maxScryptP = 4
)

// decrypt opens the content of an encrypted key of cosign's:
// https://github.com/secure-systems-lab/go-securesystemslib, package encrypted.
func decrypt(content, password []byte) ([]byte, error) {
	var sealed struct {
		KDF struct {
			Name   string `json:"name"`
			Params struct {
				N int `json:"N"`
				R int `json:"r"`
				P int `json:"p"`
			} `json:"params"`
			Salt []byte `json:"salt"`
		} `json:"kdf"`
		Cipher struct {
			Name  string `json:"name"`
			Nonce []byte `json:"nonce"`
		} `json:"cipher"`
		Ciphertext []byte `json:"ciphertext"`
	}
	if err := json.Unmarshal(content, &sealed); err != nil {
		return nil, errKey
	}
	params := sealed.KDF.Params
	switch {
	case sealed.KDF.Name != "scrypt" || sealed.Cipher.Name != "nacl/secretbox" || len(sealed.Cipher.Nonce) != 24:
		return nil, errKey
	case params.N > maxScryptN || params.R > maxScryptR || params.P > maxScryptP:
		return nil, fmt.Errorf("%w: deriving the key from the password would take too much memory", errKey)
	}
	derived, err := scrypt.Key(password, sealed.KDF.Salt, params.N, params.R, params.P, 32)
	if err != nil {
		return nil, errKey
	}
	plain, ok := secretbox.Open(nil, sealed.Ciphertext, (*[24]byte)(sealed.Cipher.Nonce), (*[32]byte)(derived))
	if !ok {
		return nil, errPassword
	}
	return plain, nil
}

// sign signs a message. The same message has the same signature (RFC 6979), so that signing an
// image again changes nothing in its registry.
func (s *signer) sign(message []byte) ([]byte, error) {
	digest := sha256.Sum256(message)
	signature, err := s.key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("cannot sign: %w", err)
	}
	return signature, nil
}

// hint names the public key in a bundle, as cosign does.
func (s *signer) hint() (string, error) {
	der, err := s.publicKey()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(digest[:]), nil
}

// publicKey returns the public key: PKIX in DER.
func (s *signer) publicKey() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("cannot sign: %w", err)
	}
	return der, nil
}
