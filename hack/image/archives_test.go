package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// tinyArchives builds the archives of a small program, twice in two folders with one of the local
// cluster's programs.
func tinyArchives(t *testing.T, key *signer, dir string) *source {
	t.Helper()
	s, err := tinySource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.root, "cmd", "tiny"), filepath.Join(s.root, "cmd", "tenure")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		write(t, filepath.Join(s.root, name))
	}
	bin := t.TempDir()
	for _, name := range clusterPrograms {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cli := []linked{{".", []string{"./cmd/tenure"}}}
	s.delivers = map[string][]linked{"tenure": cli, programsName: cli}
	if _, err := s.packPrograms(t.Context(), bin, dir); err != nil {
		t.Fatal(err)
	}
	if err := s.archives(t.Context(), dir, key, io.Discard); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestArchives builds the archives twice, and reads them as users and package managers do.
func TestArchives(t *testing.T) {
	t.Parallel()
	key, dir, other := newSigner(t), t.TempDir(), t.TempDir()
	// Another version, as an earlier build leaves it.
	write(t, filepath.Join(dir, "tenure_0.0.9_linux_amd64.tar.gz"))
	tinyArchives(t, key, dir)
	tinyArchives(t, key, other)
	first, second := folder(t, dir), folder(t, other)
	delete(first, "tenure_0.0.9_linux_amd64.tar.gz")
	for name, content := range first {
		if second[name] != content {
			t.Errorf("%s differs in another folder", name)
		}
	}
	want := []string{
		"SHA256SUMS", "SHA256SUMS.sig", "SHA256SUMS.sigstore.json",
		"tenure-programs_0.1.0_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.zst", "tenure.rb", "tenure.yaml",
		"tenure_0.1.0_darwin_amd64.tar.gz", "tenure_0.1.0_darwin_arm64.tar.gz", "tenure_0.1.0_linux_amd64.tar.gz", "tenure_0.1.0_linux_arm64.tar.gz",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(first))); diff != "" {
		t.Errorf("files, -want +got:\n%s", diff)
	}
	var sums strings.Builder
	for _, name := range want {
		if strings.HasPrefix(name, "tenure_") || strings.HasPrefix(name, "tenure-programs_") {
			digest := sha256.Sum256([]byte(first[name]))
			sums.WriteString(hex.EncodeToString(digest[:]) + "  " + name + "\n")
		}
	}
	if diff := cmp.Diff(sums.String(), first["SHA256SUMS"]); diff != "" {
		t.Errorf("checksums, -want +got:\n%s", diff)
	}
	checkSignatures(t, key, first)
	for _, on := range []string{"darwin_amd64", "linux_arm64"} {
		checkArchive(t, first["tenure_0.1.0_"+on+".tar.gz"])
	}
	checkPackages(t, first)
}

// checkSignatures verifies both signatures of the checksums.
func checkSignatures(t *testing.T, key *signer, files map[string]string) {
	t.Helper()
	digest := sha256.Sum256([]byte(files["SHA256SUMS"]))
	signature, err := base64.StdEncoding.DecodeString(files["SHA256SUMS.sig"])
	if err != nil || !ecdsa.VerifyASN1(&key.key.PublicKey, digest[:], signature) {
		t.Errorf("the signature is wrong: %v", err)
	}
	var bundle struct {
		MessageSignature struct {
			MessageDigest struct {
				Algorithm string
				Digest    []byte
			}
			Signature []byte
		}
	}
	if err := json.Unmarshal([]byte(files["SHA256SUMS.sigstore.json"]), &bundle); err != nil {
		t.Fatal(err)
	}
	m := bundle.MessageSignature
	if !bytes.Equal(m.Signature, signature) || m.MessageDigest.Algorithm != "SHA2_256" || !bytes.Equal(m.MessageDigest.Digest, digest[:]) {
		t.Errorf("the bundle is of something else: %+v", m)
	}
}

// checkArchive reads an archive of tenure.
func checkArchive(t *testing.T, archive string) {
	t.Helper()
	files := unpackChart(t, []byte(archive))
	for name, part := range map[string]string{
		"tenure": "v0.1.0", "LICENSE": "", "THIRD_PARTY_LICENSES": "\nGo\n", "README.md": "",
		"completions/tenure.bash": "__start_tenure", "completions/_tenure": "#compdef tenure", "completions/tenure.fish": "complete -c tenure",
		"man/man1/tenure.1": `.TH "TENURE" "1" "Nov 2023"`, "man/man1/tenure-create-tenant.1": "tenure create tenant",
	} {
		if content, there := files[name]; !there || !strings.Contains(content, part) {
			t.Errorf("%s is missing, or has no %q", name, part)
		}
	}
}

// checkPackages compares the addresses and the checksums for krew and Homebrew with the archives.
func checkPackages(t *testing.T, files map[string]string) {
	t.Helper()
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, Sha256 string
				Bin         string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(files["tenure.yaml"]), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != "v0.1.0" || len(manifest.Spec.Platforms) != 4 {
		t.Errorf("the krew manifest is %+v", manifest)
	}
	for _, p := range manifest.Spec.Platforms {
		name := "tenure_0.1.0_" + p.Selector.MatchLabels["os"] + "_" + p.Selector.MatchLabels["arch"] + ".tar.gz"
		digest := sha256.Sum256([]byte(files[name]))
		sum := hex.EncodeToString(digest[:])
		if p.URI != "https://github.com/tenure-dev/tenure/releases/download/v0.1.0/"+name || p.Sha256 != sum || p.Bin != "tenure" {
			t.Errorf("the krew manifest has %+v for %s", p, name)
		}
		if want := "url \"" + p.URI + "\"\n      sha256 \"" + sum + "\"\n"; !strings.Contains(files["tenure.rb"], want) {
			t.Errorf("the formula lacks\n%s:\n%s", want, files["tenure.rb"])
		}
	}
	for _, part := range []string{"  on_macos do\n    on_intel do\n", "    on_arm do\n", "  on_linux do\n", `version "0.1.0"`, `"tenure v0.1.0 "`} {
		if !strings.Contains(files["tenure.rb"], part) {
			t.Errorf("the formula lacks %q:\n%s", part, files["tenure.rb"])
		}
	}
}

// TestPackPrograms packs a folder that lacks a program.
func TestPackPrograms(t *testing.T) {
	t.Parallel()
	s := chartSource(t)
	if _, err := s.packPrograms(t.Context(), t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "build them with `make build`") {
		t.Errorf("got error %v", err)
	}
}
