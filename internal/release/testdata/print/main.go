// Print prints the build that the linker made of it.
package main

import (
	"fmt"

	"github.com/tenure-dev/tenure/internal/release"
)

func main() {
	b := release.Current()
	fmt.Printf("%s %s %t %s %q\n", b.Version, b.Image(), b.Released(), b.Commit, release.Key())
}
