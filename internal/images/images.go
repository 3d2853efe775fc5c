// Package images verifies the signatures of container images, and returns the digests with which
// they can be pinned.
//
// It looks for signatures in the places to which cosign writes them: the tag sha256-<digest>.sig
// (cosign 2, a "simple signing" document), and the referrers of OCI 1.1 (cosign 3, a Sigstore
// bundle with an in-toto statement). It sends requests to the image's registry only.
//
// It reads the tag once. It then verifies and pins the digest that the tag named: the digest of
// the index, if the image has several platforms.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// The errors of a check.
var (
	// ErrUnsigned reports that the registry has no signature of the image.
	ErrUnsigned = errors.New("it has no signature")
	// ErrUntrusted reports that no trusted signer has signed this image.
	ErrUntrusted = errors.New("no signature of it can be trusted")
	// ErrRegistry reports that a request to the registry failed.
	ErrRegistry = errors.New("the registry does not answer")
	// ErrAccess reports that the registry denies access to this user.
	ErrAccess = errors.New("the registry refuses access")
)

// Signature is an unverified signature that a registry stores for an image.
type Signature struct {
	// Bundle is a Sigstore bundle in JSON. With a bundle, the other fields are empty.
	Bundle []byte
	// Payload is the simple signing document.
	Payload []byte
	// Signature is the signature of the payload.
	Signature []byte
	// Certificate and Chain are in PEM, empty for a signature by a key alone.
	Certificate, Chain string
	// Log is the entry of the transparency log about the signature, in cosign's JSON; empty
	// if there is none.
	Log string
}

// Statement is the content of a verified signature.
type Statement struct {
	// Payload is a simple signing document or, if InToto is true, an in-toto statement.
	Payload []byte
	// InToto is true for an in-toto statement.
	InToto bool
	// Source is the source repository in the signer's certificate; "" if there is no
	// certificate or if the certificate names no repository.
	Source string
}

// Verifier verifies signatures against trusted signers.
type Verifier interface {
	// Verify returns the signed statement, or an error if the signature is not valid or the
	// signer is not trusted.
	Verify(ctx context.Context, s Signature) (Statement, error)
}

// Image is an image to check.
type Image struct {
	// Reference is the reference by which the image is pulled, such as
	// registry.example.com/fluxcd/source-controller:v1.9.4.
	Reference string
	// SignedAs is the repository that the signature has to name. A copy in a private
	// registry has the signature of the original.
	SignedAs string
}

// Pin is an image with a trusted signature.
type Pin struct {
	// Repository is the image without tag and digest, as written.
	Repository string
	// Tag is empty if the reference has none.
	Tag string
	// Digest begins with sha256:.
	Digest string
}

// String returns the image reference for a container.
func (p Pin) String() string {
	if p.Tag == "" {
		return p.Repository + "@" + p.Digest
	}
	return p.Repository + ":" + p.Tag + "@" + p.Digest
}

// Checker checks images.
type Checker struct {
	// Verifier verifies the signatures.
	Verifier Verifier
	// Keychain has the credentials for registries; nil means docker's credentials.
	Keychain authn.Keychain
}

// Check returns the digest of an image if the image has a trusted signature. Otherwise it
// returns an error: one of this package, or another error for an invalid reference, a
// missing image or an unreadable answer.
func (c *Checker) Check(ctx context.Context, image Image) (Pin, error) {
	pin, err := c.check(ctx, image)
	if err != nil {
		return Pin{}, fmt.Errorf("cannot trust %s: %w", image.Reference, err)
	}
	return pin, nil
}

func (c *Checker) check(ctx context.Context, image Image) (Pin, error) {
	pin, err := Split(image.Reference)
	if err != nil {
		return Pin{}, err
	}
	r, err := c.open(image.Reference)
	if err != nil {
		return Pin{}, err
	}
	if pin.Digest, err = r.digest(ctx); err != nil {
		return Pin{}, err
	}
	found, err := r.signatures(ctx, pin.Digest)
	if err != nil {
		return Pin{}, err
	}
	if len(found) == 0 {
		return Pin{}, ErrUnsigned
	}
	var wrong []error
	for _, s := range found {
		statement, err := c.Verifier.Verify(ctx, s)
		if err == nil {
			err = statement.speaksOf(pin.Digest, image.SignedAs)
		}
		if err == nil {
			return pin, nil
		}
		wrong = append(wrong, err)
	}
	return Pin{}, fmt.Errorf("%w: %w", ErrUntrusted, errors.Join(wrong...))
}

// Split splits an image's reference. It does not normalize the repository. It returns an error
// if the reference is not valid.
func Split(reference string) (Pin, error) {
	if _, err := name.ParseReference(reference); err != nil {
		return Pin{}, fmt.Errorf("it is not the name of an image: %w", err)
	}
	repository, digest, _ := strings.Cut(reference, "@")
	p := Pin{Repository: repository, Digest: digest}
	if at := strings.LastIndex(repository, ":"); at > strings.LastIndex(repository, "/") {
		p.Repository, p.Tag = repository[:at], repository[at+1:]
	}
	return p, nil
}

// The types of signed content.
const (
	simpleType    = "cosign container image signature"
	statementType = "https://in-toto.io/Statement/v1"
	// signType is the type of a signature. Attestations, such as an SBOM, have other types:
	// the same signers sign them, and they do not approve the image.
	signType = "https://sigstore.dev/cosign/sign/v1"
)

// speaksOf returns an error unless the statement is about the image with this digest in
// this repository.
func (s Statement) speaksOf(digest, repository string) error {
	if s.InToto {
		return s.statementOf(digest, repository)
	}
	var simple struct {
		Critical struct {
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(s.Payload, &simple); err != nil {
		return fmt.Errorf("the signed content cannot be read: %w", err)
	}
	signed := simple.Critical
	switch {
	case signed.Type != simpleType:
		return fmt.Errorf("the signed content has the type %q, which is not a signature of an image", signed.Type)
	case signed.Image.Digest != digest:
		return fmt.Errorf("the signature is of another image, %s", signed.Image.Digest)
	case !sameRepository(signed.Identity.Reference, repository):
		return fmt.Errorf("the signature is of %s, not of %s", signed.Identity.Reference, repository)
	}
	return nil
}

// statementOf checks an in-toto statement as speaksOf does. Cosign writes no repository
// into the statement, so statementOf compares the source repository in the certificate, if
// there is one.
func (s Statement) statementOf(digest, repository string) error {
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(s.Payload, &statement); err != nil {
		return fmt.Errorf("the signed content cannot be read: %w", err)
	}
	if statement.Type != statementType || statement.PredicateType != signType {
		return fmt.Errorf("the signed content has the type %q, which is not a signature of an image", statement.PredicateType)
	}
	if s.Source != "" && path.Base(s.Source) != path.Base(repository) {
		return fmt.Errorf("the signature was made for %s, not for %s", s.Source, path.Base(repository))
	}
	for _, subject := range statement.Subject {
		if subject.Digest["sha256"] != "" && "sha256:"+subject.Digest["sha256"] == digest {
			return nil
		}
	}
	return errors.New("the signature is of another image")
}

// sameRepository compares the reference in a signature, which may have a tag or a digest, with a
// repository.
func sameRepository(reference, repository string) bool {
	a, err := name.ParseReference(reference)
	if err != nil {
		return false
	}
	b, err := name.NewRepository(repository)
	return err == nil && a.Context().Name() == b.Name()
}
