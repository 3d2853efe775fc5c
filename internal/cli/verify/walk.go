package verify

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// walker finds the files that Flux reads to build a folder: those that its kustomization
// file names or, without one, all files in it.
type walker struct {
	files fs.FS
	// used are the files, with true if their own objects are applied, and false for a
	// patch or a generator's file.
	used, seen map[string]bool
}

// kustomizationFiles are the names of a kustomization file.
var kustomizationFiles = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// resourceFields and fileFields are the fields of a kustomization that name files or
// folders. The objects in the files of resourceFields are applied.
var resourceFields, fileFields = []string{"resources", "bases", "components"}, []string{
	"crds", "configurations", "generators", "transformers", "validators", "patches", "patchesStrategicMerge", "patchesJson6902", "configMapGenerator", "secretGenerator", "replacements", "openapi", "helmCharts",
}

func (w *walker) folder(dir string) {
	if w.seen[dir] || !fs.ValidPath(dir) {
		return
	}
	w.seen[dir] = true
	for _, name := range kustomizationFiles {
		file := path.Join(dir, name)
		if content, err := fs.ReadFile(w.files, file); err == nil {
			w.used[file] = false
			w.kustomization(dir, content)
			return
		}
	}
	entries, err := fs.ReadDir(w.files, dir)
	if err != nil {
		return // the Kustomization that names it is not ready, and reports why
	}
	for _, entry := range entries {
		switch name := path.Join(dir, entry.Name()); {
		case entry.IsDir() && entry.Name() != ".git":
			w.folder(name)
		case isManifest(name):
			w.used[name] = true
		}
	}
}

// kustomization follows the files and folders that a kustomization file names. It ignores
// a file that does not parse: its Kustomization is not ready in the cluster.
func (w *walker) kustomization(dir string, content []byte) {
	var fields map[string]any
	if yaml.Unmarshal(content, &fields) != nil {
		return
	}
	for field, value := range fields {
		if resource := slices.Contains(resourceFields, field); resource || slices.Contains(fileFields, field) {
			w.follow(dir, value, resource)
		}
	}
}

// follow marks the files that a value names as used, and walks the folders.
func (w *walker) follow(dir string, value any, resource bool) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			w.follow(dir, element, resource)
		}
	case map[string]any:
		for _, element := range v {
			w.follow(dir, element, resource)
		}
	case string:
		if _, file, named := strings.Cut(v, "="); named {
			v = file // KEY=FILE of a generator
		}
		at := path.Join(dir, v)
		info, err := fs.Stat(w.files, at)
		switch {
		case err != nil || strings.Contains(v, "\n") || at == dir:
		case info.IsDir():
			w.folder(at)
		default:
			w.used[at] = w.used[at] || resource
		}
	}
}
