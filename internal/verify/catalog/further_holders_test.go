package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Further identities try what depends on rights, after the account, and only what gets through counts.
func TestTryAllAsHolders(t *testing.T) {
	t.Parallel()
	rights := []discovery.Right{{Role: "ClusterRole/secrets", Binding: "ClusterRoleBinding ci"}}
	through := gotThrough("as ServiceAccount a/ci: it could")
	through.Further = rights
	refused, outage := stopped("RBAC", "no"), notProven("an outage")
	for name, tc := range map[string]struct {
		reason          string
		attack          Attack
		account, holder Finding
		want            Finding
	}{
		"got through":      {"the tenant can act as it", Attack{ID: "W2", Via: API, Owners: OwnersAnywhere}, refused, gotThrough("it could"), through},
		"worse":            {"than what is not proven", Attack{ID: "W2", Via: API, Owners: OwnersAnywhere}, outage, gotThrough("it could"), through},
		"stopped":          {"its control is no news", Attack{ID: "W2", Via: API, Owners: OwnersAnywhere}, refused, stopped("policy p", "never"), refused},
		"not installed":    {"nor is what it lacks", Attack{ID: "W2", Via: API, Owners: OwnersAnywhere}, refused, stopped(notInstalled, "none"), refused},
		"not proven":       {"it may lack what the attack needs", Attack{ID: "W2", Via: API, Owners: OwnersAnywhere}, refused, outage, refused},
		"the account did":  {"what got through already", Attack{ID: "W2", Via: API, Owners: OwnersAnywhere}, gotThrough("first"), gotThrough("it could"), gotThrough("first")},
		"of the cluster":   {"that owners do not try it says nothing about accounts", Attack{ID: "I5", Via: API}, refused, gotThrough("it could"), through},
		"of the account":   {"about the account of the sync", Attack{ID: "I9", Via: API}, refused, gotThrough("it could"), refused},
		"waits for Flux":   {"if RBAC refused it to the account", Attack{ID: "I1", Via: API, Deep: true}, refused, gotThrough("it could"), through},
		"waits, no rights": {"if RBAC refused it to the account, and its own objects too", Attack{ID: "I1", Via: API, Deep: true}, stopped("RBAC (own objects too)", "no"), gotThrough("it could"), through},
		"another control":  {"stops the attack whoever tries it", Attack{ID: "I1", Via: API, Deep: true}, stopped("flag --default-service-account", "no"), gotThrough("it could"), stopped("flag --default-service-account", "no")},
		"a policy":         {"stops everybody alike", Attack{ID: "I1", Via: API, Deep: true}, stopped("policy p", "no"), gotThrough("it could"), stopped("policy p", "no")},
		"exempt":           {"a policy that knows the names of accounts may not stop this one", Attack{ID: "I1", Via: API, Deep: true}, stopped("policy p", "no"), gotThrough("it could"), through},
		"needs a delivery": {"as the account", Attack{ID: "I1", Via: Git, Deep: true}, refused, gotThrough("it could"), refused},
		"through a commit": {"Flux applies it as the account", Attack{ID: "I5", Via: Git}, refused, gotThrough("it could"), refused},
		"by the proxy":     {"it asks for the rights that the API server has", Attack{ID: "W2", Via: Proxy, Owners: OwnersAccounts}, refused, gotThrough("it could"), refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env("a", "", "")
			e.holders = []*Scenario{{who: identity{name: "ServiceAccount a/ci"}, further: rights, distinguished: strings.Contains(name, "exempt")}}
			tc.attack.Run = func(_ context.Context, e *Scenario) Finding {
				if e.further != nil {
					return tc.holder
				}
				return tc.account
			}
			if diff := cmp.Diff(tc.want, e.tryAll(t.Context(), tc.attack)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// What an identity gets through counts for the tenants of the same shape, which did not try it.
func TestShareHolders(t *testing.T) {
	t.Parallel()
	through := gotThrough("as ServiceAccount a/ci: it could")
	through.Further = []discovery.Right{{}}
	attack := Attack{ID: "W2", Via: API}
	r := Report{Like: map[string]string{"b": "a"}, Results: []Result{
		{Attack: attack, Tenant: "a", Finding: through}, {Attack: attack, Tenant: "b", Finding: stopped("RBAC", "no")},
	}}
	r.shareChanges()
	if got, want := r.Results[1].Finding.Evidence, "as tenant a, which has the same rights: as ServiceAccount a/ci: it could"; got != want {
		t.Errorf("the second tenant: %q, want %q", got, want)
	}
}

func TestCoversRules(t *testing.T) {
	t.Parallel()
	rule := func(verb, group, resource string, names ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
	}
	for _, tc := range []struct {
		reason    string
		had, has  authorizationv1.ResourceRule
		covered   bool
		addresses []authorizationv1.NonResourceRule
	}{
		{"the same", rule("get", "", "pods"), rule("get", "", "pods"), true, nil},
		{"all verbs", rule("*", "", "pods"), rule("get", "", "pods"), true, nil},
		{"more verbs", rule("get", "", "pods"), rule("*", "", "pods"), false, nil},
		{"another group", rule("get", "", "pods"), rule("get", "apps", "pods"), false, nil},
		{"a subresource", rule("get", "", "pods"), rule("get", "", "pods/log"), false, nil},
		{"one of all", rule("get", "", "pods"), rule("get", "", "pods", "web"), true, nil},
		{"all, not one", rule("get", "", "pods", "web"), rule("get", "", "pods"), false, nil},
		{"another one", rule("get", "", "pods", "web"), rule("get", "", "pods", "db"), false, nil},
		{"an address", rule("get", "", "pods"), rule("get", "", "pods"), false, []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}},
	} {
		had := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{tc.had}}
		has := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{tc.has}, NonResourceRules: tc.addresses}
		if got := coversRules(had, has); got != tc.covered {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}
