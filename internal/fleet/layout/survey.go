package layout

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Survey is the content of a folder, before a cluster's folder in it is chosen.
type Survey struct {
	// Clusters are the folders of clusters, by path.
	Clusters []Cluster
	// Nested are the clusters of fleets in folders below.
	Nested []Cluster
	// Missing are root objects whose folder is not in the repository.
	Missing []Cluster
	// Manifests is the number of YAML files.
	Manifests int
	// Flux is a file with an object of Flux, or "" if there is none.
	Flux string
	// Rootless are the folders, sorted, of Kustomizations that apply a folder of the repository from a
	// source that is not in the repository: clusters' folders, perhaps, that a root outside syncs.
	Rootless []string
}

// Cluster is the folder of a cluster in a repository.
type Cluster struct {
	// Fleet is the folder of the repository, slash separated, in the searched folder.
	Fleet string
	// Path is the folder, slash separated: the value of --path.
	Path string
	// File has the object that names the folder, and Kind is its kind.
	File, Kind string
}

// maxManifest limits the size of the manifests that a survey reads. Flux's own manifests have
// less than 1 MiB.
const maxManifest = 4 << 20

// maxEntries limits the files and folders that a survey visits: the folder may be a home folder.
const maxEntries = 100_000

// Look reads the YAML files in a folder and finds the clusters: the folders that a Flux
// Kustomization beside its source, a FluxInstance, or a FluxConfig of Azure syncs. It returns
// [ErrNotFound] if the folder does not exist, and other errors of reading it.
func Look(dir string) (Survey, error) {
	var s Survey
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return s, fmt.Errorf("cannot read the fleet: %w: %s", ErrNotFound, dir)
	}
	found := map[string]Cluster{}
	var all []placed
	eachManifest(os.DirFS(dir), ".", func(file string, content []byte) bool {
		s.Manifests++
		if path.Base(file) != syncFile && !mentioned.Match(content) {
			return true
		}
		objects, err := parse(content)
		if err != nil {
			return true // a template, or half a file: its reader reports it
		}
		if s.Flux == "" && slices.ContainsFunc(objects, isFluxObject) {
			s.Flux = file
		}
		for _, u := range objects {
			all = append(all, placed{file, u})
		}
		for _, c := range clustersIn(dir, file, content, objects) {
			key := c.Path
			if !isFolder(dir, c.Path) {
				key = c.File // perhaps of another fleet
			}
			if before, ok := found[key]; !ok || before.Kind == kustomizationKind {
				found[key] = c
			}
		}
		return true
	})
	s.Rootless = rootless(dir, all)
	addFolders(dir, found)
	for _, c := range found {
		switch {
		case isFolder(dir, c.Path):
			s.Clusters = append(s.Clusters, c)
		case c.nest(dir):
			s.Nested = append(s.Nested, c)
		default:
			s.Missing = append(s.Missing, c)
		}
	}
	for _, list := range [][]Cluster{s.Clusters, s.Nested, s.Missing} {
		slices.SortFunc(list, func(a, b Cluster) int {
			return cmp.Or(strings.Compare(a.Fleet, b.Fleet), strings.Compare(a.Path, b.Path))
		})
	}
	return s, nil
}

func isFolder(dir, folder string) bool {
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(folder)))
	return err == nil && info.IsDir()
}

// nest sets the folder of the repository if it is a folder above the cluster's file, and reports
// whether there is one.
func (c *Cluster) nest(dir string) bool {
	for folder := path.Dir(c.File); folder != "."; folder = path.Dir(folder) {
		if isFolder(dir, path.Join(folder, c.Path)) {
			c.Fleet = folder
			return true
		}
	}
	return false
}

const (
	fluxDomain        = ".toolkit.fluxcd.io/"
	kustomizationKind = "Kustomization"
	azureGroup        = "clusterconfig.azure.com"
)

// placed is an object with its file.
type placed struct {
	file   string
	object unstructured.Unstructured
}

// outsideSource returns the folder of the repository that a Kustomization applies, and reports whether its
// source is none of the repository's objects.
func outsideSource(dir string, p placed, all []placed) (folder string, outside bool) {
	folder, _, _ = unstructured.NestedString(p.object.Object, "spec", "path")
	folder = cleanPath(folder)
	return folder, p.object.GetKind() == kustomizationKind && isFluxObject(p.object) && folder != "." && isFolder(dir, folder) &&
		!slices.ContainsFunc(all, func(source placed) bool { return references(&p.object, &source.object) })
}

// rootless returns the value of [Survey.Rootless]. Folders that such a Kustomization applies are not
// among them, unless it is in the folder: then the Kustomization is the cluster's root.
func rootless(dir string, all []placed) []string {
	folders, applied, roots := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range all {
		folder, outside := outsideSource(dir, p, all)
		if !outside {
			continue
		}
		applied[folder] = true
		if inside(p.file, folder) {
			folders[folder], roots[folder] = true, true
		} else {
			folders[path.Dir(p.file)] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(folders)), func(folder string) bool {
		for above := range applied {
			if inside(folder+"/", above) && (above != folder || !roots[folder]) {
				return true
			}
		}
		return false
	})
}

// mentioned matches a manifest that may name the folder of a cluster.
var mentioned = regexp.MustCompile(`\.toolkit\.fluxcd\.io/|fluxcd\.controlplane\.io|clusterconfig\.azure\.com|\binstance:`)

// addFolders adds the folders clusters/NAME that have a folder flux-system, as a bootstrap
// makes it, whose root is not in the repository yet, or cannot be parsed.
func addFolders(dir string, found map[string]Cluster) {
	folders, _ := filepath.Glob(filepath.Join(dir, "clusters", "*", systemName))
	for _, folder := range folders {
		cluster := "clusters/" + filepath.Base(filepath.Dir(folder))
		if _, ok := found[cluster]; !ok {
			found[cluster] = Cluster{Fleet: ".", Path: cluster, File: cluster + "/" + systemName, Kind: "folder"}
		}
	}
}

func isFluxObject(u unstructured.Unstructured) bool {
	group := u.GroupVersionKind().Group
	return strings.HasSuffix(group+"/", fluxDomain) || group == operatorGroup
}

// clustersIn returns the folders of clusters that the objects of a file name.
func clustersIn(dir, file string, content []byte, objects []unstructured.Unstructured) []Cluster {
	var clusters []Cluster
	add := func(folder, kind string) {
		folder = cleanPath(folder)
		if filepath.IsLocal(filepath.FromSlash(folder)) && !strings.Contains(folder, "$") {
			clusters = append(clusters, Cluster{Fleet: ".", Path: folder, File: file, Kind: kind})
		}
	}
	for _, u := range objects {
		switch {
		case u.GetKind() == azureKind && strings.HasPrefix(u.GetAPIVersion(), azureGroup+"/"):
			add(azureCluster(&u), azureKind)
		case isRoot(u, objects):
			folder, _, _ := unstructured.NestedString(u.Object, "spec", "path")
			// Kustomizations of tenants can be beside their sources as well, often with the path ".":
			// the root applies itself.
			if path.Base(file) == syncFile || cleanPath(folder) != "." && inside(file, cleanPath(folder)) {
				add(folder, kustomizationKind)
			}
		}
	}
	if instance, _ := instanceIn(content); instance != nil {
		if folder, found, _ := unstructured.NestedString(instance.Object, "spec", "sync", "path"); found {
			add(folder, "FluxInstance")
		}
	}
	if len(clusters) == 0 && path.Base(file) == syncFile && len(objects) == 0 {
		// A bootstrap would write it. In most repositories, the folder of the clusters is at the top.
		folder := path.Dir(path.Dir(file))
		if _, below, nested := strings.Cut(folder, "/clusters/"); nested {
			folder = "clusters/" + below
		}
		add(folder, kustomizationKind)
	}
	return clusters
}

// inside reports whether a file is in a folder, both slash separated. Every file is in ".".
func inside(file, folder string) bool {
	return folder == "." || strings.HasPrefix(file, folder+"/")
}

func cleanPath(folder string) string {
	return path.Clean(strings.TrimPrefix(path.Clean("/"+folder), "/"))
}

// isRoot reports whether a Kustomization of Flux is beside the source that it names.
func isRoot(u unstructured.Unstructured, objects []unstructured.Unstructured) bool {
	if u.GetKind() != kustomizationKind || !strings.HasPrefix(u.GetAPIVersion(), "kustomize.toolkit.fluxcd.io/") {
		return false
	}
	return slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool { return references(&u, &o) })
}

// eachManifest calls read with each YAML file of a folder, other than Flux's own manifests, until read
// returns false.
func eachManifest(fleet fs.FS, folder string, read func(file string, content []byte) bool) {
	eachFile(fleet, folder, func(file string) bool { return path.Base(file) != componentsFile }, read)
}

// eachFile calls read with each YAML file of a folder whose path is wanted, until read returns false.
func eachFile(fleet fs.FS, folder string, wanted func(file string) bool, read func(file string, content []byte) bool) {
	entries := 0
	_ = fs.WalkDir(fleet, folder, func(name string, d fs.DirEntry, err error) error {
		if entries++; entries > maxEntries {
			return fs.SkipAll
		}
		switch ext := path.Ext(name); {
		case err != nil:
			return nil //nolint:nilerr // an unreadable folder has no manifests; its reader reports it
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.Type().IsRegular() || ext != ".yaml" && ext != ".yml" || !wanted(name):
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > maxManifest {
			return nil //nolint:nilerr // as above
		}
		content, err := fs.ReadFile(fleet, name)
		if err == nil && !read(name, content) {
			return fs.SkipAll
		}
		return nil
	})
}

// ErrNoFleet reports a folder in which no cluster's folder is found.
var ErrNoFleet = errors.New("is no fleet")

// Paths returns the values of --path, separated by commas.
func (s Survey) Paths() string {
	var paths []string
	for _, c := range s.Clusters {
		paths = append(paths, c.Path)
	}
	return strings.Join(paths, ", ")
}

// Diagnose returns an error with the reason why a folder has no cluster, and the way to go on.
func (s Survey) Diagnose(dir string) (wayOut string, problem error) {
	const another = "name the folder of the platform's repository with --fleet DIR, or write one with `tenure create fleet`"
	switch {
	case s.Manifests == 0:
		return another, fmt.Errorf("%s %w: it has no YAML file", dir, ErrNoFleet)
	case len(s.Nested) > 0:
		c := s.Nested[0]
		return fmt.Sprintf("give --fleet %s --path %s", filepath.Join(dir, filepath.FromSlash(c.Fleet)), c.Path),
			fmt.Errorf("%s %w: the top folder of the repository is below it", dir, ErrNoFleet)
	case len(s.Missing) > 0:
		c := s.Missing[0]
		return "check out the whole repository, or name its top folder with --fleet DIR",
			fmt.Errorf("%s is half a fleet: the %s in %s syncs the folder %s, which is not there", dir, c.Kind, c.File, c.Path)
	case len(s.Rootless) > 0:
		return fmt.Sprintf("if it is the platform's, give --path %[2]s --map URL#BRANCH=%[1]s with its address; if it is a tenant's, name the platform's repository with --fleet DIR --path CLUSTER and this one with --map URL#BRANCH=%[1]s", dir, s.Rootless[0]),
			fmt.Errorf("%s %w: the Kustomizations in %s apply folders of it, but it has no root: %s", dir, ErrNoFleet, strings.Join(s.Rootless, ", "), lookedFor)
	case s.Flux != "":
		return fmt.Sprintf("if it is a tenant's, name the platform's repository with --fleet DIR --path CLUSTER and this one with --map URL#BRANCH=%[1]s; if it is the platform's, name the cluster's folder with --path CLUSTER and the address with --map URL#BRANCH=%[1]s", dir),
			fmt.Errorf("%s %w, but perhaps a tenant's repository: it has objects of Flux, such as in %s, and no root: %s", dir, ErrNoFleet, s.Flux, lookedFor)
	}
	return another, fmt.Errorf("%s %w: it has YAML files, but no object of Flux and no root: %s", dir, ErrNoFleet, lookedFor)
}

// lookedFor names what [Look] searches for.
const lookedFor = "no gotk-sync.yaml, no FluxInstance with a spec.sync, no Kustomization beside its source that applies its own folder, no FluxConfig of Azure"
