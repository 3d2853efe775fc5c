package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/fleet/gitrepo"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
)

const url = "https://git.example.com/acme/fleet"

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		ok     bool
	}{
		"clusters/staging":        {"what the guides have", true},
		"./clusters/staging/":     {"the same, as Flux writes it", true},
		"":                        {"nothing", false},
		".":                       {"the whole repository", false},
		"infrastructure":          {"the folder above ours", false},
		"infrastructure/tenure":   {"ours", false},
		"infrastructure/clusters": {"beside ours", true},
		"../other":                {"outside", false},
		"clusters/../../other":    {"outside, by a detour", false},
		"/clusters/staging":       {"an absolute path", false},
		"clusters/.git/hooks":     {"git's own folder", false},
	} {
		if err := CheckPath(name); (err == nil) != tc.ok {
			t.Errorf("%s: %q: %v", tc.reason, name, err)
		}
	}
}

func TestComponents(t *testing.T) {
	t.Parallel()
	small := components([]string{"source-controller", "kustomize-controller"})
	for _, word := range []string{"component: helm-controller", "http://notification-controller", "\n\n---"} {
		if strings.Contains(small, word) {
			t.Errorf("the smallest Flux has %q", word)
		}
	}
	if n := strings.Count(small, "\nkind: Deployment\n"); n != 2 || !strings.Contains(small, "# Components: source-controller,kustomize-controller\n") {
		t.Errorf("the smallest Flux has %d Deployments and the header %q", n, small[:200])
	}
	all := components(knownComponents)
	if n := strings.Count(all, "\nkind: Deployment\n"); n != len(knownComponents) {
		t.Errorf("all of Flux has %d Deployments, want %d", n, len(knownComponents))
	}
	for _, names := range [][]string{{"source-controller"}, {"source-controller", "kustomize-controller", "source-watcher"}, nil} {
		if err := CheckComponents(names); !errors.Is(err, ErrComponents) {
			t.Errorf("%v can be installed: %v", names, err)
		}
	}
}

func TestChooseComponents(t *testing.T) {
	t.Parallel()
	all, standard := components(knownComponents), components(DefaultComponents())
	for name, tc := range map[string]struct {
		reason, before string
		wanted         []string
		want           string // "" for a refusal
	}{
		"new":         {reason: "nothing is there", want: standard},
		"placeholder": {reason: "comments alone are nobody's manifests", before: "# later\n---\n# here\n", want: standard},
		"ours":        {reason: "what is there stays, with its controllers", before: all, want: all},
		"order":       {reason: "controllers are sorted", wanted: []string{"image-automation-controller", "notification-controller", "helm-controller", "image-reflector-controller", "kustomize-controller", "source-controller", "helm-controller"}, want: all},
		"fewer":       {reason: "what this version wrote is written anew", before: all, wanted: DefaultComponents(), want: standard},
		"version":     {reason: "another version's manifests are somebody's", before: strings.ReplaceAll(standard, Version(), "v2.8.0")},
		"edited":      {reason: "an edited file is somebody's", before: strings.Replace(standard, "--log-level=info", "--log-level=debug", 1)},
		"unknown":     {reason: "a file without a version is somebody's", before: "kind: Deployment\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := chooseComponents("gotk-components.yaml", tc.before, tc.wanted)
			if (tc.want == "") != errors.Is(err, ErrRefused) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if got != tc.want {
				t.Errorf("%s: got %d bytes, want %d", tc.reason, len(got), len(tc.want))
			}
		})
	}
}

// folder returns a bootstrapper whose clone is a folder with these files.
func folder(t *testing.T, files map[string]string) *bootstrapper {
	t.Helper()
	b := &bootstrapper{Options: Options{
		Remote: gitrepo.Remote{URL: url, Branch: "main"}, URL: url, Path: "clusters/staging", SecretName: Namespace,
		Profile: lockdown.Options{Tenants: true}, Note: func(string) {},
	}, clone: &gitrepo.Clone{Dir: t.TempDir()}}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(b.file(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b.file(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func content(t *testing.T, b *bootstrapper, name string) string {
	t.Helper()
	text, err := os.ReadFile(b.file(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPlan(t *testing.T) {
	t.Parallel()
	const system = "clusters/staging/flux-system/"
	b := folder(t, map[string]string{
		system + kustomizationFile:      "# ours\nresources:\n  - gotk-sync.yaml\n",
		"clusters/staging/apps.yaml":    "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}\n",
		"clusters/production/apps.yaml": "not: [even YAML",
	})
	if err := b.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		system + componentsFile, system + syncFile, system + kustomizationFile,
		system + "tenure/account.yaml", system + "tenure/kustomization.yaml", system + "tenure/network.yaml", system + "tenure/rights.yaml", system + "tenure/sync.yaml",
		lockdown.Infrastructure + "/crds.yaml", lockdown.Infrastructure + "/kustomization.yaml",
		lockdown.Infrastructure + "/manager/kustomization.yaml", lockdown.Infrastructure + "/manager/manager.yaml", lockdown.Infrastructure + "/policies.yaml",
		lockdown.Infrastructure + "/profile.yaml", lockdown.Infrastructure + "/roles.yaml",
		lockdown.Infrastructure + "/warn/kustomization.yaml", lockdown.Infrastructure + "/warn/policies.yaml",
	}
	if diff := cmp.Diff(want, b.planned.files); diff != "" || !b.planned.isNew {
		t.Errorf("files of a new fleet (-want +got):\n%s", diff)
	}
	if got := content(t, b, system+kustomizationFile); !strings.HasPrefix(got, "# ours\nresources:\n  - gotk-sync.yaml\n  - gotk-components.yaml\n") {
		t.Errorf("the fleet's kustomization file has lost something:\n%s", got)
	}
	if len(b.objects.flux) == 0 || len(b.objects.sync) != 4 {
		t.Errorf("there are %d objects of Flux and %d of the sync", len(b.objects.flux), len(b.objects.sync))
	}
	if err := b.plan(t.Context()); err != nil || len(b.planned.files) > 0 {
		t.Errorf("planned again: %v, %v", b.planned.files, err)
	}
	b.Profile.Tenants = false
	if err := b.plan(t.Context()); err != nil || !slices.Equal(b.planned.files, []string{system + "tenure/sync.yaml"}) {
		t.Errorf("planned the first step to single-tenant: %v, %v", b.planned.files, err)
	}
	if err := b.plan(t.Context()); err != nil || !slices.Contains(b.planned.files, system+"tenure/rights.yaml") {
		t.Errorf("planned the second step to single-tenant: %v, %v", b.planned.files, err)
	}
	if _, err := os.Stat(b.file(lockdown.Infrastructure)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lockdown stays when it is taken out: %v", err)
	}
}

// TestPlanCapsule checks that a bootstrap with Capsule's kinds writes them and the manager's
// argument, that a later one without the option keeps them, and that one can remove them.
func TestPlanCapsule(t *testing.T) {
	t.Parallel()
	b := folder(t, nil)
	yes, no := true, false
	for _, step := range []struct {
		reason string
		wanted *bool
		there  bool
	}{
		{"with --capsule", &yes, true},
		{"without the option", nil, true},
		{"with --capsule=false", &no, false},
		{"without the option again", nil, false},
	} {
		b.Profile.Capsule = step.wanted
		if err := b.plan(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(b.file(lockdown.Infrastructure + "/capsule.yaml"))
		argument := strings.Contains(content(t, b, lockdown.Infrastructure+"/manager/manager.yaml"), "- --capsule\n")
		if step.there != (err == nil) || step.there != argument {
			t.Errorf("%s: the kinds: %v, the argument: %t, want both %t", step.reason, err, argument, step.there)
		}
	}
}

// TestPlanProxy checks that a bootstrap with the proxy writes it and its names, that a later one
// without the options keeps both, and that one can remove them.
func TestPlanProxy(t *testing.T) {
	t.Parallel()
	b := folder(t, nil)
	yes, no := true, false
	for _, step := range []struct {
		reason       string
		wanted       *bool
		names        []string
		there, named bool
	}{
		{"with --proxy and --proxy-host", &yes, []string{"proxy.example.com"}, true, true},
		{"without the options", nil, nil, true, true},
		{"with an empty --proxy-host", nil, []string{}, true, false},
		{"with --proxy=false", &no, nil, false, false},
	} {
		b.Profile.Proxy, b.Profile.ProxyHosts = step.wanted, step.names
		if err := b.plan(t.Context()); err != nil {
			t.Fatal(err)
		}
		manifests, err := os.ReadFile(b.file(lockdown.Infrastructure + "/manager/proxy.yaml"))
		named := strings.Contains(string(manifests), "- --tls-host=proxy.example.com\n")
		if step.there != (err == nil) || step.named != named {
			t.Errorf("%s: the proxy: %v, its name: %t, want %t and %t", step.reason, err, named, step.there, step.named)
		}
	}
}

// TestPlanOfAnotherSync checks that additions of people to the root objects stay, even if the
// cluster moves to SSH.
func TestPlanOfAnotherSync(t *testing.T) {
	t.Parallel()
	const file = "clusters/staging/flux-system/" + syncFile
	sync := `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 5m, url: "https://git.example.com/acme/fleet.git", ref: {branch: main}, ignore: "*.md"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec:
  interval: 10m
  path: ./clusters/staging
  prune: true
  sourceRef: {kind: GitRepository, name: flux-system}
  decryption: {provider: sops, secretRef: {name: sops-age}}
`
	b := folder(t, map[string]string{file: sync})
	b.URL = "ssh://git@git.example.com/acme/fleet"
	if err := b.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"url: ssh://git@git.example.com/acme/fleet", "provider: sops", "'*.md'", "interval: 5m", "secretRef:\n    name: flux-system"} {
		if got := content(t, b, file); !strings.Contains(got, word) {
			t.Errorf("the sync does not hold %q:\n%s", word, got)
		}
	}
	for name, tc := range map[string]struct{ reason, old, replacement, want string }{
		"repository": {"another repository", "acme/fleet.git", "acme/other", "acme/other"},
		"branch":     {"another branch", "{branch: main}", "{branch: next}", "branch next"},
		"path":       {"another folder", "./clusters/staging", "./clusters/production", "./clusters/production"},
		"names":      {"a root of another name", "{name: flux-system, namespace: flux-system}\nspec:\n", "{name: root, namespace: flux-system}\nspec:\n", "not written by a bootstrap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(sync, tc.old, tc.replacement, 1)
			if changed == sync {
				t.Fatal("the case changes nothing")
			}
			err := folder(t, map[string]string{file: changed}).plan(t.Context())
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// TestPlanBehindALink checks that a link in the repository cannot redirect the files out of
// the clone.
func TestPlanBehindALink(t *testing.T) {
	t.Parallel()
	b, outside := folder(t, nil), t.TempDir()
	if err := os.MkdirAll(b.file("clusters/staging"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, b.file("clusters/staging/flux-system")); err != nil {
		t.Fatal(err)
	}
	if err := b.plan(t.Context()); err == nil {
		t.Error("files are written through a link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside is %v, %v", entries, err)
	}
}

// TestPublishAfterAnother pushes another commit between the clone and the push, and checks
// that it is not lost.
func TestPublishAfterAnother(t *testing.T) {
	t.Parallel()
	remote := serve(t)
	b := folder(t, nil)
	b.Remote, b.temp, b.Author = remote, t.TempDir(), gitrepo.Author{Name: "Ada"}
	var notes []string
	b.Note = func(note string) { notes = append(notes, note) }
	for _, step := range []func(context.Context) error{b.open, b.plan} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	other := push(t, remote, "theirs")
	if err := b.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if got := content(t, b, "theirs"); got != other || !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "in the meantime") }) {
		t.Errorf("the other's file says %q, the notes are %q", got, notes)
	}
	if err := b.open(t.Context()); err != nil || b.clone.Head() != b.revision {
		t.Errorf("the branch is at %s, %v, want %s", b.clone.Head(), err, b.revision)
	}
}

func push(t *testing.T, remote gitrepo.Remote, name string) string {
	t.Helper()
	c, err := gitrepo.Open(t.Context(), remote, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	text := time.Now().String()
	if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Commit([]string{name}, gitrepo.Author{Name: "Eve"}, "Add"), c.Push(t.Context())); err != nil {
		t.Fatal(err)
	}
	return text
}

// serve serves a repository with one file over SSH on this machine.
func serve(t *testing.T) gitrepo.Remote {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	at, dir := listener.Addr().String(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, err := githost.New(t.Context(), githost.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	remote := gitrepo.Remote{URL: "ssh://git@" + at + "/fleet", Branch: "main", Credentials: gitauth.Credentials{KnownHosts: host.KnownHosts(at)}}
	if err := host.Add(t.Context(), githost.Mapping{URL: remote.URL, Branch: "main", Dir: dir}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go host.ServeSSH(conn, at)
		}
	}()
	key, err := gitauth.Generate(gitauth.KeyOptions{Algorithm: gitauth.Ed25519})
	if err != nil {
		t.Fatal(err)
	}
	remote.Credentials.Key = &key
	return remote
}
