package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
)

// The parts of a small fleet: the root, a Kustomization over a folder, and a
// source with a Kustomization for another repository.
const (
	rootSync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, url: https://git.example.com/acme/fleet, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./clusters/test, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`
	appsSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./apps, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`
	system = "clusters/test/flux-system/"
)

// source returns the manifest of a GitRepository.
func source(name, url string) string {
	return fmt.Sprintf(`apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: %s, namespace: flux-system}
spec: {interval: 1m, url: %q, ref: {branch: main}}
`, name, url)
}

// configMap returns the manifest of a ConfigMap with one value.
func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default}\ndata: {value: %q}\n", name, value)
}

// newFleet writes a small fleet with more files and returns its folder and the
// arguments that run it.
func newFleet(t *testing.T, files map[string]string) (dir string, args []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "fleet")
	writeFiles(t, dir, map[string]string{
		system + "gotk-sync.yaml":       rootSync,
		system + "gotk-components.yaml": "# put in place\n",
		system + "kustomization.yaml":   "resources: [gotk-components.yaml, gotk-sync.yaml]\n",
		"clusters/test/apps.yaml":       appsSync,
		"apps/state.yaml":               configMap("state", "first"),
	})
	writeFiles(t, dir, files)
	return dir, []string{"up", "--fleet", dir, "--path", "clusters/test"}
}
