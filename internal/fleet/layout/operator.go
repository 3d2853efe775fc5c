package layout

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// ErrOperator is returned for a cluster whose FluxInstance cannot be used.
var ErrOperator = errors.New("flux-operator installs Flux in this cluster")

// operatorGroup is the API group of flux-operator's kinds.
const operatorGroup = "fluxcd.controlplane.io"

// instanceName is the only name of a FluxInstance that flux-operator reconciles.
const instanceName = "flux"

// findOperator looks for a FluxInstance in the cluster's folder. If there is one, the fleet
// does not hold Flux's manifests: flux-operator installs Flux and creates the root objects.
// findOperator then sets the fleet's fields, or returns an error that wraps [ErrOperator].
func (f *Fleet) findOperator() (bool, error) {
	file, instance := fluxInstance(os.DirFS(f.Dir), f.Path)
	if instance == nil && !f.hasBootstrapFiles() {
		file, instance = instanceElsewhere(os.DirFS(f.Dir), f.Path)
	}
	if instance == nil && !f.hasBootstrapFiles() {
		file, instance = instanceWithoutSync(os.DirFS(f.Dir))
	}
	if instance == nil {
		return false, nil
	}
	var roots *Sync
	// Some fleets let the FluxInstance install Flux only, and declare their root objects themselves.
	if lacksSync(instance) {
		if sync, found := f.findRoots(); found && sync.Kind != bucket {
			roots = &sync
		} else if !strings.HasPrefix(file, f.Path+"/") {
			return false, nil
		}
	}
	f.System = path.Dir(file)
	f.declared = f.System
	f.Instance, f.InstanceFile = instance, file
	if instance.GetNamespace() == "" {
		instance.SetNamespace(systemName)
	}
	if roots != nil {
		f.Sync = *roots
		return true, nil
	}
	var err error
	f.Sync, err = syncOf(instance, f.Path)
	if err != nil {
		return true, fmt.Errorf("%w, but %s cannot be used: %w", ErrOperator, file, err)
	}
	return true, nil
}

// syncOf returns the root objects that flux-operator creates for a FluxInstance.
func syncOf(instance *unstructured.Unstructured, clusterPath string) (Sync, error) {
	if name := instance.GetName(); name != instanceName {
		return Sync{}, fmt.Errorf("the FluxInstance is named %s, and flux-operator reconciles only the name %s", name, instanceName)
	}
	fields, _, err := unstructured.NestedStringMap(instance.Object, "spec", "sync")
	switch {
	case err != nil:
		return Sync{}, fmt.Errorf("spec.sync has fields that are not text: %w", err)
	case len(fields) == 0:
		return Sync{}, errors.New("it has no spec.sync, so nothing says where the fleet comes from: add it, with the kind GitRepository or OCIRepository")
	case fields["kind"] != gitRepository && fields["kind"] != "OCIRepository":
		return Sync{}, fmt.Errorf("the local cluster cannot serve a source of kind %q: in a copy of the fleet, set spec.sync to a GitRepository", fields["kind"])
	}
	if at := path.Clean(strings.TrimPrefix(fields["path"], "/")); at != clusterPath {
		return Sync{}, fmt.Errorf("its spec.sync.path is %s, and the cluster's folder is %s: give --path %s, or change the path", at, clusterPath, at)
	}
	name := cmp.Or(fields["name"], instance.GetNamespace())
	branch := strings.TrimPrefix(fields["ref"], "refs/heads/")
	if strings.HasPrefix(branch, "refs/") {
		return Sync{}, fmt.Errorf("its spec.sync.ref is %s, and the local cluster serves branches: set refs/heads/BRANCH in a copy of the fleet", branch)
	}
	return Sync{
		Kind: fields["kind"], URL: fields["url"], Branch: branch,
		Namespace: instance.GetNamespace(), Source: name, Kustomization: name,
		SecretRef: fields["pullSecret"],
	}, nil
}

// hasBootstrapFiles reports whether the cluster's folder has a file of a bootstrap.
func (f *Fleet) hasBootstrapFiles() bool {
	system, err := f.findSystem()
	if err != nil {
		return false
	}
	for _, file := range []string{componentsFile, syncFile} {
		if _, err := os.Stat(filepath.Join(f.Dir, filepath.FromSlash(system), file)); err == nil {
			return true
		}
	}
	return false
}

// instanceElsewhere returns the FluxInstance that syncs a folder from anywhere in the fleet: an
// admin applies it by hand, or flux-operator's chart flux-instance creates it from its values.
func instanceElsewhere(fleet fs.FS, clusterPath string) (file string, instance *unstructured.Unstructured) {
	eachManifest(fleet, ".", func(name string, content []byte) bool {
		found, _ := instanceIn(content)
		if found == nil {
			return true
		}
		folder, _, _ := unstructured.NestedString(found.Object, "spec", "sync", "path")
		if cleanPath(folder) != clusterPath {
			return true
		}
		file, instance = name, found
		return false
	})
	return file, instance
}

// instanceWithoutSync returns the FluxInstance without spec.sync of a repository that has one alone.
func instanceWithoutSync(fleet fs.FS) (file string, instance *unstructured.Unstructured) {
	found := 0
	eachManifest(fleet, ".", func(name string, content []byte) bool {
		if candidate, _ := instanceIn(content); candidate != nil && lacksSync(candidate) {
			file, instance = name, candidate
			found++
		}
		return true
	})
	if found != 1 {
		return "", nil
	}
	return file, instance
}

func lacksSync(instance *unstructured.Unstructured) bool {
	sync, _, err := unstructured.NestedMap(instance.Object, "spec", "sync")
	return err == nil && len(sync) == 0
}

// instanceFields are the values of the chart flux-instance that it copies into the spec.
var instanceFields = []string{"cluster", "commonMetadata", "components", "distribution", "kustomize", "sharding", "storage", "sync"}

// instanceIn returns the FluxInstance in a manifest, or the one that the chart flux-instance
// creates: from the values in a HelmRelease, or from a file of values. chart reports the latter.
func instanceIn(content []byte) (instance *unstructured.Unstructured, chart bool) {
	if !bytes.Contains(content, []byte("FluxInstance")) && !bytes.Contains(content, []byte("instance:")) {
		return nil, false
	}
	for _, doc := range flux.SplitYAML(content) {
		object := map[string]any{}
		if yaml.Unmarshal(doc, &object) != nil {
			continue
		}
		u := unstructured.Unstructured{Object: object}
		if u.GetKind() == "FluxInstance" && strings.HasPrefix(u.GetAPIVersion(), operatorGroup+"/") {
			return &u, false
		}
		for _, at := range [][]string{{"spec", "values", "instance"}, {"instance"}} {
			values, found, err := unstructured.NestedMap(object, at...)
			if sync, _, _ := unstructured.NestedStringMap(values, "sync"); found && err == nil && sync["kind"] != "" && sync["url"] != "" {
				return chartInstance(values), true
			}
		}
	}
	return nil, false
}

// chartInstance returns the FluxInstance of the chart flux-instance with its defaults.
func chartInstance(values map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"distribution": map[string]any{}}
	for _, field := range instanceFields {
		if value, ok := values[field]; ok {
			spec[field] = value
		}
	}
	if distribution, ok := spec["distribution"].(map[string]any); ok {
		for field, value := range map[string]any{"version": "2.x", "registry": "ghcr.io/fluxcd", "artifact": "oci://ghcr.io/controlplaneio-fluxcd/flux-operator-manifests:latest"} {
			if distribution[field] == nil {
				distribution[field] = value
			}
		}
	}
	instance := newObject(operatorGroup+"/v1", "FluxInstance", systemName, instanceName, spec)
	return &instance
}

// resourceSet matches a ResourceSet or a ResourceSetInputProvider in a manifest.
var resourceSet = regexp.MustCompile(`(?m)^\s*-?\s*["']?kind["']?\s*:\s*["']?ResourceSet`)

// UsesOperator reports whether the cluster needs flux-operator: it has a FluxInstance, or a
// manifest of the fleet has a ResourceSet.
func (f *Fleet) UsesOperator() bool { return f.Instance != nil || f.contains(resourceSet) }

// fluxInstance returns the first file of a folder that has a FluxInstance, and the object,
// or nil. Files that cannot be read count as files without one.
func fluxInstance(fleet fs.FS, folder string) (file string, instance *unstructured.Unstructured) {
	_ = fs.WalkDir(fleet, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // a folder that cannot be read has no FluxInstance
		}
		if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" {
			return nil
		}
		content, err := fs.ReadFile(fleet, name)
		if err != nil || !bytes.Contains(content, []byte("FluxInstance")) {
			return nil //nolint:nilerr // as above
		}
		objects, _ := parse(content)
		i := slices.IndexFunc(objects, func(o unstructured.Unstructured) bool {
			return o.GetKind() == "FluxInstance" && strings.HasPrefix(o.GetAPIVersion(), operatorGroup+"/")
		})
		if i < 0 {
			return nil
		}
		file, instance = name, &objects[i]
		return fs.SkipAll
	})
	return file, instance
}
