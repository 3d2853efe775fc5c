package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fluxcd/flux2/v2/pkg/manifestgen/install"
	"github.com/fluxcd/flux2/v2/pkg/manifestgen/kustomization"
)

var (
	defaultControllers = []string{"source-controller", "kustomize-controller", "helm-controller", "notification-controller"}
	imageControllers   = []string{"image-reflector-controller", "image-automation-controller"}
)

// releaseURL matches the URLs in flux2's bases of the CRDs or the Deployment in a controller's
// release.
var releaseURL = regexp.MustCompile(`https://\S+\.(crds|deployment)\.yaml`)

// build returns the files of config/flux by name.
func build(root string) (map[string][]byte, error) {
	tmp, err := os.MkdirTemp("", "fluxmanifests-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	// The temporary folder of macOS is a symbolic link. kustomize would resolve it and find files
	// outside of its root.
	if tmp, err = filepath.EvalSymlinks(tmp); err != nil {
		return nil, err
	}
	flux2, err := module(".", "github.com/fluxcd/flux2/v2")
	if err != nil {
		return nil, err
	}
	release := filepath.Join(tmp, "release")
	if err := buildRelease(root, flux2.Dir, tmp, release); err != nil {
		return nil, err
	}
	components, err := export(release, flux2.Version, defaultControllers)
	if err != nil {
		return nil, err
	}
	all, err := export(release, flux2.Version, slices.Concat(defaultControllers, imageControllers))
	if err != nil {
		return nil, err
	}
	watcher, err := sourceWatcher(tmp, flux2.Version)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		componentsFile:    components,
		imageFile:         subtract(all, components),
		sourceWatcherFile: watcher,
	}, nil
}

// moduleInfo is the information of the go command about a downloaded module.
type moduleInfo struct{ Dir, Version, Error string }

// module returns a module at the version that the go.mod in dir selects. It downloads the
// module if the module cache lacks it.
func module(dir, path string) (moduleInfo, error) {
	var info moduleInfo
	var stderr bytes.Buffer
	cmd := exec.Command("go", "mod", "download", "-json", path)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		return info, fmt.Errorf("cannot find module %s: %w: %s", path, err, stderr.String())
	}
	if err := json.Unmarshal(out, &info); err != nil {
		return info, fmt.Errorf("cannot find module %s: %w", path, err)
	}
	if info.Error != "" {
		return info, fmt.Errorf("cannot find module %s: %s", path, info.Error)
	}
	return info, nil
}

// buildRelease builds a release like flux2's manifests/scripts/bundle.sh: one file for each
// controller, one for RBAC, one for the network policies.
func buildRelease(root, flux2, tmp, release string) error {
	manifests := filepath.Join(tmp, "manifests")
	if err := copyTree(manifests, filepath.Join(flux2, "manifests")); err != nil {
		return err
	}
	targets := map[string]string{
		"rbac":     filepath.Join(manifests, "rbac"),
		"policies": filepath.Join(manifests, "policies"),
	}
	for _, name := range slices.Concat(defaultControllers, imageControllers) {
		base := filepath.Join(manifests, "bases", name)
		if err := vendorController(root, name, base, tmp); err != nil {
			return err
		}
		targets[name] = base
	}
	if err := os.MkdirAll(release, 0o755); err != nil {
		return err
	}
	for name, dir := range targets {
		if err := kustomize(dir, filepath.Join(release, name+".yaml")); err != nil {
			return err
		}
	}
	return nil
}

// vendorController copies a controller's CRDs and Deployment beside the base that fetches them
// from the release, and changes the base to use these.
func vendorController(root, name, base, tmp string) error {
	info, err := module(filepath.Join(root, "cluster", "flux"), "github.com/fluxcd/"+name)
	if err != nil {
		return err
	}
	config := filepath.Join(tmp, "controllers", name)
	if err := copyTree(config, filepath.Join(info.Dir, "config")); err != nil {
		return err
	}
	for dir, file := range map[string]string{"crd": "crds.yaml", "manager": "deployment.yaml"} {
		if err := kustomize(filepath.Join(config, dir), filepath.Join(base, file)); err != nil {
			return err
		}
	}
	if tag := []byte(name + ":" + info.Version); !fileContains(filepath.Join(base, "deployment.yaml"), tag) {
		return fmt.Errorf("the Deployment of %s does not name the image %s", name, tag)
	}
	file := filepath.Join(base, "kustomization.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, releaseURL.ReplaceAll(content, []byte("$1.yaml")), 0o644)
}

// export returns the output of `flux install --export` for the components, from a release
// folder.
func export(release, version string, components []string) ([]byte, error) {
	options := install.MakeDefaultOptions()
	options.Version, options.Components = version, components
	// BaseURL keeps the default address although nothing is fetched from it: Generate would take a
	// folder for a finished overlay.
	manifest, err := install.Generate(options, release)
	if err != nil {
		return nil, fmt.Errorf("cannot export %s: %w", strings.Join(components, ","), err)
	}
	return []byte(manifest.Content), nil
}

const separator = "\n---\n"

// subtract returns the leading comment of all, and the objects of all that are not in base.
func subtract(all, base []byte) []byte {
	_, docs := split(base)
	have := map[string]bool{}
	for _, doc := range docs {
		have[doc] = true
	}
	header, docs := split(all)
	docs = slices.DeleteFunc(docs, func(doc string) bool { return have[doc] })
	return []byte(header + strings.Join(docs, separator) + "\n")
}

// split cuts an export into its leading comment and its objects.
func split(export []byte) (header string, docs []string) {
	header, body, _ := strings.Cut(string(export), "\napiVersion:")
	body = "apiVersion:" + strings.TrimRight(body, "\n")
	return header + "\n", strings.Split(body, separator)
}

// sourceWatcher generates the CRDs of source-watcher from its API types: unlike the modules of
// the other controllers, its module with the config folder is not available.
func sourceWatcher(tmp, version string) ([]byte, error) {
	cmd := exec.Command("go", "tool", "controller-gen", "crd:crdVersions=v1",
		"paths=github.com/fluxcd/source-watcher/api/v2/...", "output:crd:stdout")
	cmd.Stderr = os.Stderr
	crds, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot generate source-watcher's CRDs: %w", err)
	}
	dir := filepath.Join(tmp, "source-watcher")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"crds.yaml":          string(crds),
		"kustomization.yaml": "resources: [crds.yaml]\ntransformers: [labels.yaml]\n",
		"labels.yaml":        fmt.Sprintf(watcherLabels, version),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	out := filepath.Join(tmp, sourceWatcherFile)
	if err := kustomize(dir, out); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n# Generated by hack/fluxmanifests from source-watcher's API types. DO NOT EDIT.\n"), content...), nil
}

// watcherLabels are the labels that flux2's bases and templates set.
const watcherLabels = `apiVersion: builtin
kind: LabelTransformer
metadata:
  name: labels
labels:
  app.kubernetes.io/component: source-watcher
  app.kubernetes.io/instance: flux-system
  app.kubernetes.io/part-of: flux
  app.kubernetes.io/version: %q
fieldSpecs:
  - path: metadata/labels
    create: true
`

// kustomize builds a folder into a file.
func kustomize(dir, file string) error {
	out, err := kustomization.Build(dir)
	if err != nil {
		return fmt.Errorf("cannot build %s: %w", filepath.Base(dir), err)
	}
	return os.WriteFile(file, out, 0o644)
}

// copyTree copies the regular files of a module. They are read-only in the
// module cache, and the copies must not be.
func copyTree(dst, src string) error {
	return filepath.WalkDir(src, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(dst, rel), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dst, rel), content, 0o644)
	})
}

func fileContains(file string, want []byte) bool {
	content, err := os.ReadFile(file)
	return err == nil && bytes.Contains(content, want)
}
