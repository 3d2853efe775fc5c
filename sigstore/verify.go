package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// request holds a signature and the trusted signers, in the format of internal/images.
type request struct {
	// TrustedRoot is Sigstore's trusted_root.json.
	TrustedRoot []byte `json:"trustedRoot"`
	// Issuer is exact; Identity is a regular expression.
	Issuer   string `json:"issuer"`
	Identity string `json:"identity"`

	// Bundle is a Sigstore bundle. Without it, the other fields hold the signature in the form of
	// cosign 2: the signed payload, the certificate in PEM, and the entry of the transparency log.
	Bundle      []byte `json:"bundle,omitempty"`
	Payload     []byte `json:"payload,omitempty"`
	Signature   []byte `json:"signature,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Log         string `json:"log,omitempty"`
}

// statement is the signed content.
type statement struct {
	Payload []byte `json:"payload"`
	InToto  bool   `json:"inToto"`
	// Source is the repository that the signer's workflow ran for.
	Source string `json:"source"`
}

// witnesses is the number of Sigstore's logs and clocks that must confirm a signature. Sigstore
// runs one of each.
const witnesses = 1

func verifyRequest(r request) (*statement, error) {
	trusted, err := root.NewTrustedRootFromJSON(r.TrustedRoot)
	if err != nil {
		return nil, fmt.Errorf("the trusted root cannot be read: %w", err)
	}
	return r.verify(trusted, verify.WithSignedCertificateTimestamps(witnesses), verify.WithTransparencyLog(witnesses), verify.WithObserverTimestamps(witnesses))
}

func (r request) verify(trusted root.TrustedMaterial, need ...verify.VerifierOption) (*statement, error) {
	if r.Issuer == "" || r.Identity == "" {
		return nil, errors.New("nobody is trusted: issuer and identity are missing")
	}
	identity, err := verify.NewShortCertificateIdentity(r.Issuer, "", "", r.Identity)
	if err != nil {
		return nil, fmt.Errorf("the identity cannot be read: %w", err)
	}
	signed, err := r.entity()
	if err != nil {
		return nil, err
	}
	verifier, err := verify.NewVerifier(trusted, need...)
	if err != nil {
		return nil, fmt.Errorf("the trusted root does not suffice: %w", err)
	}
	content, err := signed.SignatureContent()
	if err != nil {
		return nil, fmt.Errorf("the signature cannot be read: %w", err)
	}
	found := &statement{Payload: r.Payload}
	artifact := verify.WithArtifact(bytes.NewReader(r.Payload))
	if envelope := content.EnvelopeContent(); envelope != nil {
		if r.Payload != nil {
			return nil, errors.New("the signature is of a statement, and another text came with it")
		}
		found.InToto = true
		// The image is named in the statement, which the caller reads.
		artifact = verify.WithoutArtifactUnsafe()
		if found.Payload, err = base64.StdEncoding.DecodeString(envelope.RawEnvelope().Payload); err != nil {
			return nil, fmt.Errorf("the statement cannot be read: %w", err)
		}
	} else if r.Payload == nil {
		return nil, errors.New("the bundle has no statement")
	}
	result, err := verifier.Verify(signed, verify.NewPolicy(artifact, verify.WithCertificateIdentity(identity)))
	if err != nil {
		return nil, err
	}
	if result.Signature == nil || result.Signature.Certificate == nil {
		return nil, errors.New("the signature has no certificate")
	}
	found.Source = result.Signature.Certificate.SourceRepositoryURI
	return found, nil
}

// entity is the signature as the library takes it.
func (r request) entity() (verify.SignedEntity, error) {
	if len(r.Bundle) > 0 {
		b := &bundle.Bundle{}
		if err := b.UnmarshalJSON(r.Bundle); err != nil {
			return nil, fmt.Errorf("the bundle cannot be read: %w", err)
		}
		return b, nil
	}
	if r.Certificate == "" || r.Log == "" {
		return nil, errors.New("the signature has no certificate, or is not in the log: it may be one by a key")
	}
	certificate, _ := pem.Decode([]byte(r.Certificate))
	if certificate == nil {
		return nil, errors.New("the certificate cannot be read")
	}
	entry, err := logEntry(r.Log)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(r.Payload)
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: "application/vnd.dev.sigstore.bundle+json;version=0.1",
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
				// The rest of the chain is the trusted root's.
				Certificates: []*protocommon.X509Certificate{{RawBytes: certificate.Bytes}},
			}},
			TlogEntries: []*protorekor.TransparencyLogEntry{entry},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: digest[:]},
			Signature:     r.Signature,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("the signature cannot be read: %w", err)
	}
	return b, nil
}

// logEntry reads what cosign 2 keeps of the transparency log's answer.
func logEntry(text string) (*protorekor.TransparencyLogEntry, error) {
	var answer struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, fmt.Errorf("the log's answer cannot be read: %w", err)
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(answer.Payload.Body, &kind); err != nil {
		return nil, fmt.Errorf("the log's answer cannot be read: %w", err)
	}
	id, err := hex.DecodeString(answer.Payload.LogID)
	if err != nil {
		return nil, fmt.Errorf("the log's answer cannot be read: %w", err)
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: answer.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		IntegratedTime:    answer.Payload.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: answer.SignedEntryTimestamp},
		CanonicalizedBody: answer.Payload.Body,
	}, nil
}
