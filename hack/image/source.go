package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/release"
)

// source is the input of the build of an image. Together with the version of Go it determines
// every byte of the image.
type source struct {
	root          string // folder of the module; its path is in no byte of the image
	pkg           string // main package, as the module sees it
	program       string // name of the program
	version       string // such as v0.1.0
	revision      string // commit, or "" without Git
	repository    string // of the image
	created       time.Time
	architectures []string
	systems       []system          // of the archives
	stamps        map[string]string // further variables of package release
	licenceTexts  []byte            // of the modules in the program; none without it
	delivers      map[string][]linked
}

// The annotations of an image about its sources.
const (
	sourceURL = "https://github.com/tenure-dev/tenure"
	licence   = "Apache-2.0"
)

// known are the architectures that tenure-server is built for.
var known = []string{"amd64", "arm64"}

var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+dirty)?$`)

// source returns the source of the image. It reads values that the flags do not set from Git.
func (o *options) source(ctx context.Context) (*source, error) {
	s := &source{root: o.root, pkg: "./cmd/tenure-server", program: "tenure-server", version: o.version, repository: o.repository, delivers: deliveries, architectures: list(o.architectures)}
	for _, arch := range s.architectures {
		if !slices.Contains(known, arch) {
			return nil, fmt.Errorf("cannot build for %q: the architectures are %s", arch, strings.Join(known, " and "))
		}
	}
	slices.Sort(s.architectures)
	if s.architectures = slices.Compact(s.architectures); len(s.architectures) == 0 {
		return nil, fmt.Errorf("cannot build for no architecture: the architectures are %s", strings.Join(known, " and "))
	}
	var err error
	if s.systems, err = readSystems(list(o.systems)); err != nil {
		return nil, err
	}
	c, err := readCommit(ctx, o.root)
	if err != nil && (o.release || o.version == "" || os.Getenv("SOURCE_DATE_EPOCH") == "") {
		return nil, fmt.Errorf("cannot read the commit: %w; without Git, name -version and set SOURCE_DATE_EPOCH", err)
	}
	s.revision, s.created = c.hash, c.time
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cannot take SOURCE_DATE_EPOCH %q: it is a number of seconds", epoch)
		}
		s.created = time.Unix(seconds, 0).UTC()
	}
	if s.version == "" {
		s.version = c.version()
	}
	if !versionPattern.MatchString(s.version) {
		return nil, fmt.Errorf("cannot take %q as the version: write it as v0.1.0", s.version)
	}
	if o.release {
		return s, errors.Join(c.releasable(s.version), s.described())
	}
	return s, nil
}

// described returns an error if the changelog has no section about the version.
func (s *source) described() error {
	changes, err := os.ReadFile(filepath.Join(s.root, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("cannot release: %w", err)
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(s.version) + `( |$)`).Match(changes) {
		return fmt.Errorf("cannot release: CHANGELOG.md has no section %q: write what changes for users", "## "+s.version)
	}
	return nil
}

// tag returns the version as an image tag.
func (s *source) tag() string { return strings.ReplaceAll(s.version, "+", "-") }

// ldflags returns the linker flags: no symbol tables, no build ID, and the variables of package
// release. For the image they leave out the repository, so that it has one digest in all registries.
func (s *source) ldflags() string {
	flags := "-s -w -buildid=" + stamp("version", s.version) + stamp("commit", s.revision)
	for _, name := range slices.Sorted(maps.Keys(s.stamps)) {
		flags += stamp(name, s.stamps[name])
	}
	return flags
}

// stamp returns the linker flag that sets a variable of package release.
func stamp(name, value string) string {
	return " -X github.com/tenure-dev/tenure/internal/release." + name + "=" + value
}

// commit is the state of a working tree.
type commit struct {
	hash  string
	time  time.Time
	tags  []string // versions, of this commit
	dirty bool     // whether there are changed or untracked files
}

func readCommit(ctx context.Context, root string) (commit, error) {
	var c commit
	head, err := git(ctx, root, "log", "-1", "--format=%H %ct")
	if err != nil {
		return c, err
	}
	hash, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return c, fmt.Errorf("git said %q", head)
	}
	c.hash, c.time = hash, time.Unix(at, 0).UTC()
	tags, err := git(ctx, root, "tag", "--points-at", "HEAD", "--list", "v*", "--sort=-version:refname")
	if err != nil {
		return c, err
	}
	for _, tag := range strings.Fields(tags) {
		if (release.Build{Version: tag}).Released() {
			c.tags = append(c.tags, tag)
		}
	}
	changed, err := git(ctx, root, "status", "--porcelain")
	c.dirty = changed != ""
	return c, err
}

// version returns the newest tag, or a pseudo-version of the commit like the go command's.
func (c commit) version() string {
	version := "v0.0.0-" + c.time.Format("20060102150405") + "-" + c.hash[:12]
	if len(c.tags) > 0 {
		version = c.tags[0]
	}
	if c.dirty {
		version += "+dirty"
	}
	return version
}

// releasable returns an error if the commit cannot be released as the version.
func (c commit) releasable(version string) error {
	switch {
	case c.dirty:
		return errors.New("cannot release: the working tree has changes that are not committed: commit them, or build without releasing with `make image`")
	case len(c.tags) == 0:
		return fmt.Errorf("cannot release: the commit %s has no tag with a version: tag it with `git tag -s vMAJOR.MINOR.PATCH`, or build without releasing with `make image`", c.hash[:12])
	case !slices.Contains(c.tags, version):
		return fmt.Errorf("cannot release: the commit %s has no tag %s: tag it with `git tag -s vMAJOR.MINOR.PATCH`, or build without releasing with `make image`", c.hash[:12], version)
	}
	return nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// environment returns the environment of the go command for a system and an architecture.
// Settings of this machine that change the program are overridden.
func environment(system, arch string) []string {
	return append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
}
