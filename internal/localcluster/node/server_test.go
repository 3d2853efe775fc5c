package node

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSeekTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70<<10)
	tests := map[string]struct {
		content string
		lines   int64
		want    string
	}{
		"last line":       {"a\nb\nc\n", 1, "c\n"},
		"no end of line":  {"a\nb\nc", 2, "b\nc"},
		"more than exist": {"a\nb\n", 5, "a\nb\n"},
		"none":            {"a\n", 0, ""},
		"empty":           {"", 3, ""},
		"empty lines":     {"a\n\n\n", 2, "\n\n"},
		"long lines":      {"a\n" + long + "\n" + long + "\n", 1, long + "\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := seekTail(f, tc.lines); err != nil {
				t.Fatal(err)
			}
			if got, _ := io.ReadAll(f); string(got) != tc.want {
				t.Errorf("got %d bytes, want %d", len(got), len(tc.want))
			}
		})
	}
}
