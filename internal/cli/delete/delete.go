// Package deletecmd implements `tenure delete`, which removes the objects that `tenure create`
// added.
package deletecmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns `delete` with its subcommands.
func NewCommand(streams ui.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Remove a tenant from a fleet",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tenant(streams))
	return cmd
}

func tenant(streams ui.IO) *cobra.Command {
	var fleet string
	var atOnce bool
	var confirm edit.Flags
	cmd := &cobra.Command{
		Use:   "tenant NAME",
		Short: "Remove a tenant from a fleet, in one or two commits",
		Long: `Remove a tenant from the platform's repository.

A Tenant object needs one run: the manager stops the tenant's deliveries, and then deletes
its namespaces with everything in them.

Plain manifests need two runs. A Tenant needs two if the fleet has other objects in its
namespaces. Flux deletes the tenant's objects with the rights of the tenant's account, so the
account must stay until Flux has deleted them. The first run removes the tenant's source
and Kustomization, or the Tenant. Commit and push, and wait for what the command names.
Then the second run removes the other files: account, role bindings, namespaces, and the
entries for them.`,
		Example: "  tenure delete tenant dev-team --fleet .",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("the name of the tenant is missing")
			case len(args) > 1:
				return fmt.Errorf("delete tenant takes one name, but was given %q too", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if fleet == "" {
				return ui.WithHint(errors.New("delete tenant needs --fleet"), "name the folder of the platform's repository, such as --fleet .")
			}
			if err := local.CheckTop(fleet); err != nil {
				return err
			}
			if err := layout.CheckSyntax(fleet); err != nil {
				return err
			}
			_, err := edit.Run(cmd.Context(), streams, confirm, fleet, func(s *workspace.Set) ([]string, error) {
				plan, err := tenantrepo.Delete(s, args[0], atOnce)
				if err != nil {
					return nil, withNames(s, err)
				}
				return plan.Notes, nil
			})
			return err
		},
	}
	cmd.Flags().StringVar(&fleet, "fleet", "", "folder of the platform's repository")
	cmd.ValidArgsFunction = complete.First(complete.FleetTenants(&fleet))
	_ = cmd.MarkFlagDirname("fleet")
	cmd.Flags().BoolVar(&atOnce, "at-once", false, "remove everything in one commit: for a fleet that no cluster runs yet")
	confirm.Add(cmd)
	return cmd
}

// withNames adds the fleet's tenants to the error that it has no such tenant.
func withNames(s *workspace.Set, err error) error {
	names, readErr := tenantrepo.Names(s.FS())
	if !errors.Is(err, tenantrepo.ErrNotFound) || readErr != nil {
		return err
	}
	if len(names) == 0 {
		return ui.WithHint(err, "the folder has no tenants at all: is --fleet the root of the platform's repository?")
	}
	return ui.WithHint(err, "the tenants of this fleet: "+strings.Join(names, ", "))
}
