// Package githost serves folders of this machine as Git repositories, at the
// addresses that a fleet names: over smart HTTP and SSH, by real git, to
// unmodified clients such as Flux's source-controller.
//
// A [Mapping] names the address and the folder. The folder is either the top of
// a Git work tree, which is served with all its branches and tags, the
// checked-out branch as its files stand in the working tree, committed or not;
// or any folder, which is served as one branch.
//
// # What is served
//
// Each address has a bare repository in the state folder. It borrows the user's
// objects (objects/info/alternates, gitrepository-layout(5)); nothing is ever
// written into a mapped folder, not even a lock. The Host takes a snapshot of the
// working tree with its own index. If the snapshot equals the commit that is
// checked out, the Host serves that commit, so that users see its known revision.
// Otherwise it creates a commit on top, which depends only on the files, the
// parent and the branch: the same files give the same revision everywhere.
//
// Clients may push, into the bare repository only. A pushed commit (or one made
// with [Host.Commit]) stays until that branch changes in the folder, or until the
// Host ends.
//
// A repository accepts any credentials, unless [Host.Protect] makes it private.
//
// # Untrusted folders
//
// A fleet under review is untrusted. git runs with a configuration of ours
// alone; hooks, filters, file system monitors and credential helpers of a mapped
// folder never run; symbolic links stay links; an address never becomes a file
// name.
package githost

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Mapping says where a remote repository is found on this machine.
type Mapping struct {
	// URL is the repository's address as a fleet writes it: https, http,
	// ssh, or git@host:path. The scheme does not matter: a repository is
	// served over all of them.
	URL string
	// Branch is empty when Dir is the top of a Git work tree, which is then
	// served with all its branches. Otherwise Dir is any folder, served as
	// that branch. Several mappings may share a URL with different branches.
	Branch string
	// Dir is the folder. A relative one is taken from the working directory.
	Dir string
}

// Change says that what a repository serves has changed, or that a mapped folder
// cannot be followed at the moment.
type Change struct {
	// URL is the address as its mapping writes it; compare with [Address].
	URL string
	// Branch is the branch that moved, empty for a tag.
	Branch string
	// Revision is the commit that the branch is at, as hexadecimal digits;
	// empty if the branch is gone.
	Revision string
	// Err says what is wrong with the folder and what to do. The last
	// revision stays served. A Change without Err follows when it is well
	// again.
	Err error
}

// Config says where a Host keeps its things.
type Config struct {
	// Dir is a folder of the Host's own. What an earlier Host left there is
	// removed.
	Dir string
	// Log gets what a user need not see at once. It must not be nil.
	Log *slog.Logger
}

// Host serves mapped folders. Its methods may be called at the same time.
type Host struct {
	dir    string
	files  string // the folders of AddFiles
	log    *slog.Logger
	git    *git
	signer ssh.Signer
	feed   feed

	adding sync.Mutex // one Add at a time

	mu           sync.RWMutex
	repositories map[address]*repository
	overlays     map[address][]overlay
	// private are the repositories that need credentials.
	private map[address][]grant
}

type overlay struct {
	branch, path string
	content      []byte
}

// New makes a Host without repositories and a new SSH host key. The error is
// [ErrNoGit] if git or its http-backend is missing.
func New(ctx context.Context, c Config) (*Host, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot find the state folder: %w", err)
	}
	h := &Host{
		dir:          filepath.Join(dir, "repositories"),
		files:        filepath.Join(dir, "files"),
		log:          c.Log,
		repositories: map[address]*repository{},
		overlays:     map[address][]overlay{},
		private:      map[address][]grant{},
	}
	home := filepath.Join(dir, "home")
	for _, folder := range []string{h.dir, h.files, home} {
		if err := os.RemoveAll(folder); err != nil {
			return nil, fmt.Errorf("cannot clear the state folder: %w", err)
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("cannot write to the state folder: %w", err)
		}
	}
	if h.git, err = newGit(ctx, home); err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make the SSH host key: %w", err)
	}
	if h.signer, err = ssh.NewSignerFromKey(key); err != nil {
		return nil, fmt.Errorf("cannot make the SSH host key: %w", err)
	}
	return h, nil
}

// KnownHosts returns the line of a known_hosts file (sshd(8)) with which a client
// trusts this Host as host; host may have a port, as in example.com:2222.
func (h *Host) KnownHosts(host string) []byte {
	return []byte(knownhosts.Line([]string{knownhosts.Normalize(host)}, h.signer.PublicKey()) + "\n")
}

// Hosts returns the names of the hosts that mappings name, sorted, with a port
// where a mapping's URL names an unusual one.
func (h *Host) Hosts() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	names := map[string]bool{}
	for a := range h.repositories {
		names[a.host] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Head returns the commit that a branch is served at, as hexadecimal digits. An
// empty branch means the default one. ok is false if there is no such
// repository or branch.
func (h *Host) Head(url, branch string) (revision string, ok bool) {
	a, err := parseAddress(url)
	if err != nil {
		return "", false
	}
	r := h.repository(a)
	if r == nil {
		return "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if branch == "" {
		branch = r.head
	}
	revision, ok = r.served[branchPrefix+branch]
	return revision, ok
}

func (h *Host) repository(a address) *repository {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.repositories[a]
}

// Add begins to serve a folder. On an error, which names the folder and says
// what to do, nothing has changed.
func (h *Host) Add(ctx context.Context, m Mapping) error {
	h.adding.Lock()
	defer h.adding.Unlock()
	a, err := parseAddress(m.URL)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(m.Dir)
	if err != nil {
		return fmt.Errorf("cannot map %s: %w", m.URL, err)
	}
	s := &source{url: m.URL, branch: m.Branch, dir: dir}
	format, err := h.inspect(ctx, s)
	if err != nil {
		return fmt.Errorf("cannot map %s: %w", m.URL, err)
	}
	r := h.repository(a)
	if r == nil {
		if r, err = h.create(ctx, a, format); err != nil {
			return fmt.Errorf("cannot map %s: %w", m.URL, err)
		}
	}
	if err := r.add(ctx, s, format); err != nil {
		return fmt.Errorf("cannot map %s: %w", m.URL, err)
	}
	h.mu.Lock()
	h.repositories[a] = r
	h.mu.Unlock()
	h.feed.wake()
	return nil
}

// inspect checks that a folder can be served and returns its repository's object
// format, empty for a plain folder.
func (h *Host) inspect(ctx context.Context, s *source) (format string, err error) {
	if s.plain() {
		if _, err := h.git.run(ctx, call{args: []string{"check-ref-format", branchPrefix + s.branch}}); err != nil {
			return "", fmt.Errorf("%q is not the name of a branch", s.branch)
		}
	}
	err = s.locate()
	switch {
	case errors.Is(err, errVanished):
		return "", fmt.Errorf("there is no folder %s: %w", s.dir, fs.ErrNotExist)
	case err != nil || s.plain():
		return "", err
	}
	refs, head, err := s.tree.readRefs(ctx, h.git)
	if err != nil {
		return "", fmt.Errorf("cannot serve %s: %w", s.dir, err)
	}
	if len(refs[branchPrefix+head]) == 2*sha256.Size {
		return "sha256", nil
	}
	return "sha1", nil
}

func (h *Host) create(ctx context.Context, a address, format string) (*repository, error) {
	if format == "" {
		format = "sha1"
	}
	sum := sha256.Sum256([]byte(a.String()))
	dir := filepath.Join(h.dir, hex.EncodeToString(sum[:8]))
	r := &repository{
		host: h, address: a, dir: dir, path: filepath.Join(dir, "served.git"),
		overlays: map[string]map[string]string{}, folder: map[string]string{}, served: map[string]string{},
	}
	if err := r.create(ctx, format); err != nil {
		return nil, err
	}
	h.mu.RLock()
	waiting := h.overlays[a]
	h.mu.RUnlock()
	for _, o := range waiting {
		if err := r.overlay(ctx, o); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// add takes up one more source, or leaves the repository as it was.
func (r *repository) add(ctx context.Context, s *source, format string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if format != "" && format != r.format {
		return fmt.Errorf("%s has %s objects but another folder mapped there has %s", s.dir, format, r.format)
	}
	for _, other := range r.sources {
		if s.plain() == other.plain() && s.branch == other.branch {
			return fmt.Errorf("both %s and %s are mapped there: name different branches (URL#BRANCH=DIR) or drop one", other.dir, s.dir)
		}
	}
	s.stage = filepath.Join(r.dir, fmt.Sprintf("stage-%d.git", len(r.sources)))
	if err := s.prepareStage(ctx, r.host.git, r.format); err != nil {
		return err
	}
	before := r.sources
	r.sources = append(slices.Clone(before), s)
	_, err := r.refresh(ctx, s)
	if err == nil {
		err = r.clash(s)
	}
	if err == nil {
		return nil
	}
	r.sources = before
	if len(before) == 0 {
		return err
	}
	_, undo := r.publish(ctx)
	return errors.Join(err, undo, r.lend())
}

// clash refuses a plain folder for the very branch that a work tree has checked
// out: both claim to be what is being edited.
func (r *repository) clash(s *source) error {
	for _, other := range r.sources {
		if s != other && s.head == other.head {
			return fmt.Errorf("both %s and %s are mapped there as branch %s: name different branches (URL#BRANCH=DIR) or drop one", other.dir, s.dir, s.head)
		}
	}
	return nil
}

// Overlay replaces one file in every commit served for a branch, before the
// folder is added or later. The path is slash-separated and relative to the top
// of the repository; the file is made if the branch has none.
func (h *Host) Overlay(ctx context.Context, url, branch, path string, content []byte) error {
	a, err := parseAddress(url)
	if err != nil {
		return err
	}
	if err := validPath(path); err != nil {
		return fmt.Errorf("cannot overlay a file of %s: %w", url, err)
	}
	o := overlay{branch: branch, path: path, content: slices.Clone(content)}
	h.adding.Lock()
	defer h.adding.Unlock()
	h.mu.Lock()
	h.overlays[a] = append(h.overlays[a], o)
	r := h.repositories[a]
	h.mu.Unlock()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.overlay(ctx, o); err != nil {
		return fmt.Errorf("cannot overlay a file of %s: %w", url, err)
	}
	for _, s := range r.sources {
		changes, err := r.refresh(ctx, s)
		if err != nil {
			return fmt.Errorf("cannot overlay a file of %s: %w", url, err)
		}
		h.feed.send(changes...)
	}
	return nil
}

func (r *repository) overlay(ctx context.Context, o overlay) error {
	id, err := r.writeBlob(ctx, o.content)
	if err != nil {
		return err
	}
	if r.overlays[o.branch] == nil {
		r.overlays[o.branch] = map[string]string{}
	}
	r.overlays[o.branch][o.path] = id
	return nil
}

// validPath refuses what git would refuse, and says so first.
func validPath(path string) error {
	if !fs.ValidPath(path) || path == "." || strings.ContainsRune(path, 0) {
		return fmt.Errorf("%q is not a relative path with slashes", path)
	}
	for segment := range strings.SplitSeq(path, "/") {
		if strings.EqualFold(segment, ".git") {
			return fmt.Errorf("%q lies in a folder that belongs to git", path)
		}
	}
	return nil
}
