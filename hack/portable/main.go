// Portable type-checks the packages of the module in the current folder, with their tests, for
// an operating system, and prints what does not compile there. It compiles nothing: that would
// take minutes for the packages of others, whose code it only reads.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: portable GOOS PACKAGES...")
		os.Exit(2)
	}
	faults, err := check(".", os.Args[1], os.Args[2:])
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || len(faults) > 0 {
		os.Exit(1)
	}
}

// check returns what does not compile for an operating system in the module in a folder. It
// returns an error if the packages cannot be read, or if there are none.
func check(dir, system string, patterns []string) ([]string, error) {
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"),
		Tests: true,
	}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("cannot read the packages: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no package matches %q", patterns)
	}
	// A package is there twice, with its tests and without.
	faults := map[string]bool{}
	packages.Visit(all, nil, func(p *packages.Package) {
		for _, fault := range p.Errors {
			faults[fault.Error()] = true
		}
	})
	return slices.Sorted(maps.Keys(faults)), nil
}
