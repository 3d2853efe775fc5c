package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

const managerFile = "infrastructure/tenure/manager/manager.yaml"

// TestManagerImage checks that the manager's image is the one that was set last, and that an
// image that was never set follows Tenure's version.
func TestManagerImage(t *testing.T) {
	t.Parallel()
	const ours, mirror = "image: ghcr.io/tenure-dev/tenure-server:unreleased", "registry.example.com:5000/mirror/tenure-server:v1"
	digest := "registry.example.com/tenure-server@sha256:" + strings.Repeat("a", 64)
	plain := small(t, nil)
	apply(t, plain, "clusters/one", lockdown.Options{Tenants: true, ManagerImage: "registry.example.com/x:1"})
	locked := read(t, plain)
	for _, tt := range []struct{ reason, before, wanted, want, fails string }{
		{reason: "nothing is named", want: ours},
		{reason: "an image is named", wanted: mirror, want: mirror},
		{reason: "a digest is named", wanted: digest, want: digest},
		{reason: "it was named before", before: mirror, want: mirror},
		{reason: "another was named before", before: mirror, wanted: digest, want: digest},
		{reason: "the name from before the first release follows", before: "tenure.dev/tenure-server:v0.1.0", want: ours},
		{reason: "neither a tag nor a digest says which", wanted: "registry.example.com/tenure-server", fails: "HOST/REPOSITORY:TAG"},
		{reason: "YAML in it would be written", wanted: "a/b:c\n  x: y", fails: "as the manager's image"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			dir := small(t, nil)
			if tt.before != "" {
				dir = fleetOf(t, locked)
				write(t, dir, managerFile, strings.Replace(locked[managerFile], "registry.example.com/x:1", tt.before, 1))
			}
			plan, err := lockdown.Make(load(t, dir, "clusters/one"), lockdown.Options{Tenants: true, ManagerImage: tt.wanted})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got error %v, want one with %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Write(dir); err != nil {
				t.Fatal(err)
			}
			if got := read(t, dir)[managerFile]; !strings.Contains(got, tt.want) || strings.Count(got, "image: ") != 1 {
				t.Errorf("the image is not %q in\n%s", tt.want, got)
			}
		})
	}
}

// TestManagerNamespace checks that all objects of the manager move to another namespace.
func TestManagerNamespace(t *testing.T) {
	t.Parallel()
	moved := strings.NewReplacer("namespace: flux-system", "namespace: gitops")
	dir := small(t, map[string]string{folder + "gotk-components.yaml": moved.Replace(components), folder + "gotk-sync.yaml": moved.Replace(sync)})
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
	if got := read(t, dir)[managerFile]; strings.Contains(got, "namespace: flux-system") || !strings.Contains(got, "namespace: gitops") {
		t.Errorf("it is not in gitops:\n%s", got)
	}
	const user, usual = "system:serviceaccount:gitops:tenure-manager", "system:serviceaccount:flux-system:tenure-manager"
	for _, file := range []string{managerFile, "infrastructure/tenure/policies.yaml"} {
		if got := read(t, dir)[file]; strings.Contains(got, usual) || !strings.Contains(got, user) {
			t.Errorf("the rules of %s know the manager by another name than %s", file, user)
		}
	}
	if got := read(t, dir)["infrastructure/tenure/profile.yaml"]; !strings.Contains(got, "- gitops/kustomize-controller\n") || !strings.Contains(got, "- gitops/tenure-manager\n") {
		t.Errorf("the platform's accounts are not those of gitops:\n%s", got)
	}
}

// TestDelegatedSyncs checks that a sync in Flux's namespace belongs to a tenant if its account
// has rights only in that tenant's namespaces, and that the platform's syncs belong to none.
func TestDelegatedSyncs(t *testing.T) {
	t.Parallel()
	dir := example(t)
	const sync = `---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: NAME, namespace: flux-system}
spec: {interval: 1h, path: ./NAME, prune: true, serviceAccountName: NAME, sourceRef: {kind: GitRepository, name: NAME}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: KINDBinding
metadata: {name: NAME, namespace: WHERE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: ServiceAccount, name: NAME, namespace: flux-system}]
`
	var all string
	for _, s := range [][3]string{{"delegate", "Role", "apps"}, {"wide", "ClusterRole", ""}, {"tools", "Role", "tools"}} {
		all += strings.NewReplacer("NAME", s[0], "KIND", s[1], "WHERE", s[2]).Replace(sync)
	}
	write(t, dir, "clusters/staging/delegated.yaml", all)
	apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Allow: allow})
	const want = "  delegatedSyncs:\n  - name: delegate\n    namespace: flux-system\n    tenant: dev-team\n"
	if got := read(t, dir)["infrastructure/tenure/profile.yaml"]; !strings.Contains(got, want) || strings.Count(got, "tenant:") != 1 {
		t.Errorf("want %s, got\n%s", want, got)
	}
}
