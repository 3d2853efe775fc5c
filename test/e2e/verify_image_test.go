package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// imageTeam is a tenant that may use Flux's image automation.
const imageTeam = `apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {toolkit.fluxcd.io/tenant: team}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: team, namespace: team, labels: {toolkit.fluxcd.io/tenant: team}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: team, namespace: team}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: team}
spec: {interval: 1h, url: https://git.example.com/acme/app, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: team}
spec: {interval: 1h, retryInterval: 2s, path: ./, prune: true, serviceAccountName: team, targetNamespace: team, sourceRef: {kind: GitRepository, name: app}}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImageRepository
metadata: {name: app, namespace: team}
spec: {interval: 1h, suspend: true, image: oci.example.com/acme/app}
`

// imageLockdown are the flags that close references to other namespaces.
const imageLockdown = `resources: [gotk-components.yaml, gotk-sync.yaml]
patches:
  - target: {kind: Deployment, name: (image-reflector-controller|image-automation-controller|source-watcher)}
    patch: |
      - op: add
        path: /spec/template/spec/containers/0/args/-
        value: --no-cross-namespace-refs=true
`

// imageAccess grants all tenants access to every ImageRepository, which removes the control
// that ImageRepositories have themselves.
const imageAccess = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: open}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
      - {apiGroups: [image.toolkit.fluxcd.io], apiVersions: ["*"], operations: [CREATE], resources: [imagerepositories]}
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          [JSONPatch{op: "add", path: "/spec/accessFrom", value: {"namespaceSelectors": [{"matchLabels": {"kubernetes.io/metadata.name": "team"}}]}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: open}
spec: {policyName: open}
`

// TestVerifyImageAutomation attacks image automation and source-watcher where they are installed: with the flags,
// without them, and without the access rules in the ImageRepositories.
func TestVerifyImageAutomation(t *testing.T) {
	t.Parallel()
	const locked = "flag --no-cross-namespace-refs"
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		// policy, automation and generator name the control that stops each attack; empty if none does.
		policy, automation, generator string
		missing                       []string
	}{
		"locked down": {
			reason: "the flags stop both", files: map[string]string{system + "kustomization.yaml": imageLockdown, "clusters/test/open.yaml": imageAccess},
			policy: locked, automation: locked, generator: locked,
		},
		"without the flags": {
			reason: "an ImageRepository has a control of its own, a GitRepository none",
			policy: "spec.accessFrom of the object", missing: []string{locked + " of image-reflector-controller"},
		},
		"without any control": {
			reason: "nothing is left that stops either", files: map[string]string{"clusters/test/open.yaml": imageAccess},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := newFleet(t, map[string]string{"clusters/test/team.yaml": imageTeam, "clusters/test/generator.yaml": generator})
			writeFiles(t, dir, tc.files)
			app := filepath.Join(t.TempDir(), "app")
			write(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n", app, "app.yaml")
			r, failed := start(t, localcluster.Options{
				Fleet: dir, Path: "clusters/test", Maps: parseMaps(t, "https://git.example.com/acme/app#main="+app),
			})
			expectNothing(t, tc.reason, failed)
			const policy, automation, foreign = "S1-api-ImagePolicy", "S1-api-ImageUpdateAutomation", "S2-api"
			report, err := catalog.Run(t.Context(), catalog.Options{
				Config: r.REST, Git: r.Git, OCI: r.OCI, Network: r.Network, Platform: "flux-system",
				Root: flux.Ref{Kind: flux.GitRepository, Namespace: "flux-system", Name: "flux-system"},
				Only: func(a catalog.Attack) bool { return slices.Contains([]string{policy, automation, foreign}, a.Key()) },
			})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]catalog.Finding{}
			for _, result := range report.Results {
				got[result.Attack.Key()] = result.Finding
			}
			for key, control := range map[string]string{policy: tc.policy, automation: tc.automation, foreign: tc.generator} {
				f, want := got[key], catalog.Stopped
				if control == "" {
					want = catalog.GotThrough
				}
				if f.Outcome != want || f.Control != control {
					t.Errorf("%s: %s is %q by %q (%s%s%s), want %q by %q", tc.reason, key, f.Outcome, f.Control, f.Message, f.Evidence, f.Reason, want, control)
				}
			}
			if diff := cmp.Diff(tc.missing, got[policy].Missing); diff != "" {
				t.Errorf("%s: the missing layers (-want +got):\n%s", tc.reason, diff)
			}
			testwait.For(t, tc.reason+": nothing but the fleet's own objects to be left by the attacks", patience, func() (bool, string) {
				left := r.kubectl("", "get", "imagerepositories,imagepolicies,imageupdateautomations,artifactgenerators", "-A", "-o", "jsonpath={.items[*].metadata.name}")
				return left == "app parts", left
			})
		})
	}
}
