package create

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/fleet/scaffold"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
)

// fleet returns the command `create fleet`.
func (o *options) fleet() *cobra.Command {
	f := scaffold.Fleet{}
	var security string
	confirm := edit.Flags{Brief: true} // Flux's manifests are long
	cmd := &cobra.Command{
		Use:   "fleet DIR",
		Short: "Write the folders of a platform's repository",
		Long: `Write the folders that a platform's repository begins with: for each cluster
Flux's manifests, locked down for many tenants, and the folder of its tenants. The command
keeps existing files. Run it again to add a cluster.`,
		Example: `  tenure create fleet . --git-url ssh://git@github.com/acme/fleet \
    --cluster staging --cluster production --allow 'git=https://github.com/acme/*'`,
		Args: folder,
		RunE: func(cmd *cobra.Command, args []string) error {
			if security != "multi-tenant" && security != "single-tenant" {
				return fmt.Errorf("--security-profile is multi-tenant or single-tenant, not %q", security)
			}
			f.Profile.Tenants = security == "multi-tenant"
			_, err := edit.Run(cmd.Context(), o.streams, confirm, args[0], f.Write)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.URL, "git-url", "", "address of the platform's repository")
	flags.StringVar(&f.Branch, "branch", "main", "branch of the platform's repository")
	flags.StringArrayVar(&f.Clusters, "cluster", nil, "name of a cluster, such as staging; repeatable")
	flags.StringVar(&f.AgeRecipient, "age-recipient", "", "age public key to encrypt the tenants' credentials for")
	flags.StringVar(&security, "security-profile", "multi-tenant", "multi-tenant or single-tenant")
	complete.Flag(cmd, "security-profile", complete.Words("multi-tenant", "single-tenant"))
	flags.StringArrayVar(&f.Profile.Allow, "allow", nil, "an address that tenants may fetch from, as `KIND=PATTERN` with git, helm or oci; repeatable")
	flags.StringVar(&f.Profile.ManagerImage, "manager-image", "", "image of tenure-server, as `REPOSITORY:TAG`, or with @sha256:… (default: the image of this version)")
	confirm.Add(cmd)
	return cmd
}

// repository returns the command `create repository`.
func (o *options) repository() *cobra.Command {
	r := scaffold.Repository{}
	confirm := edit.Flags{Tenant: true}
	cmd := &cobra.Command{
		Use:   "repository DIR",
		Short: "Write the folders of a tenant's repository",
		Long: `Write the folders that a tenant's repository begins with: a base with a release of
a chart, and the versions that staging and production follow. The command keeps existing
files.`,
		Example: `  tenure create repository . --namespace apps --service-account dev-team \
    --chart podinfo --helm-url https://stefanprodan.github.io/podinfo`,
		Args: folder,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := edit.Run(cmd.Context(), o.streams, confirm, args[0], func(s *workspace.Set) ([]string, error) { return nil, r.Write(s) })
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&r.Namespace, "namespace", "n", "", "the tenant's namespace")
	flags.StringVar(&r.Account, "service-account", "", "the tenant's service account, as which Flux applies the repository")
	flags.StringVar(&r.Chart, "chart", "", "name of the chart")
	flags.StringVar(&r.URL, "helm-url", "", "address of the chart's repository")
	confirm.Add(cmd)
	return cmd
}
