package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestLayers holds the imports of this repository to the table.
func TestLayers(t *testing.T) {
	t.Parallel()
	violations, err := CheckLayers(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// TestLayout compares the table with the one in CONTRIBUTING.md.
func TestLayout(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n"+Layout()+"\n") {
		t.Errorf("CONTRIBUTING.md does not have the table of layers; its section Layout should have:\n%s", Layout())
	}
}

func TestCheckLayers(t *testing.T) {
	t.Parallel()
	source := func(imported string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package p\nimport _ \"" + module + "/" + imported + "\"\n")}
	}
	table := []layer{{folder: "a", imports: []string{"b"}}, {folder: "b"}}
	cases := map[string]struct {
		reason string
		layers []layer
		tree   fstest.MapFS
		want   []string
	}{
		"Down": {
			reason: "An arrow of the table is allowed, and imports within a layer are its own business.",
			layers: table,
			tree:   fstest.MapFS{"a/x/p.go": source("b/y"), "b/y/p.go": source("b/z")},
		},
		"Up": {
			reason: "A lower layer must not know an upper one.",
			layers: table,
			tree:   fstest.MapFS{"a/p.go": source("b"), "b/p.go": source("a/x")},
			want:   []string{"b/p.go: imports a/x: b may not import a"},
		},
		"UpInTable": {
			reason: "The table itself has no arrow that goes up.",
			layers: []layer{{folder: "a"}, {folder: "b", imports: []string{"a"}}},
			tree:   fstest.MapFS{"b/p.go": source("a")},
			want:   []string{"b may not import a: it is not below it in the table"},
		},
		"Unused": {
			reason: "The table is a picture of the code, so an arrow that nothing uses goes.",
			layers: table,
			want:   []string{"a does not import b: take it out of the table"},
		},
		"Test": {
			reason: "Tests may import every layer.",
			layers: []layer{{folder: "a"}, {folder: "b"}},
			tree:   fstest.MapFS{"b/p_test.go": source("a")},
		},
		"Outside": {
			reason: "A new package is put into a layer, or gets one.",
			layers: []layer{{folder: "a"}},
			tree:   fstest.MapFS{"ab/p.go": source("a"), "a/p.go": source("c")},
			want:   []string{"a/p.go: imports c, which is in no layer", "ab/p.go: is in no layer"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := checkLayers(tc.tree, tc.layers)
			if err != nil {
				t.Fatalf("%s\ncheckLayers(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\ncheckLayers(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
