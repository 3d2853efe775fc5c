package githost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Tree is the content of a branch that [Host.Commit] edits. Paths are
// slash-separated and relative to the top of the repository.
type Tree struct {
	ctx   context.Context
	r     *repository
	tree  string
	files map[string]string // path → blob ID, "" for a removed file
}

// ReadFile returns a file's content. The error is [fs.ErrNotExist] if the branch has
// no such file.
func (t *Tree) ReadFile(path string) ([]byte, error) {
	if err := validPath(path); err != nil {
		return nil, err
	}
	id, edited := t.files[path]
	if !edited {
		out, err := t.r.git(t.ctx, nil, "ls-tree", "--format=%(objecttype) %(objectname)", t.tree, "--", path)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		id, _ = strings.CutPrefix(strings.TrimSpace(out), "blob ")
	}
	if id == "" || strings.Contains(id, " ") {
		return nil, fmt.Errorf("cannot read %s: %w", path, fs.ErrNotExist)
	}
	out, err := t.r.git(t.ctx, nil, "cat-file", "blob", id)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return []byte(out), nil
}

// WriteFile creates or replaces a regular file. It returns an error if the path is not a
// relative path inside the repository, or if git fails.
func (t *Tree) WriteFile(path string, content []byte) error {
	if err := validPath(path); err != nil {
		return err
	}
	id, err := t.r.writeBlob(t.ctx, content)
	if err != nil {
		return err
	}
	t.files[path] = id
	return nil
}

// Remove removes a file. It returns no error if the file does not exist.
func (t *Tree) Remove(path string) error {
	if err := validPath(path); err != nil {
		return err
	}
	t.files[path] = ""
	return nil
}

// Commit creates a commit on top of the served commit of a branch, as a push would, and returns
// its revision. It does not change the folder behind the branch: the next change in the folder
// that alters its revision replaces the commit. edit must not call the Host. If edit changes
// nothing, Commit creates no commit and returns the present revision. It returns an error if
// the repository or the branch is not mapped, if edit fails, or if git fails.
func (h *Host) Commit(ctx context.Context, url, branch, message string, edit func(*Tree) error) (revision string, err error) {
	a, err := parseAddress(url)
	if err != nil {
		return "", err
	}
	r := h.repository(a)
	if r == nil {
		return "", fmt.Errorf("cannot commit to %s: it is not mapped (%s)", url, a.flag())
	}
	revision, changes, err := r.commit(ctx, branch, message, edit)
	if err != nil {
		return "", fmt.Errorf("cannot commit to branch %s of %s: %w", branch, url, err)
	}
	h.feed.send(changes...)
	return revision, nil
}

func (r *repository) commit(ctx context.Context, branch, message string, edit func(*Tree) error) (string, []Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := branchPrefix + branch
	if r.served[ref] == "" {
		return "", nil, errors.New("there is no such branch")
	}
	parent, err := r.readCommit(ctx, r.served[ref])
	if err != nil {
		return "", nil, err
	}
	t := &Tree{ctx: ctx, r: r, tree: parent.tree, files: map[string]string{}}
	if err := edit(t); err != nil {
		return "", nil, err
	}
	tree, err := r.edit(ctx, parent.tree, t.files)
	if err != nil {
		return "", nil, err
	}
	if tree == parent.tree {
		return parent.id, nil, nil
	}
	id, err := r.writeCommit(ctx, tree, parent, message)
	if err != nil {
		return "", nil, err
	}
	changes, err := r.move(ctx, map[string]string{ref: id})
	return id, changes, err
}
