package provider

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/fluxcd/go-git-providers/gitprovider"
	"github.com/fluxcd/go-git-providers/stash"
	"github.com/go-logr/logr"
)

const (
	// bitbucketSSHPort is the port on which Bitbucket Server serves SSH unless configured otherwise.
	bitbucketSSHPort = "7999"
	// The rights of an access key for a repository.
	readRepository, writeRepository = "REPO_READ", "REPO_WRITE"
)

// bitbucket is a repository on Bitbucket Server. It calls the package's client of the REST API and not
// the package's interface of all providers: that asks for the default branch of the repository, and
// fails for an empty one.
type bitbucket struct {
	config Config
	client *stash.Client
}

func newBitbucket(c Config, t *transport) (*bitbucket, error) {
	client, err := stash.NewClient(&http.Client{Transport: t}, "https://"+c.Hostname, nil, logr.Discard(), stash.WithAuth(c.Owner, c.Token))
	return &bitbucket{config: c, client: client}, err
}

// project returns the key of the project: a user has one of their own.
func (c Config) project() string {
	if c.Personal {
		return "~" + c.Owner
	}
	return c.Owner
}

func (b *bitbucket) get(ctx context.Context) error {
	_, err := b.client.Repositories.Get(ctx, b.config.project(), b.config.Repository)
	if errors.Is(err, stash.ErrNotFound) {
		return gitprovider.ErrNotFound
	}
	return err
}

func (b *bitbucket) create(ctx context.Context) error {
	_, err := b.client.Repositories.Create(ctx, b.config.project(), &stash.Repository{Name: b.config.Repository, ScmID: "git", Public: b.config.Public})
	return err
}

// ensureKey implements [repository]. Bitbucket Server stores a key's title as its comment.
func (b *bitbucket) ensureKey(ctx context.Context, wanted gitprovider.DeployKeyInfo) (bool, error) {
	project, name := b.config.project(), b.config.Repository
	keys, err := b.client.DeployKeys.All(ctx, project, name)
	if err != nil {
		return false, err
	}
	right := writeRepository
	if *wanted.ReadOnly {
		right = readRepository
	}
	for _, key := range keys {
		if !bytes.HasPrefix([]byte(key.Text), wanted.Key) {
			continue
		}
		if key.Permission == right {
			return false, nil
		}
		_, err := b.client.DeployKeys.UpdateKeyPermission(ctx, project, name, key.Key.ID, right)
		return true, err
	}
	for _, key := range keys {
		if key.Label != wanted.Name {
			continue
		}
		if err := b.client.DeployKeys.Delete(ctx, project, name, key.Key.ID); err != nil {
			return false, err
		}
	}
	_, err = b.client.DeployKeys.Create(ctx, &stash.DeployKey{
		Key:        stash.Key{Label: wanted.Name, Text: string(wanted.Key) + " " + wanted.Name},
		Permission: right,
		Repository: stash.Repository{Slug: name, Project: stash.Project{Key: project}},
	})
	return true, err
}
