package githost

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// epoch is the date of a commit without a parent.
const epoch = "0 +0000"

// author is the author of the Host's commits. The domain .invalid never resolves
// (RFC 2606).
const author = "tenure <tenure@tenure.invalid>"

// readCommit returns the parts of a commit that a commit on top of it needs.
func (r *repository) readCommit(ctx context.Context, id string) (commitInfo, error) {
	out, err := r.git(ctx, nil, "show", "--no-patch", "--format=%T %ct", id)
	if err != nil {
		return commitInfo{}, fmt.Errorf("cannot read commit %s: %w", id, err)
	}
	tree, date, _ := strings.Cut(strings.TrimSpace(out), " ")
	return commitInfo{id: id, tree: tree, date: date + " +0000"}, nil
}

// writeCommit creates a commit that depends on its arguments alone: the same tree,
// parent and message give the same ID everywhere.
func (r *repository) writeCommit(ctx context.Context, tree string, parent commitInfo, message string) (string, error) {
	text := &strings.Builder{}
	fmt.Fprintf(text, "tree %s\n", tree)
	date := epoch
	if parent.id != "" {
		fmt.Fprintf(text, "parent %s\n", parent.id)
		date = parent.date
	}
	fmt.Fprintf(text, "author %s %s\ncommitter %s %s\n\n%s\n", author, date, author, date, strings.TrimRight(message, "\n"))
	return r.writeObject(ctx, "commit", text.String())
}

// writeBlob stores a file's content and returns its ID.
func (r *repository) writeBlob(ctx context.Context, content []byte) (string, error) {
	return r.writeObject(ctx, "blob", string(content))
}

func (r *repository) writeObject(ctx context.Context, kind, content string) (string, error) {
	out, err := r.host.git.run(ctx, call{
		env: r.writeEnv(), stdin: strings.NewReader(content), args: []string{"hash-object", "-w", "-t", kind, "--stdin", "--no-filters"},
	})
	if err != nil {
		return "", fmt.Errorf("cannot store a %s: %w", kind, err)
	}
	return strings.TrimSpace(out), nil
}

// edit returns a copy of the tree in which files are replaced: path → blob ID, or ""
// to remove the file.
func (r *repository) edit(ctx context.Context, tree string, files map[string]string) (string, error) {
	index, err := os.CreateTemp(r.dir, "index-")
	if err != nil {
		return "", fmt.Errorf("cannot write to the state folder: %w", err)
	}
	index.Close()
	defer os.Remove(index.Name())
	env := []string{"GIT_INDEX_FILE=" + index.Name()}
	// git rejects an empty file as a broken index.
	if err := os.Remove(index.Name()); err != nil {
		return "", fmt.Errorf("cannot write to the state folder: %w", err)
	}
	if _, err := r.git(ctx, env, "read-tree", tree); err != nil {
		return "", fmt.Errorf("cannot read tree %s: %w", tree, err)
	}
	list := &strings.Builder{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if id := files[path]; id != "" {
			fmt.Fprintf(list, "100644 %s\t%s\x00", id, path)
			continue
		}
		fmt.Fprintf(list, "0 %s\t%s\x00", strings.Repeat("0", len(tree)), path)
	}
	_, err = r.host.git.run(ctx, call{
		env: append(r.env(), env...), stdin: strings.NewReader(list.String()),
		args: []string{"update-index", "--add", "--replace", "-z", "--index-info"},
	})
	if err != nil {
		return "", fmt.Errorf("cannot change the files of tree %s: %w", tree, err)
	}
	out, err := r.host.git.run(ctx, call{env: append(r.writeEnv(), env...), args: []string{"write-tree", "--missing-ok"}})
	if err != nil {
		return "", fmt.Errorf("cannot write a tree: %w", err)
	}
	return strings.TrimSpace(out), nil
}

// keep copies the files of the work tree's checked-out commit into our own store, so
// that the last revision can be served after the folder, and with it the borrowed
// objects, has vanished. It takes time in proportion to the changes since the last
// copied commit.
func (r *repository) keep(ctx context.Context, s *source) error {
	r.mu.Lock()
	commit, kept, gone := s.base.id, s.kept, s.gone
	r.mu.Unlock()
	if s.plain() || gone || commit == kept {
		return nil
	}
	revs := commit + "^{tree}\n"
	if kept != "" {
		revs += "^" + kept + "^{tree}\n"
	}
	list, err := r.host.git.run(ctx, call{env: r.env(), stdin: strings.NewReader(revs), args: []string{"rev-list", "--objects", "--stdin"}})
	if err != nil {
		return fmt.Errorf("cannot list the files of commit %s: %w", commit, err)
	}
	pack := filepath.Join(r.stores().own, "pack", "pack")
	if err := os.MkdirAll(filepath.Dir(pack), 0o700); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	_, err = r.host.git.run(ctx, call{
		env: r.env(), stdin: strings.NewReader(commit + "\n" + list), args: []string{"pack-objects", "--quiet", pack},
	})
	if err != nil {
		return fmt.Errorf("cannot copy the files of commit %s: %w", commit, err)
	}
	r.mu.Lock()
	s.kept = commit
	r.mu.Unlock()
	return nil
}
