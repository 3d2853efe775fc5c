package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestRooms holds the imports of this repository to the table.
func TestRooms(t *testing.T) {
	t.Parallel()
	violations, err := CheckRooms(os.DirFS("../.."))
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
		t.Errorf("CONTRIBUTING.md does not have the table of rooms; its section Layout should have:\n%s", Layout())
	}
}

func TestCheckRooms(t *testing.T) {
	t.Parallel()
	source := func(imported string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package p\nimport _ \"" + module + "/" + imported + "\"\n")}
	}
	table := []room{{folder: "a", imports: []string{"b"}}, {folder: "b"}}
	cases := map[string]struct {
		reason string
		rooms  []room
		tree   fstest.MapFS
		want   []string
	}{
		"Down": {
			reason: "An arrow of the table is allowed, and imports within a room are its own business.",
			rooms:  table,
			tree:   fstest.MapFS{"a/x/p.go": source("b/y"), "b/y/p.go": source("b/z")},
		},
		"Up": {
			reason: "A lower room must not know an upper one.",
			rooms:  table,
			tree:   fstest.MapFS{"a/p.go": source("b"), "b/p.go": source("a/x")},
			want:   []string{"b/p.go: imports a/x: b may not import a"},
		},
		"UpInTable": {
			reason: "The table itself has no arrow that goes up.",
			rooms:  []room{{folder: "a"}, {folder: "b", imports: []string{"a"}}},
			tree:   fstest.MapFS{"b/p.go": source("a")},
			want:   []string{"b may not import a: it is not below it in the table"},
		},
		"Unused": {
			reason: "The table is a picture of the code, so an arrow that nothing uses goes.",
			rooms:  table,
			want:   []string{"a does not import b: take it out of the table"},
		},
		"Test": {
			reason: "Tests may import every room.",
			rooms:  []room{{folder: "a"}, {folder: "b"}},
			tree:   fstest.MapFS{"b/p_test.go": source("a")},
		},
		"Outside": {
			reason: "A new package is put into a room, or gets one.",
			rooms:  []room{{folder: "a"}},
			tree:   fstest.MapFS{"ab/p.go": source("a"), "a/p.go": source("c")},
			want:   []string{"a/p.go: imports c, which is in no room", "ab/p.go: is in no room"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := checkRooms(tc.tree, tc.rooms)
			if err != nil {
				t.Fatalf("%s\ncheckRooms(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\ncheckRooms(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
