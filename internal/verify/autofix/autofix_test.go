package autofix

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

const (
	lockdown = "clusters/staging/flux-system/kustomization.yaml"
	role     = "infrastructure/policies/tenant-role.yaml"
	rbac     = "tenants/base/dev-team/rbac.yaml"
	preview  = "tenants/base/dev-team-preview/rbac.yaml"
	apps     = "tenants/base/dev-team/namespace.yaml"
)

var devTeam = discovery.Tenant{
	Name: "dev-team", Namespaces: []string{"apps", "apps-preview"}, Accounts: []discovery.Account{{Namespace: "apps", Name: "dev-team"}},
}

// example is a copy of the example fleet.
func example(t *testing.T) *layout.Fleet {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../examples/fleet/platform")); err != nil {
		t.Fatal(err)
	}
	return load1(t, dir)
}

func load1(t *testing.T, dir string) *layout.Fleet {
	t.Helper()
	f, err := layout.Load(dir, "clusters/staging", layout.Options{URL: "https://git.example.com/acme/fleet", Branch: "main", Components: components(t)})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// system is the kustomization file that `flux bootstrap` writes.
const system = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - gotk-components.yaml
  - gotk-sync.yaml
`

// components are Flux's manifests.
func components(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile("../../../config/flux/gotk-components.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func read(t *testing.T, f *layout.Fleet, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func write(t *testing.T, f *layout.Fleet, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, f *layout.Fleet, name, old, replacement string) {
	t.Helper()
	content := read(t, f, name)
	if !strings.Contains(content, old) {
		t.Fatalf("%s does not hold %q", name, old)
	}
	write(t, f, name, strings.ReplaceAll(content, old, replacement))
}

// fixOf is what the catalogue says about an attack.
func fixOf(t *testing.T, key string) catalog.Fix {
	t.Helper()
	for _, a := range catalog.Catalogue() {
		if a.Key() == key {
			return a.Fix
		}
	}
	t.Fatalf("the catalogue has no %s", key)
	return catalog.Fix{}
}

// tools apply patches: git, which everything here needs, and patch where it is at hand.
func tools(t *testing.T) [][]string {
	t.Helper()
	all := [][]string{{"git", "apply"}}
	if _, err := exec.LookPath("patch"); err != nil {
		t.Logf("patches are applied by git alone: %v", err)
		return all
	}
	return append(all, []string{"patch", "-p1", "-s"})
}

// apply applies a patch with a tool, as a user would.
func apply(t *testing.T, f *layout.Fleet, patch string, tool ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool[0], tool[1:]...)
	cmd.Dir, cmd.Stdin = f.Dir, strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", tool, err, out, patch)
	}
}

// Each control is taken out of the files of the example fleet as a user would do
// it; the patch puts it back, and is not made again.
func TestPatch(t *testing.T) {
	t.Parallel()
	cross := "  # No object refers to an object of another namespace.\n  - target:\n      kind: Deployment\n      name: (kustomize-controller|helm-controller|notification-controller|image-reflector-controller|image-automation-controller|source-watcher)\n    patch: |\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --no-cross-namespace-refs=true\n"
	bound := strings.ReplaceAll
	for name, tc := range map[string]struct {
		reason string
		attack string
		change func(*testing.T, *layout.Fleet)
		want   map[string]func(before string) string // by file
	}{
		"NothingMissing": {
			"what the fleet says already is not said twice", "S1-api", func(*testing.T, *layout.Fleet) {}, nil,
		},
		"FlagWrong": {
			"a wrong value is changed where it is", "S1-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, lockdown, "--no-cross-namespace-refs=true", "--no-cross-namespace-refs=false")
			},
			map[string]func(string) string{lockdown: func(s string) string {
				return bound(s, "--no-cross-namespace-refs=false", "--no-cross-namespace-refs=true")
			}},
		},
		"FlagEmpty": {
			"an empty value is none", "I1-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, lockdown, "--default-service-account=default", "--default-service-account=")
			},
			map[string]func(string) string{lockdown: func(s string) string {
				return bound(s, "--default-service-account=", "--default-service-account=default")
			}},
		},
		"FlagOther": {
			"another account than the usual one is the fleet's own business", "I1-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, lockdown, "--default-service-account=default", "--default-service-account=reconciler")
			}, nil,
		},
		"FlagMissing": {
			"a missing flag gets an entry, for the one controller", "S1-api",
			func(t *testing.T, f *layout.Fleet) { edit(t, f, lockdown, cross, "") },
			map[string]func(string) string{lockdown: func(s string) string {
				return s + "  - target:\n      kind: Deployment\n      name: kustomize-controller\n    patch: |\n      - op: add\n        path: /spec/template/spec/containers/0/args/-\n        value: --no-cross-namespace-refs=true\n"
			}},
		},
		"Label": {
			"a label comes to the others", "W3-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, apps, "    pod-security.kubernetes.io/enforce: restricted\n", "")
			},
			map[string]func(string) string{apps: func(s string) string {
				return s + "    pod-security.kubernetes.io/enforce: restricted\n"
			}},
		},
		"LabelWrong": {
			"a label with a value that is no control is changed", "W3-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, apps, "enforce: restricted", "enforce: \"privileged\" # for now")
			},
			map[string]func(string) string{apps: func(s string) string { return bound(s, `"privileged"`, "restricted") }},
		},
		"ClusterAdmin": {
			"bindings to cluster-admin refer to the fleet's narrower role", "I8-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, rbac, "name: acme-tenant", "name: cluster-admin")
				edit(t, f, preview, "name: acme-tenant", "name: cluster-admin")
			},
			map[string]func(string) string{rbac: rebound("apps"), preview: rebound("apps-preview")},
		},
		"RoleVerb": {
			"a verb that only the denied resource has is taken away", "I8-api",
			func(t *testing.T, f *layout.Fleet) {
				write(t, f, role, read(t, f, role)+"  # why not\n  - apiGroups: [\"\"]\n    resources: [serviceaccounts]\n    verbs: [\"*\"]\n")
			},
			map[string]func(string) string{role: func(s string) string {
				return bound(s, `["*"]`, "[get, list, watch, create, update, patch, delete, deletecollection]")
			}},
		},
		"RoleResource": {
			"a resource is taken out of a rule that is about others as well, and can still be read", "I6-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, role, "      - configmaps\n", "      - configmaps\n      - namespaces\n")
			},
			map[string]func(string) string{role: func(s string) string {
				return bound(s, "      - configmaps\n      - namespaces\n", "      - configmaps\n") + "  - apiGroups: ['']\n    resources: [namespaces]\n    verbs: [get, list, watch]\n"
			}},
		},
		"RoleStatus": {
			"all of a group of Flux becomes its resources without status", "S4-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, role, "[gitrepositories, helmcharts, helmrepositories]", "['*']")
			},
			map[string]func(string) string{role: func(s string) string {
				return bound(s, "['*']", "[buckets, gitrepositories, helmcharts, helmrepositories, ocirepositories]")
			}},
		},
		"RoleRule": {
			"a rule of which nothing is left goes", "S3-api",
			func(t *testing.T, f *layout.Fleet) {
				edit(t, f, role, "  - apiGroups: [notification", "  - apiGroups: [source.toolkit.fluxcd.io]\n    resources: [externalartifacts]\n    verbs: [create]\n  - apiGroups: [notification")
			},
			map[string]func(string) string{role: func(s string) string {
				return bound(s, "  - apiGroups: [source.toolkit.fluxcd.io]\n    resources: [externalartifacts]\n    verbs: [create]\n", "")
			}},
		},
		"ClusterRoleBinding": {
			"a ClusterRoleBinding becomes a RoleBinding of the tenant's namespace", "W2-api",
			func(t *testing.T, f *layout.Fleet) {
				write(t, f, rbac, read(t, f, rbac)+"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: dev-team\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: acme-tenant\nsubjects:\n  - kind: ServiceAccount\n    name: dev-team\n    namespace: apps\n")
			},
			map[string]func(string) string{rbac: func(s string) string {
				return bound(bound(s, "ClusterRoleBinding", "RoleBinding"), "  name: dev-team\nroleRef", "  name: dev-team\n  namespace: apps\nroleRef")
			}},
		},
	} {
		for _, tool := range tools(t) {
			t.Run(name+"/"+tool[0], func(t *testing.T) {
				t.Parallel()
				f := example(t)
				tc.change(t, f)
				want := map[string]string{}
				for file, change := range tc.want {
					want[file] = change(read(t, f, file))
				}
				patch, err := Patch(f, fixOf(t, tc.attack), devTeam)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Count("\n"+patch, "\n--- "); got != len(want) {
					t.Errorf("%s: the patch is for %d files, want %d:\n%s", tc.reason, got, len(want), patch)
				}
				if patch != "" {
					apply(t, f, patch, tool...)
				}
				for file := range want {
					if diff := cmp.Diff(want[file], read(t, f, file)); diff != "" {
						t.Errorf("%s: %s (-want +got):\n%s", tc.reason, file, diff)
					}
				}
				if again, err := Patch(load1(t, f.Dir), fixOf(t, tc.attack), devTeam); again != "" || err != nil {
					t.Errorf("%s: patched again: %v\n%s", tc.reason, err, again)
				}
			})
		}
	}
}

// rebound is a binding to cluster-admin that refers to the fleet's role.
func rebound(namespace string) func(string) string {
	return func(s string) string {
		labels := "  namespace: " + namespace + "\n  labels:\n    toolkit.fluxcd.io/tenant: dev-team\n"
		return strings.ReplaceAll(strings.ReplaceAll(s, "name: cluster-admin", "name: acme-tenant"),
			labels+"roleRef", labels+"  annotations:\n    kustomize.toolkit.fluxcd.io/force: enabled\nroleRef")
	}
}

// Without a narrower role in the fleet, one is written.
func TestPatchWritesRole(t *testing.T) {
	t.Parallel()
	f := example(t)
	edit(t, f, rbac, "name: acme-tenant", "name: cluster-admin")
	edit(t, f, "infrastructure/policies/kustomization.yaml", "  - tenant-role.yaml\n", "")
	patch, err := Patch(f, fixOf(t, "I8-api"), devTeam)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, f, patch, "git", "apply")
	if got := read(t, f, "tenants/base/dev-team/kustomization.yaml"); !strings.Contains(got, "  - sync.yaml\n  - dev-team-reconciler-role.yaml\n") {
		t.Errorf("the new role is not in the kustomization file:\n%s", got)
	}
	if got := read(t, f, rbac); !strings.Contains(got, "  kind: Role\n  name: dev-team-reconciler\n") {
		t.Errorf("the binding does not refer to the new role:\n%s", got)
	}
	s, err := yamledit.Parse(read(t, f, "tenants/base/dev-team/dev-team-reconciler-role.yaml"))
	if err != nil || !safe(s.Docs[0]) || !useful(s.Docs[0]) || yamledit.Str(s.Docs[0], "metadata", "namespace") != "apps" {
		t.Errorf("the new role is not one for a tenant: %v", err)
	}
}

// A fleet without a lockdown gets all of it in one patch, and the platform's own
// objects name an account, or the default one would stop them.
func TestAnnotateNoLockdown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*testing.T, *layout.Fleet)
	}{
		"NoPatches": {"a kustomization file without patches gets them", func(t *testing.T, f *layout.Fleet) { write(t, f, lockdown, system) }},
		"NoFile": {"where there is none, it is written", func(t *testing.T, f *layout.Fleet) {
			if err := os.Remove(filepath.Join(f.Dir, lockdown)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := example(t)
			tc.change(t, f)
			const infrastructure = "clusters/staging/infrastructure.yaml"
			edit(t, f, infrastructure, "  serviceAccountName: kustomize-controller\n", "")
			report := catalog.Report{Tenants: []discovery.Tenant{devTeam}}
			for _, a := range catalog.Catalogue() {
				if a.Key() == "S1-api" || a.Key() == "I1-api" || a.Key() == "A1-api" {
					report.Results = append(report.Results, catalog.Result{Attack: a, Tenant: "dev-team", Finding: catalog.Finding{Outcome: catalog.GotThrough}})
				}
			}
			patch, err := Annotate(&report, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				if got, want := r.Patch != "", r.Attack.ID != "A1"; got != want {
					t.Errorf("%s: %s has a patch: %t, want %t", tc.reason, r.Attack.Key(), got, want)
				}
			}
			apply(t, f, patch, "git", "apply")
			s, err := yamledit.Parse(read(t, f, lockdown))
			if err != nil {
				t.Fatal(err)
			}
			var values []string
			for i := range yamledit.At(s.Docs[0], "patches").Content {
				lines := strings.Split(strings.TrimSpace(yamledit.Str(s.Docs[0], "patches", i, "patch")), "\n")
				values = append(values, yamledit.Str(s.Docs[0], "patches", i, "target", "name")+" "+strings.TrimSpace(lines[len(lines)-1]))
			}
			want := []string{
				"kustomize-controller value: --default-service-account=default",
				"flux-system value: kustomize-controller",
				"kustomize-controller value: --no-cross-namespace-refs=true",
			}
			if diff := cmp.Diff(want, values); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got := strings.Count(read(t, f, infrastructure), "  serviceAccountName: kustomize-controller\n"); got != 2 {
				t.Errorf("%s: %d of the platform's 2 Kustomizations name an account", tc.reason, got)
			}
		})
	}
}

// What lies outside of the fleet's folder is not read, and not patched.
func TestOutside(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(t *testing.T, f *layout.Fleet, outside string)
	}{
		"File": {"a file that is a link", func(t *testing.T, f *layout.Fleet, outside string) {
			link(t, filepath.Join(outside, "dev-team", "namespace.yaml"), filepath.Join(f.Dir, apps))
		}},
		"Folder": {"a folder that is a link", func(t *testing.T, f *layout.Fleet, outside string) {
			link(t, filepath.Join(outside, "dev-team"), filepath.Join(f.Dir, "tenants/base/dev-team"))
		}},
		"Inside": {"a folder that is a link to another one of the fleet", func(t *testing.T, f *layout.Fleet, _ string) {
			from := filepath.Join(f.Dir, "tenants/base/dev-team")
			if err := os.Rename(from, from+"-real"); err != nil {
				t.Fatal(err)
			}
			link(t, from+"-real", from)
		}},
		"Path": {"a path that leads out", func(t *testing.T, f *layout.Fleet, outside string) {
			rel, err := filepath.Rel(filepath.Join(f.Dir, "tenants/staging"), filepath.Join(outside, "dev-team"))
			if err != nil {
				t.Fatal(err)
			}
			edit(t, f, "tenants/staging/kustomization.yaml", "  - ../base/dev-team\n", "  - "+rel+"\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := example(t)
			edit(t, f, apps, "    pod-security.kubernetes.io/enforce: restricted\n", "")
			outside := t.TempDir()
			if err := os.CopyFS(outside, os.DirFS(filepath.Join(f.Dir, "tenants/base"))); err != nil {
				t.Fatal(err)
			}
			tc.change(t, f, outside)
			if patch, err := Patch(f, fixOf(t, "W3-api"), devTeam); patch != "" || err != nil {
				t.Errorf("%s: %v\n%s", tc.reason, err, patch)
			}
		})
	}
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.RemoveAll(from); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}
