// Package up is the command `tenure up`: it starts a local cluster, reconciles
// a fleet on it, shows how that goes, and stays until it is interrupted.
package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/ui"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
)

type options struct {
	cluster localcluster.Options
	maps    []string
	detach  bool
	timeout time.Duration
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a fleet on a real Kubernetes and a real Flux, without containers and without a network",
		Long: `Start a local cluster, reconcile a fleet on it and show how that goes.

The control plane and Flux's controllers run as plain processes of yours. Which
controllers run, and with which flags, is decided by the Flux manifests in the
fleet. Everything outside, Git and Helm hosts and registries, is what --map says
it is. Saving a file in a mapped folder makes a new revision at once.

Ctrl-C stops everything and leaves nothing behind.`,
		Example: `  # the fleet in this folder, with a tenant's repository from the folder beside it
  tenure up --fleet . --path clusters/staging --map https://github.com/acme/dev-team=../dev-team

  # a plain folder as branch main of a repository, and charts as a Helm repository
  tenure up --fleet . --path clusters/staging \
    --map 'https://github.com/acme/dev-team#main=./dev-team' --map https://charts.example.com=./charts

  # in the background
  tenure up --fleet . --path clusters/staging --detach && tenure down`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.cluster.Fleet != "" && o.cluster.Path == "" {
				return ui.WithHint(errors.New("--fleet needs --path"), "name the cluster's folder in the fleet: --path clusters/staging")
			}
			for _, value := range o.maps {
				m, err := network.ParseMap(value)
				if err != nil {
					return err
				}
				o.cluster.Maps = append(o.cluster.Maps, m)
			}
			background := attachment()
			if o.detach && !background.is() {
				return detach(cmd.Context(), streams)
			}
			return run(cmd.Context(), streams, o, background)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.cluster.Fleet, "fleet", "", "folder of the platform's repository; without it the cluster is a bare Kubernetes")
	flags.StringVar(&o.cluster.Path, "path", "", "the cluster's folder in the fleet, such as clusters/staging")
	flags.StringArrayVar(&o.maps, "map", nil, "where an outside address is found on disk, as URL[#BRANCH]=DIR: a Git repository, a plain folder served as BRANCH, a folder of charts, or oci://…; repeatable")
	flags.StringArrayVar(&o.cluster.Assume, "assume", nil, "a Flux object, as NAMESPACE/NAME, to be taken as ready because it cannot run here; repeatable")
	flags.StringArrayVar(&o.cluster.Apply, "apply", nil, "a file or folder of manifests that an admin applies by hand before the fleet, such as decryption keys; repeatable")
	flags.BoolVar(&o.cluster.Online, "online", false, "let requests for hosts that are not mapped through to the network")
	flags.StringVar(&o.cluster.Name, "name", localcluster.DefaultName, "name of the cluster; several can run side by side")
	flags.StringVar(&o.cluster.Data, "data", "", "folder that keeps the cluster's objects beyond its end; without it nothing is kept")
	flags.BoolVar(&o.detach, "detach", false, "return when the fleet has settled and leave the cluster running; stop it with `tenure down`")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait for the fleet to settle")
	for _, name := range []string{"fleet", "data"} {
		_ = cmd.MarkFlagDirname(name)
	}
	return cmd
}

func run(ctx context.Context, streams ui.IO, o *options, background attached) (err error) {
	began := time.Now()
	d := &display{screen: streams.Stdout()}
	cluster, err := start(ctx, d, o.cluster)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := stop(d, cluster); err == nil {
			err = stopErr
		}
	}()
	interrupted := ctx
	// What is shown ends with the cluster, and says why it ended.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-cluster.Done():
			cancel(cluster.Err())
		case <-ctx.Done():
		}
	}()
	var rows <-chan []flux.Row
	ready := true
	if cluster.Fleet != nil {
		if rows, err = watch(ctx, cluster, cancel); err != nil {
			return err
		}
		failures, err := d.settle(ctx, cluster, rows, o.timeout)
		if err != nil {
			return err
		}
		d.explain(cluster, failures)
		ready = len(failures) == 0
	}
	d.farewell(cluster, ready, background.is(), time.Since(began))
	if err := background.release(ready); err != nil {
		return err
	}
	d.follow(ctx, rows)
	if interrupted.Err() != nil {
		return nil // that is how it is meant to end
	}
	return context.Cause(ctx)
}

func start(ctx context.Context, d *display, opts localcluster.Options) (*localcluster.Cluster, error) {
	steps := ui.NewSteps(d.screen)
	defer steps.Close()
	opts.Report = d.report
	opts.Step = func(name string) func(error) {
		step := steps.Start(name)
		return func(err error) {
			switch {
			case ctx.Err() != nil:
				step.Fail(errors.New("interrupted"))
			case err != nil:
				step.Fail(errors.New("failed"))
			default:
				step.Done()
			}
		}
	}
	return localcluster.Start(ctx, opts)
}

// stop stops the cluster and says so, or what went wrong: that is no reason to
// hide why it is stopped.
func stop(d *display, cluster *localcluster.Cluster) error {
	began := time.Now()
	if err := cluster.Stop(); err != nil {
		d.report(fmt.Errorf("cannot stop the cluster cleanly: %w", err))
		return ui.ErrReported
	}
	d.println(fmt.Sprintf("%s stopped %s", d.screen.Paint(ui.Green, "✓"), d.screen.Paint(ui.Faint, seconds(time.Since(began)))))
	return nil
}

// farewell says where the cluster is and what can be done with it.
func (d *display) farewell(cluster *localcluster.Cluster, ready, detached bool, took time.Duration) {
	verdict := d.screen.Paint(ui.Green, "✓") + " everything is ready"
	if !ready {
		verdict = d.screen.Paint(ui.Red, "✗") + " not everything is ready"
	}
	end := "Ctrl-C stops the cluster and leaves nothing behind."
	if detached {
		end = fmt.Sprintf("The cluster runs in the background; `tenure down --name %s` stops it.", cluster.Name)
	}
	d.println(fmt.Sprintf(`
%s %s

kubeconfig: %s

Try:
  export KUBECONFIG=%s
  %s get all -A
  %s get pods -A

%s`, verdict, d.screen.Paint(ui.Faint, seconds(took)), cluster.Kubeconfig, cluster.Kubeconfig, program("tenure"), program("kubectl"), end))
}

// program returns how a program is called from the working directory: by its
// name alone when that finds one, otherwise as one that was built beside us.
func program(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	dir, err := localcluster.BinDir()
	if err != nil {
		return name
	}
	file := filepath.Join(dir, name)
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, file); err == nil && len(rel) < len(file) {
			return rel
		}
	}
	return file
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
