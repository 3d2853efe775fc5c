// Package bootstrap has the commands `tenure bootstrap git`, `github`, `gitlab`, `gitea` and
// `bitbucket-server`: they connect a new cluster with a Git repository, by Flux, locked down.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/fleet/bootstrap"
	"github.com/tenure-dev/tenure/internal/fleet/bootstrap/provider"
	"github.com/tenure-dev/tenure/internal/fleet/gitrepo"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/ui"
)

const (
	// proxyHostFlag names the proxy.
	proxyHostFlag = "proxy-host"
	// egressFlag names the hosts of the lockdown's EgressHosts.
	egressFlag = "egress-host"
)

// options are the flags.
type options struct {
	kubeflags.Flags

	streams ui.IO

	url, branch, path       string
	security, mode          string
	capsule, proxy          bool
	capsuleGiven            *bool // nil keeps the fleet's setting
	proxyGiven              *bool // nil keeps the fleet's setting
	proxyHosts, egressHosts []string
	allow                   []string
	image                   string // of tenure-server
	components, extra       []string
	author                  gitrepo.Author
	appendix, secretName    string
	interval, timeout       time.Duration
	silent, insecure        bool
	access                  access
	componentsSet, extraSet bool
}

// NewCommand returns the command and its parent.
func NewCommand(streams ui.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Install Flux, locked down, and connect the cluster to its repository",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// RFC-0003 gives the flag without a subcommand, so the command accepts it there. It has no effect.
	cmd.Flags().String("security-profile", "multi-tenant", "multi-tenant or single-tenant; pass it to the subcommand")
	complete.Flag(cmd, "security-profile", complete.Words("multi-tenant", "single-tenant"))
	cmd.AddCommand(newGit(streams))
	for _, p := range providers {
		cmd.AddCommand(newProvider(streams, p))
	}
	return cmd
}

func newGit(streams ui.IO) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use:   "git --url URL --path PATH",
		Short: "Install Flux, locked down, from a Git repository over HTTPS or SSH",
		Long: `Bootstrap commits Flux's manifests to a branch, with the lockdown of
` + "`tenure profile multi-tenant`" + `, installs them into the cluster, and waits until Flux
applies the branch. A second run completes an interrupted one, and changes
nothing after a complete one.

It pushes with the password or token in GIT_PASSWORD or --password-file, or over SSH
with --private-key-file or the SSH agent. The command creates a key pair with
which the cluster reads the repository, and prints the public key: add it as a deploy key.
With --private-key-file the cluster gets that key instead, and with --token-auth the
password.`,
		Example: `  # Over HTTPS; the cluster uses the same token
  GIT_PASSWORD=<token> tenure bootstrap git --token-auth \
    --url=https://git.example.com/acme/fleet --path=clusters/staging

  # Over SSH, with an existing deploy key
  tenure bootstrap git --url=ssh://git@git.example.com/acme/fleet \
    --private-key-file=./deploy-key --path=clusters/staging`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given(cmd)
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.url, "url", "", "address of the repository")
	cmd.Flags().BoolVar(&o.insecure, "allow-insecure-http", false, "send credentials over http:// too, where others can read them")
	o.add(cmd)
	o.access.addGit(cmd)
	return cmd
}

// given stores which flags of [options.add] are set.
func (o *options) given(cmd *cobra.Command) {
	if cmd.Flags().Changed("capsule") {
		o.capsuleGiven = &o.capsule
	}
	if cmd.Flags().Changed("proxy") {
		o.proxyGiven = &o.proxy
	}
	// Without a name, the slices are not nil: nil keeps the fleet's names.
	empty := func(name string) bool { return name == "" }
	if cmd.Flags().Changed(proxyHostFlag) {
		o.proxyHosts = slices.DeleteFunc(o.proxyHosts, empty)
	}
	if cmd.Flags().Changed(egressFlag) {
		o.egressHosts = slices.DeleteFunc(o.egressHosts, empty)
	}
	o.componentsSet, o.extraSet = cmd.Flags().Changed("components"), cmd.Flags().Changed("components-extra")
}

func (o *options) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.branch, "branch", "main", "branch of the repository; the command creates it if it does not exist")
	flags.StringVar(&o.path, "path", "", "the cluster's folder in the repository, such as clusters/staging")
	o.Add(cmd, flags)
	flags.StringVar(&o.security, "security-profile", "multi-tenant", "multi-tenant or single-tenant")
	flags.StringVar(&o.mode, "mode", "", "what the rules for tenants do: enforce, or warn (default: as in the fleet; a new fleet enforces)")
	flags.StringArrayVar(&o.allow, "allow", nil, "an address that tenants may fetch from, in addition to the addresses in the fleet, as `KIND=PATTERN` with git, helm or oci; repeatable")
	flags.BoolVar(&o.capsule, "capsule", false, "install Capsule's kinds, which the manager translates (default: as in the fleet)")
	flags.BoolVar(&o.proxy, "proxy", false, "install the proxy, which shows tenants their part of the cluster (default: as in the fleet)")
	flags.StringArrayVar(&o.proxyHosts, proxyHostFlag, nil, "`NAME` by which people reach the proxy from outside, for its certificate; repeatable; an empty NAME removes all names (default: the fleet's)")
	flags.StringArrayVar(&o.egressHosts, egressFlag, nil, "`HOST` or HOST:PORT to which kustomize-controller may connect, such as a key service or the API server of another cluster; repeatable; an empty HOST removes all (default: the fleet's)")
	flags.StringVar(&o.image, "manager-image", "", "image of tenure-server, as `REPOSITORY:TAG`, or with @sha256:… (default: the fleet's, or the image of this version)")
	flags.StringSliceVar(&o.components, "components", bootstrap.DefaultComponents(), "the controllers of Flux")
	flags.StringSliceVar(&o.extra, "components-extra", nil, "further controllers: image-reflector-controller, image-automation-controller")
	flags.StringVar(&o.author.Name, "author-name", "Flux", "author of the commit")
	flags.StringVar(&o.author.Email, "author-email", "", "e-mail address of the author")
	flags.StringVar(&o.appendix, "commit-message-appendix", "", "text to add to the commit's message, such as [ci skip]")
	flags.StringVar(&o.secretName, "secret-name", bootstrap.Namespace, "the Secret with the cluster's credentials")
	durationflag.Positive(flags, &o.interval, "interval", 0, "interval at which Flux fetches the repository (default 1m in a new fleet)")
	durationflag.Positive(flags, &o.timeout, "timeout", 5*time.Minute, "how long to wait for the cluster at the end")
	flags.BoolVarP(&o.silent, "silent", "s", false, "do not ask whether the deploy key was added")
	flags.BoolVarP(&o.silent, "yes", "y", false, "the same as --silent")
	complete.Flag(cmd, "components", complete.List(bootstrap.DefaultComponents()...))
	complete.Flag(cmd, "components-extra", complete.List("image-reflector-controller", "image-automation-controller"))
	complete.Flag(cmd, "mode", complete.Words("enforce", "warn"))
	complete.Flag(cmd, "security-profile", complete.Words("multi-tenant", "single-tenant"))
	o.access.add(cmd)
}

func (o *options) run(ctx context.Context) error {
	if o.url == "" {
		return ui.WithHint(errors.New("--url is missing"), "name the repository: --url https://git.example.com/acme/fleet")
	}
	config, opts, err := o.complete(ctx)
	if err != nil {
		return err
	}
	opts.DeployKey = o.deployKey
	opts.Remote.URL = o.url
	opts.Remote.Credentials, opts.URL, opts.Credentials, err = o.resolve(ctx)
	if err != nil {
		return err
	}
	return o.bootstrap(ctx, config, &opts)
}

// complete checks the flags and returns the cluster and the options, without the repository.
func (o *options) complete(ctx context.Context) (*rest.Config, bootstrap.Options, error) {
	var opts bootstrap.Options
	if err := o.check(); err != nil {
		return nil, opts, err
	}
	warn, err := lockdown.ParseMode(o.mode)
	if err != nil {
		return nil, opts, err
	}
	config, err := o.REST(ctx)
	if err != nil {
		return nil, opts, err
	}
	opts = bootstrap.Options{
		Path:    path.Clean(filepath.ToSlash(o.path)),
		Remote:  gitrepo.Remote{Branch: o.branch},
		Profile: lockdown.Options{Tenants: o.security == "multi-tenant", Warn: warn, Allow: o.allow, ManagerImage: o.image, Proxy: o.proxyGiven, ProxyHosts: o.proxyHosts, Capsule: o.capsuleGiven, EgressHosts: o.egressHosts},
		Author:  o.author, Appendix: o.appendix, SecretName: o.secretName,
		Interval: o.interval, Timeout: o.timeout, Key: o.access.key,
	}
	opts.Components, err = o.chosen()
	return config, opts, err
}

func (o *options) bootstrap(ctx context.Context, config *rest.Config, opts *bootstrap.Options) error {
	steps := ui.NewSteps(o.streams.Stderr())
	defer steps.Close()
	o.show(ctx, steps, opts)
	if err := bootstrap.Run(ctx, config, *opts); err != nil {
		return o.hint(err)
	}
	_, err := fmt.Fprintf(o.streams.Out, "the cluster follows %s of branch %s of %s\n", opts.Path, o.branch, opts.URL)
	return err
}

// show prints the steps and the notes. On a terminal, notes appear after the end of their
// step: a redraw would overwrite a line printed earlier.
func (o *options) show(ctx context.Context, steps *ui.Steps, opts *bootstrap.Options) {
	interactive := o.streams.Stderr().Interactive
	var notes []string
	flush := func() {
		for _, note := range notes {
			_, _ = fmt.Fprintf(o.streams.Err, "note: %s\n", ui.Clean(note))
		}
		notes = nil
	}
	opts.Note = func(note string) {
		if notes = append(notes, note); !interactive {
			flush()
		}
	}
	opts.Step = func(name string) (func(string), func(error)) {
		step := steps.Start(name)
		return step.Update, func(err error) {
			switch {
			case ctx.Err() != nil:
				step.Fail(errors.New("interrupted"))
			case err != nil:
				step.Fail(errors.New("failed"))
			default:
				step.Done()
			}
			flush()
		}
	}
}

// check validates the flags before any prompt.
func (o *options) check() error {
	if o.security != "multi-tenant" && o.security != "single-tenant" {
		return fmt.Errorf("--security-profile is multi-tenant or single-tenant, not %q", o.security)
	}
	if o.image != "" {
		if err := lockdown.CheckImage(o.image); err != nil {
			return err
		}
	}
	if err := errors.Join(lockdown.CheckProxyHosts(o.proxyHosts), lockdown.CheckEgressHosts(o.egressHosts)); err != nil {
		return err
	}
	if err := bootstrap.CheckPath(o.path); err != nil {
		return err
	}
	return gitrepo.CheckBranch(o.branch)
}

// chosen returns the controllers selected by flags; nil if no flag selects any.
func (o *options) chosen() ([]string, error) {
	all := append(append([]string{}, o.components...), o.extra...)
	if err := bootstrap.CheckComponents(all); err != nil {
		return nil, err
	}
	if !o.componentsSet && !o.extraSet {
		return nil, nil
	}
	return all, nil
}

// deployKey prints a new key and waits until the user has added it to the Git host.
func (o *options) deployKey(ctx context.Context, public string, reads bool) error {
	if reads {
		return nil
	}
	_, err := fmt.Fprintf(o.streams.Err, "deploy key: %s\nadd it to the repository as a deploy key for reading\n", strings.TrimSpace(public))
	if err != nil || o.silent {
		return err
	}
	if err := edit.Confirm(ctx, o.streams, "has the Git host got the key?"); err != nil {
		return ui.WithHint(fmt.Errorf("the deploy key is not confirmed: %w", err), "add it and run the same command again, with --silent: the key stays the same")
	}
	return nil
}

// hint adds advice to an error.
func (o *options) hint(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, provider.ErrToken), errors.Is(err, provider.ErrRights), errors.Is(err, provider.ErrOwner):
		return ui.WithHint(err, "check --owner, --personal and the token: its user has to administer the repository; or create the repository and add the deploy key yourself, with `tenure bootstrap git`")
	case errors.Is(err, provider.ErrUnreachable):
		return ui.WithHint(err, "check --hostname, the network and its proxies; a certificate of a private CA needs --ca-file")
	case errors.Is(err, gitrepo.ErrCredentials):
		return ui.WithHint(err, "check --username and the password or token, or the key, and that they may write to the repository")
	case errors.Is(err, gitrepo.ErrNotFound):
		return ui.WithHint(err, "check --url: the repository has to be there, and some hosts say this when the credentials may not read it")
	case errors.Is(err, gitrepo.ErrHostKey):
		return ui.WithHint(err, "ask the owner of the host why; if the new key is right, name it with --ssh-known-hosts-file or --ssh-host-key-fingerprint")
	case errors.Is(err, gitrepo.ErrOutrun):
		return ui.WithHint(err, "others push to this branch at the same time: run it again")
	case errors.Is(err, gitrepo.ErrDeclined):
		return ui.WithHint(err, "a protected branch or a hook of the host stands in the way: let this user push to the branch, or take another one and merge it")
	case errors.Is(err, gitrepo.ErrNoAgent):
		return ui.WithHint(err, "name a key with --private-key-file, or start an SSH agent that has one")
	case errors.Is(err, gitrepo.ErrUnreachable):
		return ui.WithHint(err, "check --url, the network and its proxies; a certificate of a private CA needs --ca-file")
	case errors.Is(err, bootstrap.ErrRefused):
		return ui.WithHint(err, "a fleet that another Flux has bootstrapped is locked down by `tenure profile multi-tenant --fleet . --path "+o.path+"`; to begin anew, take that out first")
	case errors.Is(err, bootstrap.ErrFollows):
		return ui.WithHint(err, "a cluster follows one repository: bootstrap it with the same --url, --branch and --path, or take Flux out first with `flux uninstall`")
	case errors.Is(err, bootstrap.ErrTimeout):
		return ui.WithHint(err, "all is pushed and applied: look at it with `tenure get all -n flux-system`, and run the same command again")
	case errors.As(err, &network):
		return ui.WithHint(err, "check --kubeconfig and --context: the cluster does not answer")
	case errors.Is(err, gitauth.ErrInvalid):
		return ui.WithHint(err, "see `tenure bootstrap git --help`")
	}
	return kubeflags.Explain(err)
}
