package autofix

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// cluster is another cluster of the fleet, with the files that it reads.
type cluster struct {
	path  string
	files map[string]string
}

// clusters returns the fleet's other clusters: the folders with a folder flux-system, or with a
// gotk-sync.yaml for them. It omits clusters that it cannot read.
func clusters(f *layout.Fleet) []cluster {
	var all []cluster
	_ = filepath.WalkDir(f.Dir, func(file string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(f.Dir, file)
		if err != nil || relErr != nil {
			return nil //nolint:nilerr // an unreadable folder is no cluster
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		folder := path.Dir(filepath.ToSlash(rel))
		if !d.IsDir() {
			folder = path.Dir(folder)
		}
		bootstrapped := d.IsDir() && d.Name() == "flux-system" || d.Name() == "gotk-sync.yaml" && isFor(file, folder)
		if !bootstrapped || folder == f.Path || slices.ContainsFunc(all, func(c cluster) bool { return c.path == folder }) {
			return nil
		}
		// Load requires an address; its value has no effect here.
		other, err := layout.Load(f.Dir, folder, layout.Options{URL: "https://git.invalid", Branch: "main"})
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if t, err := load(other); err == nil {
			all = append(all, cluster{folder, t.before})
		}
		return nil
	})
	return all
}

// isFor reports whether a file has the Kustomization that applies a folder.
func isFor(file, folder string) bool {
	content, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	s, err := yamledit.Parse(string(content))
	return err == nil && slices.ContainsFunc(s.Docs, func(doc *yaml.Node) bool {
		return isSync(doc) && path.Clean(yamledit.Str(doc, "spec", "path")) == folder
	})
}

// sharing returns a note about the other clusters that a patch changes.
func (t *tree) sharing() string {
	if t.bench.clusters == nil {
		t.bench.clusters = append([]cluster{}, clusters(t.fleet)...)
	}
	var lines strings.Builder
	for _, c := range t.bench.clusters {
		var files []string
		for _, name := range slices.Sorted(maps.Keys(t.now)) {
			before, old := t.before[name]
			_, reads := c.files[name]
			if changed := !old || before != t.now[name]; changed && (reads || !old && beside(c, name)) {
				files = append(files, name)
			}
		}
		if len(files) > 0 {
			fmt.Fprintf(&lines, "# this changes %s too, which shares %s\n", c.path, strings.Join(files, ", "))
		}
	}
	return lines.String()
}

// beside reports whether a cluster reads the kustomization file of a new file's folder.
func beside(c cluster, name string) bool {
	return slices.ContainsFunc(flux.KustomizationFiles(), func(file string) bool {
		_, ok := c.files[path.Join(path.Dir(name), file)]
		return ok
	})
}
