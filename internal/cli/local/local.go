// Package local provides the flags and the display that commands share to run a fleet on a
// local cluster.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"
	"github.com/tenure-dev/tenure/internal/cli/programs"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Flags select the fleet, and map its addresses to local places.
type Flags struct {
	// Cluster are the options that the flags set.
	Cluster localcluster.Options
	// Timeout bounds the wait for the fleet to settle.
	Timeout time.Duration
	// Paths are the folders of several clusters; see [Flags.AddSeveral].
	Paths []string
	// Tenants and Platform are the selectors of namespaces in the fleet's file.
	Tenants, Platform []string

	maps, private []string
	programs      programs.Flags
	// several is set by AddSeveral.
	several bool
	// timeoutSet reports whether a flag gives the timeout.
	timeoutSet func() bool
}

// Add adds the flags to a command that runs one cluster.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Cluster.Fleet, "fleet", "", "folder of the platform's repository; without it, the working directory if it contains a fleet; otherwise the cluster is a bare Kubernetes")
	cmd.Flags().StringVar(&f.Cluster.Path, "path", "", "the cluster's folder in the fleet, such as clusters/staging; may be left out if there is one cluster")
	f.add(cmd)
}

// AddSeveral adds the flags to a command that runs the clusters of a fleet one
// after the other.
func (f *Flags) AddSeveral(cmd *cobra.Command) {
	f.several = true
	cmd.Flags().StringVar(&f.Cluster.Fleet, "fleet", "", "folder of the platform's repository; without it, the working directory")
	cmd.Flags().StringArrayVar(&f.Paths, "path", nil, "a cluster's folder in the fleet, such as clusters/staging; repeatable, and may be left out if there is one cluster")
	f.add(cmd)
}

func (f *Flags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.maps, "map", nil, "serve the local folder DIR at an address outside of the cluster, as URL[#BRANCH]=DIR: a Git repository, a plain folder as branch BRANCH, a folder of charts, an oci:// address, or a file at the address of a manifest; repeatable")
	flags.StringArrayVar(&f.private, "private", nil, "a mapped Git repository that accepts only the credentials in the Secret manifest FILE, as URL=FILE; repeatable")
	flags.StringArrayVar(&f.Cluster.Assume, "assume", nil, "treat a Flux object, as [KIND/]NAMESPACE/NAME, as ready because it cannot run here; * is every namespace or name, as in HelmRelease/*/*; repeatable")
	flags.BoolVar(&f.Cluster.AssumeUnmapped, "assume-unmapped", false, "treat each Flux object that fails only because its address is not mapped as ready; the verdict is then never safe")
	flags.StringArrayVar(&f.Cluster.Apply, "apply", nil, "a file or folder of manifests that an admin applies by hand before the fleet, such as decryption keys; repeatable")
	flags.StringArrayVar(&f.Cluster.CRDs, "crds", nil, "a file or folder with CRDs of charts or operators that do not run here; repeatable")
	flags.BoolVar(&f.Cluster.FakeSecrets, "fake-secrets", false, "create the missing Secrets that Flux objects name, with invented content, and replace the encrypted values of SOPS files; attacks that depend on the content are not proven")
	flags.StringVar(&f.Cluster.Kubernetes, "kubernetes", "", "the version of Kubernetes that the cluster runs: "+localcluster.KubernetesMinor+", or "+strings.Join(localcluster.OtherKubernetes, " or ")+" after make kubernetes VERSION=…")
	flags.BoolVar(&f.Cluster.Online, "online", false, "send requests for hosts that are not mapped to the network")
	durationflag.Positive(flags, &f.Timeout, "timeout", 10*time.Minute, "how long to wait for the fleet to settle")
	f.programs.Add(cmd)
	f.timeoutSet = func() bool { return flags.Changed("timeout") }
	_ = cmd.MarkFlagDirname("fleet")
	complete.Flag(cmd, "path", complete.Clusters(&f.Cluster.Fleet))
	complete.Flag(cmd, "kubernetes", complete.Words(append([]string{localcluster.KubernetesMinor}, localcluster.OtherKubernetes...)...))
}

// Programs finds the programs of the cluster, and fetches them if the flags say so or a release has
// them. It reports a download to log. The error is of [programs.Flags.Dir], or of
// [localcluster.CheckControlPlane] for the version of --kubernetes.
func (f *Flags) Programs(ctx context.Context, log io.Writer) error {
	own, err := localcluster.BinDir()
	if err != nil {
		return err
	}
	if f.Cluster.BinDir, err = f.programs.Dir(ctx, own, log); err != nil {
		return err
	}
	return localcluster.CheckControlPlane(f.Cluster.BinDir, f.Cluster.Kubernetes)
}

// Complete adds the values of the fleet's file, finds the cluster's folder if no flag names it,
// checks the flags and reads the maps. It returns the notes for the user about its choices, and an error for an invalid file, flag or map, or if it cannot choose the cluster's folder.
func (f *Flags) Complete() (notes []string, err error) {
	file, err := ReadFile(cmp.Or(f.Cluster.Fleet, "."))
	if err != nil {
		return nil, err
	}
	if err := f.merge(file); err != nil {
		return nil, err
	}
	if notes, err = f.chooseFleet(); err != nil {
		return nil, err
	}
	return notes, f.read()
}

// read checks the flags and reads the maps.
func (f *Flags) read() error {
	for i, clusterPath := range f.Paths {
		if slices.ContainsFunc(f.Paths[:i], func(other string) bool { return path.Clean(other) == path.Clean(clusterPath) }) {
			return fmt.Errorf("--path %s is given twice", clusterPath)
		}
	}
	if err := localcluster.CheckKubernetes(f.Cluster.Kubernetes); err != nil {
		return err
	}
	for _, value := range f.maps {
		m, err := network.ParseMap(value)
		if err != nil {
			return err
		}
		f.Cluster.Maps = append(f.Cluster.Maps, m)
	}
	for _, value := range f.private {
		p, err := network.ParsePrivate(value)
		if err != nil {
			return err
		}
		f.Cluster.Private = append(f.Cluster.Private, p)
	}
	return nil
}

// Start starts a cluster and shows the steps of the start. It returns the error of [localcluster.Start].
func (d *Display) Start(ctx context.Context, opts localcluster.Options) (*localcluster.Cluster, error) {
	steps := ui.NewSteps(d.Screen)
	defer steps.Close()
	opts.Report, opts.EndOnCrash = d.Report, true
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

// Stop stops the cluster and prints the result. It prints an error itself, so that the error
// does not hide why the cluster is stopped.
func (d *Display) Stop(cluster *localcluster.Cluster) error {
	began := time.Now()
	if err := cluster.Stop(); err != nil {
		d.Report(fmt.Errorf("cannot stop the cluster cleanly: %w", err))
		return ui.ErrReported
	}
	d.Println(fmt.Sprintf("%s cluster stopped %s", d.Screen.Paint(ui.Green, "✓"), d.Screen.Paint(ui.Faint, Seconds(time.Since(began)))))
	return nil
}

// Seconds writes a duration as the display does.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
