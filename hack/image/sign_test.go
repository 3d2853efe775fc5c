package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/tenure-dev/tenure/internal/images"
)

// host is a registry of the test's own. Before a request is answered, the test may do so.
type host struct {
	name   string
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func serve(t *testing.T) *host {
	t.Helper()
	handler := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	h := &host{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := h.before.Load(); f != nil && (*f)(w, r) {
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.name = strings.TrimPrefix(server.URL, "http://")
	return h
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key}
}

func (s *signer) public(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// pushTiny builds, signs and pushes a small image.
func pushTiny(t *testing.T, h *host, s *signer, tag string) (*target, *bundle) {
	t.Helper()
	to, err := parseTarget(h.name+"/acme/tiny:"+tag, authn.NewMultiKeychain())
	if err != nil {
		t.Fatal(err)
	}
	all := tinyBundle(t, s, to.tag.Repository.Name())
	if err := to.push(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	return to, all
}

func tinyBundle(t *testing.T, s *signer, repository string) *bundle {
	t.Helper()
	from, b := tiny(t)
	from.repository = repository
	documents, err := from.documents(t.Context(), b, localBuilder)
	if err != nil {
		t.Fatal(err)
	}
	all, err := attach(b, documents, s, repository)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func check(t *testing.T, public []byte, reference, signedAs string) (images.Pin, error) {
	t.Helper()
	key, err := images.ReadKey(public)
	if err != nil {
		t.Fatal(err)
	}
	c := images.Checker{Verifier: key, Keychain: authn.NewMultiKeychain()}
	return c.Check(t.Context(), images.Image{Reference: reference, SignedAs: signedAs})
}

// TestSigned has the signatures verified by the code that verifies Flux's images.
func TestSigned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		// change changes the bundle to push.
		change func(t *testing.T, b *bundle)
		by     func(t *testing.T, s *signer) []byte
		want   error
	}{
		{reason: "both signatures"},
		{reason: "the signature of cosign 2 alone", change: func(_ *testing.T, b *bundle) { b.artifacts = b.artifacts[:2] }},
		{reason: "the bundle of cosign 3 alone", change: func(_ *testing.T, b *bundle) { b.simple = nil }},
		{
			reason: "signed lists of contents approve of nothing", want: images.ErrUntrusted,
			change: func(_ *testing.T, b *bundle) {
				b.simple, b.artifacts = nil, append(b.artifacts[:2], b.artifacts[3:]...)
			},
		},
		{reason: "no signature", want: images.ErrUnsigned, change: func(_ *testing.T, b *bundle) { b.simple, b.artifacts = nil, b.artifacts[:2] }},
		{reason: "another key", want: images.ErrUntrusted, by: func(t *testing.T, _ *signer) []byte { return newSigner(t).public(t) }},
		{
			reason: "another image with the signatures of this one", want: images.ErrUntrusted,
			change: func(t *testing.T, b *bundle) {
				b.index = mutate.Annotations(b.index, map[string]string{"changed": "yes"}).(v1.ImageIndex)
				digest, err := b.index.Digest()
				if err != nil {
					t.Fatal(err)
				}
				b.digest = digest
			},
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			h, s := serve(t), newSigner(t)
			to, err := parseTarget(h.name+"/acme/tiny:v0.1.0", authn.NewMultiKeychain())
			if err != nil {
				t.Fatal(err)
			}
			all := tinyBundle(t, s, to.tag.Repository.Name())
			if tt.change != nil {
				tt.change(t, all)
			}
			if err := to.push(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			public := s.public(t)
			if tt.by != nil {
				public = tt.by(t, s)
			}
			pin, err := check(t, public, to.tag.String(), to.tag.Repository.Name())
			if !errors.Is(err, tt.want) {
				t.Fatalf("got error %v, want %v", err, tt.want)
			}
			if tt.want == nil && pin.Digest != all.digest.String() {
				t.Errorf("the signature is of %s, want %s", pin.Digest, all.digest)
			}
		})
	}
}

// TestSignAgain pushes the same image with one key twice, and with another key.
func TestSignAgain(t *testing.T) {
	t.Parallel()
	h, first, second := serve(t), newSigner(t), newSigner(t)
	signatures := func(to *target, b *bundle) int {
		image, err := remote.Image(to.tag.Tag(simpleTag(b.digest)))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		return len(manifest.Layers)
	}
	to, all := pushTiny(t, h, first, "v0.1.0")
	pushTiny(t, h, first, "v0.1.0")
	if got := signatures(to, all); got != 1 {
		t.Errorf("after two pushes with one key there are %d signatures, want 1", got)
	}
	pushTiny(t, h, second, "v0.1.0")
	if got := signatures(to, all); got != 2 {
		t.Errorf("after a push with another key there are %d signatures, want 2", got)
	}
	for name, s := range map[string]*signer{"first": first, "second": second} {
		if _, err := check(t, s.public(t), to.tag.String(), to.tag.Repository.Name()); err != nil {
			t.Errorf("the signature of the %s key: %v", name, err)
		}
	}
}

// TestReferrers reads the documents and signatures of a pushed image.
func TestReferrers(t *testing.T) {
	t.Parallel()
	h, s := serve(t), newSigner(t)
	to, all := pushTiny(t, h, s, "v0.1.0")
	index, err := remote.Index(to.tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the pushed index is not valid: %v", err)
	}
	at := to.tag.Digest(all.digest.String())
	referrers, err := remote.Referrers(at)
	if err != nil {
		t.Fatal(err)
	}
	list, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, d := range list.Manifests {
		kind, content := readArtifact(t, at, d, all.digest)
		got[kind]++
		if kind == bundleType {
			kind = predicateOf(t, s, content, all.digest)
			got[kind]++
		}
	}
	if diff := cmp.Diff(map[string]int{
		"application/spdx+json": 1, "application/vnd.in-toto+json": 1, bundleType: 3,
		"https://sigstore.dev/cosign/sign/v1": 1, "https://spdx.dev/Document": 1, "https://slsa.dev/provenance/v1": 1,
	}, got); diff != "" {
		t.Errorf("the referrers differ (-want +got):\n%s", diff)
	}
}

// readArtifact returns the type and the content of an artifact that refers to a digest.
func readArtifact(t *testing.T, at name.Digest, d v1.Descriptor, subject v1.Hash) (kind string, content []byte) {
	t.Helper()
	image, err := remote.Image(at.Context().Digest(d.Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest != subject {
		t.Errorf("an artifact refers to %v, want %s", manifest.Subject, subject)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("an artifact has %d blobs, want 1: %v", len(layers), err)
	}
	reader, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if content, err = io.ReadAll(reader); err != nil {
		t.Fatal(err)
	}
	return manifest.ArtifactType, content
}

// predicateOf returns the type of the signed statement in a bundle, after verifying it.
func predicateOf(t *testing.T, s *signer, content []byte, subject v1.Hash) string {
	t.Helper()
	var b struct {
		Envelope struct {
			Payload     []byte `json:"payload"`
			PayloadType string `json:"payloadType"`
			Signatures  []struct {
				Sig []byte `json:"sig"`
			} `json:"signatures"`
		} `json:"dsseEnvelope"`
	}
	var said struct {
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(content, &b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b.Envelope.Payload, &said); err != nil {
		t.Fatal(err)
	}
	signed := sha256.Sum256([]byte("DSSEv1 28 application/vnd.in-toto+json " + strconv.Itoa(len(b.Envelope.Payload)) + " " + string(b.Envelope.Payload)))
	if len(b.Envelope.Signatures) != 1 || !ecdsa.VerifyASN1(&s.key.PublicKey, signed[:], b.Envelope.Signatures[0].Sig) {
		t.Errorf("the signature of the statement %s is not valid", said.PredicateType)
	}
	if len(said.Subject) != 1 || said.Subject[0].Digest["sha256"] != subject.Hex {
		t.Errorf("the statement %s is about %v, want %s", said.PredicateType, said.Subject, subject)
	}
	return said.PredicateType
}

// TestReadSigner reads keys. The library of cosign encrypted the key in testdata, which is
// used only here.
func TestReadSigner(t *testing.T) {
	t.Parallel()
	encrypted, err := os.ReadFile("testdata/cosign.key")
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile("testdata/cosign.pub")
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	own := newSigner(t)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(own.key)
	large, largeErr := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if largeErr != nil {
		t.Fatal(largeErr)
	}
	other, otherErr := x509.MarshalPKCS8PrivateKey(large)
	sec1, sec1Err := x509.MarshalECPrivateKey(own.key)
	costly := []byte(`{"kdf":{"name":"scrypt","params":{"N":1073741824,"r":8,"p":1},"salt":"AA=="},"cipher":{"name":"nacl/secretbox","nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}`)
	for _, tt := range []struct {
		reason         string
		text, password []byte
		public         []byte
		want           error
	}{
		{"a key of cosign's", encrypted, []byte("correct horse"), public, nil},
		{"a key without a password", encode("PRIVATE KEY", pkcs8, err), nil, own.public(t), nil},
		{"a key of openssl's", encode("EC PRIVATE KEY", sec1, sec1Err), nil, own.public(t), nil},
		{"a wrong password", encrypted, []byte("wrong"), nil, errPassword},
		{"no password", encrypted, nil, nil, errPassword},
		{"a public key", public, nil, nil, errKey},
		{"a curve that cosign does not use", encode("PRIVATE KEY", other, otherErr), nil, nil, errKey},
		{"no key", []byte("key"), nil, nil, errKey},
		{"an encrypted key that is none", encode("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("{}"), nil), nil, nil, errKey},
		{"an encrypted key that takes a terabyte of memory", encode("ENCRYPTED SIGSTORE PRIVATE KEY", costly, nil), nil, nil, errKey},
	} {
		s, err := readSigner(tt.text, tt.password)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", tt.reason, err, tt.want)
			continue
		}
		if err == nil && string(s.public(t)) != string(tt.public) {
			t.Errorf("%s: it is another key", tt.reason)
		}
	}
}
