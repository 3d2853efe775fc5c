package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	// archivesDir is the folder of the archives in the folder of the image.
	archivesDir = "archives"
	// sumsFile has the checksums of all archives, as sha256sum writes them.
	sumsFile = "SHA256SUMS"
	// programsName begins the names of the archives of the local cluster's programs.
	programsName = "tenure-programs"
	// gzipped and dense end the names of archives: of tenure, which package managers unpack, and of
	// the local cluster's programs.
	gzipped, dense = ".tar.gz", ".tar.zst"
)

// system is an operating system and an architecture.
type system struct{ os, arch string }

func (s system) String() string { return s.os + "/" + s.arch }

// releasedSystems are the systems that tenure is released for.
var releasedSystems = []system{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}}

// readSystems returns the named systems, in the order of [releasedSystems]. It returns an error for a
// system that is not one of them.
func readSystems(names []string) ([]system, error) {
	var found []system
	for _, on := range releasedSystems {
		if slices.Contains(names, on.String()) {
			found = append(found, on)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(releasedSystems, func(on system) bool { return on.String() == name }) {
			return nil, fmt.Errorf("cannot build archives for %q: the systems are %v", name, releasedSystems)
		}
	}
	return found, nil
}

// archiveName returns the file name of an archive, without [gzipped] or [dense].
func (s *source) archiveName(name string, on system) string {
	return fmt.Sprintf("%s_%s_%s_%s", name, s.chartVersion(), on.os, on.arch)
}

// archives builds the program tenure for each system into a folder, and writes the checksums of all
// archives of this version there, with the signature, the krew manifest and the Homebrew formula.
// The same sources, version, key and Go give the same bytes on every machine.
func (s *source) archives(ctx context.Context, dir string, key *signer, log io.Writer) error {
	cli := *s
	cli.pkg, cli.program = "./cmd/tenure", "tenure"
	cli.stamps = map[string]string{"repository": s.repository}
	if key != nil {
		public, err := key.publicKey()
		if err != nil {
			return err
		}
		cli.stamps["key"] = base64.StdEncoding.EncodeToString(public)
	}
	common, err := documentation(s.root, s.created)
	if err != nil {
		return err
	}
	texts, err := s.notices(ctx, s.delivers[cli.program])
	if err != nil {
		return err
	}
	common = append(common, file{name: noticesFile, mode: 0o644, content: texts})
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is to be published
		return fmt.Errorf("cannot make the folder of the archives: %w", err)
	}
	for _, on := range s.systems {
		program, err := cli.compiled(ctx, on, log)
		if err != nil {
			return err
		}
		packed, err := archiveOf(append([]file{{name: cli.program, mode: 0o755, content: program}}, common...), s.created)
		if err != nil {
			return fmt.Errorf("cannot pack %s for %s/%s: %w", cli.program, on.os, on.arch, err)
		}
		if err := publish(filepath.Join(dir, s.archiveName(cli.program, on)+gzipped), packed); err != nil {
			return err
		}
	}
	return s.checksums(dir, key)
}

// compiled compiles the program for a system.
func (s *source) compiled(ctx context.Context, on system, log io.Writer) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "tenure-archive-")
	if err != nil {
		return nil, fmt.Errorf("cannot build %s: %w", s.program, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	began, file := time.Now(), filepath.Join(tmp, s.program)
	fmt.Fprintf(log, "compiling %s for %s/%s (with a cold cache some minutes)\n", s.program, on.os, on.arch)
	if err := s.compile(ctx, on.os, on.arch, file); err != nil {
		return nil, fmt.Errorf("cannot build %s for %s/%s: %w", s.program, on.os, on.arch, err)
	}
	fmt.Fprintf(log, "compiled after %.0f s\n", time.Since(began).Seconds())
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the program: %w", err)
	}
	return program, nil
}

// checksums writes the checksums of all archives of this version in a folder, also of those that
// another machine has built, their signature, and the files for package managers.
func (s *source) checksums(dir string, key *signer) error {
	var names []string
	for _, suffix := range []string{gzipped, dense} {
		found, err := filepath.Glob(filepath.Join(dir, "*_"+s.chartVersion()+"_*"+suffix))
		if err != nil {
			return fmt.Errorf("cannot list the archives: %w", err)
		}
		names = append(names, found...)
	}
	sums := map[string]string{}
	var list strings.Builder
	for _, name := range slices.Sorted(slices.Values(names)) {
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("cannot read an archive: %w", err)
		}
		digest := sha256.Sum256(content)
		base := filepath.Base(name)
		sums[base] = hex.EncodeToString(digest[:])
		fmt.Fprintf(&list, "%s  %s\n", sums[base], base)
	}
	files := map[string][]byte{sumsFile: []byte(list.String())}
	for name, from := range map[string]string{"tenure.yaml": krewTemplate, "tenure.rb": formulaTemplate} {
		content, err := s.packageFile(from, sums)
		if err != nil {
			return err
		}
		files[name] = content
	}
	if key != nil {
		signature, bundle, err := key.signFile([]byte(list.String()))
		if err != nil {
			return err
		}
		files[sumsFile+".sig"], files[sumsFile+".sigstore.json"] = signature, bundle
	}
	for name, content := range files {
		if err := publish(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// signFile returns the signature of a file in both formats of `cosign sign-blob`: base64, and a
// Sigstore bundle.
func (s *signer) signFile(content []byte) (signature, bundle []byte, err error) {
	raw, err := s.sign(content)
	if err != nil {
		return nil, nil, err
	}
	hint, err := s.hint()
	if err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(content)
	type object = map[string]any
	bundle, err = json.Marshal(object{
		"mediaType":            bundleType,
		"verificationMaterial": object{"publicKey": object{"hint": hint}},
		"messageSignature": object{
			"messageDigest": object{"algorithm": "SHA2_256", "digest": digest[:]},
			"signature":     raw,
		},
	})
	return []byte(base64.StdEncoding.EncodeToString(raw)), bundle, err
}

// clusterPrograms are the programs in the archive for the local cluster. flux-operator, which is
// under the AGPL, is not among them.
var clusterPrograms = []string{
	"tenure", "tenure-cluster", "tenure-server", "tenure-sigstore", "tenure-flux",
}

// packPrograms packs the local cluster's programs in a folder, which are for the system of this
// machine, into a folder of archives, and returns the archive's name. The next checksums include
// it.
func (s *source) packPrograms(ctx context.Context, bin, dir string) (string, error) {
	var files []file
	for _, name := range clusterPrograms {
		content, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return "", fmt.Errorf("cannot pack the programs: %w; build them with `make build`", err)
		}
		files = append(files, file{name: name, mode: 0o755, content: content})
	}
	texts, err := s.notices(ctx, s.delivers[programsName])
	if err != nil {
		return "", err
	}
	packed, err := denseArchiveOf(append(files, file{name: noticesFile, mode: 0o644, content: texts}), s.created)
	if err != nil {
		return "", fmt.Errorf("cannot pack the programs: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is to be published
		return "", fmt.Errorf("cannot make the folder of the archives: %w", err)
	}
	name := filepath.Join(dir, s.archiveName(programsName, system{runtime.GOOS, runtime.GOARCH})+dense)
	return name, publish(name, packed)
}

// publish writes a file that everybody may read, unless it has the content already.
func publish(name string, content []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // it is to be published
		return fmt.Errorf("cannot write %s: %w", filepath.Base(name), err)
	}
	return nil
}
