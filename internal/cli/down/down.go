// Package down is the command `tenure down`: it stops a local cluster that runs
// in the background, or in another terminal.
package down

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/ui"
	"github.com/tenure-dev/tenure/internal/localcluster"
)

// patience is how long the cluster has for an orderly end.
const patience = 15 * time.Second

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a local cluster and remove all that it left",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			began := time.Now()
			if err := localcluster.Stop(localcluster.Root(), name, patience); err != nil {
				return err
			}
			fmt.Fprintf(streams.Out, "cluster %s stopped in %s\n", name, time.Since(began).Round(100*time.Millisecond))
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", localcluster.DefaultName, "name of the cluster")
	_ = cmd.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, err := localcluster.Running(localcluster.Root())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}
