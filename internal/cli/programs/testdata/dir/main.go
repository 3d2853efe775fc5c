// Dir prints where a program takes the local cluster's programs from if its folder is the argument.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tenure-dev/tenure/internal/cli/programs"
)

func main() {
	dir, err := (&programs.Flags{}).Dir(context.Background(), os.Args[1], os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(dir)
}
