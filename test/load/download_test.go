package load

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// BenchmarkDownload measures the first `tenure up` on a machine without programs and without a cache:
// it fetches the archive of the local cluster's programs from a server on this machine, verifies the
// checksum and the signature, unpacks it, and starts a cluster. The archive is packed from bin, as
// `make programs` does. "s/again" is the second start, which finds the programs in the cache.
func BenchmarkDownload(b *testing.B) {
	server, key, size := publishPrograms(b)
	home, state := b.TempDir(), stateRoot(b)
	up := func() float64 {
		began := time.Now()
		runTenure(b, home, state, "up", "--detach", "--name=bench", "--programs="+server, "--programs-key="+key)
		took := time.Since(began)
		runTenure(b, home, state, "down", "--name=bench")
		return took.Seconds()
	}
	for b.Loop() {
		b.ReportMetric(size, "MB-archive(max=150)")
		b.ReportMetric(up(), "s/start(max=60)")
		b.ReportMetric(up(), "s/again")
	}
	b.ReportMetric(0, "ns/op")
}

// publishPrograms packs the programs and serves them. It returns the server's address, the file with
// the public key, and the megabytes of the archive.
func publishPrograms(b *testing.B) (address, key string, size float64) {
	b.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		b.Fatal(err)
	}
	dist := b.TempDir()
	pack := exec.CommandContext(b.Context(), "go", "run", "./hack/image", "-programs", binDir(b), "-version", "v0.1.0", "-o", dist)
	pack.Dir = root
	if out, err := pack.CombinedOutput(); err != nil {
		b.Fatalf("cannot pack the programs: %v\n%s", err, out)
	}
	archives, err := filepath.Glob(filepath.Join(dist, "archives", "*"))
	if err != nil || len(archives) != 1 {
		b.Fatalf("the packed files are %v: %v", archives, err)
	}
	content, err := os.ReadFile(archives[0])
	if err != nil {
		b.Fatal(err)
	}
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(content), filepath.Base(archives[0]))
	public, signature := sign(b, sums)
	key = filepath.Join(dist, "cosign.pub")
	for file, content := range map[string][]byte{key: public, filepath.Join(dist, "archives", "SHA256SUMS"): sums, filepath.Join(dist, "archives", "SHA256SUMS.sig"): signature} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(dist, "archives"))))
	b.Cleanup(server.Close)
	return server.URL, key, float64(len(content)) / 1e6
}

// sign signs a text with a new key, as `cosign sign-blob` does. It returns the public key and the
// signature.
func sign(b *testing.B, text []byte) (public, signature []byte) {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.Sum256(text)
	raw, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		b.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		b.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), []byte(base64.StdEncoding.EncodeToString(raw))
}

// runTenure runs a copy of tenure that has no other programs beside it.
func runTenure(b *testing.B, home, state string, args ...string) {
	b.Helper()
	program := filepath.Join(home, "tenure")
	if _, err := os.Stat(program); err != nil {
		content, err := os.ReadFile(filepath.Join(binDir(b), "tenure"))
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(program, content, 0o700); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.CommandContext(b.Context(), program, args...)
	cmd.Env = []string{"HOME=" + home, "TENURE_HOME=" + state, "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("tenure %v: %v\n%s", args, err, out)
	}
}
