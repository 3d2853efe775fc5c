package local

import (
	"io/fs"
	"path"
	"regexp"

	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/yaml"
)

// deletion selects the objects that a patch with `$patch: delete` removes. The fields are patterns; an
// empty one selects all.
type deletion struct{ Kind, Name, Namespace string }

// removes reports whether the deletion selects an object.
func (d deletion) removes(o manifestObject) bool {
	matches := func(pattern, value string) bool {
		found, err := regexp.MatchString("^(?:"+pattern+")$", value)
		return pattern == "" || err == nil && found
	}
	return matches(d.Kind, o.kind) && matches(d.Name, o.name) &&
		(d.Namespace == "" || o.namespace == "" || d.Namespace == o.namespace)
}

// deletionsOf returns the deletions in the patches of a kustomization in a folder, or of a Kustomization
// of Flux. An element of patches is a text, the name of a file with it, or a map with one of them
// and, optionally, the selected objects.
func deletionsOf(files fs.FS, dir string, patches any) []deletion {
	list, _ := patches.([]any)
	var all []deletion
	for _, element := range list {
		fields, _ := element.(map[string]any)
		text, _ := fields["patch"].(string)
		name, _ := fields["path"].(string)
		if s, ok := element.(string); ok {
			text, name = s, s
		}
		content := []byte(text)
		if at := path.Join(dir, name); files != nil && name != "" && fs.ValidPath(at) {
			if read, err := fs.ReadFile(files, at); err == nil {
				content = read
			}
		}
		target, _ := fields["target"].(map[string]any)
		all = append(all, deletionsIn(content, target)...)
	}
	return all
}

// deletionsIn returns the deletions in the text of a patch. A target replaces the names in the text.
func deletionsIn(content []byte, target map[string]any) []deletion {
	var all []deletion
	for _, document := range flux.SplitYAML(content) {
		var o struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Patch    string `json:"$patch"`
		}
		if yaml.Unmarshal(document, &o) != nil || o.Patch != "delete" {
			continue
		}
		d := deletion{regexp.QuoteMeta(o.Kind), regexp.QuoteMeta(o.Metadata.Name), o.Metadata.Namespace}
		if target != nil {
			kind, _ := target["kind"].(string)
			name, _ := target["name"].(string)
			namespace, _ := target["namespace"].(string)
			d = deletion{kind, name, namespace}
		}
		all = append(all, d)
	}
	return all
}
