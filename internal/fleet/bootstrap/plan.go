package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
)

// The files of Flux's folder, as Flux names them.
const (
	componentsFile    = "gotk-components.yaml"
	syncFile          = "gotk-sync.yaml"
	kustomizationFile = "kustomization.yaml"
)

// planned holds the files of the clone that the branch does not have yet.
type planned struct {
	// files are by path, sorted.
	files []string
	// isNew reports that the fleet had no Flux manifests before.
	isNew bool
}

// CheckPath returns an error if a folder of the repository cannot be the folder of a cluster.
func CheckPath(name string) error {
	clean := path.Clean(filepath.ToSlash(name))
	switch {
	case name == "":
		return errors.New("the cluster's folder is missing: give it with --path clusters/staging")
	case !filepath.IsLocal(filepath.FromSlash(clean)) || slices.Contains(strings.Split(clean, "/"), ".git"):
		return fmt.Errorf("the folder %s leads out of the repository: give a path inside, such as clusters/staging", name)
	case clean == "." || strings.HasPrefix(lockdown.Infrastructure+"/", clean+"/"):
		return fmt.Errorf("the folder %s holds %s, which has its own Kustomization: give the cluster a folder of its own, such as clusters/staging", name, lockdown.Infrastructure)
	}
	return nil
}

// plan writes the fleet's files into the clone and builds them as Flux does, so that files
// that do not build are not pushed.
func (b *bootstrapper) plan(context.Context) error {
	system := path.Join(b.Path, Namespace)
	before, err := b.read(system)
	if err != nil {
		return err
	}
	after, err := b.ownFiles(system, before)
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	var own lockdown.Plan
	for _, name := range slices.Sorted(maps.Keys(after)) {
		text := after[name]
		change := lockdown.Change{Path: name, After: &text}
		if was, there := before[name]; there {
			change.Before = &was
		}
		if change.Before == nil || *change.Before != text {
			own.Changes = append(own.Changes, change)
		}
	}
	if err := os.MkdirAll(b.file(b.Path), 0o750); err != nil {
		return fmt.Errorf("cannot write the manifests: %w", err)
	}
	if err := b.write(&own, changed); err != nil {
		return err
	}
	f, err := layout.Load(b.clone.Dir, b.Path, layout.Options{Components: config.FluxComponents()})
	if err != nil {
		return err
	}
	if f.System != system {
		return fmt.Errorf("the folder %s is another cluster's, inside of %s: give each cluster a folder of its own, beside the others", f.System, b.Path)
	}
	more, err := lockdown.Make(f, b.Profile)
	if err != nil {
		return err
	}
	if err := b.write(more, changed); err != nil {
		return err
	}
	for _, note := range more.Notes {
		b.Note(note)
	}
	_, there := before[path.Join(system, syncFile)]
	b.planned = planned{files: slices.Sorted(maps.Keys(changed)), isNew: !there}
	return b.build(system)
}

// read reads the files of Flux's folder that are there.
func (b *bootstrapper) read(system string) (map[string]string, error) {
	root, err := os.OpenRoot(b.clone.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the repository: %w", err)
	}
	defer func() { _ = root.Close() }()
	found := map[string]string{}
	for _, file := range []string{componentsFile, syncFile, kustomizationFile} {
		name := path.Join(system, file)
		content, err := root.ReadFile(filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		found[name] = string(content)
	}
	return found, nil
}

func (b *bootstrapper) write(plan *lockdown.Plan, changed map[string]bool) error {
	for _, c := range plan.Changes {
		changed[c.Path] = true
	}
	return plan.Write(b.clone.Dir)
}

// ownFiles returns the wanted contents of the files that Flux's bootstrap writes.
func (b *bootstrapper) ownFiles(system string, before map[string]string) (map[string]string, error) {
	name := path.Join(system, componentsFile)
	manifests, err := chooseComponents(name, before[name], b.Components)
	if err != nil {
		return nil, err
	}
	after := map[string]string{name: manifests}
	name = path.Join(system, syncFile)
	if after[name], err = b.sync(name, before[name]); err != nil {
		return nil, err
	}
	name = path.Join(system, kustomizationFile)
	after[name] = before[name]
	if before[name] == "" {
		after[name] = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- " + componentsFile + "\n- " + syncFile + "\n"
	}
	for _, entry := range []string{componentsFile, syncFile} {
		if after[name], err = yamledit.AddEntry(after[name], "resources", entry); err != nil {
			return nil, fmt.Errorf("cannot edit %s: %w", name, err)
		}
	}
	return after, nil
}

// sync returns the file with the root objects. It keeps the additions of people in an existing
// file, unless the file is for another repository.
func (b *bootstrapper) sync(file, before string) (string, error) {
	objects, err := flux.ReadObjects([]byte(before))
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", file, err)
	}
	var source, kustomization *unstructured.Unstructured
	for _, o := range objects {
		switch {
		case o.GetNamespace() != Namespace || o.GetName() != Namespace:
		case o.GetKind() == "GitRepository":
			source = o
		case o.GetKind() == "Kustomization":
			kustomization = o
		}
	}
	if len(objects) == 0 {
		source, kustomization = newRoot("GitRepository"), newRoot("Kustomization")
		objects = []*unstructured.Unstructured{source, kustomization}
	}
	if source == nil || kustomization == nil {
		return "", fmt.Errorf("%s %w: it has no GitRepository and Kustomization %s/%s, so it was not written by a bootstrap", file, ErrRefused, Namespace, Namespace)
	}
	if other := (root{source, kustomization}).other(b.URL, b.Remote.Branch, b.Path); other != "" {
		return "", fmt.Errorf("%s %w: it follows %s", file, ErrRefused, other)
	}
	changed := len(before) == 0
	for _, field := range b.rootFields(source, kustomization, before == "") {
		if got, _, _ := unstructured.NestedString(field.of.Object, field.path...); got != field.value {
			if err := unstructured.SetNestedField(field.of.Object, field.value, field.path...); err != nil {
				return "", fmt.Errorf("cannot edit %s: %w", file, err)
			}
			changed = true
		}
	}
	if !changed {
		return before, nil
	}
	text := "# This manifest was generated by flux. DO NOT EDIT.\n"
	for _, o := range objects {
		document, err := yaml.Marshal(o.Object)
		if err != nil {
			return "", fmt.Errorf("cannot write %s: %w", file, err)
		}
		text += "---\n" + string(document)
	}
	return text, nil
}

// rootField is a field of a root object and its required value.
type rootField struct {
	of    *unstructured.Unstructured
	path  []string
	value string
}

func (b *bootstrapper) rootFields(source, kustomization *unstructured.Unstructured, isNew bool) []rootField {
	fields := []rootField{
		{source, []string{"spec", "url"}, b.URL},
		{source, []string{"spec", "ref", "branch"}, b.Remote.Branch},
		{source, []string{"spec", "secretRef", "name"}, b.SecretName},
	}
	if b.Interval != 0 || isNew {
		interval := "1m0s"
		if b.Interval != 0 {
			interval = b.Interval.String()
		}
		fields = append(fields, rootField{source, []string{"spec", "interval"}, interval})
	}
	if isNew {
		fields = append(fields, rootField{kustomization, []string{"spec", "path"}, "./" + b.Path})
	}
	return fields
}

// newRoot returns a root object without the values of the options.
func newRoot(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": flux.Kind(kind).GroupVersionKind().GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": Namespace, "namespace": Namespace},
	}}
	if kind == "Kustomization" {
		o.Object["spec"] = map[string]any{
			"interval": "10m0s", "prune": true,
			"sourceRef": map[string]any{"kind": "GitRepository", "name": Namespace},
		}
	}
	return o
}

// build builds Flux's folder.
func (b *bootstrapper) build(system string) error {
	objects, err := flux.Build(b.clone.Dir, b.file(system))
	if err != nil {
		return fmt.Errorf("cannot build %s: %s", system, strings.ReplaceAll(err.Error(), b.clone.Dir+string(filepath.Separator), ""))
	}
	b.objects = manifests{}
	for _, o := range objects {
		if strings.HasSuffix(o.GroupVersionKind().Group, ".toolkit.fluxcd.io") {
			b.objects.sync = append(b.objects.sync, o)
			continue
		}
		b.objects.flux = append(b.objects.flux, o)
	}
	return nil
}
