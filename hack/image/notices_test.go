package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNotices reads the licences of everything that Tenure's own programs link: each module in
// go.mod that is linked has its licence in the file.
func TestNotices(t *testing.T) {
	t.Parallel()
	s := &source{root: filepath.Join("..", "..")}
	for _, name := range []string{"tenure", "tenure-server"} {
		text, err := s.notices(t.Context(), deliveries[name])
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"\nGo\n", "\nk8s.io/client-go v", "Apache License", "Permission is hereby granted", "The Go Authors"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("the licences of %s have no %q", name, part)
			}
		}
		if strings.Contains(string(text), ownModule+" ") || strings.Contains(string(text), s.root) {
			t.Errorf("the licences of %s have this repository's", name)
		}
	}
}

// TestReadNotices reads folders of modules.
func TestReadNotices(t *testing.T) {
	t.Parallel()
	const mit = "Permission is hereby granted, free of charge … The above copyright notice and this permission notice"
	for _, tt := range []struct {
		reason string
		files  map[string]string
		known  bool
		texts  int
	}{
		{"a licence and a notice", map[string]string{"LICENSE.md": mit, "NOTICE": "of us", "a.go": mit}, true, 2},
		{"no licence", map[string]string{"README.md": mit}, false, 0},
		{"a notice alone", map[string]string{"NOTICE": "of us"}, false, 1},
		{"an unknown licence", map[string]string{"LICENSE": "ask us"}, false, 1},
		{"the AGPL", map[string]string{"LICENSE": "                    GNU AFFERO GENERAL PUBLIC LICENSE\n  Version 3"}, false, 1},
		{"the GPL beside another licence", map[string]string{"COPYING": "GNU GENERAL PUBLIC LICENSE", "LICENSE": mit}, false, 1},
		{"source code with the name of a licence", map[string]string{"license.go": mit}, false, 0},
	} {
		dir := t.TempDir()
		for name, content := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		texts := map[string][]string{}
		kind, err := readNotices(dir, "example.com/x v1", texts)
		if err != nil || (kind == "known") != tt.known || len(texts) != tt.texts {
			t.Errorf("%s: known is %q, want %t; %d texts, want %d; %v", tt.reason, kind, tt.known, len(texts), tt.texts, err)
		}
	}
}

// TestNoticesInImage checks that the layer of the image has the licences, if the build read them.
func TestNoticesInImage(t *testing.T) {
	t.Parallel()
	s := chartSource(t)
	has := func() bool {
		return slices.ContainsFunc(s.files(nil), func(f file) bool { return f.name == noticesFile && string(f.content) == "texts" })
	}
	if has() {
		t.Error("without licences, the image has the file")
	}
	s.licenceTexts = []byte("texts")
	if !has() {
		t.Error("the image has no licences")
	}
}
