// Print prints the build that the linker made of it.
package main

import (
	"fmt"

	"github.com/tenure-dev/tenure/internal/release"
)

func main() {
	b := release.Current()
	fmt.Println(b.Version, b.Image(), b.Released())
}
