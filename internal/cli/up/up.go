// Package up is the command `tenure up`: it starts a local cluster, reconciles
// a fleet on it, shows how that goes, and stays until it is interrupted.
package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/ui"
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
			for _, value := range o.maps {
				m, err := network.ParseMap(value)
				if err != nil {
					return err
				}
				o.cluster.Maps = append(o.cluster.Maps, m)
			}
			if o.detach {
				return detach(cmd.Context(), streams)
			}
			return run(cmd.Context(), streams, o)
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

// errNotReady is returned when the cluster runs but parts of the fleet are not
// ready; the table has said which.
var errNotReady = errors.New("the fleet is not ready")

func run(ctx context.Context, streams ui.IO, o *options) (err error) {
	if o.cluster.Fleet != "" && o.cluster.Path == "" {
		return fmt.Errorf("--fleet needs --path: the cluster's folder in the fleet, such as clusters/staging")
	}
	began := time.Now()
	attached := attachment()
	steps := ui.NewSteps(streams)
	events := newEvents(streams)
	o.cluster.Step = steps.Start
	o.cluster.Report = events.report
	cluster, err := localcluster.Start(ctx, o.cluster)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := shutDown(streams, cluster); err == nil {
			err = stopErr
		}
	}()
	fmt.Fprintf(streams.Out, "Kubernetes answers at %s after %s\n", cluster.REST.Host, rounded(time.Since(began)))
	ready := true
	if cluster.Fleet != nil {
		if ready, err = settle(ctx, streams, cluster, events, o.timeout); err != nil {
			return err
		}
	}
	farewell(streams, cluster, ready, time.Since(began))
	if err := attached.release(ready); err != nil {
		return err
	}
	return events.follow(ctx, cluster)
}

func shutDown(streams ui.IO, cluster *localcluster.Cluster) error {
	began := time.Now()
	if err := cluster.Stop(); err != nil {
		return fmt.Errorf("cannot stop the cluster cleanly: %w", err)
	}
	fmt.Fprintf(streams.Out, "stopped in %s\n", rounded(time.Since(began)))
	return nil
}

// farewell says where the cluster is and what can be done with it.
func farewell(streams ui.IO, cluster *localcluster.Cluster, ready bool, took time.Duration) {
	verdict := "everything is ready"
	if !ready {
		verdict = "not everything is ready, see above"
	}
	kubectl := filepath.Join(filepath.Dir(cluster.Programs()), "bin", "kubectl")
	if dir, err := localcluster.BinDir(); err == nil {
		kubectl = filepath.Join(dir, "kubectl")
	}
	fmt.Fprintf(streams.Out, "\n%s after %s\n\nkubeconfig: %s\n\nTry:\n", verdict, rounded(took), cluster.Kubeconfig)
	fmt.Fprintf(streams.Out, "  export KUBECONFIG=%s\n", cluster.Kubeconfig)
	fmt.Fprintf(streams.Out, "  %s get pods -A\n", kubectl)
	fmt.Fprintf(streams.Out, "  %s get all -A --watch\n\n", "tenure")
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
