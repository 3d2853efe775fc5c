package cli_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/rogpeppe/go-internal/testscript"
)

// startRegistry implements the script command `registry KEYFILE IMAGE[=SIGNED-AS]…`. It starts
// a registry with the images, sets $REGISTRY to its address, and writes the public key of the
// signed images.
func startRegistry(ts *testscript.TestScript, _ bool, args []string) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ts.Defer(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	ts.Setenv("REGISTRY", host)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	for _, arg := range args[1:] {
		image, signedAs, signed := strings.Cut(arg, "=")
		content, err := random.Image(64, 1)
		ts.Check(err)
		push := func(reference string, image v1.Image) {
			ref, err := name.ParseReference(reference)
			ts.Check(err)
			ts.Check(remote.Write(ref, image))
		}
		push(host+"/"+image, content)
		if !signed {
			continue
		}
		digest, err := content.Digest()
		ts.Check(err)
		payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"}}`, signedAs, digest)
		sum := sha256.Sum256(payload)
		signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
		ts.Check(err)
		layer := mutate.Addendum{
			Layer:       static.NewLayer(bytes.Clone(payload), "application/vnd.dev.cosign.simplesigning.v1+json"),
			Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
		}
		signatures, err := mutate.Append(empty.Image, layer)
		ts.Check(err)
		repository, _, _ := strings.Cut(image, ":")
		push(host+"/"+repository+":"+strings.Replace(digest.String(), ":", "-", 1)+".sig", signatures)
	}
}
