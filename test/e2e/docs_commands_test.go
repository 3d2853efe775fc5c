package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// A documentedCommand is a command of the how-to pages, and where a test runs it.
type documentedCommand struct {
	// begins is how the command begins, in one line.
	begins string
	// at is where the command runs.
	at place
	// elsewhere is the test that runs the command, or the reason why no test does.
	elsewhere string
}

// place is where a documented command runs.
type place string

const (
	onCluster place = "the cluster of TestDocumentedTenant"
	withLayer place = "the cluster of TestManager, with Capsule's kinds"
	onFleet   place = "the folder of a fleet"
	elsewhere place = "elsewhere"
)

// documentedCommands returns all commands of the how-to pages.
func documentedCommands() []documentedCommand {
	return []documentedCommand{
		{begins: "tenure get tenants", at: onCluster},
		{begins: "tenure get all -A", at: onCluster},
		{begins: "kubectl -n dev-team-apps create rolebinding deliver", at: onCluster},
		{begins: "kubectl get tenants.tenure.dev,tenancyprofiles,sourcegrants -A -o yaml |", at: elsewhere, elsewhere: "TestChartFaults"},
		{begins: "kubectl apply --server-side --force-conflicts -f tenure-backup.yaml", at: elsewhere, elsewhere: "TestChartFaults"},
		{begins: "kubectl get tenants", at: onCluster},
		{begins: "kubectl get poddisruptionbudgets -A", at: onCluster},
		{begins: "kubectl drain NODE", at: elsewhere, elsewhere: "TestRelease, with a shorter deadline"},
		{begins: "kubectl get tenant dev-team -o jsonpath=", at: onCluster},
		{begins: "kubectl get sourcegrants -A", at: onCluster},
		{begins: "kubectl get rolebindings -n dev-team-apps -l", at: onCluster},
		{begins: "kubectl get secrets -n dev-team-apps --field-selector", at: onCluster},
		{begins: "kubectl -n dev-team-apps get externalartifacts", at: onCluster},
		{begins: "kubectl -n dev-team-apps get tenantparameters tenure", at: onCluster},
		{begins: "kubectl -n flux-system get deployments", at: onCluster},
		{begins: "kubectl -n flux-system rollout status", at: onCluster},
		{begins: "kubectl -n flux-system rollout restart", at: elsewhere, elsewhere: "the local cluster mounts no Secret, so the proxy keeps its certificate"},
		{begins: "kubectl -n flux-system get pods -o custom-columns=IMAGE", at: onCluster},
		{begins: "kubectl -n flux-system run try --image=registry.example.com/any --dry-run=server", at: onCluster},
		{begins: "kubectl -n flux-system patch networkpolicy allow-egress", at: onCluster},
		{begins: "kubectl -n flux-system patch networkpolicy allow-scraping", at: onCluster},
		{begins: "kubectl get gitrepositories,ocirepositories -A -o custom-columns=", at: onCluster},
		{begins: "kubectl get gitrepositories,ocirepositories,helmrepositories,helmcharts,buckets,kustomizations,helmreleases -A -l", at: onCluster},
		{begins: "kubectl auth can-i create priorityclasses", at: onCluster}, // the code is 1 for no

		{begins: "tenure profile multi-tenant --fleet . --path clusters/staging --verify-images --", at: elsewhere, elsewhere: "it reads signatures from a registry; TestPinnedFleet runs a fleet with pins"},
		{begins: "tenure profile multi-tenant --fleet . --path clusters/staging", at: onFleet},

		{begins: "tenure up --authentication-config", at: elsewhere, elsewhere: "TestAuthenticationConfig"},
		{begins: "kubectl krew install oidc-login", at: elsewhere, elsewhere: "it downloads the plugin; TestClients has one with the same flags"},
		{begins: "kubectl create rolebinding tenure-manager -n NAMESPACE", at: elsewhere, elsewhere: "TestOnce has this RoleBinding"},
		{begins: "tenure up --fleet", at: elsewhere, elsewhere: "TestCapsuleManifests"},
		{begins: "git apply", at: elsewhere, elsewhere: "TestPatches"},
		{begins: "kubectl patch crd", at: elsewhere, elsewhere: "TestManager"},
		{begins: "kubectl --namespace kyverno get pods", at: elsewhere, elsewhere: "TestKyverno"},
		{begins: "tenure bootstrap git", at: elsewhere, elsewhere: "TestBootstrap"},
		{begins: "tenure check", at: elsewhere, elsewhere: "TestProfileThereAndBack"},
		{begins: "tenure create tenant", at: elsewhere, elsewhere: "TestTenantComesAndGoes"},
		{begins: "tenure delete tenant", at: elsewhere, elsewhere: "TestTenantComesAndGoes"},
		{begins: "tenure verify", at: elsewhere, elsewhere: "TestVerifyPublicFleets"},
		{begins: "tenure install --export", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "kubectl apply --server-side", at: elsewhere, elsewhere: "TestRelease and TestManager"},
		{begins: "tenure migrate capsule", at: elsewhere, elsewhere: "TestManager"},
		{begins: "kubectl label -f tenants.yaml", at: elsewhere, elsewhere: "TestCapsuleThereAndBack of internal/manager"},
		{begins: "kubectl get -f tenants.yaml -o custom-columns=", at: elsewhere, elsewhere: "it needs Tenants that Flux applies; a person reads the result"},
		{begins: "kubectl get -f tenants.yaml -o name", at: elsewhere, elsewhere: "TestCapsuleThereAndBack of internal/manager"},
		{begins: "kubectl annotate crd", at: withLayer},
		{begins: "kubectl get tnt", at: withLayer},
		{begins: "helm install", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "helm upgrade", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "helm rollback", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "helm uninstall", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "kubectl apply -f tenant.yaml", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "kubectl wait tenant/dev-team", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "kubectl get clusternetworkpolicies", at: elsewhere, elsewhere: "TestClusterIsolation of internal/manager reads them"},
		{begins: "kubectl delete networkpolicies -A -l", at: onCluster},
		{begins: "kubectl delete clusternetworkpolicies", at: elsewhere, elsewhere: "TestClusterIsolation of internal/manager deletes one"},
		{begins: "kubectl delete clusterrolebinding", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "kubectl delete crd", at: elsewhere, elsewhere: "TestRelease"},
		{begins: "tenure kubeconfig", at: elsewhere, elsewhere: "TestClients, and TestKubeconfig of internal/cli/kubeconfig"},
		{begins: "kubectl --kubeconfig", at: elsewhere, elsewhere: "TestClients"},
		{begins: "kubectl -n flux-system patch service/tenure-proxy", at: elsewhere, elsewhere: "TestClients"},
		{begins: "kubectl -n flux-system port-forward service/tenure-proxy", at: elsewhere, elsewhere: "TestClients"},
		{begins: "kubectl create namespace dev-team-preview", at: elsewhere, elsewhere: "TestManager creates namespaces as an owner"},

		{begins: "kubectl -n flux-system logs -l app=tenure-manager --tail=-1 | jq", at: elsewhere, elsewhere: "the machine may lack jq"},
		{begins: "kubectl delete -k config/monitoring", at: elsewhere, elsewhere: "the local cluster has no kinds of Prometheus"},
		{begins: "kubectl -n flux-system create job --from=cronjob/tenure-check", at: elsewhere, elsewhere: "TestRelease makes the Job"},
		{begins: "kubectl -n flux-system wait --for=condition=Complete job/tenure-check-now", at: elsewhere, elsewhere: "TestRelease waits for the Job"},
		{begins: "kubectl -n flux-system logs job/tenure-check-now", at: elsewhere, elsewhere: "TestRelease reads what the Job prints"},
		{begins: "kubectl -n flux-system create", at: elsewhere, elsewhere: "a person has the files"},
		{begins: "git tag", at: elsewhere, elsewhere: "it publishes a release"},
		{begins: "git checkout", at: elsewhere, elsewhere: "it publishes a release"},
	}
}

// commandsOf returns the commands of the how-to pages at a place, each once. It fails the test
// for a command without an entry in [documentedCommands], and for an entry without a command.
func commandsOf(t *testing.T, at place) []string {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "how-to", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := documentedCommands()
	used, found := make([]bool, len(known)), []string(nil)
	for _, page := range pages {
		if filepath.Base(page) == "work-as-a-team.md" {
			continue // TestClients pastes the page
		}
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(content)) {
			i := slices.IndexFunc(known, func(c documentedCommand) bool { return strings.HasPrefix(command, c.begins) })
			if i < 0 {
				t.Errorf("%s: say in documentedCommands where a test runs %q", filepath.Base(page), command)
				continue
			}
			if used[i] = true; known[i].at == at {
				// Pages abbreviate digests.
				found = append(found, strings.ReplaceAll(command, "sha256:…", "sha256:"+strings.Repeat("0", 64)))
			}
		}
	}
	for i, c := range known {
		if !used[i] {
			t.Errorf("no page has a command that begins with %q", c.begins)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// commandsIn returns the commands of a page, each in one line.
func commandsIn(page string) []string {
	var found []string
	for _, block := range blocks(page) {
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			command := strings.Join(strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "$ ")), " ")
			program, _, _ := strings.Cut(command, " ")
			if slices.Contains([]string{"tenure", "kubectl", "helm", "flux", "git"}, program) {
				found = append(found, command)
			}
		}
	}
	return found
}

// pasteCommands runs the documented commands of a place in a folder that folder returns.
func pasteCommands(t *testing.T, at place, environment string, folder func() string) {
	t.Helper()
	for _, command := range commandsOf(t, at) {
		line := command
		if at == onFleet && !strings.Contains(line, " --yes") {
			line += " --yes" // the answer of a person at a terminal
		}
		out, code := shell(t, t.TempDir(), patience, "cd '"+folder()+"'\n"+environment+"\n"+line)
		if code != 0 {
			t.Errorf("%s ends with %d:\n%s", command, code, out)
		}
	}
}

// TestDocumentedCommands checks that a test runs each command of the how-to pages, or that there
// is a reason why none does. It runs the commands that edit a fleet.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	pasteCommands(t, onFleet, "", func() string {
		dir, _ := newFleet(t, nil)
		clusters := filepath.Join(dir, "clusters")
		if err := os.Rename(filepath.Join(clusters, "test"), filepath.Join(clusters, "staging")); err != nil {
			t.Fatal(err)
		}
		edit(t, "./clusters/test", "./clusters/staging", clusters, "staging", "flux-system", "gotk-sync.yaml")
		return dir
	})
}
