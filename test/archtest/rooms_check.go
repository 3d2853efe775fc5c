package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// layer is a layer of the repository: a folder and all folders below it.
type layer struct {
	folder  string
	does    string   // one line for CONTRIBUTING.md
	imports []string // the other layers that its code may import; tests are free
}

// CheckLayers returns every import between layers that the table does not allow, every arrow of
// the table that no import uses, every arrow that goes up, and every package outside of all
// layers, one line each. An error means that a file could not be read or parsed.
func CheckLayers(tree fs.FS) ([]string, error) { return checkLayers(tree, layers) }

func checkLayers(tree fs.FS, layers []layer) ([]string, error) {
	var violations []string
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	for i, r := range layers {
		for _, to := range r.imports {
			if at := slices.IndexFunc(layers, func(other layer) bool { return other.folder == to }); at <= i {
				report("%s may not import %s: it is not below it in the table", r.folder, to)
			}
		}
	}
	used := map[string]bool{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata" || base == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		from, ok := layerOf(layers, name)
		if !ok {
			report("%s: is in no layer", name)
			return nil
		}
		if strings.HasSuffix(base, "_test.go") {
			return nil
		}
		imported, err := importsOf(tree, name)
		if err != nil {
			return err
		}
		for _, folder := range imported {
			to, ok := layerOf(layers, folder)
			switch {
			case !ok:
				report("%s: imports %s, which is in no layer", name, folder)
			case to.folder == from.folder:
			case !slices.Contains(from.imports, to.folder):
				report("%s: imports %s: %s may not import %s", name, folder, from.folder, to.folder)
			}
			used[from.folder+" "+to.folder] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot check the layers: %w", err)
	}
	for _, r := range layers {
		for _, to := range r.imports {
			if !used[r.folder+" "+to] {
				report("%s does not import %s: take it out of the table", r.folder, to)
			}
		}
	}
	slices.Sort(violations)
	return violations, nil
}

// layerOf returns the layer of a file or folder.
func layerOf(layers []layer, name string) (layer, bool) {
	for _, r := range layers {
		if within(name, r.folder) {
			return r, true
		}
	}
	return layer{}, false
}

// importsOf returns the folders of this module that a file imports.
func importsOf(tree fs.FS, name string) ([]string, error) {
	content, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if folder, ok := strings.CutPrefix(imported, module+"/"); ok {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// Layout returns the table of layers as CONTRIBUTING.md has it.
func Layout() string {
	var b strings.Builder
	b.WriteString("| Folder | Task | Imports |\n|---|---|---|\n")
	for _, r := range layers {
		var names []string
		for _, to := range r.imports {
			names = append(names, strings.TrimPrefix(to, "internal/"))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.folder, r.does, strings.Join(names, ", "))
	}
	return b.String()
}
