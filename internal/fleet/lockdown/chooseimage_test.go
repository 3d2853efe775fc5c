package lockdown

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/release"
)

// TestChooseImage checks the image in a fleet for a released program, and for a development
// build, which has no image.
func TestChooseImage(t *testing.T) {
	t.Parallel()
	const (
		ours   = release.DefaultRepository
		mirror = "registry.example.com/mirror/tenure-server:v1"
	)
	digest := ours + ":v0.1.0@sha256:" + strings.Repeat("a", 64)
	for _, tt := range []struct{ reason, before, wanted, version, want string }{
		{"a new fleet gets the version of the program", "", "", "v0.2.0", ours + ":v0.2.0"},
		{"an older version follows", ours + ":v0.1.0", "", "v0.2.0", ours + ":v0.2.0"},
		{"a development build left a name without an image", ours + ":unreleased", "", "v0.2.0", ours + ":v0.2.0"},
		{"so did programs before the first release", "tenure.dev/tenure-server:v0.1.0", "", "v0.2.0", ours + ":v0.2.0"},
		{"a mirror was chosen", mirror, "", "v0.2.0", mirror},
		{"a digest was chosen", digest, "", "v0.2.0", digest},
		{"the flag comes first", digest, mirror, "v0.2.0", mirror},
		{"a development build does not take a running manager's image", ours + ":v0.1.0", "", "(devel)", ours + ":v0.1.0"},
		{"a development build has none for a new fleet", "", "", "(devel)", ours + ":unreleased"},
		{"nor for one from before the first release", "tenure.dev/tenure-server:v0.1.0", "", "(devel)", ours + ":unreleased"},
	} {
		if got := chooseImage(tt.before, tt.wanted, release.Build{Version: tt.version, Repository: ours}); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.reason, got, tt.want)
		}
	}
}

// TestConfigImage checks that the manifests in config name the image of a development build,
// so that applying them unchanged never pulls the image of another publisher.
func TestConfigImage(t *testing.T) {
	t.Parallel()
	want := "image: " + release.DefaultRepository + ":" + release.Unreleased + "\n"
	for name, manifests := range map[string][]byte{"manager": config.Manager(), "proxy": config.Proxy(), "check": config.Check()} {
		if got := string(manifests); strings.Count(got, "image: ") != 1 || !strings.Contains(got, want) {
			t.Errorf("config/%s does not name %q", name, want)
		}
	}
}
