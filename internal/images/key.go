package images

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// minRSA is the minimum length of an RSA key, in bits.
const minRSA = 2048

// Key verifies the signatures of `cosign sign --key` with one public key. It ignores the
// transparency log: the key is trusted at any time.
type Key struct{ public crypto.PublicKey }

// ReadKey reads a public key in PEM: ECDSA, Ed25519, or RSA of 2048 bits or more. It returns an
// error for any other text or key.
func ReadKey(text []byte) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("cannot read the key: it is no public key in PEM, such as cosign.pub")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key: %w", err)
	}
	switch k := public.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSA {
			return nil, fmt.Errorf("cannot trust the key: it has %d bits, and RSA needs %d", k.N.BitLen(), minRSA)
		}
	default:
		return nil, fmt.Errorf("cannot read the key: %T is of no kind that signs images", public)
	}
	return &Key{public: public}, nil
}

// Verify implements [Verifier].
func (k *Key) Verify(_ context.Context, s Signature) (Statement, error) {
	if len(s.Bundle) == 0 {
		if !k.valid(s.Payload, s.Signature) {
			return Statement{}, errors.New("the signature is not of the given key")
		}
		return Statement{Payload: s.Payload}, nil
	}
	var bundle struct {
		Envelope struct {
			Payload     []byte `json:"payload"`
			PayloadType string `json:"payloadType"`
			Signatures  []struct {
				Sig []byte `json:"sig"`
			} `json:"signatures"`
		} `json:"dsseEnvelope"`
	}
	if err := json.Unmarshal(s.Bundle, &bundle); err != nil {
		return Statement{}, fmt.Errorf("the bundle cannot be read: %w", err)
	}
	e := bundle.Envelope
	if e.PayloadType != "application/vnd.in-toto+json" {
		return Statement{}, fmt.Errorf("the bundle has no statement but %q", e.PayloadType)
	}
	// The bytes that are signed, by version 1 of the DSSE protocol.
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
	for _, signature := range e.Signatures {
		if k.valid(signed, signature.Sig) {
			return Statement{Payload: e.Payload, InToto: true}, nil
		}
	}
	return Statement{}, errors.New("the signature is not of the given key")
}

// Signed reports whether the signature was made for the message with the private key of this public
// key, as `cosign sign-blob` makes it.
func (k *Key) Signed(message, signature []byte) bool { return k.valid(message, signature) }

func (k *Key) valid(message, signature []byte) bool {
	digest := sha256.Sum256(message)
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(public, digest[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(public, message, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil
	}
	return false
}
