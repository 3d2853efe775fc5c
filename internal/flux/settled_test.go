package flux

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ks(name string, state State, needs ...Ref) Row {
	ready := "False"
	if state == Ready {
		ready = "True"
	}
	return Row{Namespace: "flux-system", Kind: Kustomization, Name: name, State: state, Ready: ready, Message: name + "'s message", Needs: needs}
}

func git(name, revision string, state State) Row {
	row := ks(name, state)
	row.Kind, row.Revision = GitRepository, revision
	return row
}

// waiting is a ResourceSet that waits, with its message.
func waiting(name, message string) Row {
	row := ks(name, Blocked)
	row.Kind, row.Message = ResourceSet, message
	return row
}

func tried(row Row, revision string) Row {
	row.attempted = revision
	return row
}

func ref(kind Kind, name string) Ref { return Ref{kind, "flux-system", name} }

// saying gives a row another message.
func saying(row Row, message string) Row {
	row.Message = message
	return row
}

func TestAssess(t *testing.T) {
	t.Parallel()
	fleet := ref(GitRepository, "fleet")
	tests := map[string]struct {
		reason  string
		rows    []Row
		awaited map[string]string
		failed  map[string]string
	}{
		"nothing": {reason: "an empty cluster has nothing to wait for"},
		"all ready": {
			reason: "ready at the source's revision is the aim",
			rows:   []Row{git("fleet", "main@sha1:b", Ready), tried(ks("a", Ready, fleet), "main@sha1:b")},
		},
		"suspended": {
			reason: "Flux leaves it alone, so nothing will change",
			rows:   []Row{ks("a", Suspended)},
		},
		"working": {
			reason:  "its status is going to change",
			rows:    []Row{ks("a", Working)},
			awaited: map[string]string{"a": "a's message"},
		},
		"failed": {
			reason: "Flux said what is wrong",
			rows:   []Row{ks("a", Failed)},
			failed: map[string]string{"a": "a's message"},
		},
		"failed after it applied others": {
			reason: "what is wrong is all that the user has to know",
			rows:   []Row{saying(ks("a", Failed), "HelmRelease/b/b not found: namespaces \"b\" not found\nNamespace/flux-system configured\nDeployment/flux-system/source-controller unchanged")},
			failed: map[string]string{"a": `HelmRelease/b/b not found: namespaces "b" not found`},
		},
		"quota of a new kind": {
			reason:  "the quota gets a status without a change of the fleet, and Flux tries again",
			rows:    []Row{saying(ks("a", Failed), `Route/a/a dry-run failed (Forbidden): routes "a" is forbidden: status unknown for quota: a, resources: count/routes`)},
			awaited: map[string]string{"a": `tries again once its quota is counted: Route/a/a dry-run failed (Forbidden): routes "a" is forbidden: status unknown for quota: a, resources: count/routes`},
		},
		"new revision after success": {
			reason:  "the source has moved on and the Kustomization will notice",
			rows:    []Row{git("fleet", "main@sha1:b", Ready), tried(ks("a", Ready, fleet), "main@sha1:a")},
			awaited: map[string]string{"a": "has not tried revision main@sha1:b of its source yet"},
		},
		"new revision after failure": {
			reason:  "the failure is about the old revision; the new one may mend it",
			rows:    []Row{git("fleet", "main@sha1:b", Ready), tried(ks("a", Failed, fleet), "main@sha1:a")},
			awaited: map[string]string{"a": "has not tried revision main@sha1:b of its source yet"},
		},
		"dependency on its way": {
			reason:  "the dependent follows when the dependency is ready",
			rows:    []Row{ks("infra", Working), ks("apps", Blocked, ref(Kustomization, "infra"))},
			awaited: map[string]string{"infra": "infra's message", "apps": "waits for Kustomization/flux-system/infra (working)"},
		},
		"dependency ready": {
			reason:  "Flux looks again only after --requeue-dependency",
			rows:    []Row{ks("infra", Ready), ks("apps", Blocked, ref(Kustomization, "infra"))},
			awaited: map[string]string{"apps": "the objects that it waits for are ready; its next reconciliation continues: apps's message"},
		},
		"dependency ready, and an expression says no": {
			reason: "no look of Flux changes what the expression reads",
			rows: []Row{
				ks("infra", Ready), saying(ks("apps", Blocked, ref(Kustomization, "infra")), "dependency 'flux-system/infra' is not ready according to readyExpr eval"),
				saying(ks("web", Blocked, ref(Kustomization, "infra")), "failed to evaluate the CEL expression 'dep.x': no such key: x"),
			},
			failed: map[string]string{
				"apps": "dependency 'flux-system/infra' is not ready according to readyExpr eval",
				"web":  "failed to evaluate the CEL expression 'dep.x': no such key: x",
			},
		},
		"an expression says no while something works": {
			reason: "what works may be what the expression reads",
			rows: []Row{
				ks("other", Working), ks("infra", Ready), saying(ks("apps", Blocked, ref(Kustomization, "infra")), "dependency 'flux-system/infra' is not ready according to readyExpr eval"),
			},
			awaited: map[string]string{"other": "other's message", "apps": "dependency 'flux-system/infra' is not ready according to readyExpr eval"},
		},
		"dependency failed": {
			reason: "a chain behind a failure never moves",
			rows: []Row{
				ks("infra", Failed), ks("apps", Blocked, ref(Kustomization, "infra")),
				ks("more", Blocked, ref(Kustomization, "apps")),
			},
			failed: map[string]string{
				"infra": "infra's message", "apps": "waits for Kustomization/flux-system/infra (failed)",
				"more": "waits for Kustomization/flux-system/apps (blocked)",
			},
		},
		"failure beside something that works": {
			reason:  "what fails does not hide what is still awaited",
			rows:    []Row{ks("infra", Failed), ks("apps", Blocked, ref(Kustomization, "infra")), ks("slow", Working)},
			awaited: map[string]string{"slow": "slow's message"},
			failed:  map[string]string{"infra": "infra's message", "apps": "waits for Kustomization/flux-system/infra (failed)"},
		},
		"missing and something works": {
			reason:  "what works may create what is missing",
			rows:    []Row{ks("root", Working), ks("apps", Blocked, fleet)},
			awaited: map[string]string{"root": "root's message", "apps": "waits for GitRepository/flux-system/fleet (does not exist)"},
		},
		"missing and nothing works": {
			reason: "nobody is left who could create it",
			rows:   []Row{ks("root", Ready), ks("apps", Blocked, fleet)},
			failed: map[string]string{"apps": "waits for GitRepository/flux-system/fleet (does not exist)"},
		},
		"workload missing and nothing works": {
			reason: "flux-operator names a dependency of another kind, which nobody is left to create",
			rows:   []Row{ks("root", Ready), waiting("apps", "Retrying dependency check: dependency apps/v1/Deployment/shop/web not found: deployments.apps \"web\" not found")},
			failed: map[string]string{"apps": "waits for Deployment/shop/web (not found)"},
		},
		"workload not ready and something works": {
			reason:  "what works may make it ready",
			rows:    []Row{ks("root", Working), waiting("apps", "Retrying dependency check: dependency v1/Pod/shop/web not ready: expression 'status.phase == 1'")},
			awaited: map[string]string{"root": "root's message", "apps": "waits for Pod/shop/web (not ready)"},
		},
		"dependency of Flux in the message": {
			reason:  "the row of such a dependency says more, and it is ready",
			rows:    []Row{waiting("apps", "Retrying dependency check: dependency fluxcd.controlplane.io/v1/ResourceSet/flux-system/infra not ready: expression 'true'")},
			awaited: map[string]string{"apps": "the objects that it waits for are ready; its next reconciliation continues: Retrying dependency check: dependency fluxcd.controlplane.io/v1/ResourceSet/flux-system/infra not ready: expression 'true'"},
		},
		"cycle": {
			reason: "two that wait for each other wait for ever",
			rows:   []Row{ks("a", Blocked, ref(Kustomization, "b")), ks("b", Blocked, ref(Kustomization, "a"))},
			failed: map[string]string{
				"a": "waits for Kustomization/flux-system/b (blocked)", "b": "waits for Kustomization/flux-system/a (blocked)",
			},
		},
		"dependency suspended": {
			reason: "a suspended object that is not ready never will be",
			rows:   []Row{ks("infra", Suspended), ks("apps", Blocked, ref(Kustomization, "infra"))},
			failed: map[string]string{"apps": "waits for Kustomization/flux-system/infra (is suspended)"},
		},
		"assumed source": {
			reason: "assuming a source does not give it an artifact, so its consumers cannot go on",
			rows: []Row{
				{Namespace: "flux-system", Kind: GitRepository, Name: "fleet", State: Suspended, Ready: "True"}, ks("apps", Blocked, fleet),
			},
			failed: map[string]string{"apps": "waits for GitRepository/flux-system/fleet (is suspended and has no artifact)"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Assess(tt.rows)
			if diff := cmp.Diff(tt.awaited, reasons(got.Awaited)); diff != "" {
				t.Errorf("%s\nawaited (-want +got):\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(tt.failed, reasons(got.Failed)); diff != "" {
				t.Errorf("%s\nfailed (-want +got):\n%s", tt.reason, diff)
			}
			if got.Settled() != (len(tt.awaited) == 0) {
				t.Errorf("%s\nSettled() = %v", tt.reason, got.Settled())
			}
		})
	}
}

func reasons(findings []Finding) map[string]string {
	if len(findings) == 0 {
		return nil
	}
	m := map[string]string{}
	for _, f := range findings {
		m[f.Row.Name] = f.Reason
	}
	return m
}

// TestLacks checks that a failure says whether the object waits for one that does not exist.
func TestLacks(t *testing.T) {
	t.Parallel()
	rows := []Row{ks("bad", Failed), ks("after", Blocked, ref(Kustomization, "bad")), ks("alone", Blocked, ref(Kustomization, "nobody"))}
	got := map[string]bool{}
	for _, f := range Assess(rows).Failed {
		got[f.Row.Name] = f.Lacks
	}
	if diff := cmp.Diff(map[string]bool{"bad": false, "after": false, "alone": true}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
