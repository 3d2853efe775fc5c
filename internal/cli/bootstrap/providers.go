package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-dev/tenure/internal/fleet/bootstrap"
	"github.com/tenure-dev/tenure/internal/fleet/bootstrap/provider"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/ui"
)

// providerCommand describes the command of a Git provider. Its names are those of the flux CLI.
type providerCommand struct {
	kind            provider.Kind
	title, hostname string // no hostname if there is no public host
	variable        string // of the token
}

var providers = []providerCommand{
	{provider.GitHub, "GitHub", "github.com", "GITHUB_TOKEN"},
	{provider.GitLab, "GitLab", "gitlab.com", "GITLAB_TOKEN"},
	{provider.Gitea, "Gitea", "gitea.com", "GITEA_TOKEN"},
	{provider.BitbucketServer, "Bitbucket Server", "", "BITBUCKET_TOKEN"},
}

// providerOptions are the flags of a provider's command.
type providerOptions struct {
	options
	providerCommand
	owner, repository, hostname string
	personal, private, writeKey bool
}

func newProvider(streams ui.IO, p providerCommand) *cobra.Command {
	o := &providerOptions{options: options{streams: streams}, providerCommand: p}
	o.access.username = "git"
	host := ""
	if p.hostname == "" {
		host = "--hostname=git.example.com "
	}
	cmd := &cobra.Command{
		Use:   string(p.kind) + " --owner OWNER --repository NAME --path PATH",
		Short: "Install Flux, locked down, from a repository on " + p.title,
		Long: `Bootstrap creates the repository on ` + p.title + ` if it does not exist, commits Flux's manifests
to a branch, with the lockdown of ` + "`tenure profile multi-tenant`" + `, and installs them
into the cluster. It makes a key pair for the cluster, and registers the public
key as a deploy key of the repository, with read access. A second run completes an interrupted
one, and changes nothing after a complete one.

It uses the token in ` + p.variable + `, or reads it from the input. With --token-auth the cluster
gets this token instead of a deploy key.`,
		Example: `  # The repository of an organization; the cluster reads it with a deploy key
  ` + p.variable + `=<token> tenure bootstrap ` + string(p.kind) + ` \
    ` + host + `--owner=acme --repository=fleet --path=clusters/staging

  # The repository of a user on a self-hosted server
  ` + p.variable + `=<token> tenure bootstrap ` + string(p.kind) + ` \
    --hostname=git.example.com --owner=jane --personal --repository=fleet --path=clusters/staging`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given(cmd)
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.owner, "owner", "", "organization, group or key of the project that owns the repository, or a user with --personal")
	flags.StringVar(&o.repository, "repository", "", "name of the repository")
	flags.StringVar(&o.hostname, "hostname", p.hostname, "host of "+p.title+", as HOST or HOST:PORT")
	flags.BoolVar(&o.personal, "personal", false, "the owner is a user")
	flags.BoolVar(&o.private, "private", true, "make a new repository private")
	flags.BoolVar(&o.writeKey, "read-write-key", false, "register the deploy key with write access, for image automation")
	if p.kind == provider.BitbucketServer {
		flags.StringVarP(&o.access.username, "username", "u", "git", "user of the token, for pushing and for --token-auth")
	}
	o.add(cmd)
	return cmd
}

// names of owners and repositories. Owners on GitLab may be subgroups.
var (
	ownerName      = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*$`)
	repositoryName = regexp.MustCompile(`^[\w.-]+$`)
	hostName       = regexp.MustCompile(`^[\w.-]+(:\d+)?$`)
)

func (o *providerOptions) run(ctx context.Context) error {
	switch {
	case o.owner == "":
		return ui.WithHint(errors.New("--owner is missing"), "name the organization, group or user: --owner acme")
	case o.repository == "":
		return ui.WithHint(errors.New("--repository is missing"), "name it without its owner: --repository fleet")
	case o.hostname == "":
		return ui.WithHint(errors.New("--hostname is missing"), "name the server: --hostname git.example.com")
	case !ownerName.MatchString(o.owner):
		return ui.WithHint(fmt.Errorf("--owner %q is not the name of an owner", o.owner), "name the organization, group or user: --owner acme")
	case !repositoryName.MatchString(o.repository):
		return ui.WithHint(fmt.Errorf("--repository %q is not the name of a repository", o.repository), "name it without its owner: --repository fleet")
	case !hostName.MatchString(o.hostname):
		return ui.WithHint(fmt.Errorf("--hostname %q is not a host", o.hostname), "write it without https://, such as git.example.com")
	}
	config, opts, err := o.complete(ctx)
	if err != nil {
		return err
	}
	if err := o.connect(ctx, &opts); err != nil {
		return err
	}
	return o.bootstrap(ctx, config, &opts)
}

// connect adds the repository, its credentials and the calls of the provider's API to the options.
func (o *providerOptions) connect(ctx context.Context, opts *bootstrap.Options) error {
	ca, err := o.access.authority()
	if err != nil {
		return err
	}
	token, err := o.token(ctx)
	if err != nil {
		return err
	}
	c := provider.Config{
		Kind: o.kind, Hostname: o.hostname, Owner: o.owner, Repository: o.repository,
		Personal: o.personal, Public: !o.private, Token: token, CA: ca,
	}
	host, err := provider.New(c)
	if err != nil {
		return err
	}
	opts.Remote.URL = c.URL()
	opts.Remote.Credentials = gitauth.Credentials{Username: o.access.username, Password: token, CA: ca}
	if o.access.tokenAuth {
		opts.URL, opts.Credentials = opts.Remote.URL, opts.Remote.Credentials
	} else {
		opts.URL = c.SSH(o.access.sshHostname)
		name, _, _ := strings.Cut(strings.TrimPrefix(opts.URL, "ssh://git@"), "/")
		if opts.Credentials.KnownHosts, err = o.access.hostKeys(ctx, o.streams, name); err != nil {
			return err
		}
	}
	opts.Repository = func(ctx context.Context) error {
		created, err := host.Ensure(ctx)
		if created {
			opts.Note(fmt.Sprintf("the repository %s/%s was created", o.owner, o.repository))
		}
		return err
	}
	opts.DeployKey = func(ctx context.Context, public string, _ bool) error {
		title := keyTitle(o.branch, o.secretName, o.path)
		changed, err := host.EnsureDeployKey(ctx, title, public, o.writeKey)
		if changed {
			opts.Note("the deploy key " + title + " was registered")
		}
		return err
	}
	return nil
}

// keyTitle returns the title of the deploy key, in the format of the flux CLI.
func keyTitle(branch, secret, folder string) string {
	return strings.Join([]string{bootstrap.Namespace, branch, secret, path.Clean(filepath.ToSlash(folder))}, "-")
}

// token returns the token from the environment, a prompt or the input.
func (o *providerOptions) token(ctx context.Context) (string, error) {
	if token := os.Getenv(o.variable); token != "" {
		return token, nil
	}
	from := "-"
	if in, ok := o.streams.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		from = ""
	}
	token, err := ui.ReadSecret(ctx, o.streams, from, "token for "+o.hostname)
	if err != nil && !errors.Is(err, context.Canceled) {
		return "", ui.WithHint(err, "put it into the variable "+o.variable)
	}
	return token, err
}
