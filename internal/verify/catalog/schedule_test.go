package catalog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	authorizationv1 "k8s.io/api/authorization/v1"
)

func env(name, shape, url string) *Scenario {
	account := discovery.Account{Namespace: name, Name: name}
	e := &Scenario{Tenant: discovery.Tenant{Name: name, Shape: shape, Accounts: []discovery.Account{account}}, Account: account}
	if url != "" {
		e.Repository = &discovery.Repository{URL: url, Branch: "main"}
		e.Tenant.Repositories, e.Tenant.Synced = []discovery.Repository{*e.Repository}, true
	}
	return e
}

// TestSchedule checks that every attack of every tenant runs once, and none for two tenants at the same
// time.
func TestSchedule(t *testing.T) {
	t.Parallel()
	var running, tried sync.Map
	var attacks []Attack
	for i := range 20 {
		id := fmt.Sprintf("X%d", i)
		attacks = append(attacks, Attack{ID: id, Via: API, Deep: i%2 == 0, Run: func(_ context.Context, e *Scenario) Finding {
			if other, taken := running.LoadOrStore(id, e.Tenant.Name); taken {
				t.Errorf("%s runs as %s and %s at a time", id, other, e.Tenant.Name)
			}
			defer running.Delete(id)
			n, _ := tried.LoadOrStore(id+" "+e.Tenant.Name, &atomic.Int32{})
			n.(*atomic.Int32).Add(1)
			return stopped("RBAC", "no")
		}})
	}
	var all []*tenantRun
	for i := range 7 {
		all = append(all, &tenantRun{scenario: env(fmt.Sprint("t", i), "", ""), attacks: attacks, results: make([]*Result, len(attacks))})
	}
	reported := 0
	s := scheduler{progress: func(Result) { reported++ }}
	if err := s.run(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if want := len(all) * len(attacks); reported != want {
		t.Errorf("%d results were reported, want %d", reported, want)
	}
	for _, a := range all {
		for i, r := range a.results {
			if r == nil || r.Attack.ID != attacks[i].ID || r.Tenant != a.scenario.Tenant.Name {
				t.Errorf("result %d of %s is %+v", i, a.scenario.Tenant.Name, r)
			}
		}
	}
	tried.Range(func(key, n any) bool {
		if got := n.(*atomic.Int32).Load(); got != 1 {
			t.Errorf("%s was tried %d times", key, got)
		}
		return true
	})
}

// The schedule repeats an attack that exceeded a quota after the other attacks have ended,
// and reports it once.
func TestQuotaUsedByOthers(t *testing.T) {
	t.Parallel()
	var others, tries atomic.Int32
	room := make(chan struct{})
	attacks := []Attack{
		{ID: "X1", Via: API, Deep: true, Run: func(context.Context, *Scenario) Finding {
			others.Add(1)
			defer others.Add(-1)
			<-room
			return stopped("RBAC", "no")
		}},
		{ID: "X2", Via: API, Run: func(context.Context, *Scenario) Finding {
			if tries.Add(1) == 1 {
				defer close(room)
				return notProven("the tenant cannot do it to its own objects either: exceeded quota: bounds, requested: count/x=1")
			}
			if others.Load() > 0 {
				t.Error("it is tried again beside another attack")
			}
			return stopped("RBAC", "no")
		}},
	}
	a := &tenantRun{scenario: env("team", "", ""), attacks: attacks, results: make([]*Result, len(attacks))}
	reported := map[string]int{}
	s := scheduler{progress: func(r Result) { reported[r.Attack.ID]++ }}
	if err := s.run(t.Context(), []*tenantRun{a}); err != nil {
		t.Fatal(err)
	}
	if got := a.results[1].Finding; got.Outcome != Stopped || tries.Load() != 2 {
		t.Errorf("got %s after %d tries: %s", got.Outcome, tries.Load(), got.Reason)
	}
	if diff := cmp.Diff(map[string]int{"X1": 1, "X2": 1}, reported); diff != "" {
		t.Errorf("what was reported (-want +got):\n%s", diff)
	}
}

func TestRounds(t *testing.T) {
	t.Parallel()
	planted := []Attack{{ID: "X1", Via: Git, Files: func(*Scenario) map[string]string { return nil }}}
	all := []*tenantRun{
		{scenario: env("a", "", "https://one"), attacks: planted},
		{scenario: env("b", "", "https://one"), attacks: planted},
		{scenario: env("c", "", "https://one")},
		{scenario: env("d", "", "https://two"), attacks: planted},
		{scenario: env("e", "", ""), attacks: planted},
		{scenario: deliveredFrom("f", env("f", "", "https://two")), attacks: []Attack{{ID: "X2", Source: true}}},
		{scenario: deliveredFrom("flux-system", env("g", "", "https://two")), attacks: []Attack{{ID: "X2", Source: true}}},
	}
	var got [][]string
	for _, round := range rounds(all) {
		var names []string
		for _, a := range round {
			names = append(names, a.scenario.Tenant.Name)
		}
		got = append(got, names)
	}
	if diff := cmp.Diff([][]string{{"a", "c", "d", "e", "f"}, {"b", "g"}}, got); diff != "" {
		t.Errorf("two tenants that plant in one repository, or get a source from it, do so one after the other (-want +got):\n%s", diff)
	}
}

// deliveredFrom sets the namespace of the Kustomization for a tenant's repository. The account is in
// the tenant's own.
func deliveredFrom(namespace string, e *Scenario) *Scenario {
	e.Namespace, e.Tenant.Namespaces = e.Tenant.Name, []string{e.Tenant.Name}
	e.Account = discovery.Account{Namespace: e.Tenant.Name, Name: e.Tenant.Name}
	e.Repository.Kustomization.Namespace = namespace
	return e
}

func TestInFull(t *testing.T) {
	t.Parallel()
	full := inFull([]*Scenario{env("a", "one", ""), env("b", "one", "https://b"), env("c", "one", "https://c"), env("d", "two", "")})
	got := map[string]string{}
	for shape, e := range full {
		got[shape] = e.Tenant.Name
	}
	if diff := cmp.Diff(map[string]string{"one": "b", "two": "d"}, got); diff != "" {
		t.Errorf("the one with a repository shows more (-want +got):\n%s", diff)
	}
}

// answers is an attack that always ends in the same way.
func answers(f Finding) func(context.Context, *Scenario) Finding {
	return func(context.Context, *Scenario) Finding { return f }
}

// TestTry checks that a finding names a missing requirement of the attack, and how to provide it.
func TestTry(t *testing.T) {
	t.Parallel()
	accepted := func(context.Context, *Scenario) Finding { return gotThrough("it could") }
	planted := func(*Scenario) map[string]string { return nil }
	unmapped := env("a", "", "https://git.example.com/a")
	unmapped.Repository = nil
	unplanted := env("a", "", "https://git.example.com/a")
	unplanted.unplanted = context.DeadlineExceeded
	doubtful := env("a", "", "")
	doubtful.doubts = []string{"Kustomization/x/y (assumed)"}
	synced := env("a", "", "")
	synced.Tenant.Synced = true
	unsynced := func(rules []authorizationv1.ResourceRule) *Scenario { return withRules("team", rules) }
	powerless := env("a", "", "")
	powerless.lacks = "Kustomization/x/y is not ready"
	for _, tc := range []struct {
		reason string
		env    *Scenario
		attack Attack
		want   Finding
	}{
		{"without its rights a tenant proves nothing", powerless, Attack{Run: answers(stopped(rbac, "no"))}, notProven("RBAC refuses it, but Kustomization/x/y is not ready")},
		{"nor with a quota beside them", powerless, Attack{ID: "A2", Run: answers(stopped("quota x, "+rbac, "no"))}, notProven("RBAC refuses it, but Kustomization/x/y is not ready")},
		{"another control proves something", powerless, Attack{Run: answers(stopped("policy x", "no"))}, stopped("policy x", "no")},
		{"the flag is named", unmapped, Attack{Files: planted, Run: accepted}, notProven("no repository of the tenant is mapped: add --map https://git.example.com/a#main=DIR")},
		{"Flux delivers something else", synced, Attack{Files: planted, Run: accepted}, notProven("no Kustomization of the tenant applies a Git repository or an OCI artifact")},
		{"there is nothing to commit to", unsynced(nil), Attack{Via: Git, Files: planted, Run: accepted}, Finding{Outcome: NotInstalled, Message: "Flux delivers no repository of the tenant"}},
		{"a tenant without its rights may have one", powerless, Attack{Via: Git, Files: planted, Run: accepted}, notProven("no Kustomization of the tenant applies a Git repository or an OCI artifact")},
		{"it may deliver nothing by itself", unsynced(nil), Attack{Via: API, Files: planted, Run: accepted}, stopped(rbac, "the tenant may write neither Kustomizations nor HelmReleases")},
		{"it may deliver by itself", unsynced([]authorizationv1.ResourceRule{{Verbs: []string{"create"}, APIGroups: []string{"helm.toolkit.fluxcd.io"}, Resources: []string{"*"}}}), Attack{Via: API, Source: true, Run: accepted}, notProven("Flux delivers no repository of the tenant, which may write HelmReleases, and verify could not give it one")},
		{"it could not be changed", unplanted, Attack{Files: planted, Run: accepted}, notProven("the tenant's repository cannot be used: context deadline exceeded")},
		{"what needs no repository is judged", unplanted, Attack{Run: accepted}, gotThrough("it could")},
		{"a policy may come with what is assumed", doubtful, Attack{Controls: []string{"RBAC", "policy"}, Run: accepted}, notProven("here it could, but a policy that stops it may come with Kustomization/x/y (assumed)")},
		{"no policy gives or takes rights", doubtful, Attack{Controls: []string{"RBAC (bind)", "flag --x"}, Run: accepted}, gotThrough("it could")},
		{"a kind that is not there stops nobody", env("a", "", ""), Attack{Run: answers(stopped(notInstalled, "no matches for kind"))}, Finding{Outcome: NotInstalled, Message: "no matches for kind"}},
		{"no shards are not a control", env("a", "", ""), Attack{Run: answers(stopped(noShards, "no namespace is in a shard"))}, Finding{Outcome: NotInstalled, Message: "no namespace is in a shard"}},
		{"nor is a namespace with nothing in it", env("a", "", ""), Attack{Run: answers(stopped(noGuardrails, "nothing"))}, Finding{Outcome: NotInstalled, Message: "nothing"}},
	} {
		if diff := cmp.Diff(tc.want, tc.env.try(t.Context(), tc.attack)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestTryAll checks that owners try the attacks that select them, and that the worst finding counts.
func TestTryAll(t *testing.T) {
	t.Parallel()
	e := env("a", "", "")
	e.owners = []*Scenario{{who: identity{name: "User ann"}, Owner: &discovery.Owner{Kind: "User", Name: "ann"}}}
	for name, tc := range map[string]struct {
		reason         string
		owners         Owners
		account, owner Finding
		want           Finding
	}{
		"the account's own":   {"what owners have nothing to do with", OwnersNever, stopped("RBAC", "no"), gotThrough("it could"), stopped("RBAC", "no")},
		"an owner's":          {"what an owner can do, the tenant can", OwnersAnywhere, stopped("RBAC", "no"), gotThrough("it could"), gotThrough("as User ann: it could")},
		"the account's":       {"and what its account can do", OwnersWithin, gotThrough("it could"), stopped("RBAC", "no"), gotThrough("it could")},
		"not proven":          {"what is not proven of one is not proven", OwnersAnywhere, stopped("RBAC", "no"), notProven("an outage"), notProven("as User ann: an outage")},
		"through is worse":    {"than what is not proven", OwnersAnywhere, notProven("an outage"), gotThrough("it could"), gotThrough("as User ann: it could")},
		"stopped by two":      {"all controls are named", OwnersAnywhere, stopped("RBAC", "no"), stopped("policy p, RBAC", "never"), stopped("RBAC, policy p", "no")},
		"there for one":       {"what is not there for the account stopped nobody", OwnersAnywhere, stopped(notInstalled, "no Tenant"), stopped("RBAC", "no"), stopped("RBAC", "no")},
		"not there for both":  {"nothing was attacked", OwnersAnywhere, stopped(notInstalled, "no Tenant"), stopped(notInstalled, "none"), stopped(notInstalled, "no Tenant")},
		"stopped by the same": {"each once", OwnersAnywhere, stopped("RBAC", "no"), stopped("RBAC", "never"), stopped("RBAC", "no")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Attack{Owners: tc.owners, Run: func(_ context.Context, e *Scenario) Finding {
				if e.Owner != nil {
					return tc.owner
				}
				return tc.account
			}}
			if diff := cmp.Diff(tc.want, e.tryAll(t.Context(), a)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A tenant without a namespace has owners alone, who try what lies outside.
func TestTriesWithoutNamespace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason     string
		namespaces []string
		owners     Owners
		want       bool
	}{
		{"what the account does nobody tries", nil, OwnersNever, false},
		{"within what is not there nobody tries anything", nil, OwnersWithin, false},
		{"what lies outside", nil, OwnersAnywhere, true},
		{"a namespace without an account", []string{"a"}, OwnersWithin, true},
	} {
		e := &Scenario{Tenant: discovery.Tenant{Name: "a", Namespaces: tc.namespaces}}
		if got := e.appliesTo(Attack{Owners: tc.owners}); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
	if f := (&Scenario{}).tryAll(t.Context(), Attack{Owners: OwnersAnywhere}); f.Outcome != NotProven {
		t.Errorf("without anybody to attack as nothing is proven: %v", f)
	}
}
