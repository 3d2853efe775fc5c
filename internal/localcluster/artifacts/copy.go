package artifacts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"sigs.k8s.io/yaml"
)

// The strategies of a copy operation. Without one, files overwrite earlier files.
const (
	mergeStrategy   = "Merge"
	extractStrategy = "Extract"
)

// maxAlternatives limits the commas in the groups {a,b} of a pattern, whose cost is the product of
// the widths of the groups.
const maxAlternatives = 20

var (
	// ErrEscape reports a path that leads out of the artifact or of a source.
	ErrEscape = errors.New("the path leads out of its folder")
	// ErrPattern reports a pattern that cannot be matched.
	ErrPattern = errors.New("the pattern is not valid")
	// ErrNoMatch reports an operation that selects no file.
	ErrNoMatch = errors.New("no file matches")
)

// operation is a copy operation of an ArtifactGenerator.
type operation struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Exclude  []string `json:"exclude"`
	Strategy string   `json:"strategy"`
}

// copier executes copy operations with the semantics that source-watcher documents.
type copier struct {
	// sources are the unpacked sources by alias, and staging is the content of the artifact.
	sources map[string]*os.Root
	staging *os.Root
	budget  *budget
}

// copyAll executes the operations in order.
func (c copier) copyAll(operations []operation) error {
	for _, op := range operations {
		if err := c.copy(op); err != nil {
			return fmt.Errorf("cannot copy from %q to %q: %w", op.From, op.To, err)
		}
	}
	return nil
}

func (c copier) copy(op operation) error {
	alias, pattern, found := strings.Cut(strings.TrimPrefix(op.From, "@"), "/")
	if !found || !strings.HasPrefix(op.From, "@") {
		return fmt.Errorf("%w: from has the form @ALIAS/PATTERN", ErrPattern)
	}
	source := c.sources[alias]
	if source == nil {
		return fmt.Errorf("no source has the alias %s", alias)
	}
	to, err := destination(op.To)
	if err != nil {
		return err
	}
	for _, p := range append([]string{pattern}, op.Exclude...) {
		if err := checkPattern(p); err != nil {
			return err
		}
	}
	run := copyRun{copier: c, op: op, source: source}
	if !strings.ContainsAny(pattern, "*?[]") {
		return run.single(path.Clean(pattern), to)
	}
	return run.glob(pattern, to)
}

// destination returns the path in the artifact that a field to names.
func destination(to string) (string, error) {
	dest, found := strings.CutPrefix(to, "@artifact/")
	switch {
	case !found:
		return "", fmt.Errorf("%w: to has the form @artifact/PATH", ErrPattern)
	case dest == "":
		return ".", nil
	case !fs.ValidPath(path.Clean(dest)) || slices.Contains(strings.Split(dest, "/"), ".."):
		return "", ErrEscape
	}
	return path.Clean(dest), nil
}

// checkPattern returns an error for a pattern that is malformed or takes too long to match.
func checkPattern(pattern string) error {
	depth, alternatives := 0, 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth = max(0, depth-1)
		case ',':
			if depth > 0 {
				alternatives++
			}
		}
	}
	if alternatives > maxAlternatives {
		return fmt.Errorf("%w: %q has more than %d alternatives", ErrPattern, pattern, maxAlternatives)
	}
	if !doublestar.ValidatePattern(pattern) {
		return fmt.Errorf("%w: %q", ErrPattern, pattern)
	}
	return nil
}

// copyRun is the execution of one operation.
type copyRun struct {
	copier
	op     operation
	source *os.Root
	// base is the selected part of the source. Patterns in op.Exclude match paths relative to it
	// and paths relative to the source.
	base string
}

// single copies the file or folder at a path without wildcards, like cp -r.
func (r copyRun) single(from, to string) error {
	info, err := r.source.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the source has no %s", ErrNoMatch, from)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if info.IsDir() {
		if r.op.Strategy == extractStrategy {
			return fmt.Errorf("%s is a folder, and strategy Extract needs a .tar.gz or .tgz file", from)
		}
		r.base = from
		return r.tree(from, path.Join(to, path.Base(from)))
	}
	r.base = "."
	if r.excluded(from) {
		return nil
	}
	if r.op.Strategy == extractStrategy {
		if !isArchive(from) {
			return fmt.Errorf("%s is no .tar.gz or .tgz file, which strategy Extract needs", from)
		}
		return r.extract(from, to)
	}
	if info, err := r.staging.Stat(to); strings.HasSuffix(r.op.To, "/") || err == nil && info.IsDir() {
		to = path.Join(to, path.Base(from))
	}
	return r.file(from, to)
}

// glob copies all matches of a pattern with wildcards. Folders are copied with their content, so
// ** at the end of a pattern selects what * selects. Only strategy Extract matches ** to several
// levels.
func (r copyRun) glob(pattern, to string) error {
	match := fs.Glob
	if r.op.Strategy == extractStrategy {
		match = func(fsys fs.FS, pattern string) ([]string, error) { return doublestar.Glob(fsys, pattern) }
	}
	matches, err := match(r.source.FS(), pattern)
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrPattern, pattern, err)
	}
	r.base = literalPrefix(pattern)
	matches = slices.DeleteFunc(matches, func(name string) bool { return name == "." || r.excluded(name) })
	if len(matches) == 0 {
		return ErrNoMatch
	}
	for _, name := range matches {
		if r.op.Strategy == extractStrategy {
			if isArchive(name) {
				if err := r.extract(name, to); err != nil {
					return err
				}
			}
			continue
		}
		if err := r.tree(name, path.Join(to, belowPattern(pattern, name))); err != nil {
			return err
		}
	}
	return nil
}

// literalPrefix returns the folders of a pattern before its first wildcard.
func literalPrefix(pattern string) string {
	parts := strings.Split(path.Clean(pattern), "/")
	if i := slices.IndexFunc(parts, func(part string) bool { return strings.ContainsAny(part, "*?[]") }); i >= 0 {
		parts = parts[:i]
	}
	return path.Join(append([]string{"."}, parts...)...)
}

// belowPattern returns where a match belongs below the destination: FOLDER/** leaves the folder
// out, and other patterns keep the whole path.
func belowPattern(pattern, name string) string {
	if folder, ok := strings.CutSuffix(pattern, "/**"); ok {
		if below, ok := strings.CutPrefix(name, folder+"/"); ok {
			return below
		}
	}
	return name
}

// tree copies a file, or a folder with its content.
func (r copyRun) tree(from, to string) error {
	return fs.WalkDir(r.source.FS(), from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name != from && r.excluded(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		below := name
		if from != "." {
			below = strings.TrimPrefix(name, from)
		}
		dest := path.Join(to, below)
		if d.IsDir() {
			if err := r.budget.file(0); err != nil {
				return err
			}
			return r.staging.MkdirAll(dest, 0o755)
		}
		return r.file(name, dest)
	})
}

// file copies or merges a file.
func (r copyRun) file(from, to string) error {
	info, err := r.source.Stat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	if err := r.budget.file(info.Size()); err != nil {
		return err
	}
	if r.op.Strategy == mergeStrategy {
		if _, err := r.staging.Stat(to); err == nil {
			return r.merge(from, to)
		}
	}
	if err := r.staging.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := r.source.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeFile(r.staging, to, in, info.Mode())
}

// writeFile writes a file. Only the owner's right to execute is kept of its mode.
func writeFile(root *os.Root, name string, content io.Reader, mode fs.FileMode) error {
	out, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644|mode&0o100)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// merge merges a YAML file into another, as Helm merges files of values: lists are replaced.
func (r copyRun) merge(from, to string) error {
	base, err := readYAML(r.staging, to)
	if err != nil {
		return err
	}
	over, err := readYAML(r.source, from)
	if err != nil {
		return err
	}
	content, err := yaml.Marshal(mergeValues(base, over))
	if err != nil {
		return err
	}
	return r.staging.WriteFile(to, content, 0o644)
}

func readYAML(root *os.Root, name string) (map[string]any, error) {
	content, err := root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		return nil, fmt.Errorf("cannot merge %s: %w", name, err)
	}
	return values, nil
}

func mergeValues(base, over map[string]any) map[string]any {
	merged := map[string]any{}
	for key, value := range base {
		merged[key] = value
	}
	for key, value := range over {
		below, isMap := value.(map[string]any)
		if known, ok := merged[key].(map[string]any); ok && isMap {
			value = mergeValues(known, below)
		}
		merged[key] = value
	}
	return merged
}

func isArchive(name string) bool {
	name = strings.ToLower(name)
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}

func (r copyRun) extract(from, to string) error {
	in, err := r.source.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := r.staging.MkdirAll(to, 0o755); err != nil {
		return err
	}
	dest, err := r.staging.OpenRoot(to)
	if err != nil {
		return err
	}
	defer dest.Close()
	if err := unpack(in, dest, r.budget); err != nil {
		return fmt.Errorf("cannot extract %s: %w", from, err)
	}
	return nil
}

// excluded reports whether a pattern of op.Exclude matches a path: the path in the source, the
// path below the selected folder or, for a pattern without a slash, the name of the file.
func (r copyRun) excluded(name string) bool {
	paths := []string{name}
	if below, ok := strings.CutPrefix(name, r.base+"/"); ok {
		paths = append(paths, below)
	}
	return slices.ContainsFunc(r.op.Exclude, func(pattern string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return doublestar.MatchUnvalidated(pattern, p) }) ||
			!strings.Contains(pattern, "/") && doublestar.MatchUnvalidated(pattern, path.Base(name))
	})
}
