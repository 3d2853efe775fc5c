// Package cli is the command tenure: the tree of its subcommands, and how their
// errors become messages and exit codes. Each subcommand is a package below with
// a function NewCommand(ui.IO) that [NewCommand] adds.
package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/cli/bootstrap"
	"github.com/tenure-dev/tenure/internal/cli/check"
	"github.com/tenure-dev/tenure/internal/cli/create"
	deletecmd "github.com/tenure-dev/tenure/internal/cli/delete"
	"github.com/tenure-dev/tenure/internal/cli/down"
	"github.com/tenure-dev/tenure/internal/cli/get"
	"github.com/tenure-dev/tenure/internal/cli/help"
	"github.com/tenure-dev/tenure/internal/cli/install"
	"github.com/tenure-dev/tenure/internal/cli/kubeconfig"
	"github.com/tenure-dev/tenure/internal/cli/migrate"
	"github.com/tenure-dev/tenure/internal/cli/profile"
	"github.com/tenure-dev/tenure/internal/cli/uninstall"
	"github.com/tenure-dev/tenure/internal/cli/up"
	"github.com/tenure-dev/tenure/internal/cli/verify"
	"github.com/tenure-dev/tenure/internal/cli/version"
	"github.com/tenure-dev/tenure/internal/release"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Run runs tenure with the arguments (without the program's name) and returns its exit code: 0
// for success, 1 for errors and wrong usage, 130 if the context was cancelled before the
// command completed, or the code that the command documents. It prints an error once, on the
// error stream.
func Run(ctx context.Context, streams ui.IO, args []string) int {
	return RunAs(ctx, streams, "tenure", args)
}

// RunAs is [Run] for a program with another name: under the name of a plugin, such as
// kubectl-tenure, the help shows the commands as kubectl's.
func RunAs(ctx context.Context, streams ui.IO, program string, args []string) int {
	cmd := NewCommand(streams)
	if name := pluginName(program); name != "" {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	}
	cmd.SetArgs(args)
	called, err := cmd.ExecuteContextC(ctx)
	if isGroupError(err) {
		err = usageError(called, err)
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return ui.ExitInterrupted // the caller knows why it interrupted
	}
	if err != nil && !errors.Is(err, ui.ErrReported) {
		ui.PrintError(streams.Stderr(), err)
	}
	return ui.ExitCode(err)
}

// pluginName returns how a person calls the program as a plugin of kubectl or flux, or "" for
// another name of the program.
func pluginName(program string) string {
	switch filepath.Base(program) {
	case "kubectl-tenure":
		return "kubectl tenure"
	case "flux-tenure":
		return "flux tenure"
	}
	return ""
}

//go:generate go run ../../hack/commands ../../docs/reference/commands.md

// NewCommand returns the root command with all subcommands.
func NewCommand(streams ui.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenure",
		Short: "Make a Kubernetes cluster with Flux multi-tenant, and prove it",
		Long: `Tenure turns a Kubernetes cluster with Flux into a multi-tenant platform and
proves that its tenants are isolated.`,
		Version:       release.Current().Version,
		Args:          cobra.NoArgs,
		SilenceErrors: true, // Run prints them
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.Err)
	help.Wrap(cmd, streams.Stdout())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	cmd.AddCommand(install.NewCommand(streams), bootstrap.NewCommand(streams), profile.NewCommand(streams), check.NewCommand(streams), uninstall.NewCommand(streams))
	cmd.AddCommand(create.NewCommand(streams), deletecmd.NewCommand(streams), kubeconfig.NewCommand(streams), migrate.NewCommand(streams))
	cmd.AddCommand(up.NewCommand(streams), down.NewCommand(streams), verify.NewCommand(streams), get.NewCommand(streams), version.NewCommand(streams))
	refuseUnknown(cmd)
	checkArgs(cmd)
	return cmd
}

// refuseUnknown makes `help` and `completion` return an error for a word that is no command. The ones
// of the command library print a help and succeed.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE = nil, func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 && found.HasSubCommands() {
					err = fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
				}
				if err != nil {
					return argsError(found, args[len(args)-max(len(rest), 1):], err)
				}
				found.InitDefaultHelpFlag()
				return found.Help()
			}
		case "completion":
			cmd.Args = cobra.NoArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// checkArgs makes [argsError] of the errors about arguments, for a command and its subcommands.
func checkArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			return argsError(cmd, args, check(cmd, args))
		}
	}
	for _, sub := range cmd.Commands() {
		checkArgs(sub)
	}
}
