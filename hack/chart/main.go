// Chart writes the generated files of the Helm chart into the chart's folder, which its argument
// names: the templates and the kind of the profile, from the objects that `tenure install` has,
// and the schema of the values. The other files of the chart are written by hand.
//
//	go run ./hack/chart charts/tenure
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes the generated files into the chart's folder, and removes generated files that the
// chart has no longer.
func write(dir string) error {
	files, err := generate()
	if err != nil {
		return err
	}
	for _, folder := range []string{"crds", "templates"} {
		old, err := filepath.Glob(filepath.Join(dir, folder, "*.yaml"))
		if err != nil {
			return fmt.Errorf("cannot list the chart's files: %w", err)
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				return fmt.Errorf("cannot remove an old file of the chart: %w", err)
			}
		}
	}
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a folder that everybody may read
			return fmt.Errorf("cannot write the chart: %w", err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil { //nolint:gosec // a chart that everybody may read
			return fmt.Errorf("cannot write the chart: %w", err)
		}
	}
	return nil
}
