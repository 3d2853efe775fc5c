// Package gitrepo changes a branch of a remote Git repository: it clones the repository into a
// folder, commits files, and pushes without replacing commits of other users. It needs no git
// program, and ignores the configuration of git.
//
// It uses the proxies of the environment: HTTP_PROXY, HTTPS_PROXY and NO_PROXY for HTTP,
// ALL_PROXY for SSH.
package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
)

var (
	// ErrCredentials reports that the host rejects the credentials, or that they do not allow the
	// operation.
	ErrCredentials = errors.New("the credentials are refused")
	// ErrNotFound reports that there is no repository at the address. Many hosts return this error
	// also if the credentials lack read access.
	ErrNotFound = errors.New("the repository is not found")
	// ErrUnreachable reports that no host answers at the address, or that the answer is not from a
	// Git host.
	ErrUnreachable = errors.New("the host cannot be reached")
	// ErrHostKey reports that the SSH key of the host is not a known one.
	ErrHostKey = errors.New("the host has another key than the known ones")
	// ErrOutrun reports that a push was rejected because another client has pushed to the branch
	// since the clone.
	ErrOutrun = errors.New("another commit was pushed to the branch in the meantime")
	// ErrDeclined reports that the host rejected a push for another reason, such as a protected
	// branch.
	ErrDeclined = errors.New("the host declines the push")
)

const origin = git.DefaultRemoteName

// Hosts that support only version 2 of the protocol (Azure DevOps, CodeCommit) require
// capabilities that go-git disables by default, since it implements them only in part. A full
// clone needs no more than that part; Flux's package does the same.
func init() {
	transport.UnsupportedCapabilities = []capability.Capability{capability.ThinPack}
}

// Remote is a branch of a repository.
type Remote struct {
	// URL is the address: https, http or ssh, without a password.
	URL string
	// Branch is a branch, which need not exist.
	Branch string
	// Credentials are the credentials for the host. For SSH, KnownHosts must be set; without a
	// Key, the SSH agent of the environment is used.
	Credentials gitauth.Credentials
}

// Clone is a folder with a copy of a branch. Close it when done with it.
type Clone struct {
	// Dir is the folder.
	Dir string

	remote Remote
	repo   *git.Repository
	access *access
}

// Open clones the branch into an empty folder. A new branch starts at the default branch, or
// without commits in an empty repository. The errors wrap the error values of this package.
func Open(ctx context.Context, remote Remote, dir string) (*Clone, error) {
	access, err := newAccess(ctx, remote)
	if err != nil {
		return nil, err
	}
	c := &Clone{Dir: dir, remote: remote, access: access}
	if err := c.fetch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot clone %s: %w", remote.URL, explain(err)), c.Close())
	}
	return c, nil
}

func (c *Clone) fetch(ctx context.Context) error {
	from, err := c.start(ctx)
	if err != nil {
		return err
	}
	branch := plumbing.NewBranchReferenceName(c.remote.Branch)
	if from == "" {
		return c.init(branch)
	}
	c.repo, err = git.PlainCloneContext(ctx, c.Dir, false, &git.CloneOptions{
		URL: c.remote.URL, Auth: c.access.method, CABundle: c.remote.Credentials.CA,
		ReferenceName: from, SingleBranch: true, Tags: git.NoTags,
	})
	if err != nil || from == branch {
		return err
	}
	tree, err := c.repo.Worktree()
	if err != nil {
		return err
	}
	return tree.Checkout(&git.CheckoutOptions{Branch: branch, Create: true})
}

// start returns the branch to start from: the branch itself, the default branch, or "" in an
// empty repository.
func (c *Clone) start(ctx context.Context) (plumbing.ReferenceName, error) {
	remote := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: origin, URLs: []string{c.remote.URL}})
	refs, err := remote.ListContext(ctx, &git.ListOptions{Auth: c.access.method, CABundle: c.remote.Credentials.CA})
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	wanted := plumbing.NewBranchReferenceName(c.remote.Branch)
	byName := map[plumbing.ReferenceName]*plumbing.Reference{}
	for _, ref := range refs {
		byName[ref.Name()] = ref
	}
	if byName[wanted] != nil {
		return wanted, nil
	}
	if head := byName[plumbing.HEAD]; head != nil && byName[head.Target()] != nil {
		return head.Target(), nil
	}
	return "", fmt.Errorf("%w: it has neither a branch %s nor a default branch to begin it with", ErrNotFound, c.remote.Branch)
}

// init creates a local repository for an empty remote.
func (c *Clone) init(branch plumbing.ReferenceName) error {
	repo, err := git.PlainInitWithOptions(c.Dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: branch}})
	if err != nil {
		return err
	}
	c.repo = repo
	_, err = repo.CreateRemote(&config.RemoteConfig{Name: origin, URLs: []string{c.remote.URL}})
	return err
}

// Close closes the connection to the SSH agent, and returns the error of that. It keeps the
// folder.
func (c *Clone) Close() error {
	if c.access == nil {
		return nil
	}
	return c.access.close()
}

// Head returns the hash of the current commit in hexadecimal, or "" in a repository without
// commits.
func (c *Clone) Head() string {
	head, err := c.repo.Head()
	if err != nil {
		return ""
	}
	return head.Hash().String()
}

// Author is the author of a commit.
type Author struct{ Name, Email string }

// Commit commits the current content of files, including deletions. Names are slash separated and
// relative to the folder. It returns an error if a file cannot be read or the commit cannot be
// written.
func (c *Clone) Commit(files []string, by Author, message string) error {
	tree, err := c.repo.Worktree()
	if err != nil {
		return fmt.Errorf("cannot commit: %w", err)
	}
	for _, name := range files {
		if _, err = os.Lstat(filepath.Join(c.Dir, filepath.FromSlash(name))); errors.Is(err, os.ErrNotExist) {
			_, err = tree.Remove(name)
		} else if err == nil {
			err = tree.AddWithOptions(&git.AddOptions{Path: name, SkipStatus: true})
		}
		if err != nil {
			return fmt.Errorf("cannot commit %s: %w", name, err)
		}
	}
	_, err = tree.Commit(message, &git.CommitOptions{Author: &object.Signature{Name: by.Name, Email: by.Email, When: time.Now()}})
	if err != nil {
		return fmt.Errorf("cannot commit: %w", err)
	}
	return nil
}

// Push pushes the commits. The error is [ErrOutrun] if the branch has changed since the clone;
// then the push changes nothing.
func (c *Clone) Push(ctx context.Context) error {
	branch := plumbing.NewBranchReferenceName(c.remote.Branch)
	err := c.repo.PushContext(ctx, &git.PushOptions{
		RemoteName: origin, RefSpecs: []config.RefSpec{config.RefSpec(branch + ":" + branch)},
		Auth: c.access.method, CABundle: c.remote.Credentials.CA,
	})
	if err == nil || errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil
	}
	return fmt.Errorf("cannot push to %s: %w", c.remote.URL, explain(err))
}

// outrun are the messages with which hosts, and go-git itself, reject a push that does not
// start at the head of the branch. There is no code for this case.
var outrun = []string{
	"non-fast-forward", "fetch first", "failed to update ref", "cannot lock ref", "already exists", "stale info", "incorrect old value",
}

// explain wraps an error of go-git in an error of this package.
func explain(err error) error {
	if unexpected := (*plumbing.UnexpectedError)(nil); errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	text := err.Error()
	var network net.Error
	switch {
	case errors.Is(err, ErrHostKey), errors.Is(err, ErrNotFound), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed),
		strings.Contains(text, "unable to authenticate"):
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.As(err, &network):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	declined := strings.HasPrefix(text, "command error on ") || strings.HasPrefix(text, "unpack error: ")
	for _, words := range outrun {
		if strings.Contains(text, words) && (declined || words == outrun[0]) {
			return fmt.Errorf("%w: %w", ErrOutrun, err)
		}
	}
	if declined {
		return fmt.Errorf("%w: %w", ErrDeclined, err)
	}
	return err
}

// CheckBranch returns an error if a name is not a valid branch name by the rules of
// git-check-ref-format(1).
func CheckBranch(name string) error {
	if err := plumbing.NewBranchReferenceName(name).Validate(); name == "" || strings.HasPrefix(name, "-") || err != nil {
		return fmt.Errorf("%q is not the name of a branch", name)
	}
	return nil
}
