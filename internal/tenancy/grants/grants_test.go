package grants

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	now      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	artifact = map[string]any{"url": "http://storage/a.tar.gz", "digest": "sha256:aa", "revision": "main@sha1:1"}
)

func grant(name string, spec v1alpha1.SourceGrantSpec) v1alpha1.SourceGrant {
	return v1alpha1.SourceGrant{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "platform"}, Spec: spec}
}

func at(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }

// cluster is what the cases have in common: two tenants, one of them with two
// namespaces, and namespaces that are no tenant's.
func cluster() State {
	tenant := func(name string) map[string]string {
		return map[string]string{v1alpha1.LabelTenant: name, "tier": name}
	}
	return trusted(State{
		Owner: "platform", Now: now,
		Sources: []Source{{Kind: "GitRepository", Name: "common", Artifact: artifact}, {Kind: "Bucket", Name: "empty"}},
		Namespaces: []Namespace{
			{Name: "a-1", Labels: tenant("a")}, {Name: "a-2", Labels: tenant("a")}, {Name: "b-1", Labels: tenant("b")},
			{Name: "platform", Labels: map[string]string{"tier": "a"}}, {Name: "default"}, {Name: "nameless", Labels: map[string]string{v1alpha1.LabelTenant: ""}},
		},
		Taken: map[string]bool{},
	})
}

// trusted lets selectors go by all labels.
func trusted(s State) State {
	for i := range s.Namespaces {
		s.Namespaces[i].Trusted = s.Namespaces[i].Labels
	}
	return s
}

func (p Planned) names() []string {
	var names []string
	for _, c := range p.Copies {
		names = append(names, c.Namespace+"/"+c.Name+"="+c.Source.Kind)
	}
	return names
}

func TestPlan(t *testing.T) {
	t.Parallel()
	common := []v1alpha1.GrantedSource{{Kind: "GitRepository", Name: "common"}}
	toTenant := func(name string) []v1alpha1.GrantedConsumers { return []v1alpha1.GrantedConsumers{{Tenant: name}} }
	everyone := []v1alpha1.GrantedConsumers{{NamespaceSelector: &metav1.LabelSelector{}}}
	for name, tc := range map[string]struct {
		reason string
		change func(*State)
		grants []v1alpha1.SourceGrant
		copies []string
		result map[string]string // reason and message by grant
	}{
		"Tenant": {
			reason: "a tenant has all of its namespaces",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: toTenant("a")})},
			copies: []string{"a-1/platform.common=GitRepository", "a-2/platform.common=GitRepository"},
			result: map[string]string{"g": "Granted: 1 sources for 2 namespaces"},
		},
		"Everyone": {
			reason: "everyone is every tenant, and not the platform",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: everyone})},
			copies: []string{"a-1/platform.common=GitRepository", "a-2/platform.common=GitRepository", "b-1/platform.common=GitRepository", "nameless/platform.common=GitRepository"},
			result: map[string]string{"g": "Granted: 1 sources for 4 namespaces"},
		},
		"ByName": {
			reason: "a namespace that is named need not be a tenant's; one without a tenant's name is not selected by it",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: []v1alpha1.GrantedConsumers{{Namespace: "default"}, {Namespace: "absent"}, {Namespace: "platform"}}})},
			copies: []string{"default/platform.common=GitRepository"},
			result: map[string]string{"g": "Granted: 1 sources for 1 namespaces"},
		},
		"ByNameAlone": {
			reason: "an owner may have chosen the name that the grant names: the tenant has to be named, too",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: []v1alpha1.GrantedConsumers{{Namespace: "a-1"}, {Tenant: "b"}}})},
			copies: []string{"b-1/platform.common=GitRepository"},
			result: map[string]string{"g": "Invalid: spec.from[0] names namespace a-1, which is tenant a's, without the tenant: add tenant: a if it is meant, since owners choose the names of their namespaces"},
		},
		"ByNameAndTenant": {
			reason: "with the tenant it is selected, and another tenant's of the name is not",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: []v1alpha1.GrantedConsumers{{Tenant: "a", Namespace: "a-1"}, {Tenant: "a", Namespace: "b-1"}}})},
			copies: []string{"a-1/platform.common=GitRepository"},
			result: map[string]string{"g": "Granted: 1 sources for 1 namespaces"},
		},
		"Untrusted": {
			reason: "a label that the owner chose selects nothing",
			change: func(s *State) { s.Namespaces[0].Trusted = nil },
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: []v1alpha1.GrantedConsumers{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "a"}}}}})},
			copies: []string{"a-2/platform.common=GitRepository"},
			result: map[string]string{"g": "Granted: 1 sources for 1 namespaces"},
		},
		"Two": {
			reason: "grants add up, and the end of one does not take from the other",
			grants: []v1alpha1.SourceGrant{
				grant("ended", v1alpha1.SourceGrantSpec{To: common, From: everyone, Expires: at(now)}),
				grant("g", v1alpha1.SourceGrantSpec{To: common, From: toTenant("b"), Expires: at(now.Add(time.Hour))}),
			},
			copies: []string{"b-1/platform.common=GitRepository"},
			result: map[string]string{"g": "Granted: 1 sources for 1 namespaces", "ended": "Expired: expired at 2026-11-21T12:00:00Z"},
		},
		"NoSource": {
			reason: "what is not there is said",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: []v1alpha1.GrantedSource{{Kind: "Bucket", Name: "common"}, common[0]}, From: toTenant("b")})},
			copies: []string{"b-1/platform.common=GitRepository"},
			result: map[string]string{"g": "SourceNotReady: there is no Bucket common"},
		},
		"Empty": {
			reason: "a source without an artifact keeps the copies that there are",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: []v1alpha1.GrantedSource{{Kind: "Bucket", Name: "empty"}}, From: toTenant("b")})},
			copies: []string{"b-1/platform.empty=Bucket"},
			result: map[string]string{"g": "SourceNotReady: Bucket empty has nothing to offer: see why it is not ready"},
		},
		"SameName": {
			reason: "two kinds of one name: the same one has it however the grants are ordered",
			change: func(s *State) {
				s.Sources = append(s.Sources, Source{Kind: "Bucket", Name: "common", Artifact: artifact})
			},
			grants: []v1alpha1.SourceGrant{
				grant("git", v1alpha1.SourceGrantSpec{To: common, From: toTenant("b")}),
				grant("other", v1alpha1.SourceGrantSpec{To: []v1alpha1.GrantedSource{{Kind: "Bucket", Name: "common"}}, From: toTenant("b")}),
			},
			copies: []string{"b-1/platform.common=Bucket"},
			result: map[string]string{
				"git":   "NameTaken: GitRepository common has the name of Bucket common, which is granted too: rename one of them",
				"other": "Granted: 1 sources for 1 namespaces",
			},
		},
		"Taken": {
			reason: "a consumer's own object is left alone",
			change: func(s *State) { s.Taken["a-1/platform.common"] = true },
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: toTenant("a")})},
			copies: []string{"a-2/platform.common=GitRepository"},
			result: map[string]string{"g": "NameTaken: namespace a-1 has an ExternalArtifact platform.common that this grant did not create: delete it there"},
		},
		"LongName": {
			reason: "a name that cannot be",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: []v1alpha1.GrantedSource{{Kind: "Bucket", Name: strings.Repeat("n", 250)}}, From: toTenant("a")})},
			result: map[string]string{"g": "Invalid: the copies of Bucket " + strings.Repeat("n", 250) + " would have a name of more than 253 characters: give the source a shorter one"},
		},
		"Selector": {
			reason: "a selector that Kubernetes does not understand selects nobody",
			grants: []v1alpha1.SourceGrant{grant("g", v1alpha1.SourceGrantSpec{To: common, From: []v1alpha1.GrantedConsumers{{Tenant: "a"}, {NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}},
			}}}})},
			result: map[string]string{"g": `Invalid: spec.from[1].namespaceSelector: "Like" is not a valid label selector operator`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cluster()
			s.Grants = tc.grants
			if tc.change != nil {
				tc.change(&s)
			}
			plan := Plan(s)
			if diff := cmp.Diff(tc.copies, plan.names()); diff != "" {
				t.Errorf("%s: copies (-want +got):\n%s", tc.reason, diff)
			}
			got := map[string]string{}
			for name, r := range plan.Results {
				got[name] = r.Reason + ": " + r.Message
			}
			if diff := cmp.Diff(tc.result, got); diff != "" {
				t.Errorf("%s: results (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Whatever is granted, a namespace gets a copy only from a grant that is in force
// and selects it, never in the place of somebody else's object, and the order of
// the grants does not matter.
func TestPlanInvariants(t *testing.T) {
	t.Parallel()
	kinds := []string{"Bucket", "GitRepository"}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := cluster()
		s.Sources = append(s.Sources, Source{Kind: "Bucket", Name: "common", Artifact: artifact})
		s.Taken["a-1/platform.common"] = random.IntN(2) == 0
		if !s.Taken["a-1/platform.common"] {
			delete(s.Taken, "a-1/platform.common")
		}
		allowed := map[string]bool{}
		for i := range 1 + random.IntN(4) {
			to := v1alpha1.GrantedSource{Kind: kinds[random.IntN(2)], Name: "common"}
			tenant := string(rune('a' + random.IntN(3)))
			spec := v1alpha1.SourceGrantSpec{To: []v1alpha1.GrantedSource{to}, From: []v1alpha1.GrantedConsumers{{Tenant: tenant}}}
			if random.IntN(3) == 0 {
				spec.Expires = at(now.Add(time.Duration(random.IntN(3)-1) * time.Minute))
			}
			s.Grants = append(s.Grants, grant(fmt.Sprint(i), spec))
			if spec.Expires == nil || spec.Expires.After(now) {
				allowed[tenant+to.Kind] = true
			}
		}
		plan := Plan(s)
		for _, c := range plan.Copies {
			key := c.Namespace + "/" + c.Name
			if !allowed[c.Namespace[:1]+c.Source.Kind] || s.Taken[key] || c.Namespace == s.Owner {
				t.Fatalf("seed %d: %s of %s was not granted: %+v", seed, key, c.Source.Kind, s.Grants)
			}
		}
		random.Shuffle(len(s.Grants), func(i, j int) { s.Grants[i], s.Grants[j] = s.Grants[j], s.Grants[i] })
		if diff := cmp.Diff(plan.Copies, Plan(s).Copies); diff != "" {
			t.Fatalf("seed %d: the order of grants matters (-one +other):\n%s", seed, diff)
		}
	}
}

func TestArtifact(t *testing.T) {
	t.Parallel()
	full := map[string]any{"url": "u", "digest": "d", "revision": "r", "path": "p", "lastUpdateTime": "t", "size": int64(3), "metadata": map[string]any{"secret": "x"}}
	want := map[string]any{"url": "u", "digest": "d", "revision": "r", "path": "p", "lastUpdateTime": "t", "size": int64(3)}
	if diff := cmp.Diff(want, Artifact(full)); diff != "" {
		t.Errorf("a consumer learns what it needs (-want +got):\n%s", diff)
	}
	for _, field := range []string{"url", "digest", "revision"} {
		partial := map[string]any{"url": "u", "digest": "d", "revision": "r"}
		delete(partial, field)
		if got := Artifact(partial); got != nil {
			t.Errorf("without %s there is nothing to fetch, but got %v", field, got)
		}
	}
}
