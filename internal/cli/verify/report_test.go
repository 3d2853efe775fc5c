package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

var today = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func day(offset int) time.Time { return today.Truncate(24*time.Hour).AddDate(0, 0, offset) }

// attacked returns findings with the given outcomes, for tenants a and b. Tenant a has
// cluster-admin.
func attacked(outcomes ...catalog.Outcome) findings {
	f := findings{path: "clusters/staging", took: 1500 * time.Millisecond}
	f.attacks = catalog.Report{
		Tenants: []discovery.Tenant{
			{Name: "a", Namespaces: []string{"a"}, Roles: []string{"ClusterRole/cluster-admin"}},
			{Name: "b", Namespaces: []string{"b"}, Roles: []string{"ClusterRole/edit"}},
		},
		Like: map[string]string{},
	}
	ids := map[catalog.Outcome]string{catalog.GotThrough: "X1", catalog.NotProven: "X2", catalog.Stopped: "X3", catalog.NotInstalled: "X5"}
	for _, outcome := range outcomes {
		for _, tenant := range []string{"a", "b"} {
			f.attacks.Results = append(f.attacks.Results, catalog.Result{
				Attack: catalog.Attack{
					ID: ids[outcome], Via: catalog.API, Title: "tries " + string(outcome),
					Fix: catalog.Fix{Advice: "do something"}, References: []string{"CVE-1"}, Controls: []string{"RBAC"},
				},
				Tenant: tenant,
				Finding: catalog.Finding{
					Outcome: outcome, Control: "RBAC", Message: "no\x1b[2J", Evidence: "it could\nscroll", Reason: "nothing to try it on",
				},
				Took: time.Second,
			})
		}
	}
	return f
}

// one returns a report on one cluster.
func one(j judgement, f findings) report {
	j.now = today
	return j.report([]clusterReport{j.cluster(f)}, f.took)
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	broken := []flux.Finding{{Row: flux.Row{Kind: flux.Kustomization, Namespace: "a", Name: "a"}, Reason: "broken"}}
	accepts := func(tenant string, until time.Time) baseline.Baseline {
		return baseline.Baseline{{Kind: baseline.Through, ID: "X1", Tenant: tenant, Reason: "r", Expires: until}}
	}
	unproven := func(id string, until time.Time) baseline.Baseline {
		return baseline.Baseline{{Kind: baseline.Unproven, ID: id, Tenant: "*", Reason: "r", By: "b", Expires: until}}
	}
	with := func(f findings, change func(*findings)) findings { change(&f); return f }
	for name, tc := range map[string]struct {
		reason   string
		findings []findings
		baseline baseline.Baseline
		want     string
		code     int
	}{
		"Stopped":     {"all is well", []findings{attacked(catalog.Stopped)}, nil, verdictSafe, 0},
		"Through":     {"nothing else makes good for it", []findings{with(attacked(catalog.Stopped, catalog.GotThrough, catalog.NotProven), func(f *findings) { f.failures = broken })}, nil, verdictUnsafe, 1},
		"NotProven":   {"one attack could not be tried", []findings{attacked(catalog.Stopped, catalog.NotProven)}, nil, verdictUnjudged, 2},
		"NotReady":    {"what runs is not what was meant", []findings{with(attacked(catalog.Stopped), func(f *findings) { f.failures = broken })}, nil, verdictUnjudged, 2},
		"NoTenants":   {"nothing was tried", []findings{{path: "p"}}, nil, verdictUnjudged, 2},
		"BrokeOff":    {"a broken run says nothing for certain", []findings{with(attacked(catalog.GotThrough), func(f *findings) { f.err = errors.New("etcd ended") })}, nil, verdictUnjudged, 2},
		"Accepted":    {"a risk that is accepted", []findings{attacked(catalog.GotThrough, catalog.Stopped)}, accepts("*", day(1)), verdictSafe, 0},
		"LastDay":     {"it holds on the last day", []findings{attacked(catalog.GotThrough)}, accepts("*", day(0)), verdictSafe, 0},
		"Expired":     {"and not longer", []findings{attacked(catalog.GotThrough)}, accepts("*", day(-1)), verdictUnsafe, 1},
		"AcceptedOne": {"a risk is accepted for a tenant, not for its neighbour", []findings{attacked(catalog.GotThrough)}, accepts("a", day(1)), verdictUnsafe, 1},
		"AcceptedAndUnproven": {"who accepts that one gets through does not accept that it is not known", []findings{attacked(catalog.GotThrough, catalog.NotProven)},
			accepts("*", day(1)), verdictUnjudged, 2},
		"UnprovenAccepted": {"what is not proven is accepted by an entry of its own", []findings{attacked(catalog.Stopped, catalog.NotProven)}, unproven("X2", day(0)), verdictSafe, 0},
		"UnprovenExpired":  {"until its day", []findings{attacked(catalog.Stopped, catalog.NotProven)}, unproven("X2", day(-1)), verdictUnjudged, 2},
		"UnprovenThrough":  {"and it does not accept what gets through", []findings{attacked(catalog.GotThrough)}, unproven("X1", day(1)), verdictUnsafe, 1},
		"NotInstalled":     {"what is not there proves nothing, and is nothing to worry about", []findings{attacked(catalog.Stopped, catalog.NotInstalled)}, nil, verdictSafe, 0},
		"NothingInstalled": {"where nothing is there, nothing is proven", []findings{attacked(catalog.NotInstalled)}, nil, verdictUnjudged, 2},
		"Worst":            {"unsafe beats not judged, in any order", []findings{attacked(catalog.Stopped), attacked(catalog.GotThrough), attacked(catalog.NotProven)}, nil, verdictUnsafe, 1},
		"Second":           {"not judged beats safe", []findings{attacked(catalog.NotProven), attacked(catalog.Stopped)}, nil, verdictUnjudged, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := judgement{baseline: tc.baseline, now: today}
			var clusters []clusterReport
			for _, f := range tc.findings {
				clusters = append(clusters, j.cluster(f))
			}
			r := j.report(clusters, time.Second)
			if r.Verdict != tc.want || ui.ExitCode(r.err()) != tc.code {
				t.Errorf("%s: got %q and exit code %d, want %q and %d", tc.reason, r.Verdict, ui.ExitCode(r.err()), tc.want, tc.code)
			}
		})
	}
}

// TestChosenAttacks checks that nothing is called safe when a part of the attacks was tried, that
// the summary says so, and that no entry of the baseline counts as stale.
func TestChosenAttacks(t *testing.T) {
	t.Parallel()
	accepted := baseline.Baseline{{Kind: baseline.Through, ID: "X9", Tenant: "*", Reason: "r", Expires: day(1)}}
	for outcome, want := range map[catalog.Outcome]string{catalog.Stopped: verdictUnjudged, catalog.GotThrough: verdictUnsafe} {
		r := one(judgement{baseline: accepted, attacks: []string{"I4-git"}}, attacked(outcome))
		if r.Verdict != want || len(r.Stale) > 0 {
			t.Errorf("the chosen attack is %s: got %q and stale %v, want %q and none", outcome, r.Verdict, r.Stale, want)
		}
		if got := r.Clusters[0].summary(); !strings.HasPrefix(got, "only I4-git of ") {
			t.Errorf("the summary does not say that a part was tried: %s", got)
		}
	}
	attack := catalog.Attack{ID: "I4", Via: catalog.Git}
	for chosen, want := range map[string]bool{"": true, "I4": true, "I4-git": true, "I4-api": false, "I": false} {
		var j judgement
		if chosen != "" {
			j.attacks = []string{chosen}
		}
		if got := j.tries(attack); got != want {
			t.Errorf("--attack %q tries I4-git: %t, want %t", chosen, got, want)
		}
	}
	for _, tc := range []struct{ attack, form, want string }{
		{"I4-git", "html", ""}, {"Z99", "text", "no such attack"}, {"I4", "sarif", "exclude each other"}, {"I4", "junit", "exclude each other"}, {"I4", "markdown", "exclude each other"},
	} {
		err := checkAttacks([]string{tc.attack}, outputs{{form: tc.form}})
		if got := fmt.Sprint(err); (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("--attack %s -o %s: got %v, want %q", tc.attack, tc.form, err, tc.want)
		}
	}
}

// TestAlike checks that the result of a deep attack, which runs only as the first tenant of a
// shape, also holds for the other tenants, even if their baseline entries differ.
func TestAlike(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.GotThrough)
	f.attacks.Like["b"] = "a"
	f.attacks.Results = f.attacks.Results[:1]
	f.attacks.Results[0].Attack.Deep = true
	c := one(judgement{baseline: baseline.Baseline{{Kind: baseline.Through, ID: "X1", Tenant: "a", Reason: "r", Expires: day(1)}}}, f).Clusters[0]
	if c.Verdict != verdictUnsafe || len(c.Attacks) != 2 || c.Attacks[0].Tenant != "b" || c.Attacks[0].Like != "a" {
		t.Errorf("a risk that is accepted for one tenant is one for another of the same shape: %s, %+v", c.Verdict, c.Attacks)
	}
	f.attacks.Results[0].Finding.Outcome = catalog.Stopped
	if c := one(judgement{}, f).Clusters[0]; len(c.Attacks) != 1 {
		t.Errorf("what was stopped is not claimed of tenants as whom it was not tried: %+v", c.Attacks)
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	b := baseline.Baseline{
		{Kind: baseline.Through, ID: "X1", Tenant: "a", Expires: day(1)},
		{Kind: baseline.Through, ID: "X2", Tenant: "*", Expires: day(1)},
		{Kind: baseline.Through, ID: "X3", Tenant: "*", Expires: day(1)},
		{Kind: baseline.Through, ID: "X1-api", Tenant: "c", Expires: day(-1)},
		{Kind: baseline.Unproven, ID: "X2", Tenant: "*", Expires: day(1)},
		{Kind: baseline.Unproven, ID: "X1", Tenant: "b", Expires: day(1)},
	}
	f := attacked(catalog.GotThrough, catalog.NotProven, catalog.Stopped)
	var got []string
	for _, s := range one(judgement{baseline: b}, f).Stale {
		got = append(got, s.ID+" "+s.Tenant)
	}
	if diff := cmp.Diff([]string{"X3 *", "X1-api c", "X1 b"}, got); diff != "" {
		t.Errorf("what was stopped, what nobody is, and what is proven; not what could not be tried (-want +got):\n%s", diff)
	}
	f.err = errors.New("interrupted")
	if got := one(judgement{baseline: b}, f).Stale; got != nil {
		t.Errorf("half a run does not know: %v", got)
	}
}

// layered returns findings of every kind.
func layered() findings {
	f := attacked(catalog.Stopped, catalog.NotProven, catalog.GotThrough, catalog.NotInstalled)
	f.attacks.Results[0].Finding.Missing = []string{"policy on it"}
	for i, r := range f.attacks.Results {
		if r.Finding.Outcome == catalog.GotThrough {
			f.attacks.Results[i].Finding.Repeat = "kubectl create --as=" + r.Tenant + " -f - <<'E'\nkind: Pod\nE"
		}
	}
	f.attacks.Like["b"] = "a"
	f.failures = []flux.Finding{{Row: flux.Row{Kind: flux.Kustomization, Namespace: "a", Name: "a"}, Reason: "broken"}}
	f.unmapped = []string{"https://git.example.com/a: not mapped"}
	return f
}

// TestNotApplied checks that a report names the Kustomizations of the platform that did not
// apply, since they may hold more tenants.
func TestNotApplied(t *testing.T) {
	t.Parallel()
	f := layered()
	for _, row := range []flux.Row{
		{Kind: flux.Kustomization, Namespace: "flux-system", Name: "tenants"}, {Kind: flux.GitRepository, Namespace: "flux-system", Name: "tenants"},
	} {
		f.failures = append(f.failures, flux.Finding{Row: row, Reason: "broken"})
	}
	r := one(judgement{}, f)
	var text bytes.Buffer
	if err := r.writeText(ui.NewScreen(&text), false); err != nil {
		t.Fatal(err)
	}
	_, node := htmlOf(t, r)
	const want = "! not applied: more tenants may be in Kustomization/flux-system/tenants"
	for format, got := range map[string]string{"text": text.String(), "HTML": textOf(node)} {
		if !strings.Contains(got, want) || strings.Contains(got, want+",") {
			t.Errorf("%s: it does not say %q alone:\n%s", format, want, got)
		}
	}
}

// TestClusterAdmins checks the advice for tenants with cluster-admin: a tenant with this role in the whole
// cluster may be a team of the platform.
func TestClusterAdmins(t *testing.T) {
	t.Parallel()
	p := &page{screen: ui.NewScreen(&bytes.Buffer{})}
	p.warnings(clusterReport{Tenants: []tenant{
		{Name: "infra", Namespaces: []string{"kyverno", "monitoring"}, Roles: []string{"ClusterRole/cluster-admin (everywhere)"}, ClusterAdmin: true},
		{Name: "web", Namespaces: []string{"web"}, Roles: []string{"ClusterRole/cluster-admin"}, ClusterAdmin: true},
	}})
	const want = `
! cluster-admin: tenants with this role in the whole cluster: infra; bind a narrower role in their namespaces, or say that their namespaces are the platform's own: --platform namespace=kyverno --platform namespace=monitoring

! cluster-admin: tenants with this role in their namespaces: web; bind a narrower role
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	j := judgement{baseline: baseline.Baseline{
		{Kind: baseline.Through, ID: "X1", Tenant: "b", Reason: "we know", By: "Ann", Expires: day(1)},
		{Kind: baseline.Through, ID: "X9", Tenant: "b", Reason: "we knew", Expires: day(1)},
		{Kind: baseline.Unproven, ID: "X2", Tenant: "b", Reason: "its host is elsewhere", By: "Ben", Expires: day(1)},
	}}
	var out bytes.Buffer
	if err := one(j, layered()).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	want := `! requested: https://git.example.com/a: not mapped

? not ready: broken (Kustomization/a/a)

✗ got through: a tenant tries got through (X1-api)
  as a, through the API: it could scroll
  fix: do something
  see: CVE-1

? not proven: whether a tenant tries not proven (X2-api)
  as a, through the API: nothing to try it on

! one layer is missing: another control still stops these attacks
  a tenant tries stopped (X3-api): as a, stopped only by: RBAC; missing: policy on it

! cluster-admin: tenants with this role in their namespaces: a; bind a narrower role

! accepted, not proven: whether a tenant tries not proven (X2-api)
  as b, through the API: nothing to try it on
  accepted by Ben until 2026-11-22: its host is elsewhere

! accepted: a tenant tries got through (X1-api)
  as b, through the API; by Ann until 2026-11-22: we know

STOPPED BY   ATTACKS
RBAC         X3

· not installed: the fleet lacks the target of these attacks: they were not tried
  no (X5-api)

attacked in full: a (namespace a; ClusterRole/cluster-admin)
  same rights, so attacked without the attacks that wait for Flux: b

→ repeat: --attack X1-api tries this attack alone, and prints the commands that repeat it by hand; --all and -o html=FILE have those of all attacks

✗ unsafe: 2 tenants, 8 attacks: 2 stopped, 1 got through, 1 not proven, 2 not installed, 2 accepted (66% proven); 1.5s

! stale: the baseline accepts something for tenant b until 2026-11-22, and it does not get through: remove the entry (X9)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("causes first, then the worst, each finding once for all its tenants (-want +got):\n%s", diff)
	}
}

// TestTextOfWays checks that an attack that got through by several ways is one finding with the evidence of
// each.
func TestTextOfWays(t *testing.T) {
	t.Parallel()
	r := one(judgement{}, attacked(catalog.GotThrough))
	for _, a := range slices.Clone(r.Clusters[0].Attacks) {
		a.Key, a.Via, a.Evidence = "X1-git", string(catalog.Git), "Flux created it"
		r.Clusters[0].Attacks = append(r.Clusters[0].Attacks, a)
	}
	var out bytes.Buffer
	if err := r.writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	want := "✗ got through: a tenant tries got through (X1-api, X1-git)\n  as a, b, through the API: it could scroll\n  as a, b, through Git: Flux created it\n  fix: do something\n"
	if !strings.HasPrefix(out.String(), want) || strings.Count(out.String(), "fix:") != 1 {
		t.Errorf("want the beginning\n%s\ngot\n%s", want, &out)
	}
}

// differing returns an attack that got through with other evidence for each tenant, and another fix for the last one.
func differing() findings {
	f := attacked(catalog.GotThrough)
	third := f.attacks.Results[1]
	third.Tenant, third.Finding.Evidence, third.Finding.Fix = "c", "it read all", "give c less"
	f.attacks.Results[0].Finding.Evidence, f.attacks.Results[1].Finding.Evidence = "it read a Secret", "it read a ConfigMap"
	f.attacks.Results = append(f.attacks.Results, third)
	for i := range f.attacks.Results {
		f.attacks.Results[i].Patch = "--- a/x\n"
	}
	return f
}

// TestTextOfEvidence checks that an attack is one finding, also accepted, although its evidence or its fix differs
// between tenants.
func TestTextOfEvidence(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := one(judgement{}, differing()).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	want := `✗ got through: a tenant tries got through (X1-api)
  as a, through the API: it read a Secret
  as b, through the API: it read a ConfigMap
  fix: do something
  as c, through the API: it read all
  fix: give c less
  see: CVE-1
`
	if !strings.HasPrefix(out.String(), want) || strings.Count(out.String(), "got through:") != 1 {
		t.Errorf("want the beginning\n%s\ngot\n%s", want, &out)
	}
	out.Reset()
	j := judgement{baseline: baseline.Baseline{{Kind: baseline.Through, ID: "X1", Tenant: "*", Reason: "we know", Expires: day(1)}}}
	if err := one(j, differing()).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	want = "! accepted: a tenant tries got through (X1-api)\n  as a, b, c, through the API; until 2026-11-22: we know\n"
	if !strings.Contains(out.String(), want) || strings.Count(out.String(), "! accepted:") != 1 {
		t.Errorf("want\n%s\nonce, got\n%s", want, &out)
	}
}

// TestTextRepeats checks that the text has the commands that repeat an attack if the user chose attacks, or
// wants all.
func TestTextRepeats(t *testing.T) {
	t.Parallel()
	want := "  see: CVE-1\n  try it yourself:\nkubectl create --as=a -f - <<'E'\nkind: Pod\nE\n"
	for _, tc := range []struct {
		reason string
		judge  judgement
		all    bool
	}{
		{"of all attacks", judgement{}, true},
		{"of the chosen attack", judgement{attacks: []string{"X1"}}, false},
	} {
		var out bytes.Buffer
		if err := one(tc.judge, layered()).writeText(ui.NewScreen(&out), tc.all); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "→ repeat") {
			t.Errorf("the commands %s are missing:\n%s", tc.reason, &out)
		}
	}
}

func TestTextAll(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := one(judgement{}, attacked(catalog.Stopped)).writeText(ui.NewScreen(&out), true); err != nil {
		t.Fatal(err)
	}
	if want := "STOPPED BY   VIA   ATTACK\nRBAC         api   tries stopped (X3-api)\n"; !strings.Contains(out.String(), want) {
		t.Errorf("with --all each attack has a line:\n%s", out.String())
	}
}

func TestTextOfSeveral(t *testing.T) {
	t.Parallel()
	j := judgement{now: today}
	broken := attacked()
	broken.path, broken.err, broken.attacks.Tenants = "clusters/other", errors.New("etcd ended"), nil
	clusters := []clusterReport{j.cluster(attacked(catalog.Stopped)), j.cluster(broken)}
	var out bytes.Buffer
	if err := j.report(clusters, time.Minute).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"── clusters/staging ──\n", "\n✓ safe: 2 tenants, 2 attacks: 2 stopped,", "\n── clusters/other ──\n",
		"── clusters/other ──\n\n? not judged: etcd ended; 1.5s\n", "\n? not judged: clusters/staging safe, clusters/other not judged; 60.0s\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "no tenants") {
		t.Errorf("of a run that broke off nobody knows whether there are tenants:\n%s", out.String())
	}
}

// TestTextBeginsWithTheCause checks that a run without tenants says in one sentence what
// verify looked for, and that an aborted run begins with the reason.
func TestTextBeginsWithTheCause(t *testing.T) {
	t.Parallel()
	waiting := attacked(catalog.GotThrough)
	waiting.failures = []flux.Finding{
		{Row: flux.Row{Kind: flux.Kustomization, Namespace: "a", Name: "apps"}, Reason: "dependency 'a/infra' is not ready"},
		{Row: flux.Row{Kind: flux.Kustomization, Namespace: "a", Name: "infra"}, Reason: "Source artifact not found"},
		{Row: flux.Row{Kind: flux.GitRepository, Namespace: "a", Name: "infra"}, Reason: "the host is not mapped"},
	}
	brokeOff := attacked(catalog.GotThrough)
	brokeOff.err = errors.New("etcd ended")
	for _, tc := range []struct {
		reason string
		f      findings
		want   string
	}{
		{"what was looked for", findings{path: "p"}, "? no tenants: the fleet has no Tenant, no namespace of a team with a tenant's label (tenure.dev/tenant, toolkit.fluxcd.io/tenant, capsule.clastix.io/tenant), and no namespace in which Flux delivers a team's repository with rights that are not those of a cluster admin; name the namespaces of tenants with --tenants\n"},
		{"sources, what they hold up, and what waits for that", waiting, "? not ready: the host is not mapped (GitRepository/a/infra)\n\n? not ready: Source artifact not found (Kustomization/a/infra)\n\n? not ready: dependency 'a/infra' is not ready (Kustomization/a/apps)\n\n✗ got through"},
		{"namespaces that Tenure's rules leave out", findings{path: "p", attacks: catalog.Report{Tenants: attacked(catalog.Stopped).attacks.Tenants, Ungoverned: []string{"a", "b"}}}, "! missing: a tenant's label on a, b: "},
		{"objects of the platform that a tenant holds up", findings{path: "p", attacks: catalog.Report{Tenants: attacked(catalog.Stopped).attacks.Tenants, Dependencies: []string{"ResourceSet f/teams depends on ConfigMap a/b of tenant a"}}}, "! depends: ResourceSet f/teams depends on ConfigMap a/b of tenant a: a tenant that"},
		{"tenants in the platform's repository", findings{path: "p", attacks: catalog.Report{Tenants: []discovery.Tenant{{Name: "dev", Repositories: []discovery.Repository{{OfPlatform: true}}}, {Name: "ops", Repositories: []discovery.Repository{{}}}}}},
			"? not tried: dev: Flux delivers from the platform's own repository, so that whoever may change the platform's files there is the platform; "},
		{"charts that no account limits", findings{path: "p", attacks: catalog.Report{Tenants: []discovery.Tenant{{Name: "dev", UnlimitedReleases: []string{"dev/app"}}, {Name: "ops"}}}},
			"? not tried: dev: no account limits what the charts of the platform's HelmReleases dev/app install, so that whoever may publish these charts may do everything in the cluster; "},
		{"kinds that no attack tries", findings{path: "p", attacks: catalog.Report{Tenants: attacked(catalog.Stopped).attacks.Tenants, OtherKinds: []catalog.OtherKinds{
			{Group: "b.example.com", Resources: []string{"a", "b", "c", "d"}, Tenants: []string{"dev", "ops"}}, {Group: "c.example.com", Resources: []string{"e"}, Tenants: []string{"dev"}},
			{Group: "d.example.com", Resources: []string{"f"}, Tenants: []string{"dev", "ops"}},
		}}}, "? not tried: dev, ops may write kinds of controllers that verify does not know, and no attack tries them: a, b, c and 1 more of b.example.com; f of d.example.com\n\n? not tried: dev may write kinds of controllers that verify does not know, and no attack tries them: e of c.example.com\n"},
		{"the controllers that are simulated", findings{path: "p", attacks: catalog.Report{Tenants: attacked(catalog.Stopped).attacks.Tenants}, simulated: []string{"helm-controller: its Pods are simulated"}}, "? simulated: helm-controller: its Pods are simulated\n"},
		{"a run that broke off", brokeOff, "? broke off: etcd ended\n\n✗ got through"},
	} {
		var out bytes.Buffer
		if err := one(judgement{}, tc.f).writeText(ui.NewScreen(&out), false); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), tc.want) || strings.Count(out.String(), "no tenants") > 1 {
			t.Errorf("%s: want %q first:\n%s", tc.reason, tc.want, out.String())
		}
	}
}

// TestTextGroupsTenants checks that findings that differ only in the names of tenants are
// grouped.
func TestTextGroupsTenants(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.GotThrough)
	for i, r := range f.attacks.Results {
		f.attacks.Results[i].Finding.Evidence = "the Secret " + r.Tenant + "/token was read"
	}
	var out bytes.Buffer
	if err := one(judgement{}, f).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	if want := "  as a, b, through the API: the Secret a/token was read\n"; !strings.Contains(out.String(), want) || strings.Count(out.String(), "got through:") != 1 {
		t.Errorf("the same finding is said once, in the words about the first tenant:\n%s", out.String())
	}
}

// TestTextGroupsAlikeTenants checks that an attack of one tenant, which is a finding for the tenants
// of the same shape too, is one finding, although its evidence names the attacked tenant alone.
func TestTextGroupsAlikeTenants(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.GotThrough)
	f.attacks.Results = f.attacks.Results[:1]
	f.attacks.Results[0].Attack.Deep = true
	f.attacks.Results[0].Finding.Evidence = "Flux created Pod a/canary for it"
	f.attacks.Like["b"] = "a"
	var out bytes.Buffer
	if err := one(judgement{}, f).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	if want := "  as a, b, through the API: Flux created Pod a/canary for it\n"; !strings.Contains(out.String(), want) || strings.Count(out.String(), "got through:") != 1 {
		t.Errorf("a finding that was copied to a tenant of the same shape has to be printed once:\n%s", out.String())
	}
}

// TestTextWraps checks that no text is cut off at any terminal width.
func TestTextWraps(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.GotThrough, catalog.NotProven, catalog.Stopped)
	const long = "the reason, of many words that no terminal has room for in one line, and that ends in the word that matters: refused"
	for i := range f.attacks.Results {
		f.attacks.Results[i].Finding.Evidence, f.attacks.Results[i].Finding.Reason, f.attacks.Results[i].Attack.Title = long, long, long
	}
	for _, width := range []int{40, 80, 120} {
		for _, all := range []bool{false, true} {
			var out bytes.Buffer
			if err := one(judgement{}, f).writeText(&ui.Screen{Writer: &out, Interactive: true, Size: func() (int, int) { return width, 24 }}, all); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if len([]rune(strings.TrimRight(line, "\n"))) > width {
					t.Errorf("at %d columns a line has more: %q", width, line)
				}
			}
			want := 4 // the title twice, the evidence and the reason
			if all {
				want++
			}
			if got := strings.Count(out.String(), "refused"); got != want {
				t.Errorf("at %d columns %d of %d texts are whole:\n%s", width, got, want, out.String())
			}
		}
	}
}

// TestTextGroupsReasons checks that attacks with the same reason, which may be half of the
// catalogue, are grouped.
func TestTextGroupsReasons(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.NotProven)
	more := attacked(catalog.NotProven).attacks.Results
	for i := range more {
		more[i].Attack.ID = "X4"
	}
	f.attacks.Results = append(f.attacks.Results, more...)
	var out bytes.Buffer
	if err := one(judgement{}, f).writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	if want := "? not proven: nothing to try it on\n  2 attacks, as a, b: X2-api, X4-api\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("a reason is given once:\n%s", out.String())
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := one(judgement{}, layered())
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back, cmpopts.IgnoreUnexported(report{}, clusterReport{}, attackMade{})); diff != "" {
		t.Errorf("what is written can be read back (-want +got):\n%s", diff)
	}
	attacks := back.Clusters[0].Attacks
	if attacks[0].Fix == "" || attacks[len(attacks)-1].Fix != "" {
		t.Error("what got through has a fix and comes first; what was stopped needs none")
	}
	empty := one(judgement{}, findings{path: "p", err: errors.New("no")})
	out.Reset()
	if err := empty.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"tenants": []`) || !strings.Contains(out.String(), `"attacks": []`) {
		t.Errorf("lists are lists, also when nothing was found:\n%s", out.String())
	}
}

// TestPatch checks that the combined patch is printed once, ready to apply, and that each
// finding has its own patch in machine formats.
func TestPatch(t *testing.T) {
	t.Parallel()
	const alone, both = "--- a/one\n+++ b/one\n@@ -1 +1 @@\n-a\n+b\n", "--- a/both\n+++ b/both\n@@ -1 +1 @@\n-a\n+c\n"
	f := attacked(catalog.GotThrough, catalog.Stopped)
	for i := range f.attacks.Results {
		f.attacks.Results[i].Patch = alone
	}
	f.patch = both
	r := one(judgement{}, f)
	for _, a := range r.Clusters[0].Attacks {
		if got, want := a.Patch == alone, a.Outcome == string(catalog.GotThrough); got != want {
			t.Errorf("%s has a patch: %t, want %t", a.Title, got, want)
		}
	}
	var out bytes.Buffer
	if err := r.writeText(ui.NewScreen(&out), false); err != nil {
		t.Fatal(err)
	}
	if bytes.Count(out.Bytes(), []byte("\n"+both)) != 1 || bytes.Contains(out.Bytes(), []byte(alone)) {
		t.Errorf("the text has not just the patch for everything:\n%s", &out)
	}
}
