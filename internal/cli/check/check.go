// Package check implements `tenure check`, which checks whether a cluster's lockdown is in
// force.
package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/check/incluster"
	"github.com/tenure-dev/tenure/internal/cli/check/olderobjects"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

type options struct {
	kubeflags.Flags

	namespace         string
	fleet, path, mode string
	output            string
	pre               bool
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that a cluster is locked down",
		Long: `Check reads a cluster and compares it, field by field, with what this version of
Tenure installs: Flux's flags and rights, the rules for tenants and their bindings, the
webhooks, the roles and the kinds. With --fleet it also compares the cluster with the
fleet's folder, and names the files that define the objects of a wrong row. Check
writes nothing. It also reports:
  - bindings that give a tenant rights outside of its namespaces, or the rights of other
    accounts in them
  - a TenancyProfile that is not in force
  - Tenants that may use the hosts of other tenants
  - namespaces of tenants without a tenant's label, where the rules do not apply
  - objects of the platform that wait for an object of a tenant
  - Secrets with a token of an account that owns a tenant or that Flux applies as, and Pods
    that run as one: they are older than the account's rights, and keep working
  - objects of tenants that today's rules would refuse, because they are older than a
    rule or a limit. They keep running, so they are not wrong. Check asks with dry runs
    that create the objects as the tenants' accounts, which you may need to impersonate

The exit code is 1 if a row is wrong. Rules that only warn are wrong, unless the fleet
sets warn mode or you pass --mode warn.`,
		Example: `  # before an installation
  tenure check --pre

  # the cluster of the current context, also as JSON
  tenure check
  tenure check -o json

  # another cluster, compared with its folder in the fleet
  tenure check --context staging --fleet . --path clusters/staging`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, streams) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.pre, "pre", false, "check only the requirements of an installation")
	o.Add(cmd, flags)
	flags.StringVarP(&o.namespace, "namespace", "n", cmp.Or(os.Getenv("FLUX_SYSTEM_NAMESPACE"), "flux-system"), "the `namespace` of Flux")
	flags.StringVar(&o.fleet, "fleet", "", "folder of the platform's repository, to compare with")
	flags.StringVar(&o.path, "path", "", "the cluster's folder in the fleet, such as clusters/staging; may be left out if the fleet has one cluster")
	flags.StringVar(&o.mode, "mode", "", "mode that the rules must have: enforce, or warn (default: the fleet's mode; without --fleet enforce)")
	_ = cmd.MarkFlagDirname("fleet")
	complete.Flag(cmd, "path", complete.Clusters(&o.fleet))
	flags.StringVarP(&o.output, "output", "o", "", "how to print the results: json or yaml (default: a table)")
	complete.Flag(cmd, "output", complete.Words(ui.JSON, ui.YAML))
	complete.Flag(cmd, "mode", complete.Words("enforce", "warn"))
	complete.Flag(cmd, "namespace", complete.Names(&o.Flags, complete.Namespaces))
	return cmd
}

func (o *options) run(cmd *cobra.Command, streams ui.IO) error {
	if err := incluster.CheckOutput(o.output); err != nil {
		return err
	}
	if o.mode != "" {
		if err := incluster.CheckMode(o.mode); err != nil {
			return err
		}
	}
	if o.path != "" && o.fleet == "" {
		return ui.WithHint(errors.New("--fleet is missing: --path is a folder in it"), "name the folder of the platform's repository, such as --fleet .")
	}
	if o.fleet != "" {
		var err error
		if o.path, err = local.ClusterPath(streams, o.fleet, o.path); err != nil {
			return err
		}
	}
	cluster, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	cluster.Warn = o.mode == "warn"
	var platform *layout.Fleet
	if o.fleet != "" {
		if platform, err = o.load(); err != nil {
			return err
		}
	}
	if platform != nil && o.mode == "" {
		// The comparison reports a fleet that cannot be read in this way.
		cluster.Warn, _ = lockdown.Warns(platform)
	}
	results, err := o.check(cmd.Context(), streams, cluster)
	if err == nil && platform != nil {
		var more []lockdown.Result
		more, err = cluster.Compare(cmd.Context(), platform, lockdown.Options{Tenants: true, Warn: &cluster.Warn})
		results = append(results, more...)
	}
	if platform != nil {
		lockdown.Locate(platform, results)
	}
	return kubeflags.Explain(incluster.Print(streams, o.output, results, err))
}

// check checks the cluster.
func (o *options) check(ctx context.Context, streams ui.IO, cluster lockdown.Cluster) (results []lockdown.Result, err error) {
	if o.pre {
		return cluster.Prerequisites(ctx)
	}
	tenants, err := o.findTenants(ctx, &cluster)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(streams.Err, "note: tenants are found by their labels only, and the dependencies of the platform are not checked: %s\n", ui.Clean(err.Error()))
		err = nil
	}
	if err != nil {
		return nil, err
	}
	results, err = cluster.Check(ctx)
	if err != nil || len(tenants) == 0 {
		return results, err
	}
	return append(results, earlierCredentials(ctx, cluster.Client, tenants), o.countOlder(ctx, streams, tenants)), nil
}

// countOlder counts the objects of tenants that the rules would refuse today. They keep running, so
// the check does not fail, not even if the user may not count them.
func (o *options) countOlder(ctx context.Context, streams ui.IO, tenants []discovery.Tenant) lockdown.Result {
	row := lockdown.Result{Name: "older objects", OK: true}
	progress := func(string) {}
	if screen := streams.Stderr(); screen.Interactive {
		steps := ui.NewSteps(screen)
		defer steps.Close()
		progress = steps.Start("older objects").Update
	}
	config, err := o.REST(ctx)
	if err == nil {
		var report *olderobjects.Report
		if report, err = olderobjects.Count(ctx, config, tenants, progress); err == nil {
			row.Message = report.String()
			return row
		}
	}
	row.Message = "not counted: " + err.Error()
	return row
}

// load reads the fleet to compare the cluster with.
func (o *options) load() (*layout.Fleet, error) {
	return layout.Load(o.fleet, o.path, layout.Options{
		URL: "https://fleet.invalid", Branch: "main", // placeholders for a missing root
		Components: config.FluxComponents(),
		Optional:   []layout.Optional{{Group: "image.toolkit.fluxcd.io", Manifests: config.FluxImageComponents()}},
	})
}

// findTenants finds the tenants, their namespaces and what depends on their objects, unless the cluster has
// no Flux. The file in the fleet's folder says which namespaces are whose, as for tenure get tenants.
func (o *options) findTenants(ctx context.Context, cluster *lockdown.Cluster) ([]discovery.Tenant, error) {
	choice, err := local.Choice(o.fleet, nil, nil)
	if err != nil {
		return nil, err
	}
	choice.Root = cluster.Namespace
	found, err := discovery.Discover(ctx, cluster.Client, choice)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cluster.TenantNamespaces = map[string]string{}
	for _, t := range found.Tenants {
		for _, namespace := range t.Namespaces {
			cluster.TenantNamespaces[namespace] = t.Name
		}
		for _, o := range t.Owners {
			cluster.Identities = append(cluster.Identities, lockdown.Identity{Tenant: t.Name, Subject: rbacv1.Subject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}})
		}
		for _, a := range t.Accounts {
			cluster.Identities = append(cluster.Identities, lockdown.Identity{Tenant: t.Name, Subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}})
		}
	}
	cluster.Dependencies, err = discovery.Dependencies(ctx, cluster.Client, found.Tenants)
	return found.Tenants, err
}

func (o *options) connect(ctx context.Context) (lockdown.Cluster, error) {
	config, err := o.REST(ctx)
	if err != nil {
		return lockdown.Cluster{}, err
	}
	return incluster.Connect(config, o.namespace)
}
