package tenantrepo

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/fleet/workspace"
)

// folder writes files and returns a workspace for them.
func folder(t *testing.T, files map[string]string) *workspace.Set {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := workspace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// applies returns a Flux Kustomization of the platform.
func applies(name, path string) string {
	return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: " + name + ", namespace: flux-system}\nspec: {path: " + path + "}\n"
}

func TestFindLayout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, tenants string
		files           map[string]string
		base, dir       string
		err             error
	}{
		"guide": {
			reason: "the layout of flux2-multi-tenancy, before there is any tenant",
			files:  map[string]string{"clusters/staging/tenants.yaml": applies("tenants", "./tenants/staging"), "clusters/production/tenants.yaml": applies("tenants", "./tenants/production")},
			base:   "tenants/base", dir: "tenants/staging",
		},
		"environment first": {
			reason: "folders by environment, and a base elsewhere that the overlay names",
			files: map[string]string{
				"clusters/staging/all.yaml":          applies("apps", "apps") + "---\n" + applies("teams", "staging/tenants"),
				"staging/tenants/kustomization.yaml": "resources: [../../common/teams/a]\n",
				"common/teams/a/kustomization.yaml":  "resources: []\n",
			},
			base: "common/teams", dir: "staging/tenants",
		},
		"file alone": {
			reason: "the cluster's folder says which environment it is, not the path",
			files:  map[string]string{"clusters/staging/flux/x.yaml": applies("tenants", "./deploy/tenants")},
			base:   "deploy/base", dir: "deploy/tenants",
		},
		"tenants' own": {
			reason: "a Kustomization in a tenant's namespace is not the platform's",
			files: map[string]string{
				"clusters/staging/tenants.yaml": applies("tenants", "./tenants/staging"),
				"tenants/staging/patch.yaml":    strings.Replace(applies("tenants", "./staging"), "flux-system", "apps", 1),
			},
			base: "tenants/base", dir: "tenants/staging",
		},
		"tenants one by one": {
			reason: "a Kustomization of one tenant is no environment's, and its folder names the base",
			files: map[string]string{
				"clusters/staging/tenants.yaml":             applies("tenants", "./deploy/tenants"),
				"deploy/tenants/kustomization.yaml":         "resources: [staging.yaml]\n",
				"deploy/tenants/staging.yaml":               applies("tenant-staging", "./deploy/tenants/staging"),
				"deploy/tenants/staging/kustomization.yaml": "resources: [../../../common/staging]\n",
				"common/staging/kustomization.yaml":         "resources: []\n",
			},
			base: "common", dir: "deploy/tenants",
		},
		"by hand":  {reason: "who names the folder is not contradicted", tenants: "teams", base: "teams/base", dir: "teams/staging"},
		"outside":  {reason: "a folder outside the fleet", tenants: "../teams", err: ErrInvalid},
		"nothing":  {reason: "no Kustomization at all", err: ErrLayout},
		"several":  {reason: "two answers are none", files: map[string]string{"clusters/staging/x.yaml": applies("a", "tenants/a") + "---\n" + applies("b", "tenants/b")}, err: ErrLayout},
		"no match": {reason: "another environment's", files: map[string]string{"clusters/production/x.yaml": applies("tenants", "tenants/production")}, err: ErrLayout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := findLayout(folder(t, tc.files), tc.tenants, []Environment{{"staging", "./staging"}})
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: got %v, want %v", tc.reason, err, tc.err)
			}
			if tc.err != nil {
				return
			}
			if got := [2]string{l.base, l.overlays[0].dir}; got != [2]string{tc.base, tc.dir} {
				t.Errorf("%s: got base and overlay %q, want %q and %q", tc.reason, got, tc.base, tc.dir)
			}
		})
	}
}

// TestSharedBy checks that an environment applies its tenants together if it changes the
// objects of all of them.
func TestSharedBy(t *testing.T) {
	t.Parallel()
	const file = "tenants/staging/kustomization.yaml"
	for _, tt := range []struct{ reason, spec, kustomization, want string }{
		{"a new fleet", "interval: 5m, prune: true", "resources: []\n", ""},
		{"a patch of one tenant", "prune: true", "patches: [{path: a-patch.yaml}, {target: {kind: Kustomization, name: a}, path: b.yaml}]\n", ""},
		{"a patch of all tenants", "prune: true", "patches: [{target: {kind: Namespace}, path: b.yaml}]\n", file + " has a patch"},
		{"a patch of several tenants", "prune: true", "patches: [{target: {kind: Kustomization, name: a.*}, path: b.yaml}]\n", file + " has a patch"},
		{"quotas for all namespaces", "prune: true", "components: [../quotas]\n", file + " sets components"},
		{"another cluster", "kubeConfig: {secretRef: {name: other}}", "resources: []\n", "clusters/staging/tenants.yaml sets spec.kubeConfig"},
	} {
		s := folder(t, map[string]string{
			"clusters/staging/tenants.yaml": strings.Replace(applies("tenants", "./tenants/staging"), "spec: {", "spec: {"+tt.spec+", ", 1),
			file:                            tt.kustomization,
		})
		l, err := findLayout(s, "", []Environment{{"staging", "./staging"}})
		if err != nil {
			t.Fatal(err)
		}
		c := creation{Set: s, layout: l}
		if got, err := c.sharedBy(l.overlays[0]); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.reason, got, err, tt.want)
		}
	}
}

// TestOthersAreKept checks that a change that would affect other tenants is refused.
func TestOthersAreKept(t *testing.T) {
	t.Parallel()
	s := folder(t, map[string]string{
		"clusters/staging/tenants.yaml":      applies("tenants", "./tenants/staging"),
		"tenants/base/a/kustomization.yaml":  "resources: [config.yaml]\n",
		"tenants/base/a/config.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"tenants/staging/kustomization.yaml": "namespace: apps\nresources: [../base/a]\n",
	})
	_, err := Create(s, Options{
		Tenant: Tenant{
			Name: "search", Namespaces: []string{"search"}, ClusterRole: "admin", PodSecurity: "restricted",
			URL: "https://git.example.com/acme/search", Branch: "main", Interval: time.Minute,
		},
		Environments: []Environment{{"staging", "./staging"}},
	})
	if !errors.Is(err, ErrOthers) || !strings.Contains(err.Error(), "ConfigMap apps/a") {
		t.Errorf("a tenant without a namespace of its own would leave apps: got %v", err)
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://git.example.com/acme/dev-team":      true,
		"ssh://git@git.example.com:2222/acme/dev":    true,
		"http://git.example.com/acme/dev-team":       true,
		"":                                           false,
		"git@git.example.com:acme/dev-team":          false,
		"https://user@git.example.com/acme/dev-team": false,
		"https://a:b@git.example.com/acme/dev-team":  false,
		"https://git.example.com":                    false,
		"https://git.example.com/a?b":                false,
		"https://git.example.com/../a":               false,
		"file:///etc":                                false,
		"https://git.example.com/a\nb":               false,
	} {
		if _, err := ParseURL(address); (err == nil) != ok {
			t.Errorf("ParseURL(%q): %v", address, err)
		}
	}
}

func TestParseEnvironment(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Environment{
		"staging=./staging": {"staging", "./staging"}, "a=b/c/": {"a", "./b/c"}, "a=.": {"a", "./"}, "a=.hidden": {"a", "./.hidden"},
		"staging": {}, "staging=": {}, "=x": {}, "a=/b": {}, "a=..": {}, "a=b/../../c": {}, "A=b": {},
	} {
		got, err := ParseEnvironment(text)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) == (want == Environment{}) {
			t.Errorf("ParseEnvironment(%q): %v, %v", text, got, err)
		}
	}
}

// FuzzAddDecryption checks that an edited stream enables decryption and is otherwise
// unchanged.
func FuzzAddDecryption(f *testing.F) {
	f.Add("# a\n" + applies("x", "y") + "--- # b\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: tenants\nspec:\n    # c\n    path: ./a\n")
	f.Add(applies("tenants", "./a"))
	f.Add("kind: Kustomization\nmetadata: {name: tenants}\nspec:\n")
	f.Fuzz(func(t *testing.T, text string) {
		edited, err := addDecryption([]byte(text), "tenants", "sops-age")
		if err != nil {
			return
		}
		before, after := documents([]byte(text)), documents(edited)
		if len(before) != len(after) {
			t.Fatalf("%d documents became %d:\n%s", len(before), len(after), edited)
		}
		changed := 0
		for i := range before {
			var have, had map[string]any
			if yaml.Unmarshal(before[i], &had) != nil || string(before[i]) == string(after[i]) {
				continue
			}
			changed++
			if err := yaml.Unmarshal(after[i], &have); err != nil {
				t.Fatalf("it cannot be parsed any more: %v\n%s", err, edited)
			}
			spec, _ := have["spec"].(map[string]any)
			if spec["decryption"] == nil {
				t.Fatalf("something else changed:\n%s", edited)
			}
			delete(spec, "decryption")
			if had["spec"] == nil {
				had["spec"] = map[string]any{}
			}
			if diff := cmp.Diff(had, have); diff != "" {
				t.Fatalf("more than that changed (-before +after):\n%s", diff)
			}
		}
		if changed > 1 {
			t.Fatalf("%d objects changed", changed)
		}
	})
}
