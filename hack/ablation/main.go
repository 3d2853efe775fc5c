// Ablation writes the table of test/ablation as a page of documentation, to the file that is its
// argument.
package main

import (
	"fmt"
	"os"

	"github.com/tenure-dev/tenure/test/ablation"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ablation FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(ablation.Document()), 0o644); err != nil { //nolint:gosec // a page that everybody may read
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
