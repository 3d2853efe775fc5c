package verify

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/cli/ui"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenants"
)

// attacked is a report with findings of the given outcomes, for tenants a and b.
func attacked(outcomes ...attack.Outcome) attack.Report {
	report := attack.Report{
		Tenants: []tenants.Tenant{
			{Name: "a", Namespaces: []string{"a"}, Roles: []string{"ClusterRole/edit"}},
			{Name: "b", Namespaces: []string{"b"}, Roles: []string{"ClusterRole/cluster-admin"}},
		},
		Like: map[string]string{},
	}
	for _, outcome := range outcomes {
		for _, tenant := range []string{"a", "b"} {
			report.Results = append(report.Results, attack.Result{
				Attack: attack.Attack{ID: "X1", Via: attack.API, Title: "tries " + string(outcome), Fix: attack.Fix{Advice: "do something"}},
				Tenant: tenant,
				Finding: attack.Finding{
					Outcome: outcome, Control: "RBAC", Message: "no", Evidence: "it could", Reason: "nothing to try it on",
				},
			})
		}
	}
	return report
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	broken := []flux.Finding{{Row: flux.Row{Kind: flux.Kustomization, Namespace: "a", Name: "a"}, Reason: "broken"}}
	for _, tc := range []struct {
		reason   string
		report   attack.Report
		failures []flux.Finding
		want     string
	}{
		{"all stopped", attacked(attack.Stopped), nil, verdictSafe},
		{"one got through", attacked(attack.Stopped, attack.GotThrough, attack.NotProven), broken, verdictUnsafe},
		{"one not proven", attacked(attack.Stopped, attack.NotProven), nil, verdictUnjudged},
		{"a fleet that is not ready", attacked(attack.Stopped), broken, verdictUnjudged},
		{"no tenants", attack.Report{}, nil, verdictUnjudged},
	} {
		if got := newResult(tc.report, tc.failures, "clusters/staging", time.Second).Verdict; got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := newResult(attacked(attack.Stopped, attack.NotProven, attack.GotThrough), nil, "clusters/staging", 1500*time.Millisecond)
	if err := r.writeText(ui.NewScreen(&out)); err != nil {
		t.Fatal(err)
	}
	want := `tenant a: namespaces a; ClusterRole/edit
tenant b: namespaces b; ClusterRole/cluster-admin
  it is bound to cluster-admin in its namespaces: use a narrower role

✗ got through X1 tries got through (through the API; a, b)
  it could
  fix: do something

? not proven X1 tries not proven (through the API; a, b)
  nothing to try it on

STOPPED   VIA   BY     ATTACK
X1        api   RBAC   tries stopped

✗ unsafe: 2 tenants, 6 attacks: 2 stopped, 2 got through, 2 not proven; 1.5s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("worst first, each finding once for all its tenants (-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := newResult(attacked(attack.GotThrough, attack.Stopped), nil, "clusters/staging", time.Second)
	if err := r.writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back result
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("what is written can be read back (-want +got):\n%s", diff)
	}
	if back.Attacks[0].Fix == "" || back.Attacks[len(back.Attacks)-1].Fix != "" {
		t.Error("what got through has a fix, what was stopped needs none")
	}
}

// The patch is printed as it is applied, once, and each finding has its own for
// machines.
func TestPatch(t *testing.T) {
	t.Parallel()
	const one, both = "--- a/one\n+++ b/one\n@@ -1 +1 @@\n-a\n+b\n", "--- a/both\n+++ b/both\n@@ -1 +1 @@\n-a\n+c\n"
	report := attacked(attack.GotThrough, attack.Stopped)
	for i := range report.Results {
		report.Results[i].Patch = one
	}
	r := newResult(report, nil, "clusters/staging", time.Second)
	r.Patch = both
	for _, a := range r.Attacks {
		if got, want := a.Patch == one, a.Outcome == string(attack.GotThrough); got != want {
			t.Errorf("%s has a patch: %t, want %t", a.Title, got, want)
		}
	}
	var out bytes.Buffer
	if err := r.writeText(ui.NewScreen(&out)); err != nil {
		t.Fatal(err)
	}
	if bytes.Count(out.Bytes(), []byte("\n"+both)) != 1 || bytes.Contains(out.Bytes(), []byte(one)) {
		t.Errorf("the text has not just the patch for everything:\n%s", &out)
	}
}
