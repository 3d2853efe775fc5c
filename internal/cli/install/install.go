// Package install is the command `tenure install`: it prints Flux with a security
// profile, for a cluster that no fleet's folder describes.
package install

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/imageflags"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/release"
	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	var security, mode, image string
	var export, images, proxy, capsule, defaults, check bool
	var allow, shards, proxyHosts, egressHosts []string
	var pinned imageflags.Flags
	cmd := &cobra.Command{
		Use:   "install --export",
		Short: "Print Flux, locked down, and the rules for tenants",
		Long: `Install prints manifests of Flux and of Tenure for a cluster that no fleet's
folder describes. For a fleet, use ` + "`tenure profile`" + `.

The cluster needs Kubernetes ` + release.OldestKubernetes + ` or newer: check this with ` + "`tenure check --pre`" + `.
The manifests of --defaults and --shard need 1.36.`,
		Example: `  tenure install --export --allow 'git=https://github.com/acme/*' > flux.yaml
  kubectl apply --server-side -f flux.yaml   # twice, if kinds were new`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !export:
				return ui.WithHint(errors.New("--export is missing"), "print the manifests with --export, and apply them with kubectl")
			case security != "multi-tenant" && security != "single-tenant":
				return fmt.Errorf("--security-profile is multi-tenant or single-tenant, not %q", security)
			case mode != "enforce" && mode != "warn":
				return fmt.Errorf("--mode is enforce or warn, not %q", mode)
			case len(shards) > 0 && security != "multi-tenant":
				return errors.New("--shard is for --security-profile=multi-tenant")
			case pinned.Verify() && security != "multi-tenant":
				return errors.New("--verify-images is for --security-profile=multi-tenant")
			}
			if err := pinned.Check(); err != nil {
				return err
			}
			components := config.FluxComponents()
			if images {
				components = slices.Concat(components, []byte("\n---\n"), config.FluxImageComponents())
			}
			found, err := lockdown.ComponentImages(components)
			if err != nil {
				return err
			}
			pins, err := pinned.Pins(cmd.Context(), found)
			if err != nil {
				return err
			}
			manifests, err := lockdown.Export(components, lockdown.Options{Tenants: security == "multi-tenant", Warn: new(mode == "warn"), Allow: allow, ManagerImage: image, Proxy: &proxy, ProxyHosts: proxyHosts, Capsule: &capsule, Defaults: &defaults, Check: &check, Pins: pins, Shards: shards, EgressHosts: egressHosts})
			if err != nil {
				return err
			}
			if note := lockdown.Unreleased(image); note != "" && security == "multi-tenant" {
				fmt.Fprintf(streams.Err, "warning: %s\n", note)
			}
			_, err = streams.Out.Write(manifests)
			return err
		},
	}
	pinned.Add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&export, "export", false, "print the manifests")
	flags.BoolVar(&images, "image-controllers", false, "install image-reflector-controller and image-automation-controller")
	flags.BoolVar(&proxy, "proxy", false, "install the proxy, which shows tenants their part of the cluster")
	flags.StringArrayVar(&proxyHosts, "proxy-host", nil, "`NAME` by which people reach the proxy from outside, for its certificate; repeatable")
	flags.BoolVar(&capsule, "capsule", false, "install Capsule's kinds, which the manager translates")
	flags.BoolVar(&defaults, "defaults", false, "install the policy that fills in the default classes and metadata of tenants; it needs Kubernetes 1.36")
	flags.BoolVar(&check, "check", false, "install a CronJob that runs tenure check in the cluster")
	flags.StringVar(&security, "security-profile", "multi-tenant", "multi-tenant or single-tenant")
	flags.StringVar(&mode, "mode", "enforce", "what the rules for tenants do: enforce, or warn")
	flags.StringArrayVar(&allow, "allow", nil, "an address that tenants may fetch from, as `KIND=PATTERN` with git, helm or oci; repeatable")
	flags.StringArrayVar(&shards, "shard", nil, "`NAME` of a shard: a copy of Flux's controllers for the tenants whose namespaces have the label sharding.fluxcd.io/key: NAME; repeatable")
	flags.StringArrayVar(&egressHosts, "egress-host", nil, "`HOST` or HOST:PORT to which kustomize-controller may connect, such as a key service or the API server of another cluster; repeatable")
	flags.StringVar(&image, "manager-image", "", "image of tenure-server, as `REPOSITORY:TAG`, or with @sha256:… (default: the image of this version)")
	complete.Flag(cmd, "mode", complete.Words("enforce", "warn"))
	complete.Flag(cmd, "security-profile", complete.Words("multi-tenant", "single-tenant"))
	return cmd
}
