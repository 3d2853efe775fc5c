package local

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/yaml"
)

// walker finds the files that Flux reads to build a folder: those that its kustomization
// file names or, without one, all files in it.
type walker struct {
	files fs.FS
	// used are the files.
	used map[string]fileUse
	seen map[string]bool
	// renames is set below a kustomization file that changes names.
	renames bool
	// deletions are the patches that remove objects.
	deletions []deletion
}

// fileUse says how a file is used.
type fileUse struct {
	// resource is set if the file's own objects are applied, and not set for a patch or a
	// generator's file.
	resource bool
	// renames is set if the names of the objects may change.
	renames bool
}

// renaming finds the fields of a kustomization file that change the names of objects.
var renaming = regexp.MustCompile(`(?m)^\s*-?\s*(?:namePrefix|nameSuffix|transformers|replacements|allowNameChange)\s*:`)

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
	if file, content, err := flux.KustomizationFile(w.files, dir); err == nil {
		w.used[file] = fileUse{}
		w.kustomization(dir, content)
		return
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
			w.used[name] = fileUse{resource: true, renames: w.renames}
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
	outer := w.renames
	defer func() { w.renames = outer }()
	w.renames = outer || renaming.Match(content)
	for field, value := range fields {
		if field == "patches" || field == "patchesStrategicMerge" {
			w.deletions = append(w.deletions, deletionsOf(w.files, dir, value)...)
		}
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
			w.used[at] = fileUse{w.used[at].resource || resource, w.used[at].renames || w.renames}
		}
	}
}
