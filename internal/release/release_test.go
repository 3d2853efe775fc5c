package release_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/release"
)

func TestImage(t *testing.T) {
	t.Parallel()
	const repository = "registry.example.com/tenure-server"
	for _, tt := range []struct{ reason, version, want string }{
		{"a version has an image", "v0.1.0", "v0.1.0"},
		{"a pre-release is a tag, too", "v1.0.0-rc.1", "v1.0.0-rc.1"},
		{"a build without a version", "(devel)", release.Unreleased},
		{"a commit without a tag before it", "v0.0.0-20261123113520-30b471d9abcd", release.Unreleased},
		{"a commit after a version", "v0.1.1-0.20261123113520-30b471d9abcd", release.Unreleased},
		{"a commit after a pre-release", "v0.1.0-rc.1.0.20261123113520-30b471d9abcd", release.Unreleased},
		{"changes that are not committed", "v0.1.0+dirty", release.Unreleased},
		{"a tag of an image cannot have it", "v0.1.0/../x", release.Unreleased},
	} {
		b := release.Build{Version: tt.version, Repository: repository}
		if got, want := b.Image(), repository+":"+tt.want; got != want {
			t.Errorf("%s: %s has the image %s, want %s", tt.reason, tt.version, got, want)
		}
		if got := b.Archives(); got != "" {
			t.Errorf("%s: a build with an image of its own has the archives %s", tt.reason, got)
		}
		want := ""
		if tt.want != release.Unreleased {
			want = "https://github.com/tenure-dev/tenure/releases/download/" + tt.version
		}
		if got := (release.Build{Version: tt.version, Repository: release.DefaultRepository}).Archives(); got != want {
			t.Errorf("%s: the archives are %q, want %q", tt.reason, got, want)
		}
		if got := b.Released(); got != (tt.want != release.Unreleased) {
			t.Errorf("%s: released is %t", tt.reason, got)
		}
	}
}

// TestLinker sets the variables as the build does: a name that the linker does not find
// would be ignored without an error.
func TestLinker(t *testing.T) {
	t.Parallel()
	const pkg = "github.com/tenure-dev/tenure/internal/release"
	flags := "-X " + pkg + ".version=v1.2.3 -X " + pkg + ".repository=registry.example.com/x -X " + pkg + ".commit=abc -X " + pkg + ".key=QQ=="
	out, err := exec.CommandContext(t.Context(), "go", "run", "-ldflags", flags, "./testdata/print").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, want := string(out), "v1.2.3 registry.example.com/x:v1.2.3 true abc \"-----BEGIN PUBLIC KEY-----\\nQQ==\\n-----END PUBLIC KEY-----\\n\"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestKubernetes compares the version with the one that the local cluster is built from.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	requirements, err := os.ReadFile("../../cluster/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(requirements), "\tk8s.io/kubernetes "+release.Kubernetes+"\n") {
		t.Errorf("cluster/go.mod requires another version than %s", release.Kubernetes)
	}
}
