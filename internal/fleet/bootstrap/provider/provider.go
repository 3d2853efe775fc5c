// Package provider calls the API of a Git provider: it creates the repository of a fleet, and
// registers the deploy key of a cluster. It uses the package of the flux CLI,
// github.com/fluxcd/go-git-providers.
package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/fluxcd/go-git-providers/gitea"
	"github.com/fluxcd/go-git-providers/github"
	"github.com/fluxcd/go-git-providers/gitlab"
	"github.com/fluxcd/go-git-providers/gitprovider"
	gitlabapi "gitlab.com/gitlab-org/api/client-go"
	"golang.org/x/crypto/ssh"
)

// Kind is a Git provider.
type Kind string

// The providers.
const (
	GitHub Kind = "github"
	GitLab Kind = "gitlab"
	Gitea  Kind = "gitea"
	// BitbucketServer is Bitbucket Server, or Data Center.
	BitbucketServer Kind = "bitbucket-server"
)

var (
	// ErrToken reports that the provider rejects the token.
	ErrToken = errors.New("the token is refused")
	// ErrRights reports that the token or its user lacks a right. Providers answer "not found"
	// also for missing rights.
	ErrRights = errors.New("the token may not do this")
	// ErrOwner reports that there is no such owner, or that the token belongs to another user.
	ErrOwner = errors.New("the owner does not match")
	// ErrUnreachable reports that the provider does not answer.
	ErrUnreachable = errors.New("the provider cannot be reached")
)

// Config names a repository at a provider, and the access to it.
type Config struct {
	Kind Kind
	// Hostname is the host of the provider, as HOST or HOST:PORT. The API and the repository are
	// there, over HTTPS.
	Hostname string
	// Owner is an organization, a group or the key of a project, or a user if Personal is set.
	Owner, Repository string
	Personal          bool
	// Public makes a new repository public.
	Public bool
	// Token may read and create the repository and its deploy keys.
	Token string
	// CA is the authority of the host's certificate in PEM; empty means the system's authorities.
	CA []byte
}

// Host is a repository at a provider.
type Host struct {
	config    Config
	transport *transport
	repo      repository
}

// repository is a repository by the API of a provider.
type repository interface {
	// get returns [gitprovider.ErrNotFound] if there is no repository.
	get(ctx context.Context) error
	create(ctx context.Context) error
	// ensureKey registers a key. Call get or create first.
	ensureKey(ctx context.Context, wanted gitprovider.DeployKeyInfo) (changed bool, err error)
}

// common is a repository at a provider for which the package has one interface.
type common struct {
	config    Config
	transport *transport
	repo      gitprovider.UserRepository
}

// New returns the repository of a config. It sends no request. It returns an error if the host or
// the CA certificate of the config is invalid.
func New(c Config) (*Host, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	h := &Host{config: c, transport: t, repo: &common{config: c, transport: t}}
	if c.Kind == BitbucketServer {
		h.repo, err = newBitbucket(c, t)
	}
	return h, err
}

// URL returns the address of the repository over HTTPS.
func (c Config) URL() string {
	if c.Kind == BitbucketServer {
		return "https://" + c.Hostname + "/scm/" + c.project() + "/" + c.Repository + ".git"
	}
	return "https://" + c.Hostname + "/" + c.Owner + "/" + c.Repository + ".git"
}

// SSH returns the address of the repository over SSH at a host, as HOST or HOST:PORT. An empty
// host means the provider's host and its default port.
func (c Config) SSH(host string) string {
	bitbucket := c.Kind == BitbucketServer
	if host == "" {
		host = c.Hostname
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if bitbucket {
			host += ":" + bitbucketSSHPort
		}
	}
	if bitbucket {
		return "ssh://git@" + host + "/" + c.project() + "/" + c.Repository + ".git"
	}
	return "ssh://git@" + host + "/" + c.Owner + "/" + c.Repository
}

// Ensure creates the repository, without commits, unless it exists. It does not change an existing
// one. The errors wrap the error values of this package.
func (h *Host) Ensure(ctx context.Context) (created bool, err error) {
	h.transport.ctx = ctx
	if err = h.repo.get(ctx); err == nil {
		return false, nil
	}
	if !errors.Is(err, gitprovider.ErrNotFound) {
		return false, fmt.Errorf("cannot read the repository %s/%s: %w", h.config.Owner, h.config.Repository, h.explain(err))
	}
	if err = h.repo.create(ctx); err != nil {
		return false, fmt.Errorf("cannot create the repository %s/%s: %w", h.config.Owner, h.config.Repository, h.explain(err))
	}
	return true, nil
}

func (r *common) get(ctx context.Context) error {
	client, err := r.client()
	if err != nil {
		return err
	}
	if r.config.Personal {
		r.repo, err = client.UserRepositories().Get(ctx, r.personal(client))
		return err
	}
	r.repo, err = client.OrgRepositories().Get(ctx, r.shared(client))
	return err
}

func (r *common) create(ctx context.Context) error {
	client, err := r.client()
	if err != nil {
		return err
	}
	visibility := gitprovider.RepositoryVisibilityPrivate
	if r.config.Public {
		visibility = gitprovider.RepositoryVisibilityPublic
	}
	info := gitprovider.RepositoryInfo{Visibility: &visibility}
	if r.config.Personal {
		r.repo, err = client.UserRepositories().Create(ctx, r.personal(client), info)
		return err
	}
	r.repo, err = client.OrgRepositories().Create(ctx, r.shared(client), info)
	return err
}

func (r *common) personal(client gitprovider.Client) gitprovider.UserRepositoryRef {
	user := gitprovider.UserRef{Domain: client.SupportedDomain(), UserLogin: r.config.Owner}
	return gitprovider.UserRepositoryRef{UserRef: user, RepositoryName: r.config.Repository}
}

func (r *common) shared(client gitprovider.Client) gitprovider.OrgRepositoryRef {
	owner := gitprovider.OrganizationRef{Domain: client.SupportedDomain(), Organization: r.config.Owner}
	return gitprovider.OrgRepositoryRef{OrganizationRef: owner, RepositoryName: r.config.Repository}
}

// client returns a client of the provider. The client of Gitea asks the server for its version.
func (r *common) client() (gitprovider.Client, error) {
	c := r.config
	hook := gitprovider.WithPostChainTransportHook(func(http.RoundTripper) http.RoundTripper { return r.transport })
	switch c.Kind {
	case GitHub:
		return github.NewClient(gitprovider.WithDomain(c.Hostname), gitprovider.WithOAuth2Token(c.Token), hook)
	case GitLab:
		domain := c.Hostname
		if domain != gitlab.DefaultDomain {
			domain = "https://" + domain // GitLab's package takes only its own host without a scheme
		}
		return gitlab.NewClient(c.Token, "", gitprovider.WithDomain(domain), hook)
	case Gitea:
		return gitea.NewClient(c.Token, gitprovider.WithDomain(c.Hostname), hook)
	}
	return nil, fmt.Errorf("there is no provider %q", c.Kind)
}

// EnsureDeployKey registers a public SSH key, as a line of authorized_keys(5), with read or write
// access. It replaces a key with the same title, and changes the access of a registered key. It
// reports whether it has changed anything. It returns an error if the provider's API refuses a
// request. Call [Host.Ensure] first.
func (h *Host) EnsureDeployKey(ctx context.Context, title, public string, write bool) (changed bool, err error) {
	h.transport.ctx = ctx
	readOnly := !write
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(public))
	if err != nil {
		return false, fmt.Errorf("cannot register the deploy key: %w", err)
	}
	// Providers store a key without its comment.
	line := bytes.TrimSpace(ssh.MarshalAuthorizedKey(key))
	wanted := gitprovider.DeployKeyInfo{Name: title, Key: line, ReadOnly: &readOnly}
	if changed, err = h.repo.ensureKey(ctx, wanted); err != nil {
		return false, fmt.Errorf("cannot register the deploy key at %s/%s: %w", h.config.Owner, h.config.Repository, h.explain(err))
	}
	return changed, nil
}

func (r *common) ensureKey(ctx context.Context, wanted gitprovider.DeployKeyInfo) (bool, error) {
	keys, err := r.repo.DeployKeys().List(ctx)
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		info := key.Get()
		if !bytes.HasPrefix(info.Key, wanted.Key) {
			continue
		}
		if isReadOnly(key) == *wanted.ReadOnly {
			return false, nil
		}
		if err := key.Set(wanted); err != nil {
			return false, err
		}
		return true, key.Update(ctx)
	}
	_, changed, err := r.repo.DeployKeys().Reconcile(ctx, wanted)
	return changed, err
}

// isReadOnly returns the access of a registered key. The package does not read it for GitLab.
func isReadOnly(key gitprovider.DeployKey) bool {
	if of, ok := key.APIObject().(*gitlabapi.ProjectDeployKey); ok {
		return !of.CanPush
	}
	readOnly := key.Get().ReadOnly
	return readOnly != nil && *readOnly
}

// explain wraps an error of the package in an error of this package, by the status of the last
// response: the package keeps the status in some errors only.
func (h *Host) explain(err error) error {
	var user *gitprovider.ErrIncorrectUser
	text := errors.New(strings.Join(strings.Fields(err.Error()), " "))
	switch status := h.transport.status; {
	case errors.As(err, &user):
		return fmt.Errorf("%w: the token is not of the user %s", ErrOwner, h.config.Owner)
	case status == 0:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w by %s", ErrToken, h.config.Hostname)
	case status == http.StatusForbidden, status == http.StatusNotFound:
		return fmt.Errorf("%w: %s answers %d %s", ErrRights, h.config.Hostname, status, http.StatusText(status))
	}
	return text
}
