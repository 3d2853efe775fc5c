// Package migrate implements `tenure migrate`, which says what becomes of the objects of other
// tools for tenants, and writes Tenants of Tenure for them.
package migrate

import (
	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns `migrate` with its subcommands.
func NewCommand(streams ui.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move the tenants of another tool to Tenure",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCapsule(streams))
	return cmd
}
