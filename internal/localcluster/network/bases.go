package network

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
)

// Bases has the remote bases of kustomizations that are in mapped folders.
type Bases struct {
	// Maps are all mapped folders.
	Maps []Map
	// Git has the mapped Git repositories.
	Git *githost.Host
}

// NewBases returns the bases in mapped folders, without serving them. It keeps files in the folder
// dir, which no other program may use. It returns an error if it cannot write there, or if a mapped
// folder cannot be read.
func NewBases(ctx context.Context, dir string, maps []Map) (Bases, error) {
	host, err := githost.New(ctx, githost.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return Bases{}, err
	}
	for _, m := range maps {
		if m.Kind != KindGit {
			continue
		}
		if err := host.Add(ctx, githost.Mapping{URL: m.URL, Branch: m.Branch, Dir: m.Dir}); err != nil {
			return Bases{}, err
		}
	}
	return Bases{Maps: maps, Git: host}, nil
}

// Fetch is a [flux.FetchBase]. It returns an error if the file or branch of a mapped base cannot be read, or cannot be written to dir.
func (b Bases) Fetch(ctx context.Context, base flux.RemoteBase, dir string) (string, error) {
	if i := b.fileOf(base); i >= 0 {
		content, err := os.ReadFile(b.Maps[i].Dir)
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		file := filepath.Join(dir, path.Base(base.Address))
		return file, os.WriteFile(file, content, 0o600)
	}
	if !b.Has(base) {
		return "", nil
	}
	url, folder, ref, _ := base.Git()
	return filepath.Join(dir, filepath.FromSlash(folder)), b.Git.Export(ctx, url, cmp.Or(ref, "main"), dir)
}

// Has reports whether a remote base is in a mapped folder.
func (b Bases) Has(base flux.RemoteBase) bool {
	if base.IsFile() {
		return b.fileOf(base) >= 0
	}
	url, _, _, ok := base.Git()
	if !ok {
		return false
	}
	asked, err := githost.Address(url)
	return err == nil && slices.ContainsFunc(b.Maps, func(m Map) bool {
		mapped, err := githost.Address(m.URL)
		return m.Kind == KindGit && err == nil && mapped == asked
	})
}

// fileOf returns the index of the map with a remote base as a file, or -1.
func (b Bases) fileOf(base flux.RemoteBase) int {
	return slices.IndexFunc(b.Maps, func(m Map) bool { return m.Kind == KindFile && m.URL == base.Address })
}
