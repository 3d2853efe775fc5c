// Package server is the command tenure-server: the programs of Tenure that run
// inside a cluster, one subcommand each.
package server

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/artifactproxy"
	"github.com/tenure-dev/tenure/internal/cli/check/incluster"
	"github.com/tenure-dev/tenure/internal/cli/help"
	"github.com/tenure-dev/tenure/internal/cli/version"
	"github.com/tenure-dev/tenure/internal/manager"
	"github.com/tenure-dev/tenure/internal/proxy/server"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Run runs tenure-server with the arguments (without the program's name) and
// returns its exit code: 0 for success and after a signal, 1 for errors and
// wrong usage. An error is printed once, on the error stream.
func Run(ctx context.Context, streams ui.IO, args []string) int {
	cmd := NewCommand(streams)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		ui.PrintError(streams.Stderr(), err)
	}
	return ui.ExitCode(err)
}

// NewCommand returns the root of the tree.
func NewCommand(streams ui.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "tenure-server",
		Short:         "The parts of Tenure that run inside a cluster",
		Args:          cobra.NoArgs,
		SilenceErrors: true, // Run prints them
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.Err)
	help.Wrap(cmd, streams.Stdout())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return ui.WithHint(err, "see `"+cmd.CommandPath()+" --help`")
	})
	cmd.AddCommand(manager.NewCommand(streams), server.NewCommand(streams), artifactproxy.NewCommand(streams), incluster.NewCommand(streams), version.NewCommand(streams))
	return cmd
}
