package images_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/tenure-dev/tenure/internal/images"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

const sigstoreJS = "^https://github[.]com/sigstore/sigstore-js/"

// testdata returns a file of testdata, such as a bundle of Sigstore's public service or its
// trusted root.
func testdata(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../sigstore/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func keyless(t *testing.T, identity string) *images.Keyless {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	k, err := images.NewKeyless(bin, testdata(t, "trusted-root.json"), images.FluxIssuer, identity)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeyless verifies a bundle of Sigstore's public service with the real program.
func TestKeyless(t *testing.T) {
	t.Parallel()
	bundle := testdata(t, "bundle.json")
	found, err := keyless(t, sigstoreJS).Verify(t.Context(), images.Signature{Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	if !found.InToto || found.Source != "https://github.com/sigstore/sigstore-js" || !strings.Contains(string(found.Payload), "pkg:npm/sigstore@1.3.0") {
		t.Errorf("got %+v", found)
	}
	if _, err := keyless(t, images.FluxIdentity).Verify(t.Context(), images.Signature{Bundle: bundle}); err == nil || !strings.Contains(err.Error(), "identity") {
		t.Errorf("got error %v, want that it is not Flux's", err)
	}
	if _, err := keyless(t, sigstoreJS).Verify(t.Context(), images.Signature{Payload: []byte("x")}); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("got error %v, want that there is no certificate", err)
	}
}

// TestKeylessOfSomethingElse checks that a valid signature of a package does not count for
// an image to which it is attached.
func TestKeylessOfSomethingElse(t *testing.T) {
	t.Parallel()
	h := serve(t)
	digest := h.push(t, app+":v1", index(t))
	h.refer(t, app, digest, 1, testdata(t, "bundle.json"))
	c := images.Checker{Verifier: keyless(t, sigstoreJS), Keychain: authn.NewMultiKeychain()}
	_, err := c.Check(t.Context(), images.Image{Reference: h.name + "/" + app + ":v1", SignedAs: h.name + "/" + app})
	if !errors.Is(err, images.ErrUntrusted) || !strings.Contains(err.Error(), "which is not a signature of an image") {
		t.Errorf("got error %v, want that it is not a signature of an image", err)
	}
}

func TestNewKeyless(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ reason, bin, root, issuer, identity, want string }{
		{"no program", t.TempDir(), "{}", "x", "^x", "is missing"},
		{"no JSON", bin, "x", "x", "^x", "it is no JSON"},
		{"no issuer", bin, "{}", "", "^x", "without an issuer"},
		{"an identity that matches in the middle", bin, "{}", "x", "x", "begins with ^"},
		{"no expression", bin, "{}", "x", "^(", "begins with ^"},
	} {
		if _, err := images.NewKeyless(tt.bin, []byte(tt.root), tt.issuer, tt.identity); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q", tt.reason, err, tt.want)
		}
	}
}

// TestBrokenProgram checks that a signature is not valid if the program fails or writes
// nothing.
func TestBrokenProgram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reason, dir, want string }{
		{"it says why", "why", "no"},
		{"it does not say why", "ends", "ended early"},
		{"it says nothing", "silent", "nothing that can be read"},
		{"it says that nothing was signed", "empty", "nothing that can be read"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			k, err := images.NewKeyless(filepath.Join("testdata", tt.dir), []byte("{}"), "x", "^x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := k.Verify(t.Context(), images.Signature{Payload: []byte("x")}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}
