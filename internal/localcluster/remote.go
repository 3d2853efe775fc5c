package localcluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/tenure-dev/tenure/internal/flux"
)

// remoteDepth limits how often remote bases may have remote bases.
const remoteDepth = 5

// fetchRemote puts the remote bases of a folder into the checkout, from the mapped repositories.
// The build of the folder reports those that are not mapped.
func (c *Cluster) fetchRemote(ctx context.Context, checkout, dir string) error {
	fetched := 0
	for range remoteDepth {
		bases := flux.RemoteBases(checkout, dir)
		replaced := false
		for _, base := range bases {
			url, folder, ref, ok := base.Git()
			if !ok {
				continue
			}
			fetched++
			target := filepath.Join(checkout, ".remote", strconv.Itoa(fetched))
			if ref == "" {
				ref = "main"
			}
			if err := c.Git.Export(ctx, url, ref, target); err != nil {
				return fmt.Errorf("cannot fetch the remote base %s in %s: %w", base.Address, c.Fleet.System, err)
			}
			entry, err := filepath.Rel(filepath.Dir(base.File), filepath.Join(target, filepath.FromSlash(folder)))
			if err != nil {
				return fmt.Errorf("cannot fetch a remote base: %w", err)
			}
			if err := base.Replace(filepath.ToSlash(entry)); err != nil {
				return err
			}
			replaced = true
		}
		if !replaced {
			return nil
		}
	}
	return nil
}
