package e2e

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// ownedTenant is a Tenant with an owner.
const ownedTenant = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: owned}
spec: {owners: [{kind: User, name: alice}], namespaces: {quota: 3, podSecurity: restricted}}
`

// testOwnersNamespaces lets an owner create namespaces up to the quota, through the webhook's
// Service. It kills the API server once, just after Tenants were applied.
func testOwnersNamespaces(r run) {
	r.kubectl(ownedTenant, "apply", "-f", "-")
	create := func(name string) (string, error) {
		return kubectl(r.t, r.Cluster, "", "create", "namespace", name, "--as=alice")
	}
	made := func(name string) {
		r.t.Helper()
		testwait.For(r.t, "the owner to have made "+name, patience, func() (bool, string) {
			out, err := create(name)
			return err == nil || strings.Contains(out, "already exists"), out
		})
	}
	made("owned-1")
	if got := r.field("", "namespace/owned-1", ".metadata.labels"); !strings.Contains(got, `"tenure.dev/tenant":"owned"`) || !strings.Contains(got, `"pod-security.kubernetes.io/enforce":"restricted"`) {
		r.t.Errorf("the namespace was born with %s", got)
	}
	// A refusal after the API server has decoded the patched object would reveal the object's
	// content.
	if out, err := kubectl(r.t, r.Cluster, "", "patch", "namespace", "kube-system", "--type=merge", "-p", `{"spec":"x"}`, "--as=alice"); err == nil || !strings.Contains(out, "forbidden") || strings.Contains(out, "uid") {
		r.t.Errorf("the owner is shown the platform's namespaces: %s", out)
	}
	const count = 10
	var tenants strings.Builder
	for i := range count {
		fmt.Fprintf(&tenants, "---\n{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: during-%[1]d}, spec: {namespaces: {create: [during-%[1]d]}}}\n", i)
	}
	r.kubectl(tenants.String(), "apply", "-f", "-")
	kill(r.t, r.Dir, "kube-apiserver")
	made("owned-2")
	made("owned-3")
	testwait.For(r.t, "the Tenants that were being made to be in place", patience, func() (bool, string) {
		now := r.governedTeams("during-")
		return now == count, fmt.Sprintf("%d of %d", now, count)
	})
	testwait.For(r.t, "the owner to be told of the quota", patience, func() (bool, string) {
		out, err := create("owned-4")
		return err != nil && strings.Contains(out, "tenant owned: has 3 of 3 namespaces (owned-1, owned-2, owned-3); delete one or ask the platform team"), out
	})
	if out, err := kubectl(r.t, r.Cluster, "", "label", "namespace", "team-0", "x=y", "--as=alice"); err == nil {
		r.t.Errorf("the owner has changed another tenant's namespace: %s", out)
	}
}

// testPoliciesRestarted deletes the rules and restores them while the API server is killed,
// and checks that they are in force in the end.
func testPoliciesRestarted(r run) {
	const bad = "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: bad, namespace: team-6}, spec: {interval: 1h, prune: true, serviceAccountName: admin, sourceRef: {kind: GitRepository, name: app}}}"
	refused := func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, bad, "apply", "-f", "-", "--dry-run=server")
		return err != nil && strings.Contains(out, "tenant team-6: Kustomization bad needs spec.serviceAccountName"), out
	}
	testwait.For(r.t, "the rules to hold", patience, refused)
	r.kubectl("", "delete", "validatingadmissionpolicybinding/tenure-flux-own")
	testwait.For(r.t, "the rules to be gone", patience, func() (bool, string) {
		is, out := refused()
		return !is, out
	})
	kill(r.t, r.Dir, "kube-apiserver")
	testwait.For(r.t, "the rules to be written", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, string(config.Policies()), "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err == nil, out
	})
	testwait.For(r.t, "the rules to hold again", patience, refused)
}
