package verify

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"sigs.k8s.io/yaml"
)

// location is a line of a file. The path is relative to the top of the Git work tree that
// contains the fleet, or to the fleet's folder outside a work tree.
type location struct {
	file string
	line int
}

// manifestFile is a document of the fleet's manifests.
type manifestFile struct {
	at     location
	object struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
		Subjects []struct{ Kind, Name, Namespace string }
	}
}

// files finds the files of objects in a fleet's folder.
type files struct {
	fleet     *layout.Fleet
	prefix    string
	documents []manifestFile
}

// readFiles reads the Namespaces and the bindings of a fleet, which may be nil. It skips
// unreadable files, so that they do not prevent a report.
func readFiles(f *layout.Fleet) files {
	all := files{fleet: f}
	if f == nil {
		return all
	}
	all.prefix = prefixInRepository(f.Dir)
	for _, d := range f.Documents() {
		m := manifestFile{at: location{path.Join(all.prefix, d.File), d.Line}}
		if slices.Contains([]string{"Namespace", "RoleBinding", "ClusterRoleBinding"}, d.Kind) && yaml.Unmarshal(d.Content, &m.object) == nil {
			all.documents = append(all.documents, m)
		}
	}
	return all
}

// prefixInRepository returns the path of a folder in its Git work tree, from which readers of a
// report start.
func prefixInRepository(dir string) string {
	for top := dir; ; top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, ".git")); err == nil {
			rel, err := filepath.Rel(top, dir)
			if err != nil || rel == "." {
				return ""
			}
			return filepath.ToSlash(rel)
		}
		if top == filepath.Dir(top) {
			return ""
		}
	}
}

// root returns the location of the kustomization in the cluster's folder, or else in Flux's
// folder.
func (f files) root(clusterPath string) location {
	clusterPath = path.Clean(filepath.ToSlash(clusterPath))
	if f.fleet == nil {
		return location{path.Join(clusterPath, "kustomization.yaml"), 1}
	}
	for _, folder := range []string{clusterPath, f.fleet.System} {
		file := path.Join(folder, "kustomization.yaml")
		if _, err := os.Stat(filepath.Join(f.fleet.Dir, filepath.FromSlash(file))); err == nil {
			return location{path.Join(f.prefix, file), 1}
		}
	}
	return location{path.Join(f.prefix, clusterPath, "kustomization.yaml"), 1}
}

// of returns the location of the fix for an attack: Flux's kustomization or the FluxInstance for flags,
// the tenant's Namespace for labels, its RoleBinding for rights, or the binding of the further identity that
// got through. It returns an empty location if
// the place is unknown.
func (f files) of(tried catalog.Result, all []discovery.Tenant) location {
	fix := tried.Attack.Fix
	i := slices.IndexFunc(all, func(t discovery.Tenant) bool { return t.Name == tried.Tenant })
	if f.fleet == nil || i < 0 {
		return location{}
	}
	switch {
	case len(tried.Finding.Further) > 0:
		return f.find(func(m manifestFile) bool { return isBinding(m, tried.Finding.Further[0]) })
	case len(fix.Flags) > 0 && f.fleet.Instance != nil:
		return location{path.Join(f.prefix, f.fleet.InstanceFile), 1}
	case len(fix.Flags) > 0:
		return f.root(f.fleet.System)
	case len(fix.Labels) > 0:
		return f.find(func(m manifestFile) bool {
			return m.object.Kind == "Namespace" && slices.Contains(all[i].Namespaces, m.object.Metadata.Name)
		})
	case fix.Rights:
		return f.find(func(m manifestFile) bool { return binds(m, all[i]) })
	}
	return location{}
}

// isBinding reports whether a document is the binding of a right. Overlays may leave the namespace to a
// kustomization.
func isBinding(m manifestFile, r discovery.Right) bool {
	kind, name, _ := strings.Cut(r.Binding, " ")
	namespace, plain, within := strings.Cut(name, "/")
	if !within {
		namespace, plain = "", name
	}
	of := m.object.Metadata
	return m.object.Kind == kind && of.Name == plain && (of.Namespace == namespace || of.Namespace == "")
}

// binds reports whether a document is a RoleBinding for an account of the tenant. Overlays may
// leave the namespaces to a kustomization; then binds compares only the names.
func binds(m manifestFile, t discovery.Tenant) bool {
	if m.object.Kind != "RoleBinding" || m.object.Metadata.Namespace != "" && !slices.Contains(t.Namespaces, m.object.Metadata.Namespace) {
		return false
	}
	for _, s := range m.object.Subjects {
		for _, a := range t.Accounts {
			if s.Kind == "ServiceAccount" && s.Name == a.Name && (s.Namespace == a.Namespace || s.Namespace == "") {
				return true
			}
		}
	}
	return false
}

func (f files) find(is func(manifestFile) bool) location {
	var found []manifestFile
	for _, m := range f.documents {
		if is(m) {
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		return location{}
	}
	// A fleet with a folder for each cluster may have several: prefer the file of this cluster.
	slices.SortStableFunc(found, func(a, b manifestFile) int { return f.distance(a) - f.distance(b) })
	return found[0].at
}

func (f files) distance(m manifestFile) int {
	if strings.HasPrefix(m.at.file, path.Join(f.prefix, f.fleet.Path)+"/") {
		return 0
	}
	return 1
}

// uri writes a path as a relative reference (RFC 3986).
func uri(file string) string { return (&url.URL{Path: file}).String() }
