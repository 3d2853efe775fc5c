package githost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// AddFiles serves files as a branch of a repository without credentials. The keys of files are
// paths. The Host stores the files in a folder of its own. It returns an error if the URL or a
// path is not valid, if the files cannot be written, or an error of [Host.Add].
func (h *Host) AddFiles(ctx context.Context, url, branch string, files map[string]string) error {
	a, err := parseAddress(url)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(a.String() + "#" + branch))
	dir := filepath.Join(h.files, hex.EncodeToString(sum[:8]))
	for name, content := range files {
		if err := validPath(name); err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("cannot write to the state folder: %w", err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return fmt.Errorf("cannot write to the state folder: %w", err)
		}
	}
	return h.Add(ctx, Mapping{URL: url, Branch: branch, Dir: dir})
}
