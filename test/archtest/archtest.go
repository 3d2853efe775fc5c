// Package archtest checks the rules that keep the parts of the repository
// apart, and its files readable. It reads sources only and compiles nothing, so
// it holds for every platform and build tag at once.
//
// The rules, and why they are there, are in docs/design and CONTRIBUTING.md:
//
//   - The modules root and cluster/ never import each other: Kubernetes stays
//     behind a process boundary and out of the root's module graph.
//   - The root's go.mod has no replace, with which `go install` would refuse
//     it, and does not require k8s.io/kubernetes.
//   - Flux's modules are imported by internal/flux alone (hack/ and
//     cluster/flux apart), so that a new Flux is a change in one place.
//   - api/ imports Kubernetes' API types alone, so that anybody can use our types.
//   - Every package has a doc comment.
//   - No test is skipped: what a clean clone does not run is not tested.
//
// The lengths of files and functions, and doc comments that do not name the returned errors, are
// advice and fail no test: see [Result].
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	module     = "github.com/tenure-dev/tenure"
	maxFile    = 400 // lines of a file
	maxFunc    = 100 // lines of a function, signature included
	kubernetes = "k8s.io/kubernetes"
)

// Result holds the messages of a check, sorted, in the form "file:line: message".
type Result struct {
	// Violations are violations of the rules.
	Violations []string
	// Advice names long files and functions, and exported functions whose doc comment does not
	// name the error that they return; tests and generated files excepted. A long function may
	// be clearer than its parts.
	Advice []string
}

// Check checks all files of a repository, except hidden folders, bin, testdata and vendor. It
// returns an error if it cannot read or parse a file.
func Check(tree fs.FS) (Result, error) {
	c := checker{tree: tree, documented: map[string]bool{}}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		switch {
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata" || base == "vendor"):
			return fs.SkipDir
		case name == "go.mod":
			return c.gomod(name)
		case !entry.IsDir() && strings.HasSuffix(base, ".go"):
			return c.file(name)
		}
		return nil
	})
	if err != nil {
		return Result{}, fmt.Errorf("cannot check the sources: %w", err)
	}
	for pkg, documented := range c.documented {
		if !documented {
			c.report(pkg, 1, "the package has no doc comment")
		}
	}
	slices.Sort(c.result.Violations)
	slices.Sort(c.result.Advice)
	return c.result, nil
}

type checker struct {
	tree       fs.FS
	documented map[string]bool // by folder of a package
	result     Result
}

func (c *checker) report(file string, line int, format string, args ...any) {
	c.result.Violations = append(c.result.Violations, at(file, line, format, args...))
}

func (c *checker) advise(file string, line int, format string, args ...any) {
	c.result.Advice = append(c.result.Advice, at(file, line, format, args...))
}

func at(file string, line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", file, line, fmt.Sprintf(format, args...))
}

// gomod checks the root's go.mod.
func (c *checker) gomod(name string) error {
	content, err := fs.ReadFile(c.tree, name)
	if err != nil {
		return err
	}
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		code, _, _ := strings.Cut(line, "//")
		for _, word := range strings.FieldsFunc(code, func(r rune) bool { return strings.ContainsRune(" \t\r\n(", r) }) {
			switch word {
			case "replace":
				c.report(name, number, "a replace makes go install refuse this module")
			case kubernetes:
				c.report(name, number, "%s belongs to the module cluster alone", kubernetes)
			}
		}
	}
	return nil
}

// file checks one Go file.
func (c *checker) file(name string) error {
	content, err := fs.ReadFile(c.tree, name)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if reason := forbidden(name, imported); reason != "" {
			c.report(name, files.Position(spec.Pos()).Line, "imports %s: %s", imported, reason)
		}
	}
	test := strings.HasSuffix(name, "_test.go")
	dir := path.Dir(name)
	if !test {
		c.documented[dir] = c.documented[dir] || (file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "")
	}
	c.skips(name, files, file)
	if test || ast.IsGenerated(file) {
		return nil
	}
	c.lengths(name, files, file)
	c.errors(name, files, file)
	return nil
}

// skips reports calls that skip a test, in tests and in their helpers: it checks every file that
// imports testing. It compares the names of methods only, so in these files a method of another
// type must not have such a name.
func (c *checker) skips(name string, files *token.FileSet, file *ast.File) {
	if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` }) {
		return
	}
	ast.Inspect(file, func(node ast.Node) bool {
		called, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		line := files.Position(called.Sel.Pos()).Line
		of, _ := called.X.(*ast.Ident)
		switch called.Sel.Name {
		case "Skip", "Skipf", "SkipNow":
			c.report(name, line, "%s skips a test, which then passes: put the files that it needs into testdata, fail and say what to install, or return in a fuzz target", called.Sel.Name)
		case "Short":
			if of != nil && of.Name == "testing" {
				c.report(name, line, "testing.Short skips tests: make them quick, or move slow tests to test/e2e")
			}
		}
		return true
	})
}

// lengths advises about the lengths of a file and its functions.
func (c *checker) lengths(name string, files *token.FileSet, file *ast.File) {
	if lines := files.File(file.Pos()).LineCount(); lines >= maxFile {
		c.advise(name, 1, "the file has %d lines: does it have one subject?", lines)
	}
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first := files.Position(function.Pos()).Line
		lines := files.Position(function.End()).Line - first + 1
		if lines >= maxFunc {
			c.advise(name, first, "the function %s has %d lines: is it a list of steps?", function.Name.Name, lines)
		}
	}
}

// mentionsError matches a doc comment that names an error or the condition for one.
var mentionsError = regexp.MustCompile(`(?i)\berrors?\b|\bfails?\b|\bimplements\b|\bErr[A-Z]`)

// errors advises about exported functions that return an error their doc comment does not name.
func (c *checker) errors(name string, files *token.FileSet, file *ast.File) {
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok || !function.Name.IsExported() || !exportedReceiver(function) || function.Type.Results == nil || mentionsError.MatchString(function.Doc.Text()) {
			continue
		}
		if slices.ContainsFunc(function.Type.Results.List, func(f *ast.Field) bool {
			result, ok := f.Type.(*ast.Ident)
			return ok && result.Name == "error"
		}) {
			c.advise(name, files.Position(function.Pos()).Line, "the doc comment of %s does not say which error it returns", function.Name.Name)
		}
	}
}

// exportedReceiver reports whether a function has no receiver, or one of an exported type.
func exportedReceiver(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	receiver := function.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	named, ok := receiver.(*ast.Ident)
	return !ok || named.IsExported()
}

// forbidden returns the reason why a file must not import a package, or "" if it may.
func forbidden(file, imported string) string {
	inCluster := within(file, "cluster")
	ours := within(imported, module)
	switch {
	case inCluster && ours && !within(imported, module+"/cluster"):
		return "cluster/ is a separate module and imports no package of the root module"
	case !inCluster && within(imported, module+"/cluster"):
		return "the control plane is run as a program, never imported"
	case !inCluster && !within(file, "hack") && within(imported, kubernetes):
		return "only cluster/ builds Kubernetes"
	case within(imported, "github.com/fluxcd/go-git-providers"):
		if !within(file, "internal/fleet/bootstrap/provider") {
			return "only bootstrap/provider calls the APIs of Git providers"
		}
	case within(imported, "github.com/fluxcd") && !within(file, "internal/flux") && !within(file, "cluster/flux") && !within(file, "hack"):
		return "only internal/flux knows Flux's APIs"
	case within(file, "api") && !standard(imported) && !within(imported, "k8s.io/apimachinery") && !within(imported, "k8s.io/api") && !within(imported, module+"/api"):
		return "api/ imports Kubernetes' API types alone"
	}
	return ""
}

// within reports whether a path is a folder or is inside it.
func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

// standard reports whether a package belongs to the standard library: the first part of
// every other path is a host's name.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}
