package images

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The limits on reading a registry, so that a user who can write to it cannot exhaust memory or
// time.
const (
	maxSignatures = 32
	maxSignature  = 1 << 20 // bytes
)

// The media types and annotations of cosign.
const (
	simpleMediaType = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	bundleMediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"

	signatureAnnotation   = "dev.cosignproject.cosign/signature"
	certificateAnnotation = "dev.sigstore.cosign/certificate"
	chainAnnotation       = "dev.sigstore.cosign/chain"
	logAnnotation         = "dev.sigstore.cosign/bundle"
)

// repository is the repository of an image and its signatures.
type repository struct {
	reference name.Reference
	options   []remote.Option
}

func (c *Checker) open(reference string) (*repository, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("it is not the name of an image: %w", err)
	}
	keychain := c.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	return &repository{reference: ref, options: []remote.Option{
		remote.WithAuthFromKeychain(keychain),
		remote.WithUserAgent("tenure"),
	}}, nil
}

func (r *repository) with(ctx context.Context, more ...remote.Option) []remote.Option {
	return append(append([]remote.Option{remote.WithContext(ctx)}, r.options...), more...)
}

// digest returns the digest of the index or, without an index, of the image. It is computed from
// the registry's answer.
func (r *repository) digest(ctx context.Context) (string, error) {
	image, err := remote.Get(r.reference, r.with(ctx)...)
	if err != nil {
		return "", explain(err, r.reference.Context().RegistryStr())
	}
	sum, _, err := v1.SHA256(strings.NewReader(string(image.Manifest)))
	if err != nil {
		return "", fmt.Errorf("cannot compute its digest: %w", err)
	}
	return sum.String(), nil
}

// signatures returns all signatures that the registry has for the digest.
func (r *repository) signatures(ctx context.Context, digest string) ([]Signature, error) {
	simple, err := r.simple(ctx, digest)
	if err != nil {
		return nil, err
	}
	bundles, err := r.bundles(ctx, digest)
	if err != nil {
		return nil, err
	}
	return append(simple, bundles...), nil
}

// simple returns the signatures under the tag that cosign 2 writes.
func (r *repository) simple(ctx context.Context, digest string) ([]Signature, error) {
	tag := r.reference.Context().Tag(strings.Replace(digest, ":", "-", 1) + ".sig")
	image, err := remote.Image(tag, r.with(ctx)...)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, tag.RegistryStr())
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("cannot read its signatures: %w", err)
	}
	var found []Signature
	for _, layer := range manifest.Layers {
		if layer.MediaType != simpleMediaType || len(found) == maxSignatures {
			continue
		}
		payload, err := r.blob(image, layer)
		if err != nil {
			return nil, err
		}
		// A signature that is not base64 is empty and therefore invalid.
		signature, _ := base64.StdEncoding.DecodeString(layer.Annotations[signatureAnnotation])
		found = append(found, Signature{
			Payload: payload, Signature: signature, Log: layer.Annotations[logAnnotation],
			Certificate: layer.Annotations[certificateAnnotation], Chain: layer.Annotations[chainAnnotation],
		})
	}
	return found, nil
}

// bundles returns the signatures among the image's referrers, which cosign 3 writes. If a
// registry does not support referrers, they are under a tag, which the library reads.
func (r *repository) bundles(ctx context.Context, digest string) ([]Signature, error) {
	at := r.reference.Context().Digest(digest)
	index, err := remote.Referrers(at, r.with(ctx)...)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, at.RegistryStr())
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("cannot read its signatures: %w", err)
	}
	var found []Signature
	for _, d := range list.Manifests {
		if d.ArtifactType != bundleMediaType || len(found) == maxSignatures {
			continue
		}
		image, err := remote.Image(at.Context().Digest(d.Digest.String()), r.with(ctx)...)
		if err != nil {
			return nil, explain(err, at.RegistryStr())
		}
		manifest, err := image.Manifest()
		if err != nil {
			return nil, fmt.Errorf("cannot read its signatures: %w", err)
		}
		for _, layer := range manifest.Layers {
			if layer.MediaType != bundleMediaType {
				continue
			}
			bundle, err := r.blob(image, layer)
			if err != nil {
				return nil, err
			}
			found = append(found, Signature{Bundle: bundle})
			break
		}
	}
	return found, nil
}

// blob returns the content of a layer. The library verifies its digest.
func (r *repository) blob(image v1.Image, d v1.Descriptor) ([]byte, error) {
	if d.Size > maxSignature {
		return nil, fmt.Errorf("%w: a signature has %d bytes, more than %d", ErrUntrusted, d.Size, maxSignature)
	}
	layer, err := image.LayerByDigest(d.Digest)
	if err != nil {
		return nil, fmt.Errorf("cannot read its signatures: %w", err)
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, explain(err, r.reference.Context().RegistryStr())
	}
	defer func() { _ = content.Close() }()
	text, err := io.ReadAll(io.LimitReader(content, maxSignature+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read its signatures: %w", err)
	}
	return text, nil
}

// missing reports whether the registry answered that the object does not exist.
func missing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// explain adds a hint to an error of a registry.
func explain(err error, host string) error {
	var answer *transport.Error
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%w: log in with `docker login %s`: %w", ErrAccess, host, err)
	case missing(err):
		return fmt.Errorf("it is not in its registry: %w", err)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: is %s a registry? %w", ErrRegistry, host, err)
	}
	return fmt.Errorf("%w: %w", ErrRegistry, err)
}
