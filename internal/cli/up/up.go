// Package up implements `tenure up`, which starts a local cluster, reconciles a fleet on it,
// shows the progress, and runs until it is interrupted.
package up

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
)

type options struct {
	fleet  local.Flags
	detach bool
	// authentication is a file with an AuthenticationConfiguration, or "".
	authentication string
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a fleet on a local cluster with a real Kubernetes and a real Flux",
		Long: `Up starts a local cluster, reconciles a fleet on it and shows the progress.

The control plane and Flux's controllers run as processes of your user. The Flux
manifests in the fleet decide which controllers run, and with which flags. For each
Git repository, Helm repository or registry outside of the cluster, --map names a local
folder. When you save a file in such a folder, Flux gets a new revision at once.

Without --fleet and --path, up searches the working directory for the folders of
clusters. The file ` + "tenure.yaml" + ` in the fleet's folder can hold the values of flags, under
their names.

Ctrl-C stops all processes and removes the cluster's files.`,
		Example: `  # the fleet in this folder, with a tenant's repository from the folder beside it
  tenure up --fleet . --path clusters/staging \
    --map https://github.com/acme/dev-team=../dev-team

  # a plain folder as branch main of a repository, and charts as a Helm repository
  tenure up --fleet . --path clusters/staging \
    --map 'https://github.com/acme/dev-team#main=./dev-team' \
    --map https://charts.example.com=./charts

  # in the background
  tenure up --fleet . --path clusters/staging --detach && tenure down`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			notes, err := o.fleet.Complete()
			if err != nil {
				return err
			}
			if o.authentication != "" {
				if o.fleet.Cluster.Authentication, err = os.ReadFile(o.authentication); err != nil {
					return fmt.Errorf("cannot read where people log in: %w", err)
				}
			}
			background := attachment()
			if o.detach && !background.is() {
				return detach(cmd.Context(), streams)
			}
			if err := o.fleet.Programs(cmd.Context(), streams.Err); err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintln(streams.Err, "• "+note)
			}
			return run(cmd.Context(), streams, o, background)
		},
	}
	flags := cmd.Flags()
	o.fleet.Add(cmd)
	flags.StringVar(&o.fleet.Cluster.Name, "name", localcluster.DefaultName, "name of the cluster; several can run side by side")
	flags.StringVar(&o.fleet.Cluster.Data, "data", "", "folder in which the cluster keeps its objects until the next start; without it, the cluster keeps nothing")
	flags.BoolVar(&o.detach, "detach", false, "return when the fleet has settled and leave the cluster running until tenure down")
	flags.StringVar(&o.authentication, "authentication-config", "", "a `file` with an AuthenticationConfiguration for the API server, which names the identity providers")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

func run(ctx context.Context, streams ui.IO, o *options, background attached) (err error) {
	began := time.Now()
	d := &local.Display{Screen: streams.Stdout()}
	cluster, err := d.Start(ctx, o.fleet.Cluster)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := d.Stop(cluster); err == nil {
			err = stopErr
		}
	}()
	interrupted := ctx
	// The end of the cluster cancels the display, with the reason.
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
	var simulated []string
	if cluster.Fleet != nil {
		if rows, err = local.Watch(ctx, cluster, cancel); err != nil {
			return err
		}
		failures, err := d.Settle(ctx, cluster, rows, o.fleet.Timeout)
		if err != nil {
			return err
		}
		failures = append(failures, local.FailedGenerators(ctx, cluster)...)
		d.Explain(ctx, cluster, failures)
		if err := d.Folder(ctx, cluster); err != nil {
			return err
		}
		ready = len(failures) == 0
		simulated = local.Simulated(ctx, cluster)
	}
	farewell(d, cluster, o.fleet.Cluster.BinDir, ready, simulated, background.is(), time.Since(began))
	if err := background.release(ready); err != nil {
		return err
	}
	d.Follow(ctx, rows)
	if interrupted.Err() != nil {
		return nil // an interrupt is the normal end
	}
	return context.Cause(ctx)
}

// farewell prints the address of the cluster and the commands to use it. bin is the folder of the
// cluster's programs, or "" for the one of this program; simulated are the sentences of
// [local.Simulated].
func farewell(d *local.Display, cluster *localcluster.Cluster, bin string, ready bool, simulated []string, detached bool, took time.Duration) {
	verdict := d.Screen.Paint(ui.Green, "✓") + " everything is ready"
	if len(simulated) > 0 {
		verdict = d.Screen.Paint(ui.Yellow, "!") + " everything is ready, but a part is only simulated"
	}
	for _, text := range simulated {
		d.Println(d.Screen.Paint(ui.Yellow, "!") + " simulated: " + ui.Clean(text))
	}
	if !ready {
		verdict = d.Screen.Paint(ui.Red, "✗") + " not everything is ready"
	}
	end := "Ctrl-C stops the cluster and leaves nothing behind."
	if detached {
		end = fmt.Sprintf("The cluster runs in the background; `%s down --name %s` stops it.", program("tenure", ""), cluster.Name)
	}
	d.Println(fmt.Sprintf(`
%s %s

kubeconfig: %s

Try:
  export KUBECONFIG=%s
  %s get all -A
  %s get pods -A

%s`, verdict, d.Screen.Paint(ui.Faint, local.Seconds(took)), cluster.Kubeconfig, cluster.Kubeconfig, program("tenure", ""), program("kubectl", bin), end))
}

// program returns how to call a program from the working directory: its name if PATH contains
// it, otherwise its path in the folder, which is the one of this program if it is "".
func program(name, dir string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	if dir == "" {
		own, err := localcluster.BinDir()
		if err != nil {
			return name
		}
		dir = own
	}
	file := filepath.Join(dir, name)
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, file); err == nil && len(rel) < len(file) {
			return rel
		}
	}
	return file
}
