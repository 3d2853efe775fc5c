// Package verify is the command `tenure verify`: it runs a fleet on a local
// cluster, attacks it as each of its tenants, and reports what got through.
package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/cli/ui"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/remedy"
)

// Exit codes beside ui.ExitError's: a fleet that is unsafe, and one that could
// not be judged.
const (
	exitUnsafe   = 1
	exitUnjudged = 2
)

type options struct {
	fleet  local.Flags
	output string
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Attack a fleet as each of its tenants, and say what got through",
		Long: `Run a fleet on a local cluster, with a real Kubernetes and a real Flux, and try
to leave the bounds of each tenant: through the API with the tenant's identity,
and through Git with commits to the tenant's repository as it is served here.
Nothing outside the local cluster is touched.

An attack is stopped (by what, and the same steps aimed at what the tenant owns
do work), got through (what was touched, and what to do about it), or not proven
(why it could not be tried here).

Exit code 0: the fleet is ready and nothing got through. 1: something got
through. 2: it could not be judged, because the fleet does not run here, has no
tenants, or an attack is not proven.`,
		Example: `  # what a pull request would do
  tenure verify --fleet . --path clusters/staging --map https://github.com/acme/dev-team=../dev-team

  # for a machine
  tenure verify --fleet . --path clusters/staging -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "text" && o.output != "json" {
				return ui.WithHint(fmt.Errorf("cannot write a report as %q", o.output), "-o takes text or json")
			}
			if err := o.fleet.Complete(); err != nil {
				return err
			}
			if o.fleet.Cluster.Fleet == "" {
				return ui.WithHint(errors.New("verify needs --fleet"), "name the folder of the platform's repository: --fleet . --path clusters/staging")
			}
			return run(cmd.Context(), streams, o)
		},
	}
	o.fleet.Add(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "form of the report: text or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// run reports on the output stream; how it goes is shown on the error stream.
func run(ctx context.Context, streams ui.IO, o *options) (err error) {
	began := time.Now()
	d := &local.Display{Screen: streams.Stderr()}
	o.fleet.Cluster.Name = fmt.Sprintf("verify-%d", os.Getpid())
	cluster, err := d.Start(ctx, o.fleet.Cluster)
	if err != nil {
		return ui.WithExitCode(err, exitUnjudged)
	}
	defer func() {
		if stopErr := d.Stop(cluster); err == nil {
			err = stopErr
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failures, err := settle(ctx, d, cluster, o.fleet.Timeout, cancel)
	if err != nil {
		return ui.WithExitCode(err, exitUnjudged)
	}
	steps := ui.NewSteps(d.Screen)
	step := steps.Start("attacks")
	tried := 0
	report, err := attack.Run(ctx, attack.Options{
		Config: cluster.REST, Git: cluster.Git, Platform: cluster.Fleet.Sync.Namespace,
		Root: flux.Ref{Kind: flux.GitRepository, Namespace: cluster.Fleet.Sync.Namespace, Name: cluster.Fleet.Sync.Source},
		Progress: func(r attack.Result) {
			tried++
			step.Update(fmt.Sprintf("%d, last %s as %s", tried, r.Attack.ID, r.Tenant))
		},
	})
	if err != nil {
		step.Fail(errors.New("not finished"))
	} else {
		step.Done()
	}
	steps.Close()
	patch, patchErr := remedy.Annotate(&report, cluster.Fleet)
	if patchErr != nil {
		d.Report(fmt.Errorf("no patches are made: %w", patchErr))
	}
	result := newResult(report, failures, o.fleet.Cluster.Path, time.Since(began))
	result.Patch = patch
	if printErr := o.print(streams, result); printErr != nil {
		return printErr
	}
	if err != nil {
		return ui.WithExitCode(err, exitUnjudged)
	}
	return result.err()
}

func (o *options) print(streams ui.IO, r result) error {
	if o.output == "json" {
		return r.writeJSON(streams.Out)
	}
	return r.writeText(streams.Stdout())
}

// settle waits for the fleet, and returns what of it is not ready.
func settle(ctx context.Context, d *local.Display, cluster *localcluster.Cluster, patience time.Duration, fail context.CancelCauseFunc) ([]flux.Finding, error) {
	rows, err := local.Watch(ctx, cluster, fail)
	if err != nil {
		return nil, err
	}
	return d.Settle(ctx, cluster, rows, patience)
}

// err is what the exit code says.
func (r result) err() error {
	switch r.Verdict {
	case verdictUnsafe:
		return ui.WithExitCode(ui.ErrReported, exitUnsafe)
	case verdictUnjudged:
		return ui.WithExitCode(ui.ErrReported, exitUnjudged)
	}
	return nil
}
