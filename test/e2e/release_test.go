package e2e

import (
	"archive/tar"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/tenure-dev/tenure/internal/images"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

// The two versions of TestRelease. The description of a kind differs between them.
const (
	earlierVersion, laterVersion         = "v0.1.0", "v0.2.0"
	earlierDescription, laterDescription = "TenancyProfile configured the rules", "TenancyProfile configures the rules"
)

// TestRelease goes the way of a platform admin, from an empty folder: it releases two versions into
// a registry, and installs the first one on bare clusters, with helm, with a HelmRelease and with
// bootstrap, until a tenant delivers. It upgrades, rolls back and uninstalls. docs/how-to/install.md says the
// same in words: the test runs the page's commands, with the registry of the test.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := released(t)
	t.Run("helm", func(t *testing.T) { t.Parallel(); testReleaseByHelm(t, r) })
	t.Run("flux", func(t *testing.T) { t.Parallel(); testReleaseByFlux(t, r) })
	t.Run("bootstrap", func(t *testing.T) { t.Parallel(); testReleaseByBootstrap(t, r) })
}

// script are the steps of a long test, in their order.
type script []struct {
	name string
	run  func()
}

// run runs the steps, and logs how long each takes.
func (s script) run(t *testing.T) {
	t.Helper()
	for _, step := range s {
		began := time.Now()
		step.run()
		if t.Failed() {
			t.Fatalf("the step failed: %s", step.name)
		}
		t.Logf("%5.1fs %s", time.Since(began).Seconds(), step.name)
	}
}

// releases are two released versions: the archives, and the registry with images and charts.
type releases struct {
	// host is the registry, which has the images as host/acme/tenure-server.
	host string
	// registry serves the same.
	registry http.Handler
	// public is the public key that signed everything, in PEM.
	public string
	// tenure are the folders with the program of each version, from its archive.
	tenure map[string]string
}

// released releases both versions from a copy of the sources, signed, and verifies them.
func released(t *testing.T) releases {
	t.Helper()
	handler := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	r := releases{registry: handler, host: strings.TrimPrefix(server.URL, "http://"), tenure: map[string]string{}}
	dir := t.TempDir()
	sources, dist, keyFile, program := filepath.Join(dir, "tenure"), filepath.Join(dir, "dist"), filepath.Join(dir, "cosign.key"), filepath.Join(dir, "image")
	key, public := writeKey(t, keyFile)
	r.public = public
	release := func(version string) {
		changelog := filepath.Join(sources, "CHANGELOG.md")
		edit(t, "\n## Unreleased\n", "\n## "+version+"\n\n## Unreleased\n", changelog)
		git(t, sources, "add", "--all")
		git(t, sources, "commit", "--quiet", "-m", version)
		git(t, sources, "tag", version)
		runs(t, sources, program, "-release", "-o", dist, "-key", keyFile, "-push", r.host+"/acme/tenure-server:"+version,
			"-arch", runtime.GOARCH, "-systems", runtime.GOOS+"/"+runtime.GOARCH)
		r.unpack(t, dist, version)
		r.verify(t, dist, version, key)
	}
	kinds := []string{filepath.Join(sources, "charts/tenure/crds/tenancyprofiles.tenure.dev.yaml"), filepath.Join(sources, "charts/tenure/templates/crds.yaml")}
	script{
		{"the sources are copied", func() { copySources(t, sources) }},
		{"the program that releases is built", func() { runs(t, sourcesOf(t), "go", "build", "-o", program, "./hack/image") }},
		{earlierVersion + " is released", func() {
			for _, file := range kinds {
				edit(t, laterDescription, earlierDescription, file)
			}
			release(earlierVersion)
		}},
		{laterVersion + " is released", func() {
			for _, file := range kinds {
				edit(t, earlierDescription, laterDescription, file)
			}
			release(laterVersion)
		}},
	}.run(t)
	return r
}

// sourcesOf returns the root of the repository.
func sourcesOf(t *testing.T) string {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// copySources copies the files of the repository, without what Git ignores, into a new repository.
func copySources(t *testing.T, to string) {
	t.Helper()
	root := sourcesOf(t)
	for file := range strings.SplitSeq(strings.TrimRight(git(t, root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, string(content), to, file)
	}
	git(t, to, "init", "--quiet", "--initial-branch=main")
}

// writeKey writes a new private key, as `cosign import-key-pair` reads it, and returns the public one, and
// its text.
func writeKey(t *testing.T, file string) (*images.Key, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), file)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	public, err := images.ReadKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return public, string(text)
}

// runs runs a program that must succeed.
func runs(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
}

// archive returns the name of the archive of tenure.
func archiveOf(version string) string {
	return "tenure_" + strings.TrimPrefix(version, "v") + "_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
}

// unpack unpacks the archive of a version, and runs its program.
func (r releases) unpack(t *testing.T, dist, version string) {
	t.Helper()
	dir := t.TempDir()
	runs(t, dir, "tar", "-xzf", filepath.Join(dist, "archives", archiveOf(version)))
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "tenure"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "tenure "+version+" ") {
		t.Fatalf("the archive of %s has the program %q: %v", version, out, err)
	}
	r.tenure[version] = dir
}

// verify verifies the signatures of a version: of the image, the chart, the manifests and the
// checksums.
func (r releases) verify(t *testing.T, dist, version string, key *images.Key) {
	t.Helper()
	number := strings.TrimPrefix(version, "v")
	for repository, tag := range map[string]string{"tenure-server": version, "tenure": number, "tenure-manifests": number} {
		repository = r.host + "/acme/" + repository
		checker := images.Checker{Verifier: key}
		if _, err := checker.Check(t.Context(), images.Image{Reference: repository + ":" + tag, SignedAs: repository}); err != nil {
			t.Error(err)
		}
	}
	archives := filepath.Join(dist, "archives")
	sums, err := os.ReadFile(filepath.Join(archives, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(archives, "SHA256SUMS.sig"))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || !key.Signed(sums, signature) || !strings.Contains(string(sums), archiveOf(version)) {
		t.Errorf("the checksums of %s are not signed: %v\n%s", version, err, sums)
	}
}

// programs returns a folder with the programs of a local cluster. It runs the tenure-server that
// pull puts there.
func (r releases) programs(t *testing.T) string {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, entry := range entries {
		if err := os.Symlink(filepath.Join(bin, entry.Name()), filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pull takes the program of a version from its image in the registry, as a container runtime does.
// Every Pod of Tenure that starts in the cluster then runs it.
func (r releases) pull(t *testing.T, programs, version string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // the image is for Linux; bin has the program for this system
	}
	tag, err := name.NewTag(r.host + "/acme/tenure-server:" + version)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag, remote.WithContext(t.Context()), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	for reader := tar.NewReader(files); ; {
		header, err := reader.Next()
		if err != nil {
			t.Fatalf("the image of %s has no program: %v", version, err)
		}
		if header.Name != "tenure-server" {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(programs, "tenure-server")
		testprogram.Write(t, file+".new", content)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), file, "version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "tenure "+version+" ") {
			t.Fatalf("the image of %s has the program %q: %v", version, out, err)
		}
		return
	}
}

// An admin runs commands of docs/how-to/install.md, with the released program of a version.
type admin struct {
	releases
	t          *testing.T
	kubeconfig string
	// folder is the working directory.
	folder string
}

// documented returns the command of the page that begins with the words.
func (a admin) documented(begins string) string {
	a.t.Helper()
	content, err := os.ReadFile(filepath.Join(sourcesOf(a.t), "docs", "how-to", "install.md"))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, command := range commandsIn(string(content)) {
		if strings.HasPrefix(command, begins) {
			return command
		}
	}
	a.t.Fatalf("install.md has no command that begins with %q", begins)
	return ""
}

// runs runs the command of the page that begins with the words and more arguments, and returns its
// output. The code is that of the command.
func (a admin) runs(version, begins string, more ...string) (out string, code int) {
	a.t.Helper()
	line := strings.ReplaceAll(a.documented(begins), "registry.example.com", a.host)
	if strings.Contains(line, "oci://") {
		more = append(more, "--plain-http")
	}
	bin, err := testcluster.BinDir()
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), hung)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", line+" "+strings.Join(more, " "))
	cmd.Dir = a.folder
	cmd.Env = []string{"HOME=" + a.folder, "KUBECONFIG=" + a.kubeconfig, "PATH=" + strings.Join([]string{a.tenure[version], bin, os.Getenv("PATH")}, string(os.PathListSeparator))}
	said, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		a.t.Fatalf("%s: %v\n%s", line, err, said)
	}
	return string(said), cmd.ProcessState.ExitCode()
}

// succeeds runs a command as runs does, which must succeed.
func (a admin) succeeds(version, begins string, more ...string) string {
	a.t.Helper()
	out, code := a.runs(version, begins, more...)
	if code != 0 {
		a.t.Fatalf("%s ends with %d:\n%s", begins, code, out)
	}
	return out
}
