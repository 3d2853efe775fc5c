// Package layout reads the folder of a platform's repository before a cluster does: it finds
// Flux's own manifests, if there are any, and reads the root objects. It knows the layout of
// `flux bootstrap` (PATH/flux-system with gotk-components.yaml and gotk-sync.yaml) and
// tolerates others.
package layout

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	componentsFile = "gotk-components.yaml"
	syncFile       = "gotk-sync.yaml"
	systemName     = "flux-system"
)

// ErrNotFound reports that a given folder does not exist.
var ErrNotFound = errors.New("no such folder")

// Options has the content that replaces placeholders in a fleet.
type Options struct {
	// URL and Branch describe the repository of the folder. They are used if the fleet does not
	// set them.
	URL, Branch string
	// Components are Flux's manifests for a fleet without them.
	Components []byte
	// Optional are parts of Flux that not every fleet needs.
	Optional []Optional
}

// Optional are manifests that are added to the components of a fleet that has
// objects of their API.
type Optional struct {
	// Group is the API group, such as image.toolkit.fluxcd.io.
	Group string
	// Manifests is a YAML stream.
	Manifests []byte
	// Components, if set, replace [Options.Components], such as with a feature gate that the
	// API needs.
	Components []byte
}

// componentsFor returns Flux's manifests for a fleet without them.
func (opts Options) componentsFor(f *Fleet) []byte {
	components, extra := opts.Components, []byte(nil)
	for _, optional := range opts.Optional {
		if !f.uses(optional.Group) {
			continue
		}
		if optional.Components != nil {
			components = optional.Components
		}
		extra = slices.Concat(extra, []byte("\n---\n"), optional.Manifests)
	}
	return slices.Concat(components, extra)
}

// Fleet is a platform's repository as one cluster sees it.
type Fleet struct {
	// Dir is the absolute path of the repository's folder.
	Dir string
	// Path is the cluster's folder in the repository, slash separated, such as clusters/staging.
	Path string
	// System is the folder of Flux's manifests, slash separated.
	System string
	// declared is the folder of the files gotk-components.yaml and gotk-sync.yaml: System,
	// or a base that System completes.
	declared string
	// Overlay has files by their path in the repository. They replace missing files and
	// placeholders.
	Overlay map[string][]byte
	// FlagsUnknown reports that no file of the repository has the flags of Flux's controllers, as where
	// Terraform or Helm installs Flux: the defaults of [Options.Components] stand in for them.
	FlagsUnknown bool
	// Sync describes the root objects.
	Sync Sync
	// Roots are the root objects of a fleet that declares them in another place than System, as
	// an admin applies them; their file is RootFile, slash separated.
	Roots    []unstructured.Unstructured
	RootFile string
	// RootInvented reports that the root Kustomization in Roots is in no file of the repository.
	RootInvented bool
	// FetchBase gets the remote bases of the fleet's kustomizations for builds; nil gets none.
	FetchBase flux.FetchBase
	// Instance is the FluxInstance from which flux-operator installs Flux and creates the
	// root objects; nil in a fleet that holds Flux's manifests.
	Instance *unstructured.Unstructured
	// InstanceFile is the path of its file in the repository, slash separated.
	InstanceFile string
}

// Sync is the root source and the root Kustomization, as written in the fleet.
type Sync struct {
	// Kind is the kind of the root source: GitRepository or OCIRepository.
	Kind string
	// URL and Branch are the repository of the root source. Branch is the tag of an
	// OCIRepository, or "" if it is selected in another way.
	URL, Branch string
	// Namespace, Source and Kustomization name the root objects.
	Namespace, Source, Kustomization string
	// SecretRef is the Secret of the root source, if any. A bootstrap creates it in the cluster;
	// it is not in Git.
	SecretRef string
}

// Load reads the fleet in dir for the cluster with the folder clusterPath. It returns an error if
// a file cannot be read, or if the folder is not that of a cluster.
func Load(dir, clusterPath string, opts Options) (*Fleet, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	f := &Fleet{Dir: abs, Path: path.Clean(filepath.ToSlash(clusterPath)), Overlay: map[string][]byte{}}
	if err := f.checkFolders(clusterPath); err != nil {
		return nil, err
	}
	if found, err := f.findOperator(); found || err != nil {
		if err == nil {
			err = f.checkSyntax()
		}
		return f, err
	}
	if f.System, err = f.findSystem(); err != nil {
		return nil, err
	}
	f.findDeclared()
	objects, err := f.systemObjects()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(objects, isFluxDeployment) {
		name := path.Join(f.declared, componentsFile)
		f.FlagsUnknown = !isFile(f.Dir, name) && !f.contains(fluxInstall) && !slices.ContainsFunc(f.built(f.Path, nil), isFluxDeployment)
		f.Overlay[name] = opts.componentsFor(f)
	}
	sync, found := findSync(f.built(f.System, objects), f.Path)
	if !found {
		sync, found = f.findBuiltRoots()
	}
	if !found {
		sync, found = f.findRoots()
	}
	if !found {
		sync = inventSync(opts.URL, opts.Branch)
		if sync.URL == "" {
			if err := otherClusters(dir, f.Path); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("the fleet in %s does not say where it comes from: %s, and in the repository no Kustomization beside its source, no FluxInstance and no FluxConfig of Azure syncs %s; name its address with --map URL#BRANCH=%s",
				dir, f.NoRoot(), f.Path, dir)
		}
		if !f.completeRoot(&sync) {
			f.Overlay[path.Join(f.declared, syncFile)] = syncManifest(sync, f.Path)
		}
	}
	if sync.Kind == bucket {
		return nil, fmt.Errorf("the root %s %s/%s is a source that the local cluster cannot serve: in a copy of the fleet, make it a GitRepository or an OCIRepository", bucket, sync.Namespace, sync.Source)
	}
	f.Sync = sync
	if err := f.completeKustomization(); err != nil {
		return f, err
	}
	return f, f.checkSyntax()
}

// NoRoot says why a fleet without a root has none in gotk-sync.yaml.
func (f *Fleet) NoRoot() string {
	name := path.Join(f.declared, syncFile)
	if !isFile(f.Dir, name) {
		return name + " is missing"
	}
	return name + " has no source and no Kustomization"
}

// checkSyntax returns an error for a file of the cluster's folder, or of a folder that the platform's
// Kustomizations apply, that is not YAML: Flux would apply none of the folder.
func (f *Fleet) checkSyntax() error {
	err := flux.CheckSyntax(os.DirFS(f.Dir), []string{f.Path, f.System}, func(object map[string]any) []string {
		u := unstructured.Unstructured{Object: object}
		source, _, _ := unstructured.NestedString(object, "spec", "sourceRef", "name")
		folder, _, _ := unstructured.NestedString(object, "spec", "path")
		if u.GetKind() != kustomizationKind || source != f.Sync.Source {
			return nil
		}
		return []string{path.Join(".", folder)}
	})
	if err != nil {
		return fmt.Errorf("cannot read the fleet: %w", err)
	}
	return nil
}

// CheckSyntax returns an error for a file of a cluster's folder in dir that is not YAML. It returns no
// error for a folder in which it finds no cluster.
func CheckSyntax(dir string) error {
	found, err := Look(dir)
	if err != nil {
		return nil //nolint:nilerr // whoever reads the folder reports it
	}
	for _, c := range found.Clusters {
		f := Fleet{Dir: filepath.Join(dir, filepath.FromSlash(c.Fleet)), Path: c.Path, System: path.Join(c.Path, systemName), Sync: Sync{Source: systemName}}
		if err := f.checkSyntax(); err != nil {
			return err
		}
	}
	return nil
}

// otherClusters returns an error if a folder of the fleet is no cluster's, and others are.
func otherClusters(dir, folder string) error {
	found, err := Look(dir)
	if err != nil || len(found.Clusters) == 0 || slices.ContainsFunc(found.Clusters, func(c Cluster) bool { return c.Path == folder }) {
		return err
	}
	return fmt.Errorf("nothing in the fleet in %s syncs the folder %s; it has --path %s; if %s is a cluster's, name the fleet's address with --map URL#BRANCH=%s", dir, folder, found.Paths(), folder, dir)
}

// ComponentsFile returns the path in the repository and the content of Flux's own manifests as
// they are served. Both are empty if a kustomization includes the manifests from another file. It
// returns an error if the file cannot be read.
func (f *Fleet) ComponentsFile() (name string, content []byte, err error) {
	name = path.Join(f.declared, componentsFile)
	if content, ok := f.Overlay[name]; ok {
		return name, content, nil
	}
	content, err = os.ReadFile(filepath.Join(f.Dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return name, nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	return name, content, nil
}

func (f *Fleet) checkFolders(clusterPath string) error {
	if info, err := os.Stat(f.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot read the fleet: %w: %s", ErrNotFound, f.Dir)
	}
	if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
		return fmt.Errorf("cannot read the fleet: --path %s leads out of it: give a path inside the fleet, such as clusters/staging", clusterPath)
	}
	if info, err := os.Stat(filepath.Join(f.Dir, filepath.FromSlash(f.Path))); err == nil && info.IsDir() {
		return nil
	}
	err := fmt.Errorf("cannot read the fleet: %w: %s in %s", ErrNotFound, f.Path, f.Dir)
	found, lookErr := Look(f.Dir)
	if lookErr != nil {
		return lookErr
	}
	if len(found.Clusters) > 0 {
		return fmt.Errorf("%w; it has --path %s", err, found.Paths())
	}
	wayOut, problem := found.Diagnose(f.Dir)
	return fmt.Errorf("%w; %w: %s", err, problem, wayOut)
}

// findSystem returns the folder with Flux's manifests: a folder below the cluster's folder
// with a file that has the name of a bootstrap's file, or the folder that a bootstrap would
// create.
func (f *Fleet) findSystem() (string, error) {
	var found string
	root := filepath.Join(f.Dir, filepath.FromSlash(f.Path))
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && (d.Name() == componentsFile || d.Name() == syncFile) {
			found = filepath.Dir(file)
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("cannot read the fleet: %w", err)
	}
	if found == "" {
		return path.Join(f.Path, systemName), nil
	}
	rel, err := filepath.Rel(f.Dir, found)
	if err != nil {
		return "", fmt.Errorf("cannot read the fleet: %w", err)
	}
	return filepath.ToSlash(rel), nil
}

// maxBases is the maximum depth of bases that are searched for Flux's manifests.
const maxBases = 5

// findDeclared finds the folder that holds Flux's own files: the system folder, or a base
// that its kustomization names, directly or through other bases.
func (f *Fleet) findDeclared() {
	f.declared = f.System
	folders := []string{f.System}
	for range maxBases {
		var next []string
		for _, folder := range folders {
			for _, file := range []string{componentsFile, syncFile} {
				if _, err := os.Stat(filepath.Join(f.Dir, filepath.FromSlash(folder), file)); err == nil {
					f.declared = folder
					return
				}
			}
			next = append(next, f.bases(folder)...)
		}
		folders = next
	}
}

// bases returns the folders within the fleet that a folder's kustomization names.
func (f *Fleet) bases(folder string) []string {
	_, content, err := flux.KustomizationFile(os.DirFS(f.Dir), folder)
	if err != nil {
		return nil // the build of the folder reports the error
	}
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if yaml.Unmarshal(content, &kustomization) != nil {
		return nil
	}
	var bases []string
	for _, resource := range kustomization.Resources {
		base := path.Join(folder, resource)
		info, err := os.Stat(filepath.Join(f.Dir, filepath.FromSlash(base)))
		if err == nil && info.IsDir() && filepath.IsLocal(filepath.FromSlash(base)) {
			bases = append(bases, base)
		}
	}
	return bases
}

// systemObjects returns the objects in the manifests of the system folder. It skips files that
// are not manifests, such as patches.
func (f *Fleet) systemObjects() ([]unstructured.Unstructured, error) {
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		found, err := filepath.Glob(filepath.Join(f.Dir, filepath.FromSlash(f.declared), pattern))
		if err != nil {
			return nil, fmt.Errorf("cannot read the fleet: %w", err)
		}
		files = append(files, found...)
	}
	var objects []unstructured.Unstructured
	for _, file := range files {
		if flux.IsKustomizationFile(filepath.ToSlash(file)) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the fleet: %w", err)
		}
		parsed, err := parse(content)
		if err != nil {
			_, err = flux.ReadYAML(path.Join(f.declared, filepath.Base(file)), content) // names the line
			return nil, fmt.Errorf("cannot read the fleet: %w", err)
		}
		objects = append(objects, parsed...)
	}
	return objects, nil
}

// parse splits a YAML stream into objects. It skips documents without content or kind, and lists,
// such as the operations of a JSON patch.
func parse(content []byte) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured
	for _, doc := range flux.SplitYAML(content) {
		var content any
		if err := yaml.Unmarshal(doc, &content); err != nil {
			return nil, err
		}
		// A list is a JSON patch.
		object, _ := content.(map[string]any)
		if kind, _ := object["kind"].(string); kind != "" {
			objects = append(objects, unstructured.Unstructured{Object: object})
		}
	}
	return objects, nil
}

func isFluxDeployment(u unstructured.Unstructured) bool {
	return u.GetKind() == "Deployment" && (u.GetName() == "source-controller" || u.GetName() == "kustomize-controller")
}

// fluxInstall matches a manifest that installs Flux or changes the Deployments of its controllers.
var fluxInstall = regexp.MustCompile(`(?s)\bDeployment\b.{0,200}?(kustomize-controller|part-of=flux\b)|\bchart["']?\s*:\s*["']?flux2\b`)

func isFile(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	return err == nil && info.Mode().IsRegular()
}

// FluxNamespace returns the namespace of Flux's controllers. With a FluxConfig of Azure it is not the
// namespace of the root objects.
func (f *Fleet) FluxNamespace() string {
	for _, content := range f.Overlay {
		objects, err := parse(content)
		if i := slices.IndexFunc(objects, isFluxDeployment); err == nil && i >= 0 {
			return cmp.Or(objects[i].GetNamespace(), f.Sync.Namespace)
		}
	}
	return f.Sync.Namespace
}

// uses reports whether any manifest of the fleet has an object of the group.
func (f *Fleet) uses(group string) bool {
	// Rules and labels may name the group without using its kinds.
	return f.contains(regexp.MustCompile(`apiVersion["']?\s*:\s*["']?` + regexp.QuoteMeta(group) + "/"))
}

// contains reports whether any manifest of the fleet matches.
func (f *Fleet) contains(object *regexp.Regexp) bool {
	uses := false
	_ = filepath.WalkDir(f.Dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an unreadable corner is reported by whoever serves the folder
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if ext := filepath.Ext(file); d.Type().IsRegular() && (ext == ".yaml" || ext == ".yml") && d.Name() != componentsFile {
			content, err := os.ReadFile(file)
			if err == nil && object.Match(content) {
				uses = true
				return fs.SkipAll
			}
		}
		return nil
	})
	return uses
}
