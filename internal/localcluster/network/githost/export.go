package githost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Export writes the files of the served branch into a folder, as a clone would. It creates the
// folder, which must be empty if it exists. It returns an error if the branch is not mapped, or
// if the folder cannot be written.
func (h *Host) Export(ctx context.Context, url, branch, dir string) error {
	wrap := func(err error) error {
		return fmt.Errorf("cannot export branch %s of %s: %w", branch, url, err)
	}
	a, err := parseAddress(url)
	if err != nil {
		return wrap(err)
	}
	revision, ok := h.Head(url, branch)
	r := h.repository(a)
	if !ok || r == nil {
		return wrap(fmt.Errorf("no such branch is mapped; map the folder with --map %s#%s=DIR", url, branch))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return wrap(err)
	}
	index, err := os.CreateTemp(r.dir, "export-*.index")
	if err != nil {
		return wrap(err)
	}
	defer os.Remove(index.Name())
	_ = index.Close()
	// git rejects an empty file as a broken index, but creates a missing index.
	if err := os.Remove(index.Name()); err != nil {
		return wrap(err)
	}
	env := []string{"GIT_INDEX_FILE=" + index.Name(), "GIT_WORK_TREE=" + dir}
	if _, err := r.git(ctx, env, "read-tree", revision); err != nil {
		return wrap(err)
	}
	if _, err := r.git(ctx, env, "checkout-index", "--all", "--prefix="+filepath.Clean(dir)+string(filepath.Separator)); err != nil {
		return wrap(err)
	}
	return nil
}
