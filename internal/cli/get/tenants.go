package get

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/ui"
)

// tenantOptions are the flags of `get tenants` alone.
type tenantOptions struct {
	*options
	why                   bool
	fleet                 string
	asTenants, asPlatform []string
}

// tenants returns the command `get tenants`, and its options. Tenants have no namespace, so -A has no effect, and -n
// selects the tenants that have the namespace.
func (o *options) tenants() (*cobra.Command, *tenantOptions) {
	t := &tenantOptions{options: o}
	cmd := &cobra.Command{
		Use:     "tenants [NAME...]",
		Aliases: []string{"tenant"},
		Short:   "Show tenants, with and without a Tenant object",
		Long: `Show all tenants, or the named ones, with and without a Tenant object. With
--namespace, show the tenants that have the namespace.

The table shortens long lists; -o wide prints them all, and the accounts, roles and
owners.

-o json and -o yaml print one object for one name, and otherwise a list in the field
items. -o name prints names that kubectl takes, for tenants with a Tenant object.`,
		Example: `  tenure get tenants
  tenure get tenants dev-team -o yaml
  tenure get tenants -n apps -o name`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return t.run(cmd, names)
		},
		ValidArgsFunction: t.complete,
	}
	flags := cmd.Flags()
	flags.BoolVar(&t.why, "why", false, "show for each namespace with Flux objects the evidence that it is a tenant's or the platform's")
	flags.StringVarP(&t.output, "output", "o", outputTable, "how to print the tenants: wide, name, json or yaml (default: a table)")
	flags.StringVar(&t.fleet, "fleet", "", "folder of the platform's repository; its "+local.FileName+" lists namespaces of tenants and of the platform, as for tenure verify")
	_ = cmd.MarkFlagDirname("fleet")
	flags.StringArrayVar(&t.asTenants, "tenants", nil, "namespaces of tenants, as namespace=NAME, label=KEY[=VALUE] or source=ADDRESS, where * stands for any characters; repeatable")
	flags.StringArrayVar(&t.asPlatform, "platform", nil, "namespaces of the platform, in the form of --tenants; repeatable")
	cmd.MarkFlagsMutuallyExclusive("why", "output")
	complete.Flag(cmd, "output", complete.Words(outputs...))
	return cmd, t
}

func (t *tenantOptions) run(cmd *cobra.Command, names []string) error {
	choose, err := t.selection(cmd, names)
	if err != nil {
		return err
	}
	kube, found, err := t.discover(cmd.Context())
	if err != nil {
		return err
	}
	objects, err := tenantObjects(cmd.Context(), kube)
	if err != nil {
		return explain(err)
	}
	return t.show(found, objects, choose)
}

// show prints the selected tenants, and returns an error for a name that no tenant has.
func (t *tenantOptions) show(found *discovery.Found, objects map[string]*v1alpha1.Tenant, choose tenantSelection) error {
	all := describeTenants(found.Tenants, objects)
	tenants := choose.of(all)
	if missing := choose.missing(all); missing != nil {
		// As in kubectl, the others are printed.
		return errors.Join(missing, t.print(tenants, found, choose))
	}
	if len(tenants) == 0 && (t.output == outputTable || t.output == outputWide) && !t.why {
		_, err := fmt.Fprintln(t.streams.Err, "no tenants found")
		return err
	}
	return t.print(tenants, found, choose)
}

// discover connects to the cluster and finds its tenants. It returns when the context ends at the latest.
func (t *tenantOptions) discover(ctx context.Context) (client.Client, *discovery.Found, error) {
	config, err := t.cluster.REST(ctx)
	if err != nil {
		return nil, nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		config.Timeout = time.Until(deadline) // the client reads the kinds of the server without a context
	}
	kube, err := client.New(config, client.Options{})
	if err != nil {
		return nil, nil, explain(err)
	}
	choice, err := local.Choice(t.fleet, t.asTenants, t.asPlatform)
	if err != nil {
		return nil, nil, err
	}
	found, err := discovery.Discover(ctx, kube, choice)
	return kube, found, explain(err)
}

// selection reads the names and flags that select tenants.
func (t *tenantOptions) selection(cmd *cobra.Command, names []string) (tenantSelection, error) {
	choose := tenantSelection{names: names}
	if err := errOutput(cmd.CommandPath(), t.output); err != nil {
		return choose, err
	}
	if t.watch {
		return choose, ui.WithHint(errors.New("get tenants has no --watch"), "watch the Tenant objects with `kubectl get tenants.tenure.dev --watch`")
	}
	if cmd.Flags().Changed("namespace") && !t.allNamespaces {
		choose.namespace = t.cluster.namespace
	}
	var err error
	if choose.labels, err = labels.Parse(t.labelSelector); err != nil {
		return choose, fmt.Errorf("cannot read --label-selector: %w", err)
	}
	choose.status, err = statusFilter(t.statusSelector)
	return choose, err
}

// print prints the tenants in the format of -o, or the evidence for --why.
func (t *tenantOptions) print(tenants []tenant, found *discovery.Found, choose tenantSelection) error {
	screen := t.streams.Stdout()
	switch {
	case t.why:
		rows := whyRows(found, tenants, len(choose.names) == 0 && choose.namespace == "")
		return (ui.Table{Header: whyColumns, Rows: rows, NoHeader: t.noHeader}).Print(screen)
	case t.output == outputName:
		for _, tenant := range tenants {
			if _, err := fmt.Fprintln(screen, ui.Clean("tenant."+v1alpha1.GroupVersion.Group+"/"+tenant.Name)); err != nil {
				return err
			}
		}
		return nil
	case t.output == ui.JSON || t.output == ui.YAML:
		if len(choose.names) == 1 {
			if len(tenants) == 0 {
				return nil
			}
			return ui.Encode(screen, t.output, tenants[0])
		}
		return ui.Encode(screen, t.output, map[string]any{"items": tenants})
	case len(tenants) == 0:
		return nil
	}
	header, rows := tenantTable(tenants, t.output == outputWide)
	return (ui.Table{Header: header, Rows: rows, NoHeader: t.noHeader}).Print(screen)
}

// complete offers the names of tenants that are not among the arguments.
func (t *tenantOptions) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), complete.Timeout)
	defer cancel()
	kube, found, err := t.discover(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	objects, err := tenantObjects(ctx, kube)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, tenant := range describeTenants(found.Tenants, objects) {
		if !slices.Contains(args, tenant.Name) {
			names = append(names, tenant.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

var whyColumns = []string{"TENANT", "NAMESPACES", "EVIDENCE"}

// whyRows has a row for each piece of evidence of the tenants, and with platform also for the
// namespaces of the platform, which have no tenant.
func whyRows(found *discovery.Found, tenants []tenant, platform bool) [][]string {
	var rows [][]string
	for _, t := range tenants {
		for i, why := range t.Evidence {
			row := []string{t.Name, strings.Join(t.Namespaces, ","), why}
			if i > 0 {
				row[0], row[1] = "", ""
			}
			rows = append(rows, row)
		}
	}
	if !platform {
		return rows
	}
	for _, p := range found.Platform {
		rows = append(rows, []string{"-", p.Namespace, p.Why})
	}
	return rows
}

// tenantObjects returns the cluster's Tenants by name, or none if the CRD is missing.
func tenantObjects(ctx context.Context, c client.Reader) (map[string]*v1alpha1.Tenant, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenantList"))
	if err := c.List(ctx, list); err != nil {
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("cannot read the Tenants: %w", err)
	}
	objects := map[string]*v1alpha1.Tenant{}
	for i := range list.Items {
		o := &v1alpha1.Tenant{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, o); err != nil {
			return nil, fmt.Errorf("cannot read Tenant %s: %w", list.Items[i].GetName(), err)
		}
		objects[o.Name] = o
	}
	return objects, nil
}

// tenantState returns the status of the condition Ready of a Tenant, and a message that begins
// with the problem. A tenant without a Tenant object has no status.
func tenantState(o *v1alpha1.Tenant) (ready, message string) {
	if o == nil {
		return "", "no Tenant object; found by its label or its Flux objects"
	}
	c := apimeta.FindStatusCondition(o.Status.Conditions, "Ready")
	if c == nil {
		return string(metav1.ConditionUnknown), "the manager has not reconciled it yet"
	}
	message = c.Message
	for _, kind := range []string{"WithinQuota", "HostsSeparate"} {
		if c := apimeta.FindStatusCondition(o.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			message += "; " + c.Message
		}
	}
	if c.ObservedGeneration != o.Generation {
		return string(metav1.ConditionUnknown), "the manager has not reconciled the last change yet; before, " + message
	}
	return string(c.Status), message
}
