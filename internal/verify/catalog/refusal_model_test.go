package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The refusals of every control that the API server and Flux may give, by what writes them.
var allRefusals = map[string]string{
	"rights":        `User "system:serviceaccount:apps:dev-team" cannot create resource "pods"`,
	"escalation":    `attempting to grant RBAC permissions not currently held`,
	"policy":        `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
	"webhook":       `admission webhook "w.example.com" denied the request: no`,
	"Pod Security":  `violates PodSecurity "restricted:latest": privileged`,
	"quota":         `exceeded quota: compute, requested: pods=1, used: pods=1, limited: pods=1`,
	"quota webhook": `admission webhook "pods.` + admission.QuotaWebhookSuffix + `" denied the request: no`,
	"reference":     `cross-namespace reference is not allowed`,
	"base":          `fs-security-constraint abs /tmp/kustomize-123`,
	"path":          `fs-security-constraint abs /tmp/x`,
	"loop":          `cycle detected: candidate root`,
	"access":        `can't be accessed due to missing ACL labels on 'accessFrom'`,
	"proxy":         `proxyconnect tcp: dial tcp 127.0.0.1:9: connect: connection refused`,
}

// TestRefusalsThatCount compares the judge with a table that people wrote, of the attacks that each refusal
// stops. Refusals that are in no list stop every attack.
func TestRefusalsThatCount(t *testing.T) {
	t.Parallel()
	only := map[string][]string{
		"Pod Security":  {"W3", "W6", "W11"},
		"quota":         {"A2", "A9"},
		"quota webhook": {"A2", "A9"},
		"reference":     {"I1", "I13", "I19", "I26", "N1", "N2", "S1", "S2", "S5", "S7", "S12", "S15", "S16"},
		"base":          {"I1", "I13", "I19", "I26", "N1", "N2", "S1", "S2", "S5", "S7", "S12", "S15", "S16"},
		"access":        {"I1", "I13", "I19", "I26", "N1", "N2", "S1", "S2", "S5", "S7", "S12", "S15", "S16"},
		"proxy":         {"I1", "I13", "I19", "I26", "N1", "N2", "S1", "S2", "S5", "S7", "S12", "S15", "S16"},
		"path":          {"A6", "I16", "S8"},
		"loop":          {"A6", "I16", "S8"},
	}
	for _, a := range Catalogue() {
		for what, message := range allRefusals {
			control, known := controlOf(message)
			if !known {
				t.Fatalf("%s: the judge does not know it", what)
			}
			ids, listed := only[what]
			want := Stopped
			if listed && !slices.Contains(ids, a.ID) {
				want = NotProven
			}
			if f := a.byItsControls(stopped(rbac+", "+control, message)); f.Outcome != want {
				t.Errorf("%s, refused by %s: %s, want %s", a.Key(), what, f.Outcome, want)
			}
		}
	}
}

// Every attack that names Pod Security, a quota or a flag as its control counts the refusals of it.
func TestCountedControlsAreNamed(t *testing.T) {
	t.Parallel()
	for _, a := range Catalogue() {
		named := strings.Join(a.Controls, "; ")
		for word, class := range map[string]controlClass{"Pod Security": byPodSecurity, "ResourceQuota": byQuotas, "flag --no-": byFlux, "schema": byChecks} {
			if strings.Contains(named, word) && a.Via != Proxy && !slices.Contains(countingClasses[a.ID], class) {
				t.Errorf("%s names %q as its control, and a refusal by it does not count", a.Key(), word)
			}
		}
	}
}

// A rule of Tenure stops the attacks of its rows only.
func TestAnotherRule(t *testing.T) {
	t.Parallel()
	refused := func(rule string) error {
		return forbidden("ValidatingAdmissionPolicy 'tenure-flux-own' with binding 'b' denied request: tenant t: no (rule " + rule + ")")
	}
	attack := func(id string) Attack { return Attack{ID: id} }
	for _, tc := range []struct {
		reason, id string
		err        error
		want       Outcome
	}{
		{"the rule about addresses", "S9", refused("tenure-sources"), Stopped},
		{"the rule about signatures speaks first", "S9", refused("tenure-signatures"), NotProven},
		{"the rule about signatures", "S14", refused("tenure-signatures"), Stopped},
		{"a rule that this version does not know", "S14", refused("tenure-later"), NotProven},
		{"two rules speak, and one is about addresses", "S9", forbidden(refused("tenure-signatures").Error() + "; no (rule tenure-sources)"), Stopped},
		{"a policy of the fleet", "S9", forbidden("ValidatingAdmissionPolicy 'git-sources' with binding 'b' denied request: no"), Stopped},
	} {
		ctx := withAttack(t.Context(), attack(tc.id))
		e := newFakeEnv(interceptor.Funcs{})
		f := requests(request{what: "do it", aimed: func(context.Context, *Scenario) error { return tc.err }, own: func(context.Context, *Scenario) error { return nil }})(ctx, e)
		if f.Outcome != tc.want {
			t.Errorf("%s: %+v, want %s", tc.reason, f, tc.want)
		}
	}
	for rule, ids := range alsoStops {
		for _, id := range ids {
			if !slices.ContainsFunc(Catalogue(), func(a Attack) bool { return a.ID == id }) || !slices.ContainsFunc(admission.Rules(), func(r admission.Rule) bool { return r.Name == rule }) {
				t.Errorf("there is no rule %s or no attack %s", rule, id)
			}
		}
	}
}

// What RBAC refuses to a controller of Kubernetes, or to a controller of Flux, says nothing about the tenant.
func TestRefusedControllers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, message string
		want            Outcome
	}{
		{"the controller lacks a right", `User "system:serviceaccount:kube-system:replicaset-controller" cannot update resource "pods"`, NotProven},
		{"a policy refuses its request", `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`, Stopped},
		{"Pod Security does", `violates PodSecurity "restricted:latest": privileged`, Stopped},
	} {
		e := newFakeEnv(interceptor.Funcs{})
		f := judge(e.asController("replicaset-controller", func(client.Client) error { return forbidden(tc.message) }), "")
		if f.Outcome != tc.want {
			t.Errorf("%s: %+v, want %s", tc.reason, f, tc.want)
		}
		wrapped := fmt.Errorf("cannot send it: %w", e.asController("replicaset-controller", func(client.Client) error { return forbidden(tc.message) }))
		if f := judge(wrapped, ""); f.Outcome != tc.want {
			t.Errorf("%s, wrapped: %+v, want %s", tc.reason, f, tc.want)
		}
	}
	e := newFakeEnv(interceptor.Funcs{})
	if err := e.asController("replicaset-controller", func(client.Client) error { return nil }); err != nil {
		t.Errorf("an accepted request: %v", err)
	}
	if err := e.asController("replicaset-controller", func(client.Client) error { return errors.New("unreachable") }); judge(err, "").Outcome != NotProven {
		t.Error("an unreachable API server stops nothing")
	}
	for message, want := range map[string]bool{
		`serviceaccounts "x" is forbidden: User "system:serviceaccount:flux-system:kustomize-controller" cannot impersonate resource "serviceaccounts"`: true,
		`configmaps is forbidden: User "` + e.Account.User() + `" cannot patch resource "configmaps"`:                                                   false,
		`secrets is forbidden: User "system:serviceaccount:team:other" cannot list resource "secrets"`:                                                  false,
		`configmaps is forbidden: User "system:serviceaccount:flux-system:default" cannot patch resource "configmaps"`:                                  false,
		`the source is not ready`: false,
	} {
		if got := isOfFlux(message); got != want {
			t.Errorf("of Flux: %t, want %t: %s", got, want, message)
		}
	}
}
