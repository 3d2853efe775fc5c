// Attacks writes the documentation of the catalogue of attacks into the file
// that its argument names.
package main

import (
	"fmt"
	"os"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: attacks FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(catalog.Document()), 0o644); err != nil { //nolint:gosec // a page that everybody may read
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
