// Package profile implements `tenure profile`, which applies the lockdown to Flux in a fleet's
// folder, removes it, or shows the difference.
package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/cli/imageflags"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/ui"
)

// The names of the profiles, as in Flux's RFC-0003.
const (
	multi  = "multi-tenant"
	single = "single-tenant"
)

const (
	shardFlag     = "shard"
	proxyHostFlag = "proxy-host"
	egressFlag    = "egress-host"
	rangeFlag     = "cluster-range"
)

type options struct {
	fleet, path, mode string
	managerImage      string
	allow, shards     []string
	maps              []string
	proxyHosts        []string
	ranges            []string
	egressHosts       []string
	yes, dryRun       bool
	proxy, capsule    bool
	defaults, check   bool
	proxyGiven        *bool // nil keeps the fleet's setting
	capsuleGiven      *bool // nil keeps the fleet's setting
	defaultsGiven     *bool // nil keeps the fleet's setting
	checkGiven        *bool // nil keeps the fleet's setting
	images            imageflags.Flags
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "profile [multi-tenant|single-tenant] --fleet DIR --path PATH",
		Short: "Lock Flux down for many tenants, or remove the lockdown",
		Long: `Profile edits the platform's repository, after it has shown the diff. With multi-tenant,
it writes a component beside Flux's manifests, which sets the flags of each controller and
reduces its rights, and the rules for tenants and the manager into ` + lockdown.Infrastructure + `.
A second run changes nothing. Without an argument, it lists the missing parts.

With single-tenant, it removes only the edits of multi-tenant, in two runs. After the first
one, commit and push; the manager then removes its finalizers. The second run removes the
other edits.

With --verify-images, it verifies the signatures of Flux's images in the registry, pins the
images with a trusted signature by digest, and adds a rule that refuses all other images in
Flux's namespace. The pins stay until you pass --verify-images again: do so after each
update of Flux.`,
		Example: `  # Show the lockdown of the staging cluster, and write it
  tenure profile multi-tenant --fleet . --path clusters/staging --dry-run
  tenure profile multi-tenant --fleet . --path clusters/staging --yes

  # Controllers of their own for some tenants
  tenure profile multi-tenant --fleet . --path clusters/staging --shard gold

  # Pin the images that Flux's own workflows signed
  tenure profile multi-tenant --fleet . --path clusters/staging --verify-images \
    --trusted-root trusted_root.json

  # Pin images that were signed with a key of your own, from your registry
  tenure profile multi-tenant --fleet . --path clusters/staging --verify-images \
    --image-key cosign.pub --image-registry registry.example.com/fluxcd`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{multi, single},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("proxy") {
				o.proxyGiven = &o.proxy
			}
			if cmd.Flags().Changed("capsule") {
				o.capsuleGiven = &o.capsule
			}
			if cmd.Flags().Changed("defaults") {
				o.defaultsGiven = &o.defaults
			}
			if cmd.Flags().Changed("check") {
				o.checkGiven = &o.check
			}
			return o.run(cmd.Context(), streams, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.fleet, "fleet", ".", "folder of the platform's repository")
	flags.StringVar(&o.path, "path", "", "the cluster's folder in the fleet, such as clusters/staging; may be left out if there is one cluster")
	flags.StringVar(&o.mode, "mode", "", "what the rules for tenants do: enforce, or warn (default: as in the fleet; a new fleet enforces)")
	flags.StringArrayVar(&o.allow, "allow", nil, "an address that tenants may fetch from, in addition to the addresses in the fleet, as `KIND=PATTERN` with git, helm or oci; repeatable")
	flags.StringVar(&o.managerImage, "manager-image", "", "image of tenure-server, as `REPOSITORY:TAG`, or with @sha256:… (default: the fleet's, or the image of this version)")
	flags.BoolVar(&o.proxy, "proxy", false, "install the proxy, which shows tenants their part of the cluster (default: as in the fleet)")
	flags.StringArrayVar(&o.proxyHosts, proxyHostFlag, nil, "`NAME` by which people reach the proxy from outside, for its certificate; repeatable; an empty NAME removes all names (default: the fleet's)")
	flags.BoolVar(&o.capsule, "capsule", false, "install Capsule's kinds, which the manager translates (default: as in the fleet)")
	flags.BoolVar(&o.defaults, "defaults", false, "install the policy that fills in the default classes and metadata of tenants; it needs Kubernetes 1.36 (default: as in the fleet)")
	flags.BoolVar(&o.check, "check", false, "install a CronJob that runs tenure check in the cluster (default: as in the fleet)")
	flags.StringArrayVar(&o.shards, shardFlag, nil, "`NAME` of a shard: a copy of Flux's controllers for the tenants whose namespaces have the label sharding.fluxcd.io/key: NAME; repeatable; an empty NAME removes all shards (default: the fleet's)")
	flags.StringArrayVar(&o.ranges, rangeFlag, nil, "addresses of Pods, Services and nodes, as a `CIDR`, where notification-controller may not post; repeatable; the list replaces the earlier one; an empty CIDR sets all private ranges again (default: the fleet's, or all private ranges)")
	flags.StringArrayVar(&o.egressHosts, egressFlag, nil, "`HOST` or HOST:PORT to which kustomize-controller may connect, such as a key service or the API server of another cluster; repeatable; an empty HOST removes all (default: the fleet's)")
	flags.StringArrayVar(&o.maps, "map", nil, "read the remote bases of an address from a local folder, as `URL[#BRANCH]=DIR`, or one manifest from a file, as URL=FILE; repeatable")
	flags.BoolVarP(&o.yes, "yes", "y", false, "write without asking")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show the diff and write nothing")
	o.images.Add(cmd)
	run := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		empty := func(name string) bool { return name == "" }
		if cmd.Flags().Changed(shardFlag) {
			o.shards = slices.DeleteFunc(o.shards, empty)
		}
		if cmd.Flags().Changed(rangeFlag) {
			o.ranges = slices.DeleteFunc(o.ranges, empty)
		}
		if cmd.Flags().Changed(egressFlag) {
			o.egressHosts = slices.DeleteFunc(o.egressHosts, empty)
		}
		if cmd.Flags().Changed(proxyHostFlag) {
			o.proxyHosts = slices.DeleteFunc(o.proxyHosts, empty)
		}
		return run(cmd, args)
	}
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	_ = cmd.MarkFlagDirname("fleet")
	complete.Flag(cmd, "path", complete.Clusters(&o.fleet))
	complete.Flag(cmd, "mode", complete.Words("enforce", "warn"))
	return cmd
}

func (o *options) run(ctx context.Context, streams ui.IO, args []string) error {
	warn, err := lockdown.ParseMode(o.mode)
	if err != nil {
		return err
	}
	if o.path, err = local.ClusterPath(streams, o.fleet, o.path); err != nil {
		return err
	}
	if o.shards != nil && (len(args) == 0 || args[0] != multi) {
		return errors.New("--" + shardFlag + " is for tenure profile " + multi)
	}
	if o.images.Given() && (len(args) == 0 || args[0] != multi) {
		return errors.New("--verify-images is for tenure profile " + multi)
	}
	if err := o.images.Check(); err != nil {
		return err
	}
	f, err := layout.Load(o.fleet, o.path, layout.Options{
		URL: "https://fleet.invalid", Branch: "main", // placeholders for a missing root, which is rejected below
		Components: config.FluxComponents(),
		Optional:   []layout.Optional{{Group: "image.toolkit.fluxcd.io", Manifests: config.FluxImageComponents()}},
	})
	if err != nil {
		return err
	}
	done, err := o.fetchBases(ctx, f)
	defer done()
	if err != nil {
		return err
	}
	opts := lockdown.Options{Tenants: len(args) == 0 || args[0] == multi, Warn: warn, Allow: o.allow, ManagerImage: o.managerImage, Proxy: o.proxyGiven, ProxyHosts: o.proxyHosts, Capsule: o.capsuleGiven, Defaults: o.defaultsGiven, Check: o.checkGiven, Shards: o.shards, ClusterRanges: o.ranges, EgressHosts: o.egressHosts}
	if len(args) == 0 {
		return drift(streams, f, opts)
	}
	if opts.Pins, err = o.pins(ctx, streams, f); err != nil {
		return err
	}
	plan, err := lockdown.Make(f, opts)
	if err != nil {
		return err
	}
	if len(plan.Changes) == 0 {
		fmt.Fprintf(streams.Out, "%s has the profile %s already\n", f.Path, args[0])
		return note(streams, plan.Notes)
	}
	if err := edit.Show(streams, plan.Diff()); err != nil {
		return err
	}
	var removed []string
	for _, c := range plan.Changes {
		if c.After == nil {
			removed = append(removed, c.Path)
		}
	}
	lost, err := edit.Uncommitted(ctx, f.Dir, removed)
	if err != nil {
		return err
	}
	if err := note(streams, append(plan.Notes, lost.Notes()...)); err != nil {
		return err
	}
	if len(plan.RemoteBases) > 0 {
		return refused(streams, plan, o.dryRun)
	}
	if o.dryRun {
		return nil
	}
	if err := lost.Refuse(o.yes); err != nil {
		return err
	}
	if !o.yes {
		if err := edit.Ask(ctx, streams, "write "+ui.Number(len(plan.Changes), "file")+"?"); err != nil {
			return err
		}
	}
	if err := plan.Write(f.Dir); err != nil {
		return err
	}
	written, them := "1 file", "it"
	if n := len(plan.Changes); n != 1 {
		written, them = fmt.Sprintf("%d files", n), "them"
	}
	fmt.Fprintf(streams.Err, "%s written: commit and push %s\n", written, them)
	return nil
}

// refused says which remote bases Flux will refuse. That is an error unless nothing is written.
func refused(streams ui.IO, plan *lockdown.Plan, dryRun bool) error {
	const way = "copy each into the repository, or deliver it with a source and a Kustomization of its own"
	why := "kustomize-controller refuses remote bases with --no-remote-bases: " + strings.Join(plan.RemoteBases, ", ")
	if dryRun {
		return note(streams, []string{why + ": before you write the lockdown, " + way})
	}
	return ui.WithHint(fmt.Errorf("nothing is written: %s", why), way)
}

// fetchBases lets the fleet's builds read remote bases from the mapped folders. The returned function
// deletes the copies; it is not nil even if there is an error.
func (o *options) fetchBases(ctx context.Context, f *layout.Fleet) (done func(), err error) {
	done = func() {}
	if len(o.maps) == 0 {
		return done, nil
	}
	var maps []network.Map
	for _, value := range o.maps {
		m, err := network.ParseMap(value)
		if err != nil {
			return done, err
		}
		maps = append(maps, m)
	}
	dir, err := os.MkdirTemp("", "tenure-bases-")
	if err != nil {
		return done, fmt.Errorf("cannot read the remote bases: %w", err)
	}
	done = func() { _ = os.RemoveAll(dir) }
	bases, err := network.NewBases(ctx, dir, maps)
	if err != nil {
		return done, err
	}
	f.FetchBase = func(base flux.RemoteBase, into string) (string, error) { return bases.Fetch(ctx, base, into) }
	return done, nil
}

// pins verifies the images of the fleet, if the flags request it.
func (o *options) pins(ctx context.Context, streams ui.IO, f *layout.Fleet) ([]lockdown.Pin, error) {
	if !o.images.Verify() {
		return o.images.Pins(ctx, nil)
	}
	images, err := lockdown.Images(f)
	if err != nil {
		return nil, err
	}
	pins, err := o.images.Pins(ctx, images)
	if err != nil {
		return nil, err
	}
	for _, pin := range pins {
		fmt.Fprintf(streams.Err, "signed as it should be: %s\n", ui.Clean(pin.String()))
	}
	return pins, nil
}

func note(streams ui.IO, notes []string) error {
	for _, n := range notes {
		if _, err := io.WriteString(streams.Err, streams.Stderr().Wrap("note: ", len("note: "), n)); err != nil {
			return err
		}
	}
	return nil
}

// absent stands for a value that a table does not have.
const absent = "-"

// drift prints the flags in force, and the changes that the profile would make.
func drift(streams ui.IO, f *layout.Fleet, opts lockdown.Options) error {
	states, err := lockdown.Drift(f)
	if err != nil {
		return err
	}
	table := ui.Table{Header: []string{"CONTROLLER", "FLAG", "VALUE", "READY", "MESSAGE"}}
	for _, s := range states {
		ready := "False"
		if s.OK() {
			ready = "True"
		}
		table.Rows = append(table.Rows, []string{s.Deployment, s.Name, cmp.Or(s.Got, absent), ready, s.String()})
	}
	if err := table.Print(streams.Stdout()); err != nil {
		return err
	}
	if err := imageDrift(streams, f); err != nil {
		return err
	}
	plan, err := lockdown.Make(f, opts)
	if err != nil {
		return err
	}
	if len(plan.Changes) == 0 {
		fmt.Fprintf(streams.Out, "\n%s has the profile %s, unchanged\n", f.Path, multi)
		return note(streams, plan.Notes)
	}
	fmt.Fprintf(streams.Out, "\n`tenure profile %s` would change:\n", multi)
	for _, c := range plan.Changes {
		fmt.Fprintf(streams.Out, "  %s\n", ui.Clean(c.Path))
	}
	if err := note(streams, plan.Notes); err != nil || len(plan.RemoteBases) == 0 {
		return err
	}
	return refused(streams, plan, true)
}

// imageDrift shows which images are pinned, if any is.
func imageDrift(streams ui.IO, f *layout.Fleet) error {
	states, err := lockdown.ImageStates(f)
	if err != nil || len(states) == 0 {
		return err
	}
	table := ui.Table{Header: []string{"IMAGE", "PINNED", "READY", "MESSAGE"}}
	for _, s := range states {
		ready, message := "True", "pinned"
		if s.Message != "" {
			ready, message = "False", s.Message
		}
		table.Rows = append(table.Rows, []string{s.Image, cmp.Or(s.Pinned, absent), ready, message})
	}
	fmt.Fprintln(streams.Out)
	return table.Print(streams.Stdout())
}
