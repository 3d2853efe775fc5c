package ablation

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// TestComplete checks that every attack is in a row or excluded with a reason, and that the
// table has no other entries.
func TestComplete(t *testing.T) {
	t.Parallel()
	inRow := map[string]bool{}
	names := map[string]bool{}
	for _, r := range Rows() {
		if len(r.Controls) == 0 || len(r.Attacks) == 0 {
			t.Errorf("the row without %s proves nothing: it needs controls and attacks", r.Name())
		}
		if names[r.Name()] {
			t.Errorf("two rows are without %s", r.Name())
		}
		names[r.Name()] = true
		for _, c := range r.Controls {
			if c.Name == "" || c.Away == "" || c.remove == nil || len(r.Controls) > 1 && c.Layer == "" {
				t.Errorf("the control %s of the row without %s is not complete", c.Name, r.Name())
			}
		}
		for _, key := range r.Attacks {
			inRow[key] = true
		}
	}
	var keys []string
	for _, a := range catalog.Catalogue() {
		key := a.Key()
		keys = append(keys, key)
		exclusion, excluded := Excluded()[key]
		switch {
		case !inRow[key] && !excluded:
			t.Errorf("%s (%s) is in no row: add its key to the rows of the controls that stop it in rows.go, or to listedExclusions there with the reason", key, a.Title)
		case inRow[key] && excluded:
			t.Errorf("%s is excluded, and in a row all the same", key)
		case excluded && exclusion.Reason == "":
			t.Errorf("%s is excluded without a reason", key)
		}
	}
	for key := range inRow {
		if !slices.Contains(keys, key) {
			t.Errorf("a row names %s, which is not in the catalogue", key)
		}
	}
	for key := range Excluded() {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is excluded, but not in the catalogue", key)
		}
	}
}

// TestLayersAreTheAttacks checks that the layers of a row have the names that the attacks use.
func TestLayersAreTheAttacks(t *testing.T) {
	t.Parallel()
	for _, r := range Rows() {
		for _, c := range r.Controls {
			for _, a := range catalog.Catalogue() {
				named := slices.ContainsFunc(a.Layers, func(l catalog.Layer) bool { return l.Name == c.Layer })
				if c.Layer != "" && slices.Contains(r.Attacks, a.Key()) && !named {
					t.Errorf("%s has no layer %q, which the row without %s says", a.Key(), c.Layer, r.Name())
				}
			}
		}
	}
}

// TestTriedInParts checks that a row tries its own attacks and a part of the others, and that the
// rows together try what they try without parts.
func TestTriedInParts(t *testing.T) {
	t.Parallel()
	const every = 4
	rows := Rows()
	tried := map[string]bool{}
	for i, row := range rows {
		tries, whole := Options{Every: every}.tried(row, i), Options{}.tried(row, i)
		n := 0
		for _, a := range catalog.Catalogue() {
			own := slices.Contains(row.Through(), a.Key())
			switch {
			case tries(a) && !whole(a):
				t.Errorf("%s is tried without %s, but not when all are", a.Key(), row.Name())
			case own && !tries(a):
				t.Errorf("%s is not tried without %s, which stops it", a.Key(), row.Name())
			case tries(a):
				tried[a.Key()] = true
				if !own {
					n++
				}
			}
		}
		if most := len(catalog.Catalogue())/every + 1; n > most {
			t.Errorf("%d other attacks are tried without %s, want at most %d", n, row.Name(), most)
		}
	}
	for _, a := range catalog.Catalogue() {
		if slices.ContainsFunc(rows, func(r Row) bool { return r.tries(a) }) && !tried[a.Key()] {
			t.Errorf("no row tries %s", a.Key())
		}
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("../../docs/reference/ablation.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Document(), string(written)); diff != "" {
		t.Errorf("docs/reference/ablation.md is not up to date, run make generate (-want +got):\n%s", diff)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	simulated := catalog.Result{Attack: catalog.Attack{ID: "N6", Via: catalog.API}, Finding: catalog.Finding{Outcome: catalog.NotProven, Reason: catalog.ControllerSimulated + "nothing refuses it"}}
	result := func(key, via string, outcome catalog.Outcome) catalog.Result {
		return catalog.Result{Attack: catalog.Attack{ID: key, Via: catalog.Via(via)}, Finding: catalog.Finding{Outcome: outcome, Control: "RBAC", Reason: "an outage"}}
	}
	for name, tc := range map[string]struct {
		reason string
		result catalog.Result
		want   Measured
	}{
		"through":  {"what gets through is counted", result("S1", "api", catalog.GotThrough), Measured{Tried: []string{"S1-api"}, Through: []string{"S1-api"}}},
		"stopped":  {"what is stopped was tried", result("S1", "api", catalog.Stopped), Measured{Tried: []string{"S1-api"}}},
		"plain":    {"what always gets through says nothing about the row", result("A1", "api", catalog.GotThrough), Measured{Tried: []string{"A1-api"}}},
		"unproven": {"a row with what is not proven is no good", result("S1", "api", catalog.NotProven), Measured{Tried: []string{"S1-api"}, Faults: []string{"S1-api is not proven: an outage"}}},
		"admitted": {"nothing refuses an object of a controller that does not run", simulated, Measured{Tried: []string{"N6-api"}, Through: []string{"N6-api"}}},
		"better":   {"an exclusion that does not hold any more is told", result("A1", "api", catalog.Stopped), Measured{Tried: []string{"A1-api"}, Faults: []string{"A1-api is stopped by RBAC: it needs a row"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got Measured
			got.count(tc.result, Excluded())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTenureRowsCoverFlux checks that each row of the catalogue is proven in a fleet with
// Tenure's rules, or excluded with a reason.
func TestTenureRowsCoverFlux(t *testing.T) {
	t.Parallel()
	proven := map[string]bool{}
	for _, r := range TenureRows() {
		for _, key := range r.Attacks {
			proven[key] = true
		}
	}
	excluded := TenureExcluded()
	ids := map[string][]catalog.Attack{}
	for _, a := range catalog.Catalogue() {
		ids[a.ID] = append(ids[a.ID], a)
	}
	for id, attacks := range ids {
		some, all, stopped := false, true, true
		for _, a := range attacks {
			some = some || proven[a.Key()]
			_, known := excluded[a.Key()]
			all, stopped = all && known, stopped && !excluded[a.Key()].Through
		}
		if !some && !all {
			t.Errorf("%s is in no row: name it in Rows of the rule that stops it, add its keys to the rows of other controls that stop it in tenure.go, or all of them to TenureExcluded with the reason", id)
		}
		if !stopped {
			t.Errorf("%s gets through in a fleet with Tenure's rules: add a control that stops it, or correct TenureExcluded", id)
		}
	}
}
