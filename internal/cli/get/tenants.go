package get

import (
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/cli/ui"
	"github.com/tenure-dev/tenure/internal/tenants"
)

// tenants is the command `get tenants`. Tenants have no namespace, so -n and -A
// do not matter to it.
func (o *options) tenants() *cobra.Command {
	return &cobra.Command{
		Use:     "tenants",
		Aliases: []string{"tenant"},
		Short:   "Show the tenants: whoever has Flux objects or the label of flux create tenant",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.cluster.restConfig()
			if err != nil {
				return err
			}
			kube, err := client.New(config, client.Options{})
			if err != nil {
				return explain(err)
			}
			found, err := tenants.Discover(cmd.Context(), kube)
			if err != nil {
				return explain(err)
			}
			return (ui.Table{Header: tenantColumns, Rows: tenantRows(found), NoHeader: o.noHeader}).Print(o.streams.Stdout())
		},
	}
}

var tenantColumns = []string{"NAME", "NAMESPACES", "ACCOUNTS", "ROLES", "REPOSITORIES"}

func tenantRows(found []tenants.Tenant) [][]string {
	var rows [][]string
	for _, t := range found {
		var accounts, repositories []string
		for _, a := range t.Accounts {
			accounts = append(accounts, a.String())
		}
		for _, r := range t.Repositories {
			repositories = append(repositories, r.URL+"#"+r.Branch)
		}
		rows = append(rows, []string{
			t.Name, strings.Join(t.Namespaces, ","), strings.Join(accounts, ","), strings.Join(t.Roles, ","), strings.Join(repositories, ","),
		})
	}
	return rows
}
