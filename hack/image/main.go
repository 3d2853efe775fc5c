// Image builds the container image of tenure-server, without Docker:
//
//	go run ./hack/image [-o dist] [-version v0.1.0] [-key cosign.key] [-push REPOSITORY:TAG]
//
// It compiles the program for each architecture and writes an OCI image layout to DIR/image:
// an index with one image per architecture, each with one layer that has the static binary and
// its user. The same sources, version and Go give the same bytes on every machine; times are
// the time of the commit or of SOURCE_DATE_EPOCH.
//
// It adds a software bill of materials (SPDX 2.3) and the provenance (in-toto, SLSA 1), as OCI
// referrers of the index and as files in DIR. With a key it signs these and the index, in both
// formats of cosign.
//
// -push writes everything to a registry, with docker's credentials. The tag is written last:
// an interrupted push leaves no image under it.
//
// With the image goes the Helm chart of charts/tenure, with the version of the program and the
// name of the image: as a file in DIR and, with -push, as an OCI artifact in the repository tenure
// beside that of the image, signed in the same way. The same objects for kustomize and for Flux are
// in the folder DIR/manifests and in the repository tenure-manifests.
//
// -archives builds the program tenure for each system into DIR/archives, with checksums and their
// signature, a krew manifest and a Homebrew formula. -programs packs the local cluster's programs
// into the same folder.
//
// -release is for a release: it requires a key, a tag of Git and a clean working tree.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/tenure-dev/tenure/internal/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags.
type options struct {
	root, dir           string
	repository, version string
	architectures       string
	systems             string
	key, builder        string
	push                string
	release, archives   bool
	licences            bool
	programs            string
}

// run returns the exit code: 0, 1 if the image could not be built or pushed, 2 for wrong usage.
// The standard output gets one line: the pushed image by tag and digest, or the layout.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&o.root, "C", ".", "root of the repository")
	flags.StringVar(&o.dir, "o", "dist", "folder for the image and its documents, relative to the root")
	flags.StringVar(&o.repository, "repository", release.DefaultRepository, "repository of the image, which signatures name, unless -push names another one")
	flags.StringVar(&o.version, "version", "", "version, such as v0.1.0 (default: the commit's tag, or a version made of the commit)")
	flags.StringVar(&o.architectures, "arch", "amd64,arm64", "architectures")
	flags.StringVar(&o.systems, "systems", "darwin/amd64,darwin/arm64,linux/amd64,linux/arm64", "systems of the archives")
	flags.StringVar(&o.key, "key", "", "private key of cosign's that signs; its password is in COSIGN_PASSWORD")
	flags.StringVar(&o.builder, "builder", localBuilder, "address that the provenance names as the builder")
	flags.StringVar(&o.push, "push", "", "push to `REPOSITORY:TAG`, with docker's credentials")
	flags.BoolVar(&o.archives, "archives", false, "also build the archives of tenure for each system (a release has them)")
	flags.BoolVar(&o.licences, "licences", false, "build nothing, and write the licences of all modules in the programs")
	flags.StringVar(&o.programs, "programs", "", "build nothing, and pack the local cluster's programs of this machine's system, which are in the folder `BIN`")
	flags.BoolVar(&o.release, "release", false, "refuse what is no release: a commit without a tag, changes that are not committed, no key")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errOut, "✗ image takes no arguments, but was given %q\n", flags.Arg(0))
		return 2
	}
	line, err := o.run(ctx, errOut)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(errOut, "✗ interrupted")
		return 130
	case err != nil:
		fmt.Fprintf(errOut, "✗ %v\n", err)
		return 1
	}
	fmt.Fprintln(out, line)
	return 0
}

// run builds, signs, writes and pushes, and returns the line for the standard output.
func (o *options) run(ctx context.Context, log io.Writer) (string, error) {
	// Find errors before compiling for minutes.
	var pushTo *target
	if o.push != "" {
		var err error
		if pushTo, err = parseTarget(o.push, authn.DefaultKeychain); err != nil {
			return "", err
		}
		o.repository = pushTo.tag.Repository.Name()
	}
	signer, err := o.signer()
	if err != nil {
		return "", err
	}
	s, err := o.source(ctx)
	if err != nil {
		return "", err
	}
	beside, err := pushTo.packages(s.chartVersion())
	if err != nil {
		return "", err
	}
	dir := o.dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(o.root, dir)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("cannot make the folder of the image: %w", err)
	}
	if o.programs != "" {
		return s.packPrograms(ctx, o.programs, filepath.Join(dir, archivesDir))
	}
	if o.licences {
		return dir, s.writeNotices(ctx, dir)
	}
	if s.licenceTexts, err = s.notices(ctx, s.delivers[s.program]); err != nil {
		return "", err
	}
	b, err := s.build(ctx, log)
	if err != nil {
		return "", err
	}
	if err := b.check(log); err != nil {
		return "", err
	}
	documents, err := s.documents(ctx, b, o.builder)
	if err != nil {
		return "", err
	}
	bundle, err := attach(b, documents, signer, o.repository)
	if err != nil {
		return "", err
	}
	if err := bundle.write(dir, o.repository+":"+s.tag()); err != nil {
		return "", err
	}
	tag := s.tag()
	if pushTo != nil {
		tag = pushTo.tag.TagStr()
	}
	chart, err := s.chart(o.repository, tag)
	if err != nil {
		return "", err
	}
	manifests, err := s.manifests(o.repository, tag)
	if err != nil {
		return "", err
	}
	if err := errors.Join(chart.write(dir), manifests.write(dir)); err != nil {
		return "", err
	}
	if o.archives || o.release {
		if err := s.archives(ctx, filepath.Join(dir, archivesDir), signer, log); err != nil {
			return "", err
		}
	}
	if pushTo == nil {
		return filepath.Join(dir, layoutDir) + " " + b.digest.String(), nil
	}
	if err := pushTo.push(ctx, bundle); err != nil {
		return "", err
	}
	for i, artifact := range []v1.Image{chart.image, manifests.image} {
		digest, err := beside[i].pushPackage(ctx, artifact, signer)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(log, "oci://%s@%s\n", beside[i].tag, digest)
	}
	return pushTo.tag.String() + "@" + b.digest.String(), nil
}

// signer reads the key, or returns nil if none is given.
func (o *options) signer() (*signer, error) {
	if o.key == "" {
		if o.release {
			return nil, errors.New("cannot release without a signature: name a key with -key (make release KEY=cosign.key); `cosign generate-key-pair` makes one")
		}
		return nil, nil
	}
	text, err := os.ReadFile(o.key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key: %w", err)
	}
	password, given := os.LookupEnv("COSIGN_PASSWORD")
	signer, err := readSigner(text, []byte(password))
	if errors.Is(err, errPassword) && !given {
		return nil, fmt.Errorf("cannot read the key %s: it is encrypted, and COSIGN_PASSWORD is not set", o.key)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the key %s: %w", o.key, err)
	}
	return signer, nil
}

// list splits a list at commas, and leaves out empty items.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}
