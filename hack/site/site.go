package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// project is the folder of Hugo's project, and pins the module that pins Hugo and the theme.
	project = "hack/site"
	pins    = "hack/site/hugo"
	theme   = "github.com/imfing/hextra"

	// development is the name of the pages in the site's root.
	development = "development"
)

// site is a run of this program: see the flags.
type site struct {
	output, source, version, address, hugo string
}

// parseVersion returns the version of a release, such as v0.1.0, or nil if the name is none.
func parseVersion(name string) *version.Version {
	parsed, err := version.ParseSemantic(name)
	if err != nil || !strings.HasPrefix(name, "v") {
		return nil
	}
	return parsed
}

// folder returns the folder of the version's pages.
func (s *site) folder() string { return filepath.Join(s.output, s.version) }

// make writes the pages of a version, and the list of versions. It returns the dead links and the
// requests to other hosts of the pages in the whole site.
func (s *site) make(ctx context.Context) ([]string, error) {
	if s.version != "" && parseVersion(s.version) == nil {
		return nil, fmt.Errorf("%q is no version: use one such as v0.1.0", s.version)
	}
	address, err := url.Parse(strings.TrimSuffix(s.address, "/") + "/")
	if err != nil {
		return nil, fmt.Errorf("cannot read the address: %w", err)
	}
	if err := s.clear(); err != nil {
		return nil, fmt.Errorf("cannot remove the earlier pages: %w", err)
	}
	if err := s.generate(ctx, address); err != nil {
		return nil, err
	}
	if err := s.list(address.Path); err != nil {
		return nil, fmt.Errorf("cannot list the versions: %w", err)
	}
	return check(os.DirFS(s.output), address.Path)
}

// clear removes the pages of an earlier run, and leaves the other versions.
func (s *site) clear() error {
	if s.version != "" {
		return os.RemoveAll(s.folder())
	}
	entries, err := os.ReadDir(s.output)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, entry := range entries {
		if parseVersion(entry.Name()) != nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.output, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// generate runs Hugo.
func (s *site) generate(ctx context.Context, root *url.URL) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", theme)
	cmd.Dir = pins
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("cannot fetch the theme: %w\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return fmt.Errorf("cannot read the theme's folder: %w", err)
	}
	temporary, err := os.MkdirTemp("", "tenure-site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	settings, err := s.settings(root, module.Dir, temporary)
	if err != nil {
		return err
	}
	file := filepath.Join(temporary, "site.json")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return err
	}
	output, err := filepath.Abs(s.folder())
	if err != nil {
		return err
	}
	hugo := exec.CommandContext(ctx, s.hugo, "build", "--source", project, "--config", "hugo.yaml,"+file, // #nosec G204 -- the flag names it
		"--destination", output, "--noBuildLock", "--panicOnWarning")
	if out, err := hugo.CombinedOutput(); err != nil {
		return fmt.Errorf("hugo failed: %w\n%s", err, out)
	}
	return nil
}

// mount makes Hugo read a folder or file of the source at the path target.
type mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// settings returns the part of Hugo's configuration that each run has of its own.
func (s *site) settings(root *url.URL, themeDir, temporary string) ([]byte, error) {
	source, err := filepath.Abs(s.source)
	if err != nil {
		return nil, err
	}
	mounts := []mount{
		{"content", "content"},
		{"layouts", "layouts"},
		{"assets", "assets"},
		{"static", "static"},
		{filepath.Join(source, "README.md"), "content/_index.md"},
		{filepath.Join(source, "docs"), "assets/pages/docs"},
	}
	pages, err := filepath.Glob(filepath.Join(source, "*.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" {
			mounts = append(mounts, mount{page, "assets/pages/" + name})
		}
	}
	themeMounts := []mount{{"LICENSE", "static/licenses/hextra.txt"}}
	for _, part := range []string{"layouts", "assets", "i18n", "data"} { // without static: it has the theme's own logo
		themeMounts = append(themeMounts, mount{part, part})
	}
	base := root
	if s.version != "" {
		base = root.JoinPath(s.version + "/")
	}
	return json.Marshal(map[string]any{
		"baseURL":     base.String(),
		"cacheDir":    temporary,
		"resourceDir": temporary,
		"themesDir":   filepath.Dir(themeDir),
		"module": map[string]any{
			"mounts":  mounts,
			"imports": []any{map[string]any{"path": filepath.Base(themeDir), "mounts": themeMounts}},
		},
		"params": map[string]any{
			"root":    root.Path,
			"version": cmp.Or(s.version, development),
			"commit":  cmp.Or(s.version, "main"),
		},
	})
}

//go:embed versions.js
var versionsScript []byte

// list writes the script with the versions of which the site has a folder, the newest first.
func (s *site) list(root string) error {
	type choice struct {
		Name   string `json:"name"`
		Folder string `json:"folder"`
	}
	entries, err := os.ReadDir(s.output)
	if err != nil {
		return err
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && parseVersion(entry.Name()) != nil {
			names = append(names, entry.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if parseVersion(a).LessThan(parseVersion(b)) {
			return 1
		}
		return -1
	})
	choices := []choice{{development, ""}}
	for _, name := range names {
		choices = append(choices, choice{name, name + "/"})
	}
	arguments, err := json.Marshal([]any{root, choices})
	if err != nil {
		return err
	}
	script := fmt.Appendf(nil, "%s(...%s);\n", bytes.TrimSpace(versionsScript), arguments)
	return os.WriteFile(filepath.Join(s.output, "versions.js"), script, 0o644) // #nosec G306 -- everybody reads the site
}
