// Package release says which version of Tenure a program is, and which image of
// tenure-server belongs to that version.
//
// The build sets the variables (go build -ldflags "-X …"); `make build VERSION=… REPOSITORY=…`
// and `make image` do it. Without them the version is the module's, as the go command
// records it, and the repository is [DefaultRepository].
package release

import (
	"regexp"
	"runtime/debug"
)

// DefaultRepository is where releases of Tenure publish the image of tenure-server.
const DefaultRepository = "ghcr.io/tenure-dev/tenure-server"

// DefaultArchives is the address whose folders, one a version, have the archives of releases.
const DefaultArchives = "https://github.com/tenure-dev/tenure/releases/download"

// Unreleased is the tag in manifests of a development build. No image has it.
const Unreleased = "unreleased"

// The variables that the linker sets: -X github.com/tenure-dev/tenure/internal/release.version=v1.2.3
var (
	version    = ""
	repository = DefaultRepository
	archives   = DefaultArchives
	commit     = ""
	// key is the public key that signs releases: the DER of PKIX, in base64.
	key = ""
)

// Kubernetes is the version of Kubernetes that the local cluster runs, from cluster/go.mod.
const Kubernetes = "v1.36.3"

//go:generate go -C ../../hack/celversions run . ../..

// OldestKubernetes is the oldest minor version of Kubernetes that accepts the rules:
// hack/celversions compiles their expressions as each version does.
const OldestKubernetes = "1.33"

// Build describes a program.
type Build struct {
	// Version is a version such as v0.1.0, or "(devel)" if the build recorded none.
	Version string
	// Repository is the repository of the image, without a tag.
	Repository string
	// Commit is the commit of the sources, or "" if the build recorded none.
	Commit string
}

// Current returns the build of this program.
func Current() Build {
	b := Build{Version: version, Repository: repository, Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && b.Commit == "" {
			b.Commit = setting.Value
		}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	return b
}

// Key returns the public key that signed the release of this program, in PEM, or nil if the build
// recorded none.
func Key() []byte {
	if key == "" {
		return nil
	}
	return []byte("-----BEGIN PUBLIC KEY-----\n" + key + "\n-----END PUBLIC KEY-----\n")
}

var (
	// tagged matches the semantic versions that can be a tag of Git and of an image: with a
	// pre-release, and without build metadata such as +dirty.
	tagged = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)
	// pseudo matches the versions that the go command makes of a commit without a tag:
	// https://go.dev/ref/mod#pseudo-versions.
	pseudo = regexp.MustCompile(`[-.][0-9]{14}-[0-9a-f]{12}$`)
)

// Released reports whether the program was built as a version that a tag names. Only for
// such a version an image is published.
func (b Build) Released() bool {
	return tagged.MatchString(b.Version) && !pseudo.MatchString(b.Version)
}

// Archives returns the address of the folder with the archives of this version, or "" for a
// development build, and for a build with an image of its own, whose archives are elsewhere.
func (b Build) Archives() string {
	if !b.Released() || b.Repository != DefaultRepository {
		return ""
	}
	return archives + "/" + b.Version
}

// Image returns the image of tenure-server of this version. For a development build it is
// a name with the tag [Unreleased], under which no image exists.
func (b Build) Image() string {
	if !b.Released() {
		return b.Repository + ":" + Unreleased
	}
	return b.Repository + ":" + b.Version
}
