// Package githost serves folders of this machine as Git repositories, at the
// addresses that a fleet contains: over smart HTTP and SSH, with the git program, to
// unmodified clients such as Flux's source-controller.
//
// A [Mapping] contains the address and the folder. The folder is either the top of a
// Git work tree or a plain folder. A work tree is served with all its branches and
// tags, and its checked-out branch with the files of the working tree, committed or
// not. A plain folder is served as one branch.
//
// # Repositories
//
// Each address has a bare repository in the state folder. It borrows the user's
// objects (objects/info/alternates, gitrepository-layout(5)); the Host never writes
// into a mapped folder, not even a lock. The Host takes a snapshot of the working
// tree with its own index. If the snapshot equals the commit that is checked out,
// the Host serves that commit, so that users see its known revision. Otherwise it
// creates a commit on top, which depends only on the files, the parent and the
// branch: the same files give the same revision everywhere.
//
// Clients may push, into the bare repository only. A commit from a push or from
// [Host.Commit] stays until that branch changes in the folder, or until the Host
// ends.
//
// A repository accepts any credentials, unless [Host.Protect] makes it private.
//
// # Untrusted folders
//
// A fleet under review is untrusted. git runs with our configuration alone; hooks,
// filters, file system monitors and credential helpers of a mapped folder never run;
// symbolic links stay links; an address never becomes a file name.
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

// Mapping maps the address of a remote repository to a folder of this machine.
type Mapping struct {
	// URL is the repository's address, as written in a fleet: https, http, ssh, or
	// git@host:path. The scheme does not matter: a repository is served over HTTP
	// and SSH.
	URL string
	// Branch is empty if Dir is the top of a Git work tree, which is served with all
	// its branches. Otherwise Dir is any folder, served as this branch. Several
	// mappings may share a URL with different branches.
	Branch string
	// Dir is the folder. A relative path starts at the working directory.
	Dir string
}

// Change reports a change of a served branch or tag, or that the Host cannot follow
// a mapped folder at the moment.
type Change struct {
	// URL is the address, as written in the mapping. Use [Address] to compare it.
	URL string
	// Branch is the branch that moved, or empty for a tag.
	Branch string
	// Revision is the present commit of the branch, as hexadecimal digits, or empty
	// if the branch is gone.
	Revision string
	// Err describes the problem with the folder and its solution. The Host still
	// serves the last revision. A Change without Err follows when the problem is
	// solved.
	Err error
}

// Config configures a Host.
type Config struct {
	// Dir is a folder for the Host alone. New removes the files of an earlier Host
	// in it.
	Dir string
	// Log receives details that a user need not see at once. It must not be nil.
	Log *slog.Logger
}

// Host serves mapped folders. Its methods may be called concurrently.
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
	// private are the grants of the repositories that need credentials.
	private map[address][]grant
}

type overlay struct {
	branch, path string
	content      []byte
}

// New returns a Host without repositories, with a new SSH host key. The error is
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

// KnownHosts returns the line of a known_hosts file (sshd(8)) that makes a client
// trust this Host as host; host may have a port, as in example.com:2222.
func (h *Host) KnownHosts(host string) []byte {
	return []byte(knownhosts.Line([]string{knownhosts.Normalize(host)}, h.signer.PublicKey()) + "\n")
}

// Hosts returns the hosts of all mappings, sorted, with the port if a mapping's URL
// has a port that is not its scheme's default.
func (h *Host) Hosts() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	names := map[string]bool{}
	for a := range h.repositories {
		names[a.host] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Head returns the served commit of a branch, as hexadecimal digits. An empty branch
// means the default branch. ok is false if the repository or the branch does not
// exist.
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

// Add starts to serve a folder. After an error the Host is unchanged. The error
// names the folder and the solution.
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

// inspect checks that a folder can be served. It returns the object format of the
// folder's repository, or "" for a plain folder.
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

// add adds a source, or leaves the repository unchanged and returns an error.
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

// clash returns an error if a plain folder and a work tree provide the same branch:
// both would hold the files that the user edits.
func (r *repository) clash(s *source) error {
	for _, other := range r.sources {
		if s != other && s.head == other.head {
			return fmt.Errorf("both %s and %s are mapped there as branch %s: name different branches (URL#BRANCH=DIR) or drop one", other.dir, s.dir, s.head)
		}
	}
	return nil
}

// Overlay replaces one file in every served commit of a branch. It may be called before or
// after the folder is added. The path is slash-separated and relative to the top of the
// repository. If the branch has no such file, Overlay creates it. It returns an error if the
// URL or the path is not valid, or if git fails.
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

// validPath returns an error for a path that is not relative and slash-separated,
// and for paths that belong to git, which git would refuse later.
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
