package flux

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// SyntaxError reports a file that is not YAML.
type SyntaxError struct {
	// File is the path in the fleet, slash separated, and Line the line of the mistake.
	File string
	Line int
	// Reason is the text of the parser.
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s:%d is not valid YAML: %s", e.File, e.Line, e.Reason)
}

// yamlLine matches an error of the YAML parser with a line.
var yamlLine = regexp.MustCompile(`yaml: (?:line (\d+): )?(.*)$`)

// SplitYAML returns the documents of a YAML stream, without a byte order mark, which the parser accepts at the very
// beginning only. Each begins at the line break before it, or in the line of its separator, behind the hyphens.
func SplitYAML(content []byte) [][]byte {
	return bytes.Split(append([]byte("\n"), bytes.TrimPrefix(content, []byte("\ufeff"))...), []byte("\n---"))
}

// ReadYAML returns the documents of a YAML stream that are objects. It returns a [SyntaxError] with the
// name of the file and the line in it, if a document cannot be parsed.
func ReadYAML(file string, content []byte) ([]map[string]any, error) {
	var all []map[string]any
	before := -1 // for the line break that is added before the file
	for _, document := range SplitYAML(content) {
		var value any
		if err := yaml.Unmarshal(document, &value); err != nil {
			return nil, syntaxError(file, content, before, err)
		}
		if object, ok := value.(map[string]any); ok {
			all = append(all, object)
		}
		before += bytes.Count(document, []byte("\n")) + 1
	}
	return all, nil
}

// mistakes are those about which the parser names no line, or not the cause, each with the function that returns its place
// in a file, or a negative number.
var mistakes = []struct {
	reason string
	find   func(content []byte, err error) int
}{
	{"it is not in UTF-8: save it in this encoding", func(content []byte, _ error) int {
		if utf8.Valid(content) {
			return -1
		}
		return bytes.IndexFunc(content, func(r rune) bool { return r == utf8.RuneError })
	}},
	{"it has a merge conflict: resolve it", func(content []byte, _ error) int {
		if at := conflict.FindIndex(content); at != nil {
			return at[0]
		}
		return -1
	}},
	{"the alias has no anchor before it", func(content []byte, err error) int {
		if m := unknownAnchor.FindStringSubmatch(err.Error()); m != nil {
			return bytes.Index(content, []byte("*"+m[1]))
		}
		return -1
	}},
}

var (
	// conflict matches the line with which Git begins a conflict.
	conflict = regexp.MustCompile(`(?m)^<<<<<<< `)
	// unknownAnchor matches the parser's error about an alias.
	unknownAnchor = regexp.MustCompile(`unknown anchor '(\S+)' referenced`)
)

// syntaxError returns the error of a parser for a document that begins below the line before.
func syntaxError(file string, content []byte, before int, err error) error {
	e := &SyntaxError{File: file, Line: before + 2, Reason: err.Error()}
	for _, mistake := range mistakes {
		if at := mistake.find(content, err); at >= 0 {
			e.Line, e.Reason = bytes.Count(content[:at], []byte("\n"))+1, mistake.reason
			return e
		}
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return e
	}
	e.Reason = m[2]
	if line, err := strconv.Atoi(m[1]); err == nil {
		// The parser counts lines from 0 in these messages, and from 1 in all others.
		if strings.HasPrefix(m[2], "did not find expected") {
			line++
		}
		e.Line = before + line
	}
	lines := bytes.Split(content, []byte("\n"))
	if at := e.Line - 1; at >= 0 && at < len(lines) && bytes.HasPrefix(bytes.TrimLeft(lines[at], " "), []byte("\t")) {
		e.Reason = "the line begins with a tab: indent it with spaces"
	}
	return e
}

// ignoreFile lists files that source-controller leaves out of an artifact.
const ignoreFile = ".sourceignore"

// CheckSyntax parses the manifests that kustomize-controller reads for folders, and returns a
// [SyntaxError] for the first file that is not YAML. It follows the kustomization files and, in a folder
// without one, reads all YAML files, unless a file tells source-controller to ignore some. more returns
// the further folders that an object leads to; it may be nil. CheckSyntax ignores files and folders that do not exist: a build reports them.
func CheckSyntax(files fs.FS, folders []string, more func(object map[string]any) []string) error {
	c := syntaxCheck{files: files, more: more, seen: map[string]bool{}, folders: slices.Clone(folders)}
	for len(c.folders) > 0 {
		folder := c.folders[0]
		c.folders = c.folders[1:]
		if err := c.folder(folder); err != nil {
			return err
		}
	}
	return nil
}

type syntaxCheck struct {
	files   fs.FS
	more    func(object map[string]any) []string
	seen    map[string]bool
	folders []string
}

// folder checks a folder, once.
func (c *syntaxCheck) folder(folder string) error {
	if folder = path.Clean(folder); !fs.ValidPath(folder) || c.seen[folder] {
		return nil
	}
	c.seen[folder] = true
	name, content, err := KustomizationFile(c.files, folder)
	if err == nil {
		return c.kustomization(folder, name, content)
	}
	entries, err := fs.ReadDir(c.files, folder)
	if err != nil || c.ignores(folder) {
		return nil //nolint:nilerr // see [CheckSyntax]
	}
	for _, entry := range entries {
		at := path.Join(folder, entry.Name())
		switch ext := path.Ext(entry.Name()); {
		case entry.IsDir() && entry.Name() != ".git":
			err = c.folder(at)
		case entry.Type().IsRegular() && (ext == ".yaml" || ext == ".yml"):
			err = c.file(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ignores reports whether source-controller may leave out files of a folder.
func (c *syntaxCheck) ignores(folder string) bool {
	for ; ; folder = path.Dir(folder) {
		if _, err := fs.Stat(c.files, path.Join(folder, ignoreFile)); err == nil {
			return true
		}
		if folder == "." {
			return false
		}
	}
}

// kustomization checks a kustomization file, and the files and folders that it names.
func (c *syntaxCheck) kustomization(folder, name string, content []byte) error {
	if _, err := ReadYAML(name, content); err != nil {
		return err
	}
	var k struct {
		Resources, Bases, Components []string
		PatchesStrategicMerge        []string
		Patches, PatchesJSON6902     []struct{ Path string }
	}
	if yaml.Unmarshal(content, &k) != nil {
		return nil // kustomize reports fields of a wrong type
	}
	named := slices.Concat(k.Resources, k.Bases, k.Components, k.PatchesStrategicMerge)
	for _, p := range slices.Concat(k.Patches, k.PatchesJSON6902) {
		named = append(named, p.Path)
	}
	for _, entry := range named {
		at := path.Join(folder, entry)
		if !fs.ValidPath(at) {
			continue // an address, or an inline patch
		}
		info, err := fs.Stat(c.files, at)
		switch {
		case err != nil:
		case info.IsDir():
			err = c.folder(at)
		default:
			err = c.file(at)
		}
		if err != nil && info != nil {
			return err
		}
	}
	return nil
}

// file checks a file, once.
func (c *syntaxCheck) file(name string) error {
	if c.seen[name] {
		return nil
	}
	c.seen[name] = true
	content, err := fs.ReadFile(c.files, name)
	if err != nil {
		return nil //nolint:nilerr // see [CheckSyntax]
	}
	objects, err := ReadYAML(name, content)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if c.more != nil {
			c.folders = append(c.folders, c.more(o)...)
		}
	}
	return nil
}
