// Policies writes the rules of internal/admission as manifests into the folder
// that its argument names.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenure-dev/tenure/internal/admission"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: policies FOLDER")
		os.Exit(2)
	}
	manifests, err := admission.Manifests()
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Args[1], "policies.yaml"), manifests, 0o644) //nolint:gosec // manifests that everybody may read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
