package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The types and annotations of cosign.
const (
	bundleType          = "application/vnd.dev.sigstore.bundle.v0.3+json"
	simpleType          = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	contentAnnotation   = "dev.sigstore.bundle.content"
	predicateAnnotation = "dev.sigstore.bundle.predicateType"

	// signPredicate is the predicate type of a signature of an image. Statements of other types
	// describe an image and do not approve it.
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
	statementType = "https://in-toto.io/Statement/v1"
	statementMIME = "application/vnd.in-toto+json"
)

// document is a text about the image.
type document struct {
	file      string          // its name in the folder of the image
	mediaType string          // also the type of the artifact
	predicate string          // type of the statement that is signed
	content   []byte          // content to publish
	says      json.RawMessage // predicate of the statement that is signed
}

// bundle is an image with its documents and signatures.
type bundle struct {
	*built
	attached
	documents []document
}

// attached are the documents and signatures of a manifest, as images.
type attached struct {
	// artifacts are the referrers of the manifest.
	artifacts []v1.Image
	// simple is the signature in the format of cosign 2, or nil without a key.
	simple v1.Image
}

// simpleTag returns the tag under which cosign 2 looks for signatures of a digest.
func simpleTag(digest v1.Hash) string { return strings.Replace(digest.String(), ":", "-", 1) + ".sig" }

// attach adds the referrers: the documents and, with a signer, the signatures of the index and
// of the documents. The signature names the repository.
func attach(b *built, documents []document, s *signer, repository string) (*bundle, error) {
	subject, err := partial.Descriptor(b.index)
	if err != nil {
		return nil, fmt.Errorf("cannot describe the index: %w", err)
	}
	all, err := attachTo(subject, documents, s, repository)
	if err != nil {
		return nil, err
	}
	return &bundle{built: b, attached: *all, documents: documents}, nil
}

// attachTo returns the documents about a manifest and, with a signer, the signatures of the
// manifest and of the documents.
func attachTo(subject *v1.Descriptor, documents []document, s *signer, repository string) (*attached, error) {
	all := &attached{}
	for _, d := range documents {
		artifact, err := newArtifact(d.mediaType, d.content, nil, subject)
		if err != nil {
			return nil, err
		}
		all.artifacts = append(all.artifacts, artifact)
	}
	if s == nil {
		return all, nil
	}
	statements := []document{{predicate: signPredicate, says: json.RawMessage("{}")}}
	for _, d := range append(statements, documents...) {
		signed, err := s.envelope(subject.Digest, d)
		if err != nil {
			return nil, err
		}
		artifact, err := newArtifact(bundleType, signed, map[string]string{contentAnnotation: "dsse-envelope", predicateAnnotation: d.predicate}, subject)
		if err != nil {
			return nil, err
		}
		all.artifacts = append(all.artifacts, artifact)
	}
	var err error
	all.simple, err = s.simple(subject.Digest, repository)
	return all, err
}

// statement returns an in-toto statement about a digest.
func statement(digest v1.Hash, name, predicateType string, predicate json.RawMessage) ([]byte, error) {
	type subject struct {
		Name   string            `json:"name,omitempty"`
		Digest map[string]string `json:"digest"`
	}
	return json.Marshal(struct {
		Type          string          `json:"_type"`
		Subject       []subject       `json:"subject"`
		PredicateType string          `json:"predicateType"`
		Predicate     json.RawMessage `json:"predicate"`
	}{statementType, []subject{{name, map[string]string{digest.Algorithm: digest.Hex}}}, predicateType, predicate})
}

// envelope returns a Sigstore bundle with a signed statement in the format of cosign 3.
func (s *signer) envelope(digest v1.Hash, d document) ([]byte, error) {
	payload, err := statement(digest, "", d.predicate, d.says)
	if err != nil {
		return nil, fmt.Errorf("cannot make the statement: %w", err)
	}
	// The signed bytes of an envelope, by version 1 of the DSSE protocol.
	signature, err := s.sign(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementMIME), statementMIME, len(payload), payload))
	if err != nil {
		return nil, err
	}
	hint, err := s.hint()
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	return json.Marshal(object{
		"mediaType":            bundleType,
		"verificationMaterial": object{"publicKey": object{"hint": hint}},
		"dsseEnvelope": object{
			"payload": payload, "payloadType": statementMIME,
			"signatures": []object{{"sig": signature}},
		},
	})
}

// simple returns an image with the signature of the digest in the format of cosign 2.
func (s *signer) simple(digest v1.Hash, repository string) (v1.Image, error) {
	type object = map[string]any
	payload, err := json.Marshal(object{
		"critical": object{
			"identity": object{"docker-reference": repository},
			"image":    object{"docker-manifest-digest": digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the signature: %w", err)
	}
	signature, err := s.sign(payload)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return addSimple(image, static.NewLayer(payload, simpleType), base64.StdEncoding.EncodeToString(signature))
}

func addSimple(to v1.Image, payload v1.Layer, signature string) (v1.Image, error) {
	return mutate.Append(to, mutate.Addendum{Layer: payload, Annotations: map[string]string{signatureAnnotation: signature}})
}

// merge adds the signatures in from to into, except those that into already has. It returns
// the same image if there is nothing to add.
func merge(into, from v1.Image) (v1.Image, error) {
	there, err := into.Manifest()
	if err != nil {
		return nil, fmt.Errorf("cannot read the signatures: %w", err)
	}
	has := map[string]bool{}
	for _, l := range there.Layers {
		has[l.Annotations[signatureAnnotation]] = true
	}
	manifest, err := from.Manifest()
	if err != nil {
		return nil, fmt.Errorf("cannot read the signatures: %w", err)
	}
	for _, l := range manifest.Layers {
		signature := l.Annotations[signatureAnnotation]
		if has[signature] {
			continue
		}
		payload, err := from.LayerByDigest(l.Digest)
		if err != nil {
			return nil, fmt.Errorf("cannot read the signatures: %w", err)
		}
		if into, err = addSimple(into, payload, signature); err != nil {
			return nil, fmt.Errorf("cannot add a signature: %w", err)
		}
	}
	return into, nil
}

// artifact is a manifest with one blob that refers to another manifest.
type artifact struct {
	manifest []byte
	config   []byte
	blobs    map[v1.Hash]v1.Layer
}

// newArtifact returns an artifact of OCI 1.1. Its type is also the type of its configuration,
// for registries without support for artifactType.
func newArtifact(kind string, content []byte, annotations map[string]string, subject *v1.Descriptor) (v1.Image, error) {
	return pack(v1.Manifest{
		ArtifactType: kind, Annotations: annotations,
		Subject: &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
	}, blob{kind, []byte("{}")}, blob{kind, content})
}

// blob is the configuration or the layer of an artifact.
type blob struct {
	mediaType string
	content   []byte
}

// pack returns an artifact with a configuration and one layer, and the other fields of the
// manifest.
func pack(manifest v1.Manifest, config, layer blob) (v1.Image, error) {
	a := &artifact{config: config.content, blobs: map[v1.Hash]v1.Layer{}}
	manifest.SchemaVersion, manifest.MediaType = 2, types.OCIManifestSchema1
	for _, b := range []blob{config, layer} {
		digest, size, err := v1.SHA256(bytes.NewReader(b.content))
		if err != nil {
			return nil, fmt.Errorf("cannot make an artifact: %w", err)
		}
		a.blobs[digest] = static.NewLayer(b.content, types.MediaType(b.mediaType))
		manifest.Layers = append(manifest.Layers, v1.Descriptor{MediaType: types.MediaType(b.mediaType), Digest: digest, Size: size})
	}
	manifest.Config, manifest.Layers = manifest.Layers[0], manifest.Layers[1:]
	var err error
	if a.manifest, err = json.Marshal(manifest); err != nil {
		return nil, fmt.Errorf("cannot make an artifact: %w", err)
	}
	return partial.CompressedToImage(a)
}

// RawManifest implements [partial.CompressedImageCore].
func (a *artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// RawConfigFile implements [partial.CompressedImageCore].
func (a *artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// MediaType implements [partial.CompressedImageCore].
func (*artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest implements [partial.CompressedImageCore].
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	layer, found := a.blobs[digest]
	if !found {
		return nil, errors.New("the artifact has no such blob")
	}
	return compressed{layer}, nil
}

// compressed hides the methods of a layer for uncompressed content, which it does not have.
type compressed struct{ layer v1.Layer }

func (c compressed) Digest() (v1.Hash, error)            { return c.layer.Digest() }
func (c compressed) Compressed() (io.ReadCloser, error)  { return c.layer.Compressed() }
func (c compressed) Size() (int64, error)                { return c.layer.Size() }
func (c compressed) MediaType() (types.MediaType, error) { return c.layer.MediaType() }
