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

// debris are patterns of the files that editors create beside an edited file. Flux
// would read a lock such as .#app.yaml as a manifest in a generated kustomization.
// Plain folders have no ignored files, so they are served with such files.
const debris = ".#*\n\\#*#\n*~\n.*.sw?\n4913\n.DS_Store\n"

// stores are the two object stores of a repository.
type stores struct {
	// all is the store to read. It contains our objects, pushed objects and borrowed
	// objects.
	all string
	// own is the store to write. Git updates the time of an existing object instead
	// of writing it; in all, the object may be the user's file.
	own string
}

// prepareStage creates the Git folder that takes snapshots of a source. git runs
// with this folder as its repository and the user's folder as its work tree, so it
// does not use the user's configuration.
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
	// Serve the bytes of a plain folder unchanged, whatever its .gitattributes
	// contain.
	attributes := []byte("* -text -ident !filter !working-tree-encoding\n")
	if err := os.WriteFile(filepath.Join(info, "attributes"), attributes, 0o600); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	return nil
}

// stageEnv returns the environment in which git uses our index for the folder, and
// the given store for objects.
func (s *source) stageEnv(objects string) []string {
	return []string{
		"GIT_DIR=" + s.stage,
		"GIT_WORK_TREE=" + s.dir,
		"GIT_INDEX_FILE=" + filepath.Join(s.stage, "index"),
		"GIT_OBJECT_DIRECTORY=" + objects,
	}
}

// snapshot returns the tree of the folder's present files. It does not use git add,
// which would run git status inside nested repositories, with their configuration.
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
	// Our git may be unable to read the user's index, for example a split index.
	// Start from the commit instead.
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
		// A final slash marks a repository inside this one, which git would not
		// commit either.
		if path != "" && !strings.HasSuffix(path, "/") {
			paths.WriteString(path)
			paths.WriteByte(0)
		}
	}
	return s.writeTree(ctx, g, st, strings.NewReader(paths.String()))
}

// snapshotPlain returns the tree of all files in the folder, also of files in nested
// repositories, but without .git.
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
			return nil // removed during the walk
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

// writeTree updates the listed paths in the index and returns the tree. It does not
// read files whose stat information is unchanged.
func (s *source) writeTree(ctx context.Context, g *git, st stores, paths io.Reader) (string, error) {
	env := s.stageEnv(st.own)
	update := []string{"update-index", "--add", "--remove", "--replace", "--ignore-skip-worktree-entries", "-z", "--stdin"}
	if _, err := g.run(ctx, call{dir: s.dir, env: env, stdin: paths, args: update}); err != nil {
		return "", err
	}
	tree, err := g.run(ctx, call{dir: s.dir, env: env, args: []string{"write-tree", "--missing-ok"}})
	return strings.TrimSpace(tree), err
}

// copyIndex copies the user's index if it has changed since the last copy. Git needs
// three facts from it: which ignored files are tracked, which files a sparse
// checkout leaves out, and which files equal their committed content although a
// filter or a line-end setting of the user altered them.
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
	// git compares the times of a file and of the index, to detect that a file may
	// have changed after git has read it.
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

// copyExcludes writes the list of ignored files: debris, and the repository's
// private list.
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
