package githost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
)

// errVanished reports that a mapped folder does not exist.
var errVanished = errors.New("is gone")

// source is one mapped folder.
type source struct {
	url    string
	branch string // "" for a Git work tree
	dir    string // absolute; links stay, because they may change their target
	stage  string // our Git folder with the index for this folder

	// The repository's lock guards the following fields.

	tree  *workTree         // nil for a plain folder
	refs  map[string]string // all references of the folder at the last refresh: ref → object ID
	head  string            // the branch that contains the files
	index fs.FileInfo       // the user's index when it was last copied
	kept  string            // the commit with a copy of its files in our own store
	gone  bool              // the folder has vanished, and letGo has run
	said  string            // the last error, to report each error once

	base    commitInfo // the checked-out commit
	written commitKey  // the last synthetic commit and its inputs
}

// commitInfo is the part of a commit that a synthetic commit on top of it needs.
type commitInfo struct{ id, tree, date string }

type commitKey struct{ tree, parent, branch, id string }

// workTree contains the locations of Git's files for a work tree. For a linked work
// tree and for a submodule, they are outside of the folder.
type workTree struct {
	gitDir    string // HEAD and the index
	commonDir string // references and objects; equals gitDir unless the tree is linked
}

func (s *source) plain() bool { return s.branch != "" }

// locate checks the folder and finds its Git files. Its errors name the folder and
// the solution.
func (s *source) locate() error {
	info, err := os.Stat(s.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %w: bring it back, or map %s to another folder", s.dir, errVanished, s.url)
	case err != nil:
		return fmt.Errorf("cannot read the folder: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", s.dir)
	case s.plain():
		return nil
	}
	tree, err := findWorkTree(s.dir)
	if err != nil {
		return err
	}
	if tree == nil {
		return fmt.Errorf("%s is not a Git work tree: %s", s.dir, s.notWorkTreeHint())
	}
	s.tree = tree
	return nil
}

func (s *source) notWorkTreeHint() string {
	named := fmt.Sprintf("--map %s#main=%s", s.url, s.dir)
	if isGitDir(s.dir) {
		return "it is a bare repository; clone it and map the clone"
	}
	for parent := filepath.Dir(s.dir); ; parent = filepath.Dir(parent) {
		if tree, err := findWorkTree(parent); err == nil && tree != nil {
			return fmt.Sprintf("it lies in the one at %s; map that one, or serve this folder alone as a branch with %s", parent, named)
		}
		if parent == filepath.Dir(parent) {
			return "name the branch to serve it as, " + named
		}
	}
}

func isGitDir(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// findWorkTree reads the folder's .git, which is a folder or, in a linked work tree
// or a submodule, a file with the path of one (gitrepository-layout(5)). It returns
// nil if .git does not exist.
func findWorkTree(dir string) (*workTree, error) {
	gitDir := filepath.Join(dir, ".git")
	info, err := os.Stat(gitDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the repository: %w", err)
	}
	if !info.IsDir() {
		link, err := os.ReadFile(gitDir)
		if err != nil {
			return nil, fmt.Errorf("cannot read the repository: %w", err)
		}
		target, ok := strings.CutPrefix(strings.TrimSpace(string(link)), "gitdir: ")
		if !ok {
			return nil, fmt.Errorf("cannot read the repository: %s does not say where it is", gitDir)
		}
		gitDir = absolute(dir, target)
	}
	tree := &workTree{gitDir: gitDir, commonDir: gitDir}
	if common, err := os.ReadFile(filepath.Join(gitDir, "commondir")); err == nil {
		tree.commonDir = absolute(gitDir, strings.TrimSpace(string(common)))
	}
	if _, err := os.Stat(filepath.Join(tree.commonDir, "objects")); err != nil {
		return nil, fmt.Errorf("cannot read the repository of %s: %w", dir, err)
	}
	return tree, nil
}

func absolute(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// readRefs returns the branches and tags of a work tree, and its checked-out branch.
// Only here git opens the user's own repository: it only lists references, and the
// environment disables all programs that the repository's configuration could start.
func (t *workTree) readRefs(ctx context.Context, g *git) (refs map[string]string, head string, err error) {
	env := []string{"GIT_DIR=" + t.gitDir}
	out, err := g.run(ctx, call{env: env, args: []string{"for-each-ref", "--format=%(HEAD)%(objectname) %(refname)", branchPrefix, tagPrefix}})
	if err != nil {
		return nil, "", fmt.Errorf("cannot list the branches: %w", err)
	}
	refs = map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		id, ref, ok := strings.Cut(strings.TrimLeft(lines.Text(), "* "), " ")
		if !ok {
			continue
		}
		refs[ref] = id
		if strings.HasPrefix(lines.Text(), "*") {
			head = strings.TrimPrefix(ref, branchPrefix)
		}
	}
	if head != "" {
		return refs, head, lines.Err()
	}
	name, err := g.run(ctx, call{env: env, args: []string{"symbolic-ref", "-q", "HEAD"}})
	if err != nil {
		return nil, "", errors.New("no branch is checked out (detached HEAD): check one out with git switch, or name the branch to serve the folder as, URL#main=DIR")
	}
	return nil, "", fmt.Errorf("branch %s has no commit yet: make one, or name the branch to serve the folder as, URL#main=DIR",
		strings.TrimPrefix(strings.TrimSpace(name), branchPrefix))
}
