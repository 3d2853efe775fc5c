package flux_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/tenure-dev/tenure/internal/flux"
)

// TestReadYAML checks the line of a mistake.
func TestReadYAML(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, content, want string }{
		{"an indentation", "kind: X\nmetadata:\n  name: a\n bad: [\n", "f.yaml:4 is not valid YAML: did not find expected key"},
		{"a second colon", "a: b\nc: d: e\n", "f.yaml:2 is not valid YAML: mapping values are not allowed in this context"},
		{"another encoding", "a: b\nc: \"\xff\"\n", "f.yaml:2 is not valid YAML: it is not in UTF-8: save it in this encoding"},
		{"a mistake beside the replacement character", "a: \ufffd\nc: d: e\n", "f.yaml:2 is not valid YAML: mapping values are not allowed in this context"},
		{"a merge conflict", "a: 1\n---\nb:\n<<<<<<< HEAD\n  c: 1\n=======\n  c: 2\n>>>>>>> x\n", "f.yaml:4 is not valid YAML: it has a merge conflict: resolve it"},
		{"an alias without an anchor", "a: 1\nb: *c\n", "f.yaml:2 is not valid YAML: the alias has no anchor before it"},
		{"a tab", "a:\n\t- b\n", "f.yaml:2 is not valid YAML: the line begins with a tab: indent it with spaces"},
		{"a later document", "a: 1\n---\nb: 2\nc: d: e\n", "f.yaml:4 is not valid YAML: mapping values are not allowed in this context"},
		{"a later document whose separator has a comment", "# ours\na: 1\n--- # two\nb: 2\n\nc: d: e\n", "f.yaml:6 is not valid YAML: mapping values are not allowed in this context"},
		{"a file that begins with a separator", "---\na: b: c\n", "f.yaml:2 is not valid YAML: mapping values are not allowed in this context"},
		{"a template", "a: 1\n---\na: {{ x }}\n", `f.yaml:3 is not valid YAML: invalid map key: map[interface {}]interface {}{"x":interface {}(nil)}`},
		{"a byte order mark", "\ufeff# ours\na: 1\n", ""},
		{"a mistake below a byte order mark", "\ufeff# ours\na: b: c\n", "f.yaml:2 is not valid YAML: mapping values are not allowed in this context"},
		{"Windows line ends", "a: 1\r\n---\r\nb: 2\r\n", ""},
		{"valid", "a: 1\n---\n- a\n---\n", ""},
	} {
		_, err := flux.ReadYAML("f.yaml", []byte(tc.content))
		if got := text(err); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestCheckSyntax checks which files of a folder are read.
func TestCheckSyntax(t *testing.T) {
	t.Parallel()
	const broken = "a: b: c\n"
	for reason, tc := range map[string]struct {
		files map[string]string
		want  string // the file
	}{
		"a file in a folder without a kustomization": {map[string]string{"c/x/a.yaml": broken}, "c/x/a.yaml"},
		"a resource": {map[string]string{"c/kustomization.yaml": "resources: [a.yaml]", "c/a.yaml": broken}, "c/a.yaml"},
		"a file that the kustomization leaves out": {map[string]string{"c/kustomization.yaml": "resources: [b.yaml]", "c/a.yaml": broken, "c/b.yaml": "a: b"}, ""},
		"a patch of a base":                        {map[string]string{"c/kustomization.yaml": "resources: [../b]", "b/kustomization.yml": "patches: [{path: p.yaml}]", "b/p.yaml": broken}, "b/p.yaml"},
		"the kustomization itself":                 {map[string]string{"c/kustomization.yaml": broken}, "c/kustomization.yaml"},
		"a folder that an object leads to":         {map[string]string{"c/sync.yaml": "leads: apps", "apps/a.yaml": broken}, "apps/a.yaml"},
		"bases that name each other":               {map[string]string{"c/kustomization.yaml": "resources: [../b]", "b/kustomization.yaml": "resources: [../c]"}, ""},
		"an address and a missing file":            {map[string]string{"c/kustomization.yaml": "resources: ['https://example.com/a', none.yaml, ../../out.yaml]"}, ""},
		"files that Flux may ignore":               {map[string]string{"c/a.yaml": broken, ".sourceignore": "c/a.yaml"}, ""},
		"values for a chart":                       {map[string]string{"c/values.txt": broken, "charts/a/templates/a.yaml": broken}, ""},
	} {
		files := fstest.MapFS{}
		for name, content := range tc.files {
			files[name] = &fstest.MapFile{Data: []byte(content)}
		}
		err := flux.CheckSyntax(files, []string{"c"}, func(object map[string]any) []string {
			folder, _ := object["leads"].(string)
			return []string{folder}
		})
		got := ""
		if e := (*flux.SyntaxError)(nil); errors.As(err, &e) {
			got = e.File
		}
		if got != tc.want {
			t.Errorf("%s: got %v, want a mistake in %q", reason, err, tc.want)
		}
	}
}
