// Package version is `tenure version`.
package version

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/release"
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

// Version returns the version of this build, such as v0.1.0, or "(devel)" for a build that
// records none.
func Version() string { return release.Current().Version }
