package githost

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// sparseIndex is the signature of the extension that marks a sparse index
// (gitformat-index(5)).
const sparseIndex = "sdir"

// spellOut replaces a copied sparse index by a full index. In a sparse index one
// entry stands for a whole folder outside of the checkout. git could expand the
// index itself, but would then update the times of the user's objects.
func (s *source) spellOut(ctx context.Context, g *git, st stores) error {
	// Without these patterns git expands the index when it reads it.
	patterns := filepath.Join("info", "sparse-checkout")
	content, err := os.ReadFile(filepath.Join(s.tree.gitDir, patterns))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.stage, patterns), content, 0o600); err != nil {
		return err
	}
	list, err := g.run(ctx, call{dir: s.dir, env: s.stageEnv(st.own), args: []string{
		"-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=true", "-c", "index.sparse=true",
		"ls-files", "-z", "-t", "--sparse",
	}})
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.stage, "index")); err != nil {
		return err
	}
	if _, err := g.run(ctx, call{env: s.stageEnv(st.all), args: []string{"read-tree", s.base.tree}}); err != nil {
		return err
	}
	var folders []string
	absent := map[string]bool{}
	for entry := range strings.SplitSeq(list, "\x00") {
		path, ok := strings.CutPrefix(entry, "S ")
		switch {
		case !ok:
		case strings.HasSuffix(path, "/"):
			folders = append(folders, path)
		default:
			absent[path] = true
		}
	}
	all, err := g.run(ctx, call{dir: s.dir, env: s.stageEnv(st.all), args: []string{"ls-files", "-z", "--cached"}})
	if err != nil {
		return err
	}
	skip := &strings.Builder{}
	for path := range strings.SplitSeq(all, "\x00") {
		if path != "" && (absent[path] || hasAnyPrefix(path, folders)) {
			skip.WriteString(path)
			skip.WriteByte(0)
		}
	}
	_, err = g.run(ctx, call{dir: s.dir, env: s.stageEnv(st.own), stdin: strings.NewReader(skip.String()),
		args: []string{"update-index", "--skip-worktree", "-z", "--stdin"}})
	return err
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}
