package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testprogram"
)

// TestCheckTools runs check-tools.sh, the first step of make, with missing and outdated
// programs.
func TestCheckTools(t *testing.T) {
	t.Parallel()
	says := func(version string) string { return "echo " + version }
	for name, tc := range map[string]struct {
		reason string
		tools  map[string]string // name → script
		want   string            // "" if the script accepts the tools
	}{
		"Fine":      {"Nothing is said when everything is there.", map[string]string{"go": says("go1.26.8"), "git": ""}, ""},
		"Newer":     {"A newer Go is fine.", map[string]string{"go": says("go1.31.0"), "git": ""}, ""},
		"NoGo":      {"Whoever has no Go is told where to get it.", map[string]string{"git": ""}, "cannot find Go: install Go 1.26 or newer from https://go.dev/dl"},
		"NoGit":     {"Git is fetched by the system's means.", map[string]string{"go": says("go1.26.8")}, "cannot find git: install it"},
		"AncientGo": {"Before 1.21 Go does not refuse by itself.", map[string]string{"go": says("go1.19.2"), "git": ""}, "it is go1.19.2, 1.26 or newer is needed"},
		"RefusingGo": {
			"Go's own words are passed on.",
			map[string]string{"go": "echo go.mod requires go 1.26 >&2; exit 1", "git": ""}, "it said: go.mod requires go 1.26",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "../check-tools.sh")
			cmd.Env = []string{"PATH=" + onlyTools(t, tc.tools)}
			out, err := cmd.CombinedOutput()
			if (err == nil) != (tc.want == "") || !strings.Contains(string(out), tc.want) || tc.want == "" && len(out) > 0 {
				t.Errorf("%s\ncheck-tools.sh: want %q, got %q, %v", tc.reason, tc.want, out, err)
			}
		})
	}
}

// onlyTools creates a folder for PATH with fake programs and the programs that the script
// itself uses.
func onlyTools(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"dirname", "sed"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range scripts {
		testprogram.Write(t, filepath.Join(dir, name), fmt.Appendf(nil, "#!/bin/sh\n%s\n", script))
	}
	return dir
}
