package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestFleetDecidesTheControllers checks that a fleet with Flux's manifests gets the
// controllers of these manifests, with their flags and the fleet's patches, and no
// replacements. The controllers' logs are available.
func TestFleetDecidesTheControllers(t *testing.T) {
	t.Parallel()
	own := strings.ReplaceAll(string(config.FluxComponents()), "--log-level=info", "--log-level=debug")
	dir, _ := newFleet(t, map[string]string{
		system + "gotk-components.yaml": own,
		system + "kustomization.yaml": `resources: [gotk-components.yaml, gotk-sync.yaml]
patches:
- target: {kind: Deployment, name: helm-controller}
  patch: |
    $patch: delete
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: any}
- target: {kind: Deployment, name: kustomize-controller}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --concurrent=3}
`,
	})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test"})
	expectNothing(t, "a fleet without Helm is ready", failed)
	if got := r.field("flux-system", "deployments", ".items[*].metadata.name"); got != "kustomize-controller notification-controller source-controller" {
		t.Errorf("the fleet runs %q, want the three that it has", got)
	}
	p := r.processOf("kustomize-controller")
	for _, flag := range []string{"--log-level=debug", "--concurrent=3"} {
		if !slices.Contains(p.command, flag) {
			t.Errorf("the process lacks the fleet's %s: %q", flag, p.command)
		}
	}
	if logs := testcluster.Logs(r.Cluster, 50); !strings.Contains(logs, "stored artifact for") {
		t.Errorf("the logs that a failed test is shown lack those of source-controller:\n%s", logs)
	}
}
