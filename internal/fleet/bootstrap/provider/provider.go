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
	// Owner is an organization or group, or a user if Personal is set.
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
	repo      gitprovider.UserRepository
}

// New returns the repository of a config. It sends no request. It returns an error if the host or
// the CA certificate of the config is invalid.
func New(c Config) (*Host, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	return &Host{config: c, transport: t}, nil
}

// URL returns the address of the repository over HTTPS.
func (c Config) URL() string {
	return "https://" + c.Hostname + "/" + c.Owner + "/" + c.Repository + ".git"
}

// SSH returns the address of the repository over SSH at a host, as HOST or HOST:PORT. An empty
// host means the provider's host and the default port.
func (c Config) SSH(host string) string {
	if host == "" {
		host = c.Hostname
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	return "ssh://git@" + host + "/" + c.Owner + "/" + c.Repository
}

// Ensure creates the repository, without commits, unless it exists. It does not change an existing
// one. The errors wrap the error values of this package.
func (h *Host) Ensure(ctx context.Context) (created bool, err error) {
	h.transport.ctx = ctx
	if h.repo, err = h.get(ctx); err == nil {
		return false, nil
	}
	if !errors.Is(err, gitprovider.ErrNotFound) {
		return false, fmt.Errorf("cannot read the repository %s/%s: %w", h.config.Owner, h.config.Repository, h.explain(err))
	}
	if h.repo, err = h.create(ctx); err != nil {
		return false, fmt.Errorf("cannot create the repository %s/%s: %w", h.config.Owner, h.config.Repository, h.explain(err))
	}
	return true, nil
}

func (h *Host) get(ctx context.Context) (gitprovider.UserRepository, error) {
	client, err := h.client()
	if err != nil {
		return nil, err
	}
	if h.config.Personal {
		return client.UserRepositories().Get(ctx, h.personal(client))
	}
	return client.OrgRepositories().Get(ctx, h.shared(client))
}

func (h *Host) create(ctx context.Context) (gitprovider.UserRepository, error) {
	client, err := h.client()
	if err != nil {
		return nil, err
	}
	visibility := gitprovider.RepositoryVisibilityPrivate
	if h.config.Public {
		visibility = gitprovider.RepositoryVisibilityPublic
	}
	info := gitprovider.RepositoryInfo{Visibility: &visibility}
	if h.config.Personal {
		return client.UserRepositories().Create(ctx, h.personal(client), info)
	}
	return client.OrgRepositories().Create(ctx, h.shared(client), info)
}

func (h *Host) personal(client gitprovider.Client) gitprovider.UserRepositoryRef {
	user := gitprovider.UserRef{Domain: client.SupportedDomain(), UserLogin: h.config.Owner}
	return gitprovider.UserRepositoryRef{UserRef: user, RepositoryName: h.config.Repository}
}

func (h *Host) shared(client gitprovider.Client) gitprovider.OrgRepositoryRef {
	owner := gitprovider.OrganizationRef{Domain: client.SupportedDomain(), Organization: h.config.Owner}
	return gitprovider.OrgRepositoryRef{OrganizationRef: owner, RepositoryName: h.config.Repository}
}

// client returns a client of the provider. The client of Gitea asks the server for its version.
func (h *Host) client() (gitprovider.Client, error) {
	c := h.config
	hook := gitprovider.WithPostChainTransportHook(func(http.RoundTripper) http.RoundTripper { return h.transport })
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
	if changed, err = h.ensureKey(ctx, wanted); err != nil {
		return false, fmt.Errorf("cannot register the deploy key at %s/%s: %w", h.config.Owner, h.config.Repository, h.explain(err))
	}
	return changed, nil
}

func (h *Host) ensureKey(ctx context.Context, wanted gitprovider.DeployKeyInfo) (bool, error) {
	keys, err := h.repo.DeployKeys().List(ctx)
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
	_, changed, err := h.repo.DeployKeys().Reconcile(ctx, wanted)
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
