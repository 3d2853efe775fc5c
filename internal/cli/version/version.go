// Package version is `tenure version`.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns `version`.
func NewCommand(streams ui.IO) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of tenure",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(streams.Out, "tenure %s (%s, %s/%s)\n", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// Version is the version of the module that the program was built from, such as
// v0.1.0, or "(devel)" for a build of a working tree without a tag.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
