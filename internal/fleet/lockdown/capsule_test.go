package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

const capsuleFile = "infrastructure/tenure/capsule.yaml"

// TestCapsuleByHand writes the argument into the manager's Deployment by hand, as was
// necessary before the flag existed.
func TestCapsuleByHand(t *testing.T) {
	t.Parallel()
	dir := small(t, nil)
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
	manager := read(t, dir)[managerFile]
	if strings.Contains(manager, "--capsule") {
		t.Fatalf("the layer is there by itself:\n%s", manager)
	}
	write(t, dir, managerFile, strings.Replace(manager, "            - manager\n", "            - manager\n            - --capsule\n", 1))
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, ManagerImage: "registry.example.com/x:2"})
	got := read(t, dir)
	if !strings.Contains(got[managerFile], "            - --capsule\n") || !strings.Contains(got[managerFile], "registry.example.com/x:2") {
		t.Errorf("the manager lost its argument:\n%s", got[managerFile])
	}
	if !strings.Contains(got[capsuleFile], "name: tenants.capsule.clastix.io") {
		t.Error("the manager has the argument, and the cluster not the kinds")
	}
}

// TestCapsuleKindsOfFleet adds the layer to a fleet that has two of Capsule's kinds as files, as after the removal
// of Capsule's controller.
func TestCapsuleKindsOfFleet(t *testing.T) {
	t.Parallel()
	kind := func(plural string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + ".capsule.clastix.io}\n"
	}
	dir := small(t, map[string]string{"clusters/one/kinds.yaml": kind("tenants") + "---\n" + kind("capsuleconfigurations")})
	with := lockdown.Options{Tenants: true, Capsule: new(true)}
	apply(t, dir, "clusters/one", with)
	got := read(t, dir)
	for content, want := range map[string]bool{
		"\n  name: tenants.capsule.clastix.io\n":      false, // the fleet's own
		"\n  name: capsuleconfigurations.":            false,
		"\n  name: tenantowners.capsule.clastix.io\n": true, // the manager waits for it
		"kind: ClusterRole\n":                         true, // the manager reads the kinds
		"kind: ValidatingAdmissionPolicyBinding\n":    true, // nothing else enforces spec.rules
	} {
		if strings.Contains(got[capsuleFile], content) != want {
			t.Errorf("%s contains %q: %t, want %t", capsuleFile, content, !want, want)
		}
	}
	if !strings.Contains(got["infrastructure/tenure/kustomization.yaml"], "- capsule.yaml\n") {
		t.Error("Flux does not apply the file")
	}
	if again := apply(t, dir, "clusters/one", lockdown.Options{Tenants: true}); len(again.Changes) > 0 {
		t.Errorf("another run changes %d files", len(again.Changes))
	}
}

// TestOwnDefaultAccount locks down fleets whose controllers have a default account.
func TestOwnDefaultAccount(t *testing.T) {
	t.Parallel()
	const patches = `patches:
  - target: {kind: Deployment, name: (kustomize|helm)-controller}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --default-service-account=gitops-reconciler}
`
	const posture = "apiVersion: tenure.dev/v1alpha1\nkind: TenancyProfile\nmetadata: {name: default}\nspec: {platformNamespaces: [flux-system], tenants: {accounts: {reconcilers: [%]}}}\n"
	for name, tc := range map[string]struct{ reason, reconciler, want string }{
		"reconciler": {"what tenants may be applied as anyway stays", "gitops-reconciler", "gitops-reconciler"},
		"other":      {"an account that the profile does not know may have any rights", "another", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := small(t, nil)
			before := read(t, dir)[folder+"kustomization.yaml"]
			apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
			write(t, dir, folder+"kustomization.yaml", before+patches)
			write(t, dir, "infrastructure/tenure/profile.yaml", strings.Replace(posture, "%", tc.reconciler, 1))
			apply(t, dir, "clusters/one", lockdown.Options{Tenants: true})
			component := read(t, dir)[folder+"tenure/kustomization.yaml"]
			if !strings.Contains(component, "--default-service-account="+tc.want+"\n") {
				t.Errorf("%s: want %s in\n%s", tc.reason, tc.want, component)
			}
			if again := apply(t, dir, "clusters/one", lockdown.Options{Tenants: true}); len(again.Changes) > 0 {
				t.Errorf("another run changes %d files", len(again.Changes))
			}
		})
	}
}
