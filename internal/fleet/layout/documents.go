package layout

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/yaml"
)

// Document is an object in a file of a fleet, as it is before a build.
type Document struct {
	// File is the path in the fleet, slash separated, and Line the line where the document begins.
	File string
	Line int
	// Kind, Namespace and Name are the object's. Namespace is empty if a kustomization sets it.
	Kind, Namespace, Name string
	// Content is the YAML text.
	Content []byte
}

// String returns the place of the document, as FILE:LINE.
func (d Document) String() string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// Documents returns the objects in the YAML files of the fleet, except CRDs. It skips files that it
// cannot read or parse: a build of the fleet reports them.
func (f *Fleet) Documents() []Document {
	var all []Document
	_ = fs.WalkDir(os.DirFS(f.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch ext := path.Ext(name); {
		case err != nil:
			return nil //nolint:nilerr // see above
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case !d.Type().IsRegular() || ext != ".yaml" && ext != ".yml":
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > maxManifest {
			return nil //nolint:nilerr // see above
		}
		if content, err := os.ReadFile(filepath.Join(f.Dir, filepath.FromSlash(name))); err == nil {
			all = append(all, documents(name, content)...)
		}
		return nil
	})
	return all
}

// documents returns the objects in a file.
func documents(file string, content []byte) []Document {
	var all []Document
	next := 1
	for i, text := range flux.SplitYAML(content) {
		d := Document{File: file, Line: next, Content: text}
		// The text ends before the line break of the separator, whose line it begins with.
		next += bytes.Count(text, []byte("\n")) + 1
		if i == 0 {
			next-- // the line break added before the file
		} else {
			d.Line++ // the line below the separator
		}
		if !bytes.Contains(text, []byte("kind:")) || bytes.Contains(text, []byte("\nkind: CustomResourceDefinition\n")) {
			continue
		}
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if yaml.Unmarshal(text, &object) == nil && object.Kind != "" {
			d.Kind, d.Namespace, d.Name = object.Kind, object.Metadata.Namespace, object.Metadata.Name
			all = append(all, d)
		}
	}
	return all
}

// Defining returns those of the documents that define an object for this cluster. Of an object in a
// namespace, these are the documents with the namespace or, if there are none, those that leave it to
// a kustomization. Documents in the folders of other clusters are left out.
func (f *Fleet) Defining(documents []Document, kind, namespace, name string) []Document {
	var exact, open []Document
	others := f.otherFolders()
	for _, d := range documents {
		if d.Kind != kind || d.Name != name || slices.ContainsFunc(others, func(folder string) bool { return strings.HasPrefix(d.File, folder+"/") }) {
			continue
		}
		switch {
		case d.Namespace == namespace:
			exact = append(exact, d)
		case d.Namespace == "" && f.setsNamespace(path.Dir(d.File), namespace):
			open = append(open, d)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return open
}

// otherFolders returns the folders of the other clusters in the fleet.
func (f *Fleet) otherFolders() []string {
	found, err := Look(f.Dir)
	if err != nil {
		return nil
	}
	var others []string
	for _, c := range found.Clusters {
		if c.Path != f.Path && !strings.HasPrefix(f.Path+"/", c.Path+"/") {
			others = append(others, c.Path)
		}
	}
	return others
}

// setsNamespace reports whether the kustomization of a folder may give its objects a namespace: it sets
// it, or leaves it to an overlay.
func (f *Fleet) setsNamespace(folder, namespace string) bool {
	_, content, err := flux.KustomizationFile(os.DirFS(f.Dir), folder)
	var kustomization struct{ Namespace string }
	if err != nil || yaml.Unmarshal(content, &kustomization) != nil {
		return true
	}
	return kustomization.Namespace == "" || kustomization.Namespace == namespace
}
