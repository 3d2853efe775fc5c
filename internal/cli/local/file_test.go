package local_test

import (
	"testing"

	"github.com/tenure-dev/tenure/internal/cli/local"
)

// TestParseFile checks that a fleet's file which cannot count as its author means it is refused, with the field.
func TestParseFile(t *testing.T) {
	t.Parallel()
	const prefix = "cannot read the fleet's file: "
	for name, tc := range map[string]struct {
		reason, content string
		want            string
	}{
		"empty":     {"an empty file changes nothing", "", ""},
		"comment":   {"so does a comment", "# later\n", ""},
		"separator": {"a separator begins the only document", "# ours\n---\npath: a\n", ""},
		"text":      {"a separator within a text is none", "assume:\n  - a/b\nprivate:\n  https://a: |\n    ---\n", ""},
		"number":    {"a number in the place of a text is a text", "timeout: 10\n", ""},
		"word":      {"a word is no switch", "fake-secrets: sometimes\n", prefix + "fake-secrets has to be true or false, and not string"},
		"one":       {"a list has several values", "apply: keys.yaml\n", prefix + "apply has to be a list of texts, and not string"},
		"list":      {"addresses have a folder each", "map: [a, b]\n", prefix + "map has to be addresses with a text each, as ADDRESS: FILE, and not array"},
		"path":      {"a path is a text, or several", "path: {a: b}\n", prefix + "path has to be a text or a list of texts"},
		"no fields": {"a list is no file of settings", "[path]\n", prefix + "the file has to be fields with values, and not array"},
		"documents": {"the second document would not count", "path: a\n---\ntimeout: 5m\n", prefix + "it has more than one YAML document, of which only the first would count: keep one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := local.ParseFile([]byte(tc.content))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
