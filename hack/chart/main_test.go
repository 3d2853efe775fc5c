package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/release"
)

const committed = "../../charts/tenure"

// TestCommitted compares the chart in the repository with a new one.
func TestCommitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "templates", "stale.yaml")
	if err := os.MkdirAll(filepath.Dir(stale), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	got, want := tree(t, dir), tree(t, committed)
	for _, name := range []string{"Chart.yaml", "values.yaml", "templates/NOTES.txt", "templates/_helpers.tpl"} {
		delete(want, name) // written by hand
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("the chart has other files, -repository +generated: run make generate\n%s", diff)
	}
	for name, content := range got {
		if content != want[name] {
			t.Errorf("%s is outdated: run make generate", name)
		}
	}
}

// tree returns the files of a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		relative, _ := filepath.Rel(dir, name)
		files[filepath.ToSlash(relative)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestEscape renders text that has the syntax of templates.
func TestEscape(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"plain", "{{", "}}", "{{ .Values.x }}", "{{{", "{{{{ }}}}", `'{{ "{{" }}'`, "{{- /* no comment */ -}}", "has(a) ? {'b': {}} : {}",
	} {
		parsed, err := template.New("").Parse(escape(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got strings.Builder
		if err := parsed.Execute(&got, nil); err != nil || got.String() != text {
			t.Errorf("%q is rendered as %q: %v", text, got.String(), err)
		}
	}
}

// TestDeployment makes templates of Deployments without the fields that values set: a value that
// sets nothing would be a silent error.
func TestDeployment(t *testing.T) {
	t.Parallel()
	const valid = `{kind: Deployment, metadata: {name: x}, spec: {replicas: 1, template: {spec: {containers: [{name: manager, image: "` + imageMark + `", resources: {}, args: [manager, --capsule]}]}}}}`
	for _, tt := range []struct{ reason, old, replacement, want string }{
		{"valid", "", "", ""},
		{"another image", imageMark, "x", "lacks the image"},
		{"no resources", "resources: {}, ", "", "lacks the image, the resources"},
		{"no argument for Capsule's kinds", ", --capsule", "", "or the argument --capsule"},
		{"two containers", "[{name: manager", "[{name: other}, {name: manager", "it has 2 containers, want 1"},
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.Replace(valid, tt.old, tt.replacement, 1)), &o.Object); err != nil {
			t.Fatal(err)
		}
		text, err := templateOf(o)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got error %v, want %q", tt.reason, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{".Values.manager.replicas", ".Values.manager.resources", ".Values.manager.release", ".Values.capsule.enabled", "tenure.image"} {
			if !strings.Contains(text, field) {
				t.Errorf("the template has no %s:\n%s", field, text)
			}
		}
		if strings.Contains(text, "@") {
			t.Errorf("the template has a mark:\n%s", text)
		}
	}
}

// TestVersion checks that the chart in the repository is a development build's, for which no image
// exists, and that each value has a type in the schema and a comment.
func TestVersion(t *testing.T) {
	t.Parallel()
	files := tree(t, committed)
	var metadata struct{ Version, AppVersion string }
	if err := yaml.Unmarshal([]byte(files["Chart.yaml"]), &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.AppVersion != release.Unreleased || metadata.Version != "0.0.0-"+release.Unreleased {
		t.Errorf("the chart is %+v", metadata)
	}
	var values struct{ Image struct{ Repository string } }
	if err := yaml.Unmarshal([]byte(files["values.yaml"]), &values); err != nil {
		t.Fatal(err)
	}
	if values.Image.Repository != release.DefaultRepository {
		t.Errorf("the image is %s, want %s", values.Image.Repository, release.DefaultRepository)
	}
	var all, schema map[string]any
	if err := yaml.Unmarshal([]byte(files["values.yaml"]), &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(files["values.schema.json"]), &schema); err != nil {
		t.Fatal(err)
	}
	typed, _ := schema["properties"].(map[string]any)
	delete(typed, "global")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(typed))); diff != "" {
		t.Errorf("values and schema differ, -values +schema:\n%s", diff)
	}
	before := ""
	for line := range strings.Lines(files["values.yaml"]) {
		key := strings.TrimSpace(line)
		depth := len(line) - len(strings.TrimLeft(line, " "))
		if depth <= 2 && key != "" && !strings.HasPrefix(key, "#") && !strings.HasPrefix(strings.TrimSpace(before), "#") {
			t.Errorf("the value %q has no comment", key)
		}
		before = line
	}
}
