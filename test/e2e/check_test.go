package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestCheckOfAnOperator checks what `tenure check` says about a cluster whose Flux a FluxInstance
// installs.
func TestCheckOfAnOperator(t *testing.T) {
	t.Parallel()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	fleet := filepath.Join(root, "test", "corpus", "operator")
	team := func(name string) network.Map {
		return network.Map{Kind: network.KindGit, URL: "https://git.example.com/operator/" + name, Branch: "main", Dir: filepath.Join(fleet, name)}
	}
	r, failed := start(t, localcluster.Options{
		Fleet: filepath.Join(fleet, "platform"), Path: "clusters/prod", Maps: []network.Map{team("red"), team("blue")},
		Assume: []string{"ResourceSetInputProvider/flux-system/previews"},
	})
	if len(failed) > 0 {
		t.Fatalf("not ready: %v", failed)
	}
	for _, args := range [][]string{nil, {"--fleet", filepath.Join(fleet, "platform"), "--path", "clusters/prod"}} {
		cmd := command(t, t.TempDir(), append([]string{"check", "--kubeconfig", r.Kubeconfig}, args...)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("%v: exit code %d, want 1: %v", args, code, err)
		}
		for _, line := range []string{
			"kustomize-controller --default-service-account +True +in force",
			"notification-controller --no-cross-namespace-refs +True +in force",
			"kustomize-controller HTTPS_PROXY +False +missing",
			"kustomize-controller GIT_ALLOW_PROTOCOL +False +missing",
			"source-controller --storage-addr +False +missing",
			"kustomize-controller --metrics-addr +False +missing",
			"  for 5 of them: add its patch to the FluxInstance",
			"flux-operator --default-service-account +False +missing, .*multitenancy.enabled: true",
			"rights of Flux +True +as flux-operator binds them",
			"rights of tenants +False +RoleBinding blue/flux gives blue/flux the role admin",
			"dependencies of the platform +False +ResourceSet flux-system/teams waits",
		} {
			if !regexp.MustCompile("(?m)^" + line).Match(out) {
				t.Errorf("%v: no line %s in\n%s", args, line, out)
			}
		}
		if strings.Contains(string(out), "bootstrap") {
			t.Errorf("%v: a fleet that flux-operator runs is bootstrapped:\n%s", args, out)
		}
		if compared := regexp.MustCompile(`(?m)^fleet +False +1 file differs from the profile`).Match(out); compared != (args != nil) {
			t.Errorf("%v: compared with the fleet: %v\n%s", args, compared, out)
		}
	}
}
