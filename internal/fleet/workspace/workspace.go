// Package workspace changes several files in a user's folder. It plans the change in memory,
// shows it as a unified diff, and then applies all of it or nothing.
//
// Apply first writes all new content to temporary files beside the targets, and then renames
// these. If a rename fails, it restores the files that it has already replaced. The package
// neither reads nor writes outside of the folder, even through links, and never replaces a
// link with a file.
package workspace

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/tenure-dev/tenure/internal/flux"
)

// ErrInTheWay reports that something other than a regular file has the name of a file.
var ErrInTheWay = errors.New("is not a regular file")

// ErrChanged reports that a file no longer has the content that the change is based on.
var ErrChanged = errors.New("was changed in the meantime")

// ErrTwoKustomizations reports that a folder would have two kustomization files, which kustomize refuses.
var ErrTwoKustomizations = errors.New("kustomize reads one kustomization file in a folder")

// Set is a planned change. It is not safe for concurrent use.
type Set struct {
	root  *os.Root
	files map[string]*file
}

// file is a file that was read. Its content is nil if it does not exist.
type file struct{ old, content []byte }

func (f *file) changed() bool {
	return (f.old == nil) != (f.content == nil) || !bytes.Equal(f.old, f.content)
}

// Open begins a change of the folder. It returns an error if the folder cannot be opened. The
// caller must call [Set.Close].
func Open(dir string) (*Set, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the folder: %w", err)
	}
	return &Set{root: root, files: map[string]*file{}}, nil
}

// Close closes the folder, discards the changes that were not applied, and returns the error of
// closing.
func (s *Set) Close() error { return s.root.Close() }

// FS returns the folder as it is on disk, without planned changes.
func (s *Set) FS() fs.FS { return s.root.FS() }

// Dir returns the path of the folder as passed to Open.
func (s *Set) Dir() string { return s.root.Name() }

// Read returns the planned content of a file. The name is slash separated and relative to the
// folder. The error is fs.ErrNotExist if there is no file, and [ErrInTheWay] if it is not a
// regular file.
func (s *Set) Read(name string) ([]byte, error) {
	f, err := s.look(name)
	if err != nil {
		return nil, err
	}
	if f.content == nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, fs.ErrNotExist)
	}
	return f.content, nil
}

// Exists reports whether a file will exist, or something other than a regular file has its
// name.
func (s *Set) Exists(name string) bool {
	f, err := s.look(name)
	if err != nil {
		return errors.Is(err, ErrInTheWay)
	}
	return f.content != nil
}

// Write plans a file's content. The error is [ErrTwoKustomizations] for a second kustomization file in
// a folder.
func (s *Set) Write(name string, content []byte) error {
	f, err := s.look(name)
	if err != nil {
		return err
	}
	if f.content == nil && flux.IsKustomizationFile(name) {
		for _, base := range flux.KustomizationFiles() {
			if other := path.Join(path.Dir(name), base); s.Exists(other) {
				return fmt.Errorf("cannot write %s: %w: rename %s to %s", name, ErrTwoKustomizations, other, path.Base(name))
			}
		}
	}
	f.content = append([]byte{}, content...)
	return nil
}

// Remove plans the removal of a file. It returns the errors of [Set.Read].
func (s *Set) Remove(name string) error {
	f, err := s.look(name)
	if err != nil {
		return err
	}
	f.content = nil
	return nil
}

// look reads a file once; the planned change is based on this content.
func (s *Set) look(name string) (*file, error) {
	name = path.Clean(name)
	if f := s.files[name]; f != nil {
		return f, nil
	}
	f := &file{}
	info, err := s.root.Lstat(filepath.FromSlash(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("cannot read %s: it %w", name, ErrInTheWay)
	default:
		if f.old, err = s.root.ReadFile(filepath.FromSlash(name)); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		f.old = append([]byte{}, f.old...)
		f.content = f.old
	}
	s.files[name] = f
	return f, nil
}

// Changed returns the sorted names of the files that will change.
func (s *Set) Changed() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if s.files[name].changed() {
			names = append(names, name)
		}
	}
	return names
}

// Removed returns the sorted names of the files that will be deleted.
func (s *Set) Removed() []string {
	return slices.DeleteFunc(s.Changed(), func(name string) bool { return s.files[name].content != nil })
}

// Diff returns the change as a unified diff for `git apply`; empty if nothing changes.
func (s *Set) Diff() string {
	var out strings.Builder
	for _, name := range s.Changed() {
		out.WriteString(Unified(name, s.files[name].old, s.files[name].content))
	}
	return out.String()
}

// Unified returns the change of one file as a unified diff for `git apply`. before is nil for a
// new file, after for a deleted file. It quotes names by git's rules.
func Unified(name string, before, after []byte) string {
	from, to, mode := quoted("a/"+name), quoted("b/"+name), ""
	header := fmt.Sprintf("diff --git %s %s\n", from, to)
	// A name with spaces needs a tab at its end; otherwise patch ends the name at the first space.
	if strings.Contains(name, " ") {
		from, to = from+"\t", to+"\t"
	}
	if before == nil {
		from, mode = "/dev/null", "new file mode 100644\n"
	}
	if after == nil {
		to, mode = "/dev/null", "deleted file mode 100644\n"
	}
	return header + mode + udiff.Unified(from, to, string(before), string(after))
}

// quoted writes a name as git does in a diff: in quotes if it has a control character, a
// quote or a backslash.
func quoted(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' || r == '\\' }) {
		return name
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// CopyTo writes the folder with the planned changes into another, empty folder, without hidden
// folders of Git. It returns an error if a file cannot be read or written.
func (s *Set) CopyTo(dir string) error {
	err := fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o700)
		case !d.Type().IsRegular():
			return nil // do not follow links; the build reports references to them
		}
		content, err := s.root.ReadFile(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), content, 0o600)
	})
	if err != nil {
		return fmt.Errorf("cannot copy the folder: %w", err)
	}
	for _, name := range s.Changed() {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if s.files[name].content == nil {
			err = os.Remove(target)
		} else if err = os.MkdirAll(filepath.Dir(target), 0o700); err == nil {
			err = os.WriteFile(target, s.files[name].content, 0o600)
		}
		if err != nil {
			return fmt.Errorf("cannot copy the folder: %w", err)
		}
	}
	return nil
}

// Apply applies the change. On an error it restores the folder; if that fails, the error
// reports it.
func (s *Set) Apply() error {
	a := application{root: s.root, suffix: ".tenure-" + rand.Text()[:8]}
	err := a.run(s.files, s.Changed())
	if err != nil {
		return errors.Join(err, a.undo())
	}
	for _, name := range s.Changed() {
		s.files[name].old = s.files[name].content
	}
	return nil
}

// application applies a change and records how to undo it.
type application struct {
	root   *os.Root
	suffix string
	undoes []func() error
}

func (a *application) run(files map[string]*file, names []string) error {
	for _, name := range names {
		if err := a.unchanged(name, files[name].old); err != nil {
			return err
		}
	}
	for _, name := range names {
		if content := files[name].content; content != nil {
			if err := a.stage(name, content); err != nil {
				return fmt.Errorf("cannot write %s: %w", name, err)
			}
		}
	}
	for _, name := range names {
		if err := a.put(filepath.FromSlash(name), files[name]); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	for _, name := range names {
		if files[name].content == nil {
			a.removeEmpty(path.Dir(name))
		}
	}
	return nil
}

func (a *application) unchanged(name string, old []byte) error {
	now, err := a.root.ReadFile(filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) && old == nil {
		return nil
	}
	if err != nil || old == nil || !bytes.Equal(now, old) {
		return fmt.Errorf("cannot write %s: it %w", name, ErrChanged)
	}
	return nil
}

// stage writes the new content beside the file.
func (a *application) stage(name string, content []byte) error {
	if err := a.mkdir(path.Dir(name)); err != nil {
		return err
	}
	name = filepath.FromSlash(name)
	mode := fs.FileMode(0o644)
	if info, err := a.root.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	temporary := name + a.suffix
	f, err := a.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	a.undoes = append(a.undoes, func() error {
		if err := a.root.Remove(temporary); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	_, err = f.Write(content)
	// Without a sync a crash could leave renamed files without content.
	return cmp.Or(err, f.Sync(), f.Close())
}

// mkdir creates the parent folders of a file.
func (a *application) mkdir(dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := a.root.Stat(filepath.FromSlash(dir)); err == nil {
		return nil
	}
	if err := a.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	if err := a.root.Mkdir(filepath.FromSlash(dir), 0o755); err != nil {
		return err
	}
	a.undoes = append(a.undoes, func() error { return a.root.Remove(filepath.FromSlash(dir)) })
	return nil
}

// put renames one file into place.
func (a *application) put(name string, f *file) error {
	undo := func() error { return a.root.Remove(name) }
	if f.old != nil {
		info, err := a.root.Stat(name)
		if err != nil {
			return err
		}
		undo = func() error { return a.restore(name, f.old, info.Mode().Perm()) }
	}
	if f.content == nil {
		if err := a.root.Remove(name); err != nil {
			return err
		}
	} else if err := a.root.Rename(name+a.suffix, name); err != nil {
		return err
	}
	a.undoes = append(a.undoes, undo)
	return nil
}

func (a *application) restore(name string, old []byte, mode fs.FileMode) error {
	if err := a.root.WriteFile(name+a.suffix, old, mode); err != nil {
		return err
	}
	return a.root.Rename(name+a.suffix, name)
}

// removeEmpty removes a folder after its last file: Git does not track empty folders.
func (a *application) removeEmpty(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if a.root.Remove(filepath.FromSlash(dir)) != nil {
			return // not empty
		}
	}
}

func (a *application) undo() error {
	var errs []error
	for _, undo := range slices.Backward(a.undoes) {
		errs = append(errs, undo())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot put everything back: %w", err)
	}
	return nil
}
