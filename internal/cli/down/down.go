// Package down is the command `tenure down`: it stops a local cluster that runs
// in the background, or in another terminal.
package down

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
)

// patience is the timeout for an orderly stop of the cluster.
const patience = 15 * time.Second

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a local cluster and remove its files",
		Long: `Down stops a local cluster that ` + "`tenure up`" + ` started in the background or in another
terminal, and removes its files. It keeps the folder of ` + "`tenure up --data`" + `.`,
		Example: `  tenure down
  tenure down --name staging`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			began := time.Now()
			err := localcluster.Stop(localcluster.Root(), name, patience)
			if errors.Is(err, localcluster.ErrNotRunning) {
				return ui.WithHint(err, notRunningHint())
			}
			if err != nil {
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

// notRunningHint returns a hint that names the running clusters.
func notRunningHint() string {
	names, err := localcluster.Running(localcluster.Root())
	if err != nil || len(names) == 0 {
		return "no local cluster is running: `tenure up` starts one"
	}
	return "running: " + strings.Join(names, ", ") + "; choose one with --name"
}
