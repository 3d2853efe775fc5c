package programs

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/tenure-dev/tenure/internal/release"
)

// The archive of the tests.
var ours = "tenure-programs_0.1.0_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.zst"

// published is a folder as a release has it.
type published struct {
	// mu protects the files while they are served.
	mu    sync.Mutex
	t     *testing.T
	key   *ecdsa.PrivateKey
	files map[string][]byte
}

func publish(t *testing.T) *published {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", os.Getenv("XDG_CACHE_HOME"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &published{t: t, key: key, files: map[string][]byte{
		ours: pack(t, tar.TypeReg, "tenure-cluster", "tenure-server"),
		"tenure-programs_0.1.0_plan9_amd64.tar.zst": []byte("for another system"),
		"tenure_0.1.0_linux_amd64.tar.gz":           []byte("another program"),
	}}
	p.sum()
	p.sign()
	return p
}

// pack returns an archive whose files have their names as the content.
func pack(t *testing.T, kind byte, names ...string) []byte {
	t.Helper()
	var packed bytes.Buffer
	compressor, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(compressor)
	for _, name := range names {
		header := &tar.Header{Name: name, Typeflag: kind, Mode: 0o755, Size: int64(len(name))}
		if kind != tar.TypeReg {
			header.Size, header.Linkname = 0, "/etc/passwd"
		}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if kind == tar.TypeReg {
			if _, err := io.WriteString(archive, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(archive.Close(), compressor.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// wide returns an archive whose compression needs twice the allowed memory.
func wide(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	compressor, err := zstd.NewWriter(&packed, zstd.WithWindowSize(2*maxWindow))
	if err != nil {
		t.Fatal(err)
	}
	_, err = compressor.Write([]byte("text"))
	// Without the flush, the size is known and no window is necessary.
	if err := errors.Join(err, compressor.Flush(), compressor.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// sum writes the checksums.
func (p *published) sum() {
	var sums strings.Builder
	for name, content := range p.files {
		if strings.HasPrefix(name, "tenure") {
			digest := sha256.Sum256(content)
			sums.WriteString(hex.EncodeToString(digest[:]) + "  " + name + "\n")
		}
	}
	p.files[sumsFile] = []byte(sums.String())
}

// sign signs the checksums.
func (p *published) sign() {
	digest := sha256.Sum256(p.files[sumsFile])
	signature, err := p.key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		p.t.Fatal(err)
	}
	p.files[signatureFile] = []byte(base64.StdEncoding.EncodeToString(signature))
}

// public writes the public key to a file.
func (p *published) public() string {
	p.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&p.key.PublicKey)
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.t.TempDir(), "cosign.pub")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// serve serves the folder until the test ends or the server is closed.
func (p *published) serve() *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		content, there := p.files[strings.TrimPrefix(r.URL.Path, "/v0.1.0/")]
		p.mu.Unlock()
		if !there {
			http.NotFound(w, r)
			return
		}
		if bytes.HasPrefix(content, []byte("http")) {
			http.Redirect(w, r, string(content), http.StatusFound)
			return
		}
		_, _ = w.Write(content)
	}))
	p.t.Cleanup(server.Close)
	return server
}

// checkPrograms checks that a folder has the programs, executable, with kubectl beside them.
func checkPrograms(t *testing.T, dir string) {
	t.Helper()
	for name, want := range map[string]string{"tenure-cluster": "tenure-cluster", "tenure-server": "tenure-server", "kubectl": "tenure-cluster"} {
		file := filepath.Join(dir, name)
		content, err := os.ReadFile(file)
		if err != nil || string(content) != want {
			t.Errorf("%s is %q: %v", name, content, err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has the mode %v: %v", name, info.Mode(), err)
		}
	}
}

// TestURL fetches programs once; the second time no server is needed.
func TestURL(t *testing.T) {
	p := publish(t)
	server := p.serve()
	var log bytes.Buffer
	f := Flags{from: server.URL + "/v0.1.0/", key: p.public()}
	dir, err := f.Dir(t.Context(), "", &log)
	if err != nil {
		t.Fatal(err)
	}
	checkPrograms(t, dir)
	if want := "fetching " + ours + " from " + server.URL + "/v0.1.0\n"; log.String() != want {
		t.Errorf("it says %q, want %q", &log, want)
	}
	server.Close()
	if again, err := f.Dir(t.Context(), "", &log); err != nil || again != dir {
		t.Errorf("from the cache: got %q, want %q: %v", again, dir, err)
	}
	other := publishKey(t)
	if _, err := (&Flags{from: f.from, key: other}).Dir(t.Context(), "", &log); err == nil {
		t.Error("the cache was used for another key")
	}
}

// TestOwnRelease runs a released program. Only if there are no programs in its folder, it fetches those
// of its release, which have to be signed with its own key.
func TestOwnRelease(t *testing.T) {
	environment := os.Environ() // with the go command's cache
	p := publish(t)
	server := p.serve()
	der, err := x509.MarshalPKIXPublicKey(p.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	const pkg = "-X github.com/tenure-dev/tenure/internal/release."
	program := filepath.Join(t.TempDir(), "dir")
	flags := pkg + "version=v0.1.0 " + pkg + "archives=" + server.URL + " " + pkg + "key=" + base64.StdEncoding.EncodeToString(der)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "-ldflags", flags, "./testdata/dir")
	build.Env = environment
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := func(own string) (string, error) {
		out, err := exec.CommandContext(t.Context(), program, own).CombinedOutput()
		return string(out), err
	}
	beside := t.TempDir()
	if err := os.WriteFile(filepath.Join(beside, controlPlane), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := dir(beside); err != nil || out != "" {
		t.Errorf("with programs in its folder: got %q and %v", out, err)
	}
	out, err := dir(t.TempDir())
	said, unpacked, _ := strings.Cut(out, "\n")
	if err != nil || said != "fetching "+ours+" from "+server.URL+"/v0.1.0" {
		t.Fatalf("without programs in its folder: got %q and %v", out, err)
	}
	checkPrograms(t, unpacked)

	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", os.Getenv("XDG_CACHE_HOME"))
	p.mu.Lock()
	p.files[sumsFile] = slices.Concat(p.files[sumsFile], []byte("\n"))
	p.mu.Unlock()
	if out, err := dir(t.TempDir()); err == nil || !strings.Contains(out, "is not signed with the expected key") {
		t.Errorf("another signature: got %q and %v", out, err)
	}
}

// publishKey writes another public key to a file, and keeps the cache.
func publishKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return (&published{t: t, key: key}).public()
}

// TestLocal takes programs from a folder and from an archive.
func TestLocal(t *testing.T) {
	p := publish(t)
	folder := t.TempDir()
	for name, content := range p.files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if dir, err := (&Flags{from: folder}).Dir(t.Context(), "", io.Discard); err != nil || dir != folder {
		t.Errorf("a folder: got %q and %v, want %q", dir, err, folder)
	}
	dir, err := (&Flags{from: filepath.Join(folder, ours), key: p.public()}).Dir(t.Context(), "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	checkPrograms(t, dir)
	if dir, err := (&Flags{}).Dir(t.Context(), "", io.Discard); err != nil || dir != "" {
		t.Errorf("without the flag: got %q and %v", dir, err)
	}
	if _, err := (&Flags{key: "x"}).Dir(t.Context(), "", io.Discard); err == nil {
		t.Error("a key without programs is no error")
	}
	// The archive has changed since, and is in the cache.
	if err := os.WriteFile(filepath.Join(folder, ours), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Flags{from: filepath.Join(folder, ours), key: p.public()}).Dir(t.Context(), "", io.Discard); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a changed archive: got %v", err)
	}
}

// TestRefused serves programs that must not run. Nothing of them stays in the cache.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		reason    string
		change    func(p *published, f *Flags)
		untrusted bool
		want      string
	}{
		{"no signature", func(p *published, _ *Flags) { delete(p.files, signatureFile) }, true, "cannot read SHA256SUMS.sig"},
		{"no checksums", func(p *published, _ *Flags) { delete(p.files, sumsFile) }, true, "cannot read SHA256SUMS:"},
		{"another key", func(p *published, f *Flags) { f.key = publishKey(p.t) }, true, "not signed with the expected key"},
		{"no key", func(_ *published, f *Flags) { f.key = "" }, true, "no key to verify them with"},
		{"a key that is none", func(p *published, f *Flags) { f.key = filepath.Join(p.t.TempDir(), "none") }, false, "cannot read the key"},
		{"changed checksums", func(p *published, _ *Flags) { p.files[ours] = []byte("x"); p.sum() }, true, "not signed with the expected key"},
		{"a signature that is no base64", func(p *published, _ *Flags) { p.files[signatureFile] = []byte("-") }, true, "no signature of cosign's"},
		{"a changed archive", func(p *published, _ *Flags) { p.files[ours] = pack(p.t, tar.TypeReg, "tenure-cluster") }, true, "has the checksum"},
		{"a missing archive", func(p *published, _ *Flags) { delete(p.files, ours) }, false, "answers 404"},
		{"no archive for this system", func(p *published, _ *Flags) { delete(p.files, ours); p.sum(); p.sign() }, true, "it has no tenure-programs_"},
		{"two archives for this system", func(p *published, _ *Flags) {
			p.files[strings.Replace(ours, "0.1.0", "0.0.9", 1)] = p.files[ours]
			p.sum()
			p.sign()
		}, true, "several archives"},
		{"a file outside of the folder", func(p *published, _ *Flags) { p.files[ours] = pack(p.t, tar.TypeReg, "../x"); p.sum(); p.sign() }, false, `"../x" is no program`},
		{"an archive in another format", func(p *published, _ *Flags) { p.files[ours] = []byte("no archive"); p.sum(); p.sign() }, false, "cannot unpack the programs"},
		{"an archive that needs too much memory", func(p *published, _ *Flags) { p.files[ours] = wide(p.t); p.sum(); p.sign() }, false, "window size exceeded"},
		{"a link", func(p *published, _ *Flags) { p.files[ours] = pack(p.t, tar.TypeSymlink, "tenure"); p.sum(); p.sign() }, false, `"tenure" is no program`},
		{"checksums without an end", func(p *published, _ *Flags) { p.files[sumsFile] = bytes.Repeat([]byte("x"), maxSums+1) }, true, "has more than"},
		{"no TLS", func(_ *published, f *Flags) { f.from = "http://releases.example.com/v1" }, false, "has to begin with https://"},
		{"a redirect without TLS", func(p *published, _ *Flags) { p.files[sumsFile] = []byte("http://releases.example.com/x") }, true, "has to begin with https://"},
		{"another scheme", func(_ *published, f *Flags) { f.from = "ftp://releases.example.com/v1" }, false, "has to begin with https://"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			p := publish(t)
			f := Flags{from: p.serve().URL + "/v0.1.0", key: p.public()}
			tt.change(p, &f)
			dir, err := f.Dir(t.Context(), "", io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrUntrusted) != tt.untrusted {
				t.Errorf("got %q and error %v, want %q", dir, err, tt.want)
			}
			left, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "tenure", "programs", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("the cache has %v: %v", left, err)
			}
			if left, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "tenure", "programs", ".*")); len(left) > 0 {
				t.Errorf("the cache has unfinished files: %v", left)
			}
		})
	}
}

// TestPick picks the archive of the same version for a release, so that an old archive with a valid
// signature does not replace it.
func TestPick(t *testing.T) {
	t.Parallel()
	sums := []byte(strings.Repeat("a", 64) + "  " + ours + "\n")
	for version, want := range map[string]bool{"v0.1.0": true, "v0.1.1": false, "v0.1.0-rc.1": false, "v10.1.0": false, "(devel)": true, "v0.0.0-20261123113520-30b471d9abcd": true} {
		for _, name := range []string{"", ours} {
			archive, digest, err := pick(sums, name, release.Build{Version: version})
			if got := err == nil && archive == ours && digest == strings.Repeat("a", 64); got != want {
				t.Errorf("tenure %s takes %q: %t, want %t (%v)", version, name, got, want, err)
			}
		}
	}
}
