package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestList checks the order of the versions, and that other folders are none.
func TestList(t *testing.T) {
	t.Parallel()
	s := &site{output: t.TempDir()}
	for _, folder := range []string{"v0.9.0", "v0.10.0", "v0.10.0-rc.1", "how-to", "v1", "0.8.0"} {
		if err := os.Mkdir(filepath.Join(s.output, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.list("/tenure/"); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(s.output, "versions.js"))
	if err != nil {
		t.Fatal(err)
	}
	_, arguments, _ := strings.Cut(string(script), "})(...")
	want := `["/tenure/",[{"name":"development","folder":""},{"name":"v0.10.0","folder":"v0.10.0/"},` +
		`{"name":"v0.10.0-rc.1","folder":"v0.10.0-rc.1/"},{"name":"v0.9.0","folder":"v0.9.0/"}]]);` + "\n"
	if diff := cmp.Diff(want, arguments); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
}

// TestClear checks which earlier pages a run removes.
func TestClear(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, version string
		want            []string
	}{
		"Development": {"Pages of the main branch replace all that is no version.", "", []string{"v0.1.0", "v0.2.0"}},
		"Version":     {"A version replaces itself.", "v0.1.0", []string{"index.html", "how-to", "v0.2.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{output: t.TempDir(), version: tc.version}
			for _, folder := range []string{"index.html", "how-to", "v0.1.0", "v0.2.0"} {
				if err := os.MkdirAll(filepath.Join(s.output, folder, "x"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.clear(); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, folder := range []string{"index.html", "how-to", "v0.1.0", "v0.2.0"} {
				if _, err := os.Stat(filepath.Join(s.output, folder)); err == nil {
					left = append(left, folder)
				}
			}
			if diff := cmp.Diff(tc.want, left); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestVersionRefused checks that a version that would be no folder of versions is refused.
func TestVersionRefused(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.1.0", "v1", "how-to", "v0.1.0/../.."} {
		s := &site{output: t.TempDir(), version: version}
		if _, err := s.make(t.Context()); err == nil || !strings.Contains(err.Error(), "is no version") {
			t.Errorf("the version %s: want it refused, got %v", version, err)
		}
	}
}
