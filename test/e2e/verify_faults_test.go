package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/fleetgen"
)

// narrowTenant returns a tenant for which all tried attacks are stopped, except the attacks
// that plain Flux never stops.
func narrowTenant(name string) fleetgen.Tenant {
	return fleetgen.Tenant{Name: name, Label: true, Rules: fleetgen.NarrowRules}
}

// TestVerifyBadInput checks that invalid input leads to exit code 3 and an explanation, and
// leaves nothing behind; see tenureVerify.
func TestVerifyBadInput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(t *testing.T, dir string)
		flags  string
		words  []string
	}{
		"Unparsable": {
			"Flux's folder is no YAML.",
			func(t *testing.T, dir string) {
				write(t, "resources: [gotk\n", dir, "platform", fleetgen.Path, "flux-system", "kustomization.yaml")
			}, "", []string{"cannot read the fleet", "flux-system/kustomization.yaml"},
		},
		"Path":   {"There is no such cluster.", func(*testing.T, string) {}, " --path clusters/absent", []string{"clusters/absent"}},
		"Folder": {"A mapped folder is not there.", func(*testing.T, string) {}, " --map https://git.example.com/gone#main=/absent", []string{"/absent"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := generate(t, fleetgen.Platform{Flags: fleetgen.Lockdown()}, narrowTenant("team"))
			tc.change(t, filepath.Dir(fleet.Dir))
			line := flags(fleet)
			if strings.Contains(tc.flags, "--path") {
				line = strings.Replace(line, " --path "+fleetgen.Path, "", 1)
			}
			_, code, said := tenureVerify(t, line+tc.flags)
			if code != 3 {
				t.Errorf("%s: exit code %d:\n%s", tc.reason, code, said)
			}
			for _, word := range tc.words {
				if !strings.Contains(said, word) {
					t.Errorf("%s: it does not say %q:\n%s", tc.reason, word, said)
				}
			}
		})
	}
}

// TestVerifyBrokenFleet runs a fleet with a platform part that does not parse, another that never
// becomes ready, and a repository of some 40 MB. It checks that the tenants are judged, and
// that each object that is not ready is listed once.
func TestVerifyBrokenFleet(t *testing.T) {
	t.Parallel()
	huge := narrowTenant("huge")
	huge.Files = map[string]string{"deploy/app.yaml": configMapIn("app")}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		var b strings.Builder
		for range 1250 { // 20 KB that do not compress well
			fmt.Fprintf(&b, "%016x", random.Uint64())
		}
		huge.Files[fmt.Sprintf("assets/%02d/%d.txt", i%50, i)] = b.String()
	}
	fleet := generate(t, fleetgen.Platform{Flags: fleetgen.Lockdown()}, huge)
	write(t, `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: waits, namespace: flux-system}
spec: {interval: 1m, retryInterval: 1s, path: ./absent, prune: true, dependsOn: [{name: waits}], sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: broken, namespace: flux-system}
spec: {interval: 1m, path: ./broken, prune: true, serviceAccountName: kustomize-controller, sourceRef: {kind: GitRepository, name: flux-system}}
`, fleet.Dir, fleetgen.Path, "more.yaml")
	write(t, "resources: [absent.yaml]\n", fleet.Dir, "broken", "kustomization.yaml")
	report, code, said := tenureVerify(t, flags(fleet)+" --timeout 30s"+attacks("A4-api I4 I5-api I8-api S1-api S1-api-HelmRelease S3-api S4-api S9-api W2-api W3-api"))
	for line := range strings.Lines(said) {
		if strings.Contains(line, "attacks ") {
			t.Logf("with 2,000 files of 20 KB: %s", strings.TrimSpace(line))
		}
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1, since some attacks get through on any plain Flux:\n%s", code, said)
	}
	got, reasons := report.outcomes("huge")
	if len(reasons) > 0 || len(got["stopped"]) < 10 {
		t.Errorf("the tenant is not judged: %q %q", got, reasons)
	}
	seen := map[string]int{}
	for _, n := range report.NotReady {
		seen[n.Object]++
		if n.Reason == "" {
			t.Errorf("why %s is not ready is not said", n.Object)
		}
	}
	for _, object := range []string{"Kustomization/flux-system/waits", "Kustomization/flux-system/broken"} {
		if seen[object] != 1 {
			t.Errorf("%s is listed %d times, want once: %v", object, seen[object], seen)
		}
	}
}

func configMapIn(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}
