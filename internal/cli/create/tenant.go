package create

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/ui"
)

// tenantOptions are the flags of `create tenant`.
type tenantOptions struct {
	*options
	tenant       tenantrepo.Tenant
	fleet        string
	tenantsDir   string
	environments []string
	confirm      edit.Flags

	allow bool
	plain bool

	secret           string // kind of the credentials, or ""
	auth             authFlags
	seal             sealFlags
	decryptionSecret string
	deployKey        []byte // to be shown once it is written
}

// Kinds of credentials.
const (
	secretSSH   = "ssh"
	secretToken = "token"
)

func (o *options) tenant() *cobra.Command {
	t := &tenantOptions{options: o}
	cmd := &cobra.Command{
		Use:   "tenant NAME",
		Short: "Add a tenant to a fleet",
		Long: `Add a tenant to the platform's repository: a Tenant object in the tenants' base
folder, and in each environment a Flux Kustomization that applies this tenant alone, a
patch with the repository and the folder that it delivers, and the entries in the
kustomization.yaml above them. The command shows the diff first. A second run changes
nothing, and the command keeps edits of people.

With --plain, and in a fleet without a TenancyProfile, where no manager runs, the command
writes plain manifests in place of the Tenant object: namespaces, service account, role
binding, source and Kustomization.

With --export, the command writes nothing to the fleet: it prints namespaces, accounts and
role bindings, as "flux create tenant" does.`,
		Example: `  tenure create tenant dev-team --with-namespace apps \
    --git-url https://github.com/acme/dev-team --branch main \
    --fleet . --environment staging=./staging --environment production=./production`,
		Args: one("name of the tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.tenant.Name = args[0]
			t.tenant.Chosen = map[string]bool{}
			for _, flag := range []string{"interval", "cluster-role", "pod-security"} {
				t.tenant.Chosen[flag] = cmd.Flags().Changed(flag)
			}
			return t.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&t.tenant.Namespaces, "with-namespace", nil, "a namespace of the tenant; the first one holds its source; repeatable")
	flags.StringVar(&t.tenant.ClusterRole, "cluster-role", tenancy.Role, "the ClusterRole that the tenant's account has in the tenant's namespaces")
	flags.StringVar(&t.tenant.Account, "with-service-account", "", "name of the service account (default: the tenant's name)")
	flags.BoolVar(&t.tenant.SkipNamespace, "skip-namespace", false, "do not write the namespaces, since they exist already")
	flags.StringVar(&t.tenant.PodSecurity, "pod-security", "restricted", "level of Pod Security in the namespaces: restricted, baseline, privileged or none")
	flags.StringVar(&t.tenant.URL, "git-url", "", "address of the tenant's repository")
	flags.StringVar(&t.tenant.Branch, "branch", "main", "branch of the tenant's repository")
	flags.StringVar(&t.fleet, "fleet", "", "folder of the platform's repository")
	flags.StringVar(&t.tenantsDir, "tenants", "", "folder in the fleet that holds base and the environments (default: the folder that the clusters' Kustomizations apply)")
	flags.StringArrayVar(&t.environments, "environment", nil, "environment and the folder of the tenant's repository for it, as NAME=PATH; repeatable")
	flags.BoolVar(&t.allow, "allow", false, "add --git-url to the addresses that tenants may fetch from, if the fleet's TenancyProfile does not have it")
	flags.BoolVar(&t.plain, "plain", false, "write plain manifests instead of a Tenant object")
	flags.StringVar(&t.secret, "secret", "", "make credentials for a private repository: ssh (a key pair) or token (a token or a password)")
	flags.StringVar(&t.decryptionSecret, "decryption-secret", "", "the platform's Secret with the key that decrypts the credentials (default sops-age or sops-gpg)")
	t.auth.add(cmd)
	t.seal.add(cmd)
	t.confirm.Add(cmd)
	_ = cmd.MarkFlagDirname("fleet")
	complete.Flag(cmd, "pod-security", complete.Words("restricted", "baseline", "privileged", "none"))
	complete.Flag(cmd, "secret", complete.Words(secretSSH, secretToken))
	return cmd
}

func (t *tenantOptions) run(ctx context.Context) error {
	labels, err := t.parseLabels()
	if err != nil {
		return err
	}
	t.tenant.Labels, t.tenant.Interval = labels, t.interval
	if t.export {
		return t.printExport()
	}
	if t.fleet == "" {
		return ui.WithHint(fmt.Errorf("create tenant needs --fleet"), "name the folder of the platform's repository, such as --fleet ., or print manifests with --export")
	}
	options := tenantrepo.Options{Tenant: t.tenant, TenantsDir: t.tenantsDir}
	for _, text := range t.environments {
		env, err := tenantrepo.ParseEnvironment(text)
		if err != nil {
			return err
		}
		options.Environments = append(options.Environments, env)
	}
	if err := local.CheckTop(t.fleet); err != nil {
		return err
	}
	if err := layout.CheckSyntax(t.fleet); err != nil {
		return err
	}
	written, err := edit.Run(ctx, t.streams, t.confirm, t.fleet, func(s *workspace.Set) ([]string, error) {
		if err := t.private(ctx, s, &options); err != nil {
			return nil, err
		}
		if err := t.readProfile(s.FS(), &options.Tenant); err != nil {
			return nil, err
		}
		plan, err := tenantrepo.Create(s, options)
		if err != nil {
			return nil, err
		}
		if plan.Object && !t.allow {
			return plan.Notes, nil // the Tenant itself allows its repository
		}
		note, err := t.allowed(s)
		if err != nil || note == "" {
			return plan.Notes, err
		}
		return append(plan.Notes, note), nil
	})
	if err != nil || !written || t.deployKey == nil {
		return err
	}
	_, err = fmt.Fprintf(t.streams.Out, "add this key to %s as a deploy key that can only read:\n%s", t.tenant.URL, t.deployKey)
	return err
}

// private adds the options for a private repository.
func (t *tenantOptions) private(ctx context.Context, s *workspace.Set, options *tenantrepo.Options) error {
	if t.secret == "" {
		return nil
	}
	address, err := tenantrepo.ParseURL(t.tenant.URL)
	if err != nil {
		return err
	}
	switch scheme := map[string]string{secretSSH: "ssh", secretToken: "https"}[t.secret]; scheme {
	case address.Scheme:
	case "":
		return fmt.Errorf("cannot make credentials of the kind %q: use --secret %s or %s", t.secret, secretSSH, secretToken)
	default:
		return fmt.Errorf("cannot use --secret %s for %s: the address has to begin with %s://", t.secret, t.tenant.URL, scheme)
	}
	options.Tenant.SecretName = t.tenant.Name + "-auth"
	options.Seal = func(name string) ([]byte, error) {
		// Resolve the recipients before any prompt.
		to, err := t.seal.recipients(s.FS(), name)
		if err != nil {
			return nil, err
		}
		credentials, err := t.auth.credentials(ctx, t.streams, address)
		if err != nil {
			return nil, err
		}
		labels := map[string]string{tenantrepo.TenantLabel: t.tenant.Name}
		if credentials.Key != nil {
			t.deployKey = credentials.Key.Public
		}
		return seal(credentials.Secret(t.tenant.Namespaces[0], options.Tenant.SecretName, labels), to)
	}
	options.DecryptionSecret = func(file string) string {
		if t.decryptionSecret != "" {
			return t.decryptionSecret
		}
		if to, err := t.seal.recipients(s.FS(), file); err == nil && len(to.Age) == 0 {
			return "sops-gpg" // the names in Flux's guides
		}
		return "sops-age"
	}
	return nil
}

func (t *tenantOptions) printExport() error {
	manifests, err := t.tenant.Export()
	if err != nil {
		return err
	}
	_, err = t.streams.Out.Write(manifests)
	return err
}
