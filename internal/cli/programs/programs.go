// Package programs finds the programs of the local cluster for the commands that start one: in a
// folder, in an archive, or at the address of a release. A released program that has none beside it
// takes those of its own release. In a clone of Tenure's repository, it compiles them on demand.
//
// Programs from an archive are used only if its checksum is in the file SHA256SUMS beside it, and
// the file SHA256SUMS.sig is the signature of that file with the expected key. They are unpacked
// into the user's cache folder, once for each archive.
package programs

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/images"
	"github.com/tenure-dev/tenure/internal/release"
	"github.com/tenure-dev/tenure/internal/ui"
)

// The files beside an archive, as `make archives` in Tenure's repository writes them.
const (
	sumsFile      = "SHA256SUMS"
	signatureFile = sumsFile + ".sig"
	prefix        = "tenure-programs_"
)

// controlPlane is the program that no local cluster does without.
const controlPlane = "tenure-cluster"

// The limits of downloads, in bytes. An archive has some 140 MB.
const (
	maxSums      = 1 << 20
	maxSignature = 1 << 12
	maxArchive   = 1 << 30
)

// ErrUntrusted is returned for programs whose checksum or signature is wrong or missing.
var ErrUntrusted = errors.New("the programs are not trusted")

// Flags say where the programs are.
type Flags struct {
	from, key string
	build     bool
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.from, "programs", "", "where the local cluster's programs are: a folder, an archive, or the `URL` of a folder with archives, such as a release's (default: the folder of this program; a released program without them there fetches those of its release)")
	flags.StringVar(&f.key, "programs-key", "", "`FILE` with the public key that signed the archives (default: the key of this program's release)")
	flags.BoolVar(&f.build, "build", false, "first compile what is missing or has changed, in a clone of Tenure's repository")
	cmd.MarkFlagsMutuallyExclusive("build", "programs")
}

// Dir returns the folder with the programs, or "" for own, the folder of the running program. It
// compiles programs, or fetches and unpacks an archive that is not in the cache, and reports this to log. The error is
// [ErrUntrusted] if the archive is not the signed one.
func (f *Flags) Dir(ctx context.Context, own string, log io.Writer) (string, error) {
	if f.from != "" {
		return f.find(ctx, log)
	}
	if f.key != "" {
		return "", errors.New("--programs-key is for --programs")
	}
	if f.build {
		return build(ctx, own, log)
	}
	address := release.Current().Archives()
	if _, err := os.Stat(filepath.Join(own, controlPlane)); err == nil || address == "" || release.Key() == nil {
		return "", nil
	}
	dir, err := (&Flags{from: address}).find(ctx, log)
	if err != nil {
		err = ui.WithHint(err, "without this address, name a folder or an archive with --programs")
	}
	return dir, err
}

// find returns the folder of the programs that the flags name.
func (f *Flags) find(ctx context.Context, log io.Writer) (string, error) {
	remote := strings.Contains(f.from, "://")
	if info, err := os.Stat(f.from); !remote && err != nil {
		return "", fmt.Errorf("cannot find the programs: %w", err)
	} else if !remote && info.IsDir() {
		return filepath.Abs(f.from)
	}
	key, err := f.readKey()
	if err != nil {
		return "", err
	}
	cache, err := openCache()
	if err != nil {
		return "", err
	}
	if !remote {
		dir, name := filepath.Split(f.from)
		return archive{files: folder(dir), name: name, key: key, cache: cache, log: log}.unpacked(ctx)
	}
	files, err := newSite(f.from)
	if err != nil {
		return "", err
	}
	// A release does not change: what was verified once needs no network any more.
	place := sha256.Sum256([]byte(files.url + " " + string(key.text)))
	seen := hex.EncodeToString(place[:])
	if dir := cache.known(seen); dir != "" {
		return dir, nil
	}
	dir, err := archive{files: files, key: key, cache: cache, log: log}.unpacked(ctx)
	if err != nil {
		return "", err
	}
	return dir, cache.remember(seen, dir)
}

// publicKey is a key with its text.
type publicKey struct {
	*images.Key
	text []byte
}

func (f *Flags) readKey() (*publicKey, error) {
	text := release.Key()
	if f.key != "" {
		var err error
		if text, err = os.ReadFile(f.key); err != nil {
			return nil, fmt.Errorf("cannot read the key of the programs: %w", err)
		}
	}
	if text == nil {
		return nil, ui.WithHint(fmt.Errorf("%w: this build of tenure has no key to verify them with", ErrUntrusted), "name the public key that signed them with --programs-key")
	}
	key, err := images.ReadKey(text)
	if err != nil {
		return nil, err
	}
	return &publicKey{key, text}, nil
}

// files opens files by their names in one folder.
type files interface {
	open(ctx context.Context, name string) (io.ReadCloser, error)
	String() string
}

// folder is a folder of this machine.
type folder string

func (f folder) open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(f), name))
}

func (f folder) String() string { return filepath.Clean(string(f)) }

// archive is an archive of programs.
type archive struct {
	files files
	// name is the file name; "" for the archive that is for this program and this system.
	name  string
	key   *publicKey
	cache cache
	log   io.Writer
}

// unpacked verifies the archive and returns the folder with its programs.
func (a archive) unpacked(ctx context.Context) (string, error) {
	sums, err := a.sums(ctx)
	if err != nil {
		return "", err
	}
	name, digest, err := pick(sums, a.name, release.Current())
	if err != nil {
		return "", fmt.Errorf("%w: %s in %s: %w", ErrUntrusted, sumsFile, a.files, err)
	}
	if dir := a.cache.have(digest); dir != "" && a.name == "" {
		return dir, nil
	}
	fmt.Fprintf(a.log, "fetching %s from %s\n", name, a.files)
	file, err := a.fetch(ctx, name, digest)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(file) }()
	return a.cache.unpack(file, digest)
}

// sums returns the signed checksums.
func (a archive) sums(ctx context.Context) ([]byte, error) {
	sums, err := a.read(ctx, sumsFile, maxSums)
	if err != nil {
		return nil, err
	}
	text, err := a.read(ctx, signatureFile, maxSignature)
	if err != nil {
		return nil, err
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%w: %s in %s is no signature of cosign's: %w", ErrUntrusted, signatureFile, a.files, err)
	}
	if !a.key.Signed(sums, signature) {
		return nil, fmt.Errorf("%w: %s in %s is not signed with the expected key", ErrUntrusted, sumsFile, a.files)
	}
	return sums, nil
}

func (a archive) read(ctx context.Context, name string, limit int64) ([]byte, error) {
	from, err := a.files.open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot read %s: %w", ErrUntrusted, name, err)
	}
	defer func() { _ = from.Close() }()
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: cannot read %s: %w", ErrUntrusted, name, err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%w: %s in %s has more than %d bytes", ErrUntrusted, name, a.files, limit)
	}
	return content, nil
}

// fetch copies the archive into the cache folder, compares its digest, and returns the file.
func (a archive) fetch(ctx context.Context, name, digest string) (_ string, err error) {
	from, err := a.files.open(ctx, name)
	if err != nil {
		return "", fmt.Errorf("cannot fetch %s: %w", name, err)
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp(string(a.cache), ".archive-")
	if err != nil {
		return "", fmt.Errorf("cannot fetch %s: %w", name, err)
	}
	defer func() {
		err = errors.Join(err, to.Close())
		if err != nil {
			_ = os.Remove(to.Name())
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, maxArchive+1))
	if err != nil {
		return "", fmt.Errorf("cannot fetch %s: %w", name, err)
	}
	if n > maxArchive {
		return "", fmt.Errorf("%w: %s in %s has more than %d bytes", ErrUntrusted, name, a.files, maxArchive)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return "", fmt.Errorf("%w: %s in %s has the checksum %s, and %s has %s", ErrUntrusted, name, a.files, got, sumsFile, digest)
	}
	return to.Name(), nil
}

// pick returns the name and the digest of an archive in the checksums: the named one, or the one for
// this system. Programs of a release are those of the same version, so that an old archive cannot
// take the place of the new one.
func pick(sums []byte, name string, build release.Build) (archive, digest string, err error) {
	suffix := "_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.zst"
	if build.Released() {
		suffix = strings.TrimPrefix(build.Version, "v") + suffix
	}
	var names []string
	for line := range strings.Lines(string(sums)) {
		sum, file, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || name != "" && file != name || !strings.HasPrefix(file, prefix) || filepath.Base(file) != file {
			continue
		}
		version := strings.TrimPrefix(file, prefix)
		if version != suffix && (build.Released() || !strings.HasSuffix(version, suffix)) {
			continue
		}
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return "", "", fmt.Errorf("%s has no SHA-256 checksum", file)
		}
		names, archive, digest = append(names, file), file, sum
	}
	switch {
	case len(names) > 1:
		return "", "", fmt.Errorf("several archives are for this system, %s: name the file", strings.Join(names, ", "))
	case len(names) == 1:
		return archive, digest, nil
	case name == "":
		name = prefix + "*" + suffix
	}
	return "", "", fmt.Errorf("it has no %s for tenure %s on %s/%s", name, build.Version, runtime.GOOS, runtime.GOARCH)
}
