package lockdown

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
)

// checkOverlap returns an error if another Kustomization of the fleet applies [Infrastructure] too: Flux applies
// all folders below a path without a kustomization file. Both Kustomizations would change the same objects, and in
// warn mode each would undo the other's rules.
func (t *tree) checkOverlap(s *survey) error {
	var wrong []string
	for _, o := range s.objects {
		at := path.Clean(strings.TrimPrefix(path.Join("/", o.text("spec", "path")), "/"))
		above := at == "." || strings.HasPrefix(Infrastructure, at+"/")
		if !o.isFlux("Kustomization") || o.text("spec", "sourceRef", "name") != t.fleet.Sync.Source || !above || t.hasKustomization(at) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s applies all folders below %s, so that it would apply %s, too: write %s with its other files, `resources: [%s]`",
			o, at, Infrastructure, path.Join(at, "kustomization.yaml"), strings.Join(t.resources(at), ", ")))
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("cannot lock the fleet down: %s has a Kustomization of its own, and no other one may apply it:\n  %s", Infrastructure, strings.Join(wrong, "\n  "))
}

func (t *tree) hasKustomization(dir string) bool {
	return slices.ContainsFunc(flux.KustomizationFiles(), func(name string) bool { _, ok := t.now[path.Join(dir, name)]; return ok })
}

// resources returns the resources that Flux applies in a folder without a kustomization file, without
// [Infrastructure]: manifests, and folders with a kustomization file.
func (t *tree) resources(dir string) []string {
	found := map[string]bool{}
	for name := range t.before {
		below := strings.TrimPrefix(name, dir+"/")
		if dir != "." && below == name || !isManifest(name) || strings.HasPrefix(name, Infrastructure+"/") {
			continue
		}
		for folder := path.Dir(below); folder != "."; folder = path.Dir(folder) {
			if t.hasKustomization(path.Join(dir, folder)) {
				below = folder
			}
		}
		found[below] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func isManifest(name string) bool { return path.Ext(name) == ".yaml" || path.Ext(name) == ".yml" }
