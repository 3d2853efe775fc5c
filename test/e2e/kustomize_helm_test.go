package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestKustomizeHelmExample verifies Flux's example of one platform without tenants, whose sources
// are ExternalArtifacts and whose charts bring CRDs. The charts here are stand-ins with these CRDs.
// The example is not part of the repository: without it, TestArtifactGenerator runs the same kinds.
func TestKustomizeHelmExample(t *testing.T) {
	t.Parallel()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	fleet := filepath.Join(root, "..", "shared", "data", "flux2-kustomize-helm-example")
	if _, err := os.Stat(fleet); err != nil {
		t.Logf("the public fleet is not beside the repository: %v", err)
		return
	}
	charts := filepath.Join(root, "test", "e2e", "testdata", "charts")
	out, code := shell(t, shortDir(t), 2*patience, "tenure verify --fleet "+fleet+" --path clusters/staging"+
		" --map 'https://github.com/fluxcd/flux2-kustomize-helm-example#main="+fleet+"'"+
		" --map oci://docker.io/envoyproxy/gateway-helm="+charts+"/gateway-helm"+
		" --map oci://quay.io/jetstack/charts/cert-manager="+charts+"/cert-manager"+
		" --map https://stefanprodan.github.io/podinfo="+charts+"/podinfo")
	if code != 2 || !strings.Contains(out, "? no tenants: ") || strings.Contains(out, "? not ready") || strings.Contains(out, "? assumed") {
		t.Errorf("exit code %d, want 2 for a fleet that is ready and has no tenants:\n%s", code, out)
	}
	if !strings.Contains(out, "namespace podinfo: HelmRelease podinfo/podinfo comes from the platform's own repository and names no account") {
		t.Errorf("the evidence for the namespace with a label of a team is missing:\n%s", out)
	}
}
