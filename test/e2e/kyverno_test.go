package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// The parts of a fleet with Kyverno, in the order of flux2-multi-tenancy: Kyverno from its
// authors' artifact, its policies, the tenants.
const (
	kyvernoSync = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: kyverno, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./infrastructure/kyverno, prune: true, wait: true, timeout: 4m, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: kyverno-policies, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./infrastructure/policies, prune: true, wait: true, timeout: 2m, dependsOn: [{name: kyverno}], sourceRef: {kind: GitRepository, name: flux-system}}
`
	kyvernoInstall = `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: kyverno-controller, namespace: flux-system}
spec: {interval: 1h, url: "oci://ghcr.io/kyverno/manifests/kyverno", ref: {tag: v1.14.4}, verify: {provider: cosign}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: kyverno-controller, namespace: flux-system}
spec: {interval: 1h, retryInterval: 2s, path: ./, prune: true, wait: true, timeout: 4m, sourceRef: {kind: OCIRepository, name: kyverno-controller}}
`
	// kyvernoPolicies refuse Kustomizations and HelmReleases without an account, refuse a
	// ConfigMap by an expression, change one, and create one in each new namespace.
	kyvernoPolicies = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: accounts}
spec:
  rules:
    - name: name-an-account
      match: {any: [{resources: {kinds: [Kustomization, HelmRelease]}}]}
      exclude: {any: [{resources: {namespaces: [flux-system]}}]}
      validate:
        failureAction: Enforce
        message: spec.serviceAccountName is required
        pattern: {spec: {serviceAccountName: "?*"}}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: names}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: object.metadata.name != "forbidden", message: the name is forbidden}]
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: onboarding}
spec:
  rules:
    - name: label
      match: {any: [{resources: {kinds: [ConfigMap], names: [changed]}}]}
      mutate: {patchStrategicMerge: {metadata: {labels: {changed: "yes"}}}}
    - name: contacts
      match: {any: [{resources: {kinds: [Namespace], selector: {matchLabels: {toolkit.fluxcd.io/tenant: "*"}}}}]}
      generate: {apiVersion: v1, kind: ConfigMap, name: contacts, namespace: "{{request.object.metadata.name}}", synchronize: true, data: {data: {from: kyverno}}}
`
)

// TestKyverno checks that Kyverno's policies refuse, change and create objects on the local
// cluster, that verify names them as the control, and that the same attack gets through
// without the policy.
func TestKyverno(t *testing.T) {
	t.Parallel()
	team := filepath.Join(t.TempDir(), "team")
	writeFiles(t, team, map[string]string{"deploy/own.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own, namespace: team}\n"})
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/kyverno.yaml":          kyvernoSync,
		"clusters/test/apps.yaml":             strings.Replace(appsSync, "spec: {", "spec: {dependsOn: [{name: kyverno-policies}], ", 1),
		"infrastructure/kyverno/install.yaml": kyvernoInstall,
		"infrastructure/policies/all.yaml":    kyvernoPolicies,
		"apps/team.yaml":                      tenantTeam,
	})
	r, failed := start(t, localcluster.Options{
		Fleet: dir, Path: "clusters/test", Maps: parseMaps(t, "https://git.example.com/acme/team#main="+team),
	})
	expectNothing(t, "the fleet becomes ready with nothing assumed", failed)

	out, err := kubectl(t, r.Cluster, "", "-n", "team", "create", "configmap", "forbidden")
	if err == nil || !strings.Contains(out, "the name is forbidden") {
		t.Errorf("the ValidatingPolicy does not refuse: %v, %s", err, out)
	}
	r.kubectl("", "-n", "team", "create", "configmap", "changed")
	if label := r.field("team", "configmap/changed", ".metadata.labels.changed"); label != "yes" {
		t.Errorf("the rule changes nothing: the label is %q", label)
	}
	// Kyverno may have lost the creation of the namespace, which Flux made while the background controller of
	// Kyverno started: the rule is called for changes of a namespace as well.
	r.kubectl("", "annotate", "namespace", "team", "example.com/contacts=wanted")
	testwait.For(t, "the rule to create an object in the tenant's namespace", patience, func() (bool, string) {
		out, err := kubectl(t, r.Cluster, "", "-n", "team", "get", "configmap", "contacts", "-o", "jsonpath={.data.from}")
		return err == nil && out == "kyverno", out
	})

	// Flux runs without the lockdown: nothing else stops these attacks.
	attacks := func(keep bool) map[string]catalog.Finding {
		options := attackOptions(r)
		options.Keep = keep
		options.Only = func(a catalog.Attack) bool { return slices.Contains([]string{"I1-api", "I1-api-HelmRelease"}, a.Key()) }
		report, err := catalog.Run(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		findings := map[string]catalog.Finding{}
		for _, result := range report.Results {
			findings[result.Attack.Key()] = result.Finding
		}
		if len(findings) != 2 {
			t.Fatalf("the attacks are %v", findings)
		}
		return findings
	}
	for key, f := range attacks(true) {
		if f.Outcome != catalog.Stopped || f.Control != "Kyverno policy accounts" {
			t.Errorf("with the policy, %s is %s by %q, want stopped by Kyverno: %s%s", key, f.Outcome, f.Control, f.Message, f.Reason)
		}
	}
	r.kubectl("", "-n", "flux-system", "patch", "kustomization", "kyverno-policies", "--type=merge", "--patch", `{"spec":{"suspend":true}}`)
	r.kubectl("", "delete", "clusterpolicy", "accounts")
	testwait.For(t, "Kyverno to forget the policy", patience, func() (bool, string) {
		_, err := kubectl(t, r.Cluster, strings.ReplaceAll(appsSync, "flux-system}\nspec", "team}\nspec"), "create", "--dry-run=server", "-f", "-")
		return err == nil, "it refuses still"
	})
	for key, f := range attacks(false) {
		if f.Outcome != catalog.GotThrough {
			t.Errorf("without the policy, %s is %s by %q, want got through: %s%s", key, f.Outcome, f.Control, f.Message, f.Reason)
		}
	}
}
