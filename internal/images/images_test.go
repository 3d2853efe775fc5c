package images_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/tenure-dev/tenure/internal/images"
)

const (
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	simpleType = "application/vnd.dev.cosign.simplesigning.v1+json"
)

// signer is a key as `cosign generate-key-pair` creates it.
type signer struct{ key *ecdsa.PrivateKey }

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{key}
}

func (s signer) public(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (s signer) sign(t *testing.T, message []byte) []byte {
	t.Helper()
	digest := sha256.Sum256(message)
	signature, err := ecdsa.SignASN1(rand.Reader, s.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// host is a registry for one test.
type host struct {
	name   string
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// serve starts a registry. The test may answer requests before the registry.
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

func (h *host) push(t *testing.T, reference string, what any) string {
	t.Helper()
	ref, err := name.ParseReference(h.name + "/" + reference)
	if err != nil {
		t.Fatal(err)
	}
	var digest v1.Hash
	switch what := what.(type) {
	case v1.Image:
		if err = remote.Write(ref, what); err == nil {
			digest, err = what.Digest()
		}
	case v1.ImageIndex:
		if err = remote.WriteIndex(ref, what); err == nil {
			digest, err = what.Digest()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// index returns an image for two platforms.
func index(t *testing.T) v1.ImageIndex {
	t.Helper()
	i, err := random.Index(64, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func simple(digest, reference string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, reference, digest)
}

// attach stores a signature under the tag of cosign 2.
func (h *host) attach(t *testing.T, repository, digest string, payload, signature []byte) {
	t.Helper()
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:       static.NewLayer(payload, simpleType),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.push(t, repository+":"+strings.Replace(digest, ":", "-", 1)+".sig", image)
}

func statement(digest, predicate string) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, strings.TrimPrefix(digest, "sha256:"), predicate)
}

func bundle(t *testing.T, payload, signature []byte) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"mediaType":            bundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}},
		"dsseEnvelope": map[string]any{
			"payload": payload, "payloadType": "application/vnd.in-toto+json",
			"signatures": []any{map[string]any{"sig": signature}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func envelope(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload)
}

// refer stores a bundle as cosign 3 does: in an artifact that refers to the image.
func (h *host) refer(t *testing.T, repository, digest string, size int64, bundle []byte) {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	// The registry reads the type of the artifact from its configuration.
	image, err := mutate.Append(mutate.ConfigMediaType(image, bundleType), mutate.Addendum{Layer: static.NewLayer(bundle, bundleType)})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	artifact := mutate.Subject(image, v1.Descriptor{MediaType: types.OCIImageIndex, Digest: hash, Size: size}).(v1.Image)
	h.push(t, repository+":referrer", artifact)
}

const app = "fluxcd/source-controller"

func TestCheck(t *testing.T) {
	t.Parallel()
	trusted, other := newSigner(t), newSigner(t)
	const signType = "https://sigstore.dev/cosign/sign/v1"
	for _, tt := range []struct {
		reason string
		// sign stores signatures of the image with the digest.
		sign func(t *testing.T, h *host, digest string)
		want error
		says string
	}{
		{"signed by the key", func(t *testing.T, h *host, digest string) {
			payload := simple(digest, h.name+"/"+app)
			h.attach(t, app, digest, payload, trusted.sign(t, payload))
		}, nil, ""},
		{"the signature may name the tag", func(t *testing.T, h *host, digest string) {
			payload := simple(digest, h.name+"/"+app+":v1.9.4")
			h.attach(t, app, digest, payload, trusted.sign(t, payload))
		}, nil, ""},
		{"a bundle by the key", func(t *testing.T, h *host, digest string) {
			payload := statement(digest, signType)
			h.refer(t, app, digest, 1, bundle(t, payload, trusted.sign(t, envelope(payload))))
		}, nil, ""},
		{"no signature", func(*testing.T, *host, string) {}, images.ErrUnsigned, "it has no signature"},
		{"another key", func(t *testing.T, h *host, digest string) {
			payload := simple(digest, h.name+"/"+app)
			h.attach(t, app, digest, payload, other.sign(t, payload))
		}, images.ErrUntrusted, "not of the given key"},
		{"a bundle by another key", func(t *testing.T, h *host, digest string) {
			payload := statement(digest, signType)
			h.refer(t, app, digest, 1, bundle(t, payload, other.sign(t, envelope(payload))))
		}, images.ErrUntrusted, "not of the given key"},
		{"the signature of another image", func(t *testing.T, h *host, digest string) {
			payload := simple("sha256:"+strings.Repeat("a", 64), h.name+"/"+app)
			h.attach(t, app, digest, payload, trusted.sign(t, payload))
		}, images.ErrUntrusted, "of another image, sha256:aaa"},
		{"the bundle of another image", func(t *testing.T, h *host, digest string) {
			payload := statement("sha256:"+strings.Repeat("a", 64), signType)
			h.refer(t, app, digest, 1, bundle(t, payload, trusted.sign(t, envelope(payload))))
		}, images.ErrUntrusted, "of another image"},
		{"signed under another name", func(t *testing.T, h *host, digest string) {
			payload := simple(digest, h.name+"/fluxcd/helm-controller")
			h.attach(t, app, digest, payload, trusted.sign(t, payload))
		}, images.ErrUntrusted, "fluxcd/helm-controller, not of"},
		{"the payload was changed", func(t *testing.T, h *host, digest string) {
			signature := trusted.sign(t, simple("sha256:"+strings.Repeat("a", 64), h.name+"/"+app))
			h.attach(t, app, digest, simple(digest, h.name+"/"+app), signature)
		}, images.ErrUntrusted, "not of the given key"},
		{"something else was signed", func(t *testing.T, h *host, digest string) {
			payload := bytes.Replace(simple(digest, h.name+"/"+app), []byte("cosign container image signature"), []byte("a list"), 1)
			h.attach(t, app, digest, payload, trusted.sign(t, payload))
		}, images.ErrUntrusted, `"a list", which is not a signature`},
		{"an attestation approves of nothing", func(t *testing.T, h *host, digest string) {
			payload := statement(digest, "https://spdx.dev/Document")
			h.refer(t, app, digest, 1, bundle(t, payload, trusted.sign(t, envelope(payload))))
		}, images.ErrUntrusted, "which is not a signature of an image"},
		{"a signature that is too long", func(t *testing.T, h *host, digest string) {
			h.attach(t, app, digest, make([]byte, 1<<20+1), nil)
		}, images.ErrUntrusted, "more than 1048576"},
		{"a bundle that is none", func(t *testing.T, h *host, digest string) {
			h.refer(t, app, digest, 1, []byte("[]"))
		}, images.ErrUntrusted, "the bundle cannot be read"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			h := serve(t)
			digest := h.push(t, app+":v1.9.4", index(t))
			tt.sign(t, h, digest)
			pin, err := check(t, trusted, h.name+"/"+app+":v1.9.4", h.name+"/"+app)
			if !errors.Is(err, tt.want) {
				t.Fatalf("got error %v, want %v", err, tt.want)
			}
			if err != nil {
				if !strings.Contains(err.Error(), tt.says) {
					t.Errorf("the error is\n%v\nwant %q in it", err, tt.says)
				}
				return
			}
			if diff := cmp.Diff(images.Pin{Repository: h.name + "/" + app, Tag: "v1.9.4", Digest: digest}, pin); diff != "" {
				t.Errorf("the pin differs (-want +got):\n%s", diff)
			}
		})
	}
}

func check(t *testing.T, trusted signer, reference, signedAs string) (images.Pin, error) {
	t.Helper()
	key, err := images.ReadKey(trusted.public(t))
	if err != nil {
		t.Fatal(err)
	}
	c := images.Checker{Verifier: key, Keychain: authn.NewMultiKeychain()}
	return c.Check(t.Context(), images.Image{Reference: reference, SignedAs: signedAs})
}

// TestCopy checks a copy of an image in a private registry with the signature of the
// original.
func TestCopy(t *testing.T) {
	t.Parallel()
	trusted, h := newSigner(t), serve(t)
	digest := h.push(t, "mirror/source-controller:v1", index(t))
	payload := simple(digest, "registry.example.com/"+app)
	h.attach(t, "mirror/source-controller", digest, payload, trusted.sign(t, payload))
	if _, err := check(t, trusted, h.name+"/mirror/source-controller:v1", "registry.example.com/"+app); err != nil {
		t.Errorf("the copy is refused: %v", err)
	}
	if _, err := check(t, trusted, h.name+"/mirror/source-controller:v1", h.name+"/mirror/source-controller"); !errors.Is(err, images.ErrUntrusted) {
		t.Errorf("got error %v, want that it is signed as the original", err)
	}
}

// TestMovedTag checks that Check reads the tag once, and pins the digest that it verified,
// if the tag moves meanwhile.
func TestMovedTag(t *testing.T) {
	t.Parallel()
	trusted, h := newSigner(t), serve(t)
	digest := h.push(t, app+":v1", index(t))
	payload := simple(digest, h.name+"/"+app)
	h.attach(t, app, digest, payload, trusted.sign(t, payload))
	evil, looks := index(t), 0
	move := func(_ http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/manifests/v1") && r.Method == http.MethodGet:
			looks++
		case strings.HasSuffix(r.URL.Path, ".sig") && r.Method == http.MethodGet:
			h.before.Store(nil)
			h.push(t, app+":v1", evil)
		}
		return false
	}
	h.before.Store(&move)
	pin, err := check(t, trusted, h.name+"/"+app+":v1", h.name+"/"+app)
	if err != nil {
		t.Fatal(err)
	}
	if pin.Digest != digest || looks != 1 {
		t.Errorf("pinned %s after %d looks at the tag, want %s after one", pin.Digest, looks, digest)
	}
	if _, err := check(t, trusted, h.name+"/"+app+":v1", h.name+"/"+app); !errors.Is(err, images.ErrUnsigned) {
		t.Errorf("got error %v, want that what the tag names now has no signature", err)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	trusted := newSigner(t)
	answer := func(status int) *host {
		h := serve(t)
		f := func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			return true
		}
		h.before.Store(&f)
		return h
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct {
		reason, host string
		want         error
	}{
		{"nobody listens", strings.TrimPrefix(gone.URL, "http://"), images.ErrRegistry},
		{"without credentials", answer(http.StatusUnauthorized).name, images.ErrAccess},
		{"with credentials that do not suffice", answer(http.StatusForbidden).name, images.ErrAccess},
		{"an error of the registry", answer(http.StatusInternalServerError).name, images.ErrRegistry},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			key, err := images.ReadKey(trusted.public(t))
			if err != nil {
				t.Fatal(err)
			}
			c := images.Checker{Verifier: key, Keychain: authn.NewMultiKeychain()}
			if _, err := c.Check(ctx, images.Image{Reference: tt.host + "/" + app + ":v1", SignedAs: app}); !errors.Is(err, tt.want) {
				t.Errorf("got error %v, want %v", err, tt.want)
			}
		})
	}
}

// TestSignaturesUnreachable checks that an image is not reported as unsigned if the
// registry returns the image and refuses its signatures.
func TestSignaturesUnreachable(t *testing.T) {
	t.Parallel()
	trusted, h := newSigner(t), serve(t)
	h.push(t, app+":v1", index(t))
	f := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ".sig") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	h.before.Store(&f)
	if _, err := check(t, trusted, h.name+"/"+app+":v1", h.name+"/"+app); !errors.Is(err, images.ErrAccess) {
		t.Errorf("got error %v, want %v", err, images.ErrAccess)
	}
}

func TestReadKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reason, text, want string }{
		{"nothing", "", "no public key in PEM"},
		{"a private key", "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n", "no public key in PEM"},
		{"broken", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot read the key"},
	} {
		if _, err := images.ReadKey([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q", tt.reason, err, tt.want)
		}
	}
}

// FuzzSplit checks that the parts of a reference join to the same reference, and that the
// repository has no tag and no digest.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"a", "registry.example.com:5000/a/b:v1", "a/b@sha256:" + strings.Repeat("a", 64), "a:b@sha256:x", "localhost:1/a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reference string) {
		pin, err := images.Split(reference)
		if err != nil {
			return
		}
		again := pin.String()
		if pin.Digest == "" {
			again = strings.TrimSuffix(again, "@")
		}
		if again != reference {
			t.Errorf("%q became %q", reference, again)
		}
		if at := strings.LastIndex(pin.Repository, ":"); at > strings.LastIndex(pin.Repository, "/") || strings.Contains(pin.Repository, "@") {
			t.Errorf("the repository of %q is %q", reference, pin.Repository)
		}
	})
}
