package githost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// debris is what editors leave beside a file that is being edited. A generated
// kustomization would take a lock such as .#app.yaml for a manifest. In a plain
// folder, which has no ignored files, everything is taken.
const debris = ".#*\n\\#*#\n*~\n.*.sw?\n4913\n.DS_Store\n"

// stores are the two views of a repository's objects.
type stores struct {
	// all is for reading: ours, what was pushed, and what is borrowed.
	all string
	// own is for writing. Git renews the time of an object that it would
	// write but finds already there; in all, that may be the user's file.
	own string
}

// prepareStage makes the Git folder with which a source is snapshotted. Nothing
// of the user's configuration takes part: git is run with this folder as its
// repository and the user's as the work tree.
func (s *source) prepareStage(ctx context.Context, g *git, format string) error {
	if err := os.RemoveAll(s.stage); err != nil {
		return fmt.Errorf("cannot clear the state folder: %w", err)
	}
	if _, err := g.run(ctx, call{args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + format, s.stage}}); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	info := filepath.Join(s.stage, "info")
	if err := os.MkdirAll(info, 0o700); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	if !s.plain() {
		return nil
	}
	// A plain folder's bytes are served as they are, whatever a
	// .gitattributes in it says.
	attributes := []byte("* -text -ident !filter !working-tree-encoding\n")
	if err := os.WriteFile(filepath.Join(info, "attributes"), attributes, 0o600); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	return nil
}

// stageEnv makes git see the folder through our index. Objects are read from and
// written to the store that is given.
func (s *source) stageEnv(objects string) []string {
	return []string{
		"GIT_DIR=" + s.stage,
		"GIT_WORK_TREE=" + s.dir,
		"GIT_INDEX_FILE=" + filepath.Join(s.stage, "index"),
		"GIT_OBJECT_DIRECTORY=" + objects,
	}
}

// snapshot returns the tree of the folder's files as they are now. git add is
// not used: it would run git status inside nested repositories, which obeys
// their configuration.
func (s *source) snapshot(ctx context.Context, g *git, st stores) (tree string, err error) {
	if s.plain() {
		return s.snapshotPlain(ctx, g, st)
	}
	if err := s.copyExcludes(); err != nil {
		return "", err
	}
	borrowed, err := s.copyIndex(ctx, g, st)
	if err != nil {
		return "", err
	}
	tree, err = s.snapshotTree(ctx, g, st)
	if err == nil || !borrowed || ctx.Err() != nil {
		return tree, err
	}
	// The user's index may be one that only their git can read, split in
	// two for example. Begin from the commit then.
	index := filepath.Join(s.stage, "index")
	if err := os.Remove(index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot write to the state folder: %w", err)
	}
	if _, err := g.run(ctx, call{env: s.stageEnv(st.all), args: []string{"read-tree", s.base.tree}}); err != nil {
		return "", err
	}
	return s.snapshotTree(ctx, g, st)
}

func (s *source) snapshotTree(ctx context.Context, g *git, st stores) (string, error) {
	list, err := g.run(ctx, call{dir: s.dir, env: s.stageEnv(st.all), strict: true,
		args: []string{"ls-files", "-z", "--cached", "--others", "--exclude-standard"}})
	if err != nil {
		return "", err
	}
	paths := &strings.Builder{}
	for path := range strings.SplitSeq(list, "\x00") {
		// A slash at the end marks a repository inside this one, which
		// git would not commit either.
		if path != "" && !strings.HasSuffix(path, "/") {
			paths.WriteString(path)
			paths.WriteByte(0)
		}
	}
	return s.writeTree(ctx, g, st, strings.NewReader(paths.String()))
}

// snapshotPlain takes every file, also those of repositories inside the folder,
// but nothing called .git.
func (s *source) snapshotPlain(ctx context.Context, g *git, st stores) (string, error) {
	list, err := g.run(ctx, call{dir: s.dir, env: s.stageEnv(st.all), args: []string{"ls-files", "-z", "--cached"}})
	if err != nil {
		return "", err
	}
	paths := &strings.Builder{}
	paths.WriteString(list)
	root, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return "", fmt.Errorf("cannot read the folder: %w", err)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != root:
			return nil // removed while we looked
		case err != nil:
			return err
		case strings.EqualFold(entry.Name(), ".git") && path != root:
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.Type()&^fs.ModeSymlink != 0:
			return nil // folders, pipes, sockets
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		paths.WriteString(filepath.ToSlash(relative))
		paths.WriteByte(0)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("cannot read the folder: %w", err)
	}
	return s.writeTree(ctx, g, st, strings.NewReader(paths.String()))
}

// writeTree brings the listed paths in the index up to date and returns the
// tree. Files whose stat information has not changed are not read.
func (s *source) writeTree(ctx context.Context, g *git, st stores, paths io.Reader) (string, error) {
	env := s.stageEnv(st.own)
	update := []string{"update-index", "--add", "--remove", "--replace", "--ignore-skip-worktree-entries", "-z", "--stdin"}
	if _, err := g.run(ctx, call{dir: s.dir, env: env, stdin: paths, args: update}); err != nil {
		return "", err
	}
	tree, err := g.run(ctx, call{dir: s.dir, env: env, args: []string{"write-tree", "--missing-ok"}})
	return strings.TrimSpace(tree), err
}

// copyIndex takes over the user's index if it changed since the last time: it
// says which files are tracked though ignored, which are left out of a sparse
// checkout, and that files which a filter or a line-end setting of the user
// altered are as they were committed.
func (s *source) copyIndex(ctx context.Context, g *git, st stores) (copied bool, err error) {
	from, to := filepath.Join(s.tree.gitDir, "index"), filepath.Join(s.stage, "index")
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the index of %s: %w", s.dir, err)
	}
	if s.index != nil && os.SameFile(info, s.index) && info.ModTime().Equal(s.index.ModTime()) && info.Size() == s.index.Size() {
		return false, nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return false, fmt.Errorf("cannot read the index of %s: %w", s.dir, err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		return false, fmt.Errorf("cannot write to the state folder: %w", err)
	}
	// git compares a file's time with the index's to know whether the file
	// may have changed after it was looked at.
	if err := os.Chtimes(to, info.ModTime(), info.ModTime()); err != nil {
		return false, fmt.Errorf("cannot write to the state folder: %w", err)
	}
	s.index = info
	if !bytes.Contains(content, []byte(sparseIndex)) {
		return true, nil
	}
	if err := s.spellOut(ctx, g, st); err != nil {
		return false, fmt.Errorf("cannot read the sparse index of %s: %w", s.dir, err)
	}
	return true, nil
}

// copyExcludes takes over the repository's private list of ignored files.
func (s *source) copyExcludes() error {
	own, err := os.ReadFile(filepath.Join(s.tree.commonDir, "info", "exclude"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the ignored files of %s: %w", s.dir, err)
	}
	content := append([]byte(debris), own...)
	if err := os.WriteFile(filepath.Join(s.stage, "info", "exclude"), content, 0o600); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	return nil
}
