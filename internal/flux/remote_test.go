package flux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestBuildFetchesNothing checks that a build with a remote base runs no git.
func TestBuildFetchesNothing(t *testing.T) {
	dir := t.TempDir()
	marker := filepath.Join(dir, "ran")
	write(t, dir, "bin/git", "#!/bin/sh\ntouch "+marker+"\nexit 1\n")
	if err := os.Chmod(filepath.Join(dir, "bin/git"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	write(t, dir, "fleet/base/kustomization.yaml", "resources: ['github.com/acme/policies//base?ref=v1']\n")
	write(t, dir, "fleet/app/kustomization.yaml", "resources: [../base]\n")
	_, err := Build(filepath.Join(dir, "fleet"), filepath.Join(dir, "fleet", "app"))
	if !errors.Is(err, ErrRemoteBase) || !strings.Contains(err.Error(), "github.com/acme/policies//base?ref=v1 in base/kustomization.yaml") {
		t.Errorf("want the remote base and its file, got %v", err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the build ran git")
	}
}

func TestRemoteBases(t *testing.T) {
	t.Parallel()
	for entry, remote := range map[string]bool{
		"github.com/acme/policies//base?ref=v1": true, "https://github.com/acme/policies//base?ref=v1": true,
		"git@github.com:acme/policies.git": true, "ssh://git@github.com/acme/policies": true, "git::https://git.example.com/a/b": true,
		"https://raw.githubusercontent.com/acme/x/main/crd.yaml": true, "github.com/fluxcd/flux2/manifests/install?ref=v2.3.0": true,
		"../missing": false, "app.yaml": false, "./app.v1/deployment.yaml": false, "app.v1/x.yaml": false,
	} {
		dir := t.TempDir()
		write(t, dir, "kustomization.yaml", "resources: ['"+entry+"']\n")
		if got := len(RemoteBases(dir, dir)) > 0; got != remote {
			t.Errorf("%s: remote %v", entry, got)
		}
	}
}

func TestRemoteBaseGit(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"github.com/acme/policies//base?ref=v1":                 "https://github.com/acme/policies base v1",
		"https://github.com/acme/policies.git//base/x?ref=main": "https://github.com/acme/policies base/x main",
		"github.com/fluxcd/flux2/manifests/install?ref=v2.3.0":  "https://github.com/fluxcd/flux2 manifests/install v2.3.0",
		"https://github.com/acme/policies?timeout=90s&ref=main": "https://github.com/acme/policies  main",
	} {
		url, folder, ref, ok := RemoteBase{Address: address}.Git()
		if got := strings.Join([]string{url, folder, ref}, " "); !ok || got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
