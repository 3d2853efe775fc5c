package get

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/ui"
)

// tenants returns the command `get tenants`. Tenants have no namespace, so -n and -A have no
// effect.
func (o *options) tenants() *cobra.Command {
	why := false
	var fleet string
	var asTenants, asPlatform []string
	cmd := &cobra.Command{
		Use:     "tenants",
		Aliases: []string{"tenant"},
		Short:   "Show all tenants, with and without a Tenant object",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.cluster.REST()
			if err != nil {
				return err
			}
			kube, err := client.New(config, client.Options{})
			if err != nil {
				return explain(err)
			}
			choice, err := local.Choice(fleet, asTenants, asPlatform)
			if err != nil {
				return err
			}
			found, err := discovery.Discover(cmd.Context(), kube, choice)
			if err != nil {
				return explain(err)
			}
			if why {
				return (ui.Table{Header: whyColumns, Rows: whyRows(found), NoHeader: o.noHeader}).Print(o.streams.Stdout())
			}
			objects, err := tenantObjects(cmd.Context(), kube)
			if err != nil {
				return explain(err)
			}
			return (ui.Table{Header: tenantColumns, Rows: tenantRows(found.Tenants, objects), NoHeader: o.noHeader}).Print(o.streams.Stdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&why, "why", false, "show for each namespace with Flux objects the evidence that it is a tenant's or the platform's")
	flags.StringVar(&fleet, "fleet", "", "folder of the platform's repository; its "+local.FileName+" lists namespaces of tenants and of the platform, as for tenure verify")
	_ = cmd.MarkFlagDirname("fleet")
	flags.StringArrayVar(&asTenants, "tenants", nil, "namespaces of tenants, as namespace=NAME, label=KEY[=VALUE] or source=ADDRESS, where * stands for any characters; repeatable")
	flags.StringArrayVar(&asPlatform, "platform", nil, "namespaces of the platform, in the form of --tenants; repeatable")
	return cmd
}

var whyColumns = []string{"TENANT", "NAMESPACES", "EVIDENCE"}

// whyRows has a row for each piece of evidence. Namespaces of the platform have no tenant.
func whyRows(found *discovery.Found) [][]string {
	var rows [][]string
	for _, t := range found.Tenants {
		for i, why := range t.Why {
			row := []string{t.Name, strings.Join(t.Namespaces, ","), why}
			if i > 0 {
				row[0], row[1] = "", ""
			}
			rows = append(rows, row)
		}
	}
	for _, p := range found.Platform {
		rows = append(rows, []string{"-", p.Namespace, p.Why})
	}
	return rows
}

var tenantColumns = []string{"NAME", "READY", "NAMESPACES", "ACCOUNTS", "ROLES", "REPOSITORIES", "MESSAGE"}

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

// tenantRows returns a row for each tenant, sorted by name, including tenants without a Tenant
// object.
func tenantRows(found []discovery.Tenant, objects map[string]*v1alpha1.Tenant) [][]string {
	var rows [][]string
	seen := map[string]bool{}
	for _, t := range found {
		seen[t.Name] = true
		var accounts, repositories []string
		for _, a := range t.Accounts {
			accounts = append(accounts, a.String())
		}
		for _, r := range t.Repositories {
			// A tenant may have sources for the same repository in several namespaces.
			if !slices.Contains(repositories, r.Address()) {
				repositories = append(repositories, r.Address())
			}
		}
		ready, message := tenantState(objects[t.Name])
		rows = append(rows, []string{
			t.Name, ready, strings.Join(t.Namespaces, ","), strings.Join(accounts, ","), strings.Join(t.Roles, ","), strings.Join(repositories, ","), message,
		})
	}
	for name, o := range objects {
		if !seen[name] {
			ready, message := tenantState(o)
			rows = append(rows, []string{name, ready, strings.Join(o.Status.Namespaces, ","), "", "", "", message})
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

// tenantState returns the status of the condition Ready of a Tenant, and a message that begins
// with the problem.
func tenantState(o *v1alpha1.Tenant) (ready, message string) {
	if o == nil {
		return "-", "no Tenant object; found by its label or its Flux objects"
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
