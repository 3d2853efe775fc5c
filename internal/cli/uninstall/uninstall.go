// Package uninstall implements `tenure uninstall`, which removes Tenure from a cluster and keeps
// the tenants' namespaces and objects.
package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type options struct {
	kubeflags.Flags

	streams   ui.IO
	namespace string
	yes       bool
	dryRun    bool
	timeout   time.Duration
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	o := options{streams: streams}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Tenure from a cluster, and keep the tenants' namespaces",
		Long: `Uninstall removes what ` + "`tenure install --export`" + ` has installed beside Flux: rules,
webhooks, roles, the manager and the proxy. First the manager removes its finalizers;
otherwise nobody could delete these objects after the manager is gone.

These stay: the tenants' namespaces with everything in them, Tenants, the
TenancyProfile, their kinds, and Flux with its lockdown. Nothing isolates the tenants
any more.

If Flux or Helm applies Tenure, uninstall changes nothing and prints the steps to remove it.`,
		Example: `  tenure uninstall --dry-run
  tenure uninstall --yes --context staging`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return kubeflags.Explain(o.run(cmd.Context())) },
	}
	flags := cmd.Flags()
	o.Add(cmd, flags)
	flags.StringVarP(&o.namespace, "namespace", "n", cmp.Or(os.Getenv("FLUX_SYSTEM_NAMESPACE"), "flux-system"), "the `namespace` of Flux and the manager")
	flags.BoolVarP(&o.yes, "yes", "y", false, "uninstall without asking")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only print what would be deleted")
	durationflag.Positive(flags, &o.timeout, "timeout", 5*time.Minute, "how long to wait for the manager to remove its finalizers")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	complete.Flag(cmd, "namespace", complete.Names(&o.Flags, complete.Namespaces))
	return cmd
}

func (o *options) run(ctx context.Context) error {
	config, err := o.REST(ctx)
	if err != nil {
		return err
	}
	config.QPS = -1 // the API server limits requests itself
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	cluster := lockdown.Cluster{Client: kube, Namespace: o.namespace}
	found, err := cluster.Installation(ctx)
	if err != nil {
		return explain(err)
	}
	if len(found.Objects) == 0 {
		_, err := fmt.Fprintf(o.streams.Out, "nothing to do: Tenure is not installed in namespace %s\n", o.namespace)
		return err
	}
	if o.dryRun {
		for _, object := range found.Objects {
			if _, err := fmt.Fprintf(o.streams.Out, "%s would be deleted\n", lockdown.ObjectName(object)); err != nil {
				return err
			}
		}
		return o.print(found, "would be")
	}
	if err := o.confirm(ctx, found); err != nil {
		return err
	}
	if err := o.remove(ctx, cluster, kube, found); err != nil {
		return err
	}
	return o.print(found, "are")
}

// explain adds the way out to an error of [lockdown.Cluster.Installation].
func explain(err error) error {
	var other *lockdown.AppliedElsewhereError
	switch {
	case errors.As(err, &other) && other.Release != "":
		return ui.WithHint(err, "remove it with helm: docs/how-to/install.md, section Uninstall")
	case errors.As(err, &other):
		return ui.WithHint(err, "run `tenure profile single-tenant` on the fleet, commit and push, and run it again when the manager is ready")
	case errors.Is(err, lockdown.ErrManagerMissing):
		return ui.WithHint(err, "install it again with `tenure install --export`, so that it removes its finalizers, and uninstall then")
	case apierrors.IsForbidden(err):
		return ui.WithHint(err, "uninstall needs the rights of a cluster admin: choose another user with --context or --kubeconfig")
	}
	return err
}

func (o *options) confirm(ctx context.Context, found *lockdown.Installation) error {
	if o.yes {
		return nil
	}
	question := fmt.Sprintf("Tenure isolates %s and %s of tenants. Delete Tenure's %s?", ui.Number(found.Tenants, "Tenant"), ui.Number(found.Namespaces, "namespace"), ui.Number(len(found.Objects), "object"))
	err := edit.Confirm(ctx, o.streams, question)
	if errors.Is(err, edit.ErrNobody) {
		return ui.WithHint(err, "confirm with --yes, or only show what would be deleted with --dry-run")
	}
	return err
}

// remove lets the manager release its objects, and then deletes the installation.
func (o *options) remove(ctx context.Context, cluster lockdown.Cluster, kube client.Client, found *lockdown.Installation) error {
	steps := ui.NewSteps(o.streams.Stderr())
	defer steps.Close()
	if found.Manager {
		step := steps.Start("release finalizers")
		waiting, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		if err := cluster.Release(waiting, kube, step.Update); err != nil {
			step.Fail(err)
			return ui.WithHint(err, fmt.Sprintf("nothing is deleted: see `kubectl -n %s describe pod -l app.kubernetes.io/component=manager`, and run the command again", o.namespace))
		}
		step.Done()
	}
	step := steps.Start("delete Tenure")
	if err := found.Remove(ctx, kube, step.Update); err != nil {
		step.Fail(err)
		return ui.WithHint(err, "run the command again")
	}
	step.Done()
	return nil
}

// print prints the limits that end and the objects that stay.
func (o *options) print(found *lockdown.Installation, are string) error {
	_, err := fmt.Fprintf(o.streams.Out, `%[1]s %[4]s deleted. Nothing isolates the tenants any more:
  RoleBindings to Tenure's roles give no rights, so that tenants' syncs stop; other rights have no limits
  quotas, limit ranges, network policies and Pod Security levels stay as they are, and tenants with rights may change them
These stay: %[2]s, %[3]s of tenants, the TenancyProfile, the kinds, and Flux with its lockdown.
To delete the kinds and with them all Tenants: kubectl delete crd tenants.tenure.dev sourcegrants.tenure.dev tenantparameters.tenure.dev tenancyprofiles.tenure.dev
`, ui.Number(len(found.Objects), "object"), ui.Number(found.Tenants, "Tenant"), ui.Number(found.Namespaces, "namespace"), are)
	return err
}
