package githost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// repository is the served repository of one address: a bare repository of the Host
// that borrows the objects of the mapped work trees.
type repository struct {
	host    *Host
	address address
	dir     string // the folder for all files of this repository in the state folder
	path    string // the bare repository

	mu       sync.Mutex
	format   string // sha1 or sha256; the first source decides
	sources  []*source
	overlays map[string]map[string]string // branch → path → blob ID
	folder   map[string]string            // the references of all sources: ref → object ID
	served   map[string]string            // the served references: folder, and pushed commits on top
	head     string                       // the default branch
}

func (r *repository) env() []string { return []string{"GIT_DIR=" + r.path} }

func (r *repository) stores() stores {
	return stores{all: filepath.Join(r.path, "objects"), own: filepath.Join(r.dir, "own")}
}

// writeEnv is env for commands that write objects.
func (r *repository) writeEnv() []string {
	return append(r.env(), "GIT_OBJECT_DIRECTORY="+r.stores().own)
}

func (r *repository) git(ctx context.Context, env []string, args ...string) (string, error) {
	return r.host.git.run(ctx, call{env: append(r.env(), env...), args: args})
}

func (r *repository) create(ctx context.Context, format string) error {
	if err := os.RemoveAll(r.dir); err != nil {
		return fmt.Errorf("cannot clear the state folder: %w", err)
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	_, err := r.host.git.run(ctx, call{args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + format, r.path}})
	if err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	r.format = format
	for _, folder := range []string{r.stores().own, filepath.Join(r.stores().all, "info")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("cannot write to the state folder: %w", err)
		}
	}
	return r.lend()
}

// lend writes two lists: the folders with borrowed objects (alternates), and the
// commits without history (shallow), which come from shallow clones and vanished
// folders.
func (r *repository) lend() error {
	alternates, shallow := []string{r.stores().own}, []string{}
	for _, s := range r.sources {
		switch {
		case s.plain():
		case s.gone:
			if s.kept != "" {
				shallow = append(shallow, s.kept)
			}
		default:
			alternates = append(alternates, filepath.Join(s.tree.commonDir, "objects"))
			if cut, err := os.ReadFile(filepath.Join(s.tree.commonDir, "shallow")); err == nil {
				shallow = append(shallow, strings.Fields(string(cut))...)
			}
		}
	}
	if err := writeLines(filepath.Join(r.stores().all, "info", "alternates"), alternates); err != nil {
		return err
	}
	return writeLines(filepath.Join(r.path, "shallow"), shallow)
}

// writeLines replaces a file atomically, since git may be reading it.
func writeLines(path string, lines []string) error {
	if len(lines) == 0 {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("cannot write to the state folder: %w", err)
		}
		return nil
	}
	next := path + ".next"
	err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	return nil
}

// refresh reads one folder again and serves its present content. After an error the
// repository still serves the former content.
func (r *repository) refresh(ctx context.Context, s *source) ([]Change, error) {
	if err := s.locate(); err != nil {
		if errors.Is(err, errVanished) && !s.plain() && s.refs != nil && !s.gone {
			return nil, errors.Join(err, r.letGo(ctx, s))
		}
		return nil, err
	}
	refs, head := map[string]string{}, s.branch
	if s.plain() {
		tree, err := s.snapshot(ctx, r.host.git, r.stores())
		if err != nil {
			return nil, fmt.Errorf("cannot snapshot %s: %w", s.dir, err)
		}
		id, err := r.synthesize(ctx, s, s.branch, tree, commitInfo{})
		if err != nil {
			return nil, err
		}
		refs[branchPrefix+s.branch] = id
	} else {
		var err error
		if refs, head, err = r.refreshTree(ctx, s); err != nil {
			return nil, err
		}
	}
	s.refs, s.head = refs, head
	return r.publish(ctx)
}

// refreshTree is the part of refresh for Git work trees.
func (r *repository) refreshTree(ctx context.Context, s *source) (refs map[string]string, head string, err error) {
	if refs, head, err = s.tree.readRefs(ctx, r.host.git); err != nil {
		return nil, "", fmt.Errorf("cannot serve %s: %w", s.dir, err)
	}
	s.gone = false
	if err := r.lend(); err != nil {
		return nil, "", err
	}
	ref := branchPrefix + head
	if s.base.id != refs[ref] {
		if s.base, err = r.readCommit(ctx, refs[ref]); err != nil {
			return nil, "", fmt.Errorf("cannot serve %s: %w", s.dir, err)
		}
	}
	tree, err := s.snapshot(ctx, r.host.git, r.stores())
	if err != nil {
		return nil, "", fmt.Errorf("cannot snapshot %s: %w", s.dir, err)
	}
	if refs[ref], err = r.synthesize(ctx, s, head, tree, s.base); err != nil {
		return nil, "", err
	}
	for branch := range r.overlays {
		if ref := branchPrefix + branch; branch != head && refs[ref] != "" {
			parent, err := r.readCommit(ctx, refs[ref])
			if err != nil {
				return nil, "", err
			}
			if refs[ref], err = r.synthesize(ctx, s, branch, parent.tree, parent); err != nil {
				return nil, "", err
			}
		}
	}
	return refs, head, nil
}

// synthesize returns the commit to serve for a branch. It returns the parent if the
// tree, with its overlays, equals the parent's tree.
func (r *repository) synthesize(ctx context.Context, s *source, branch, tree string, parent commitInfo) (string, error) {
	if overlay := r.overlays[branch]; len(overlay) > 0 {
		var err error
		if tree, err = r.edit(ctx, tree, overlay); err != nil {
			return "", err
		}
	}
	if tree == parent.tree {
		return parent.id, nil
	}
	if w := s.written; w.tree == tree && w.parent == parent.id && w.branch == branch {
		return w.id, nil
	}
	id, err := r.writeCommit(ctx, tree, parent, branch+" as it stands in its folder")
	if err == nil {
		s.written = commitKey{tree: tree, parent: parent.id, branch: branch, id: id}
	}
	return id, err
}

// letGo stops borrowing from a vanished work tree. The repository still serves its
// checked-out branch, from the objects that keep copied, but no other references.
func (r *repository) letGo(ctx context.Context, s *source) error {
	s.gone = true
	s.index = nil
	ref := branchPrefix + s.head
	s.refs = map[string]string{ref: s.refs[ref]}
	if err := r.lend(); err != nil {
		return err
	}
	_, err := r.publish(ctx)
	return err
}

// publish updates the served references to the references of the folders. A
// reference that no folder has moved keeps its pushed commit.
func (r *repository) publish(ctx context.Context) ([]Change, error) {
	want := map[string]string{}
	head := ""
	for _, plain := range []bool{false, true} { // plain folders last: they replace a work tree's branch
		for _, s := range r.sources {
			if s.plain() == plain {
				maps.Copy(want, s.refs)
				if head == "" {
					head = s.head
				}
			}
		}
	}
	moves := map[string]string{}
	for ref, id := range want {
		if r.folder[ref] != id && r.served[ref] != id {
			moves[ref] = id
		}
	}
	for ref := range r.folder {
		if want[ref] == "" && r.served[ref] != "" {
			moves[ref] = ""
		}
	}
	changes, err := r.move(ctx, moves)
	if err != nil {
		// r.folder stays, so the next refresh moves the references again.
		return changes, err
	}
	r.folder = want
	if head == "" || head == r.head {
		return changes, nil
	}
	if _, err := r.git(ctx, nil, "symbolic-ref", "HEAD", branchPrefix+head); err != nil {
		return changes, fmt.Errorf("cannot set the default branch: %w", err)
	}
	r.head = head
	return changes, nil
}

// move updates references; "" deletes a reference. It deletes first, because git can
// create a branch a/b only after a is gone.
func (r *repository) move(ctx context.Context, moves map[string]string) ([]Change, error) {
	deletions, updates := &strings.Builder{}, &strings.Builder{}
	for ref, id := range moves {
		if id == "" {
			fmt.Fprintf(deletions, "delete %s\n", ref)
			continue
		}
		fmt.Fprintf(updates, "update %s %s\n", ref, id)
	}
	for _, commands := range []string{deletions.String(), updates.String()} {
		if commands == "" {
			continue
		}
		if err := r.updateRefs(ctx, commands); err == nil {
			continue
		}
		// Update the references one by one: a reference to an object that is missing
		// in the folder must not block the others.
		for command := range strings.Lines(commands) {
			ref := strings.Fields(command)[1]
			err := r.updateRefs(ctx, command)
			if err == nil {
				continue
			}
			if slices.ContainsFunc(r.sources, func(s *source) bool { return branchPrefix+s.head == ref }) {
				return nil, fmt.Errorf("cannot serve %s: %w", ref, err)
			}
			r.host.log.Warn("cannot serve a reference", "repository", r.address.String(), "ref", ref, "error", err)
			delete(moves, ref)
		}
	}
	var changes []Change
	for _, ref := range slices.Sorted(maps.Keys(moves)) {
		if moves[ref] == "" {
			delete(r.served, ref)
		} else {
			r.served[ref] = moves[ref]
		}
		changes = append(changes, r.change(ref))
	}
	return changes, nil
}

func (r *repository) updateRefs(ctx context.Context, commands string) error {
	_, err := r.host.git.run(ctx, call{env: r.env(), stdin: strings.NewReader(commands), args: []string{"update-ref", "--stdin"}})
	return err
}

func (r *repository) change(ref string) Change {
	c := Change{URL: r.sources[0].url, Revision: r.served[ref]}
	for _, s := range r.sources {
		if s.plain() && branchPrefix+s.branch == ref {
			c.URL = s.url
		}
	}
	if branch, ok := strings.CutPrefix(ref, branchPrefix); ok {
		c.Branch = branch
	}
	return c
}

// absorb reads the references that clients have pushed, and returns the changes.
func (r *repository) absorb(ctx context.Context) ([]Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := r.git(ctx, nil, "for-each-ref", "--format=%(objectname) %(refname)", branchPrefix, tagPrefix)
	if err != nil {
		return nil, fmt.Errorf("cannot read the commits that were pushed to %s: %w", r.address, err)
	}
	before := r.served
	r.served = map[string]string{}
	for line := range strings.Lines(out) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		r.served[ref] = id
	}
	all := maps.Clone(before)
	maps.Copy(all, r.served)
	var changes []Change
	for _, ref := range slices.Sorted(maps.Keys(all)) {
		if before[ref] != r.served[ref] {
			changes = append(changes, r.change(ref))
		}
	}
	return changes, nil
}
