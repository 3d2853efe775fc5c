package verify

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/cli/ui"
)

//go:embed report.html
var htmlReport string

// htmlTemplate is the report for people who read it in a browser: one file that sends
// no request and runs no script. html/template escapes whatever came from a cluster.
var htmlTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"clean": ui.Clean, "number": number, "seconds": seconds,
	"join": func(all []string) string { return ui.Clean(strings.Join(all, ", ")) },
	"mark": func(verdict string) string { return verdictMarks[verdict] },
	"tone": func(verdict string) string { return verdictTones[verdict] },
}).Parse(htmlReport))

// verdictMarks and verdictTones are how verdicts look: a sign for each, and the name of
// its colour in the page.
var (
	verdictMarks = map[string]string{verdictSafe: "✓", verdictUnsafe: "✗", verdictUnjudged: "?"}
	verdictTones = map[string]string{verdictSafe: toneGood, verdictUnsafe: toneBad, verdictUnjudged: toneOpen}
)

// The names of the page's colours.
const (
	toneGood = "good"
	toneBad  = "bad"
	toneOpen = "open"
)

// htmlPage is what the template shows.
type htmlPage struct {
	Verdict  string
	Seconds  float64
	Clusters []htmlCluster
	Stale    []staleEntry
}

// htmlCluster is a cluster's report with what the template asks of it.
type htmlCluster struct{ clusterReport }

// htmlGroup is an attack that ended in the same way for several tenants.
type htmlGroup struct{ *group }

// htmlReason is attacks with one reason.
type htmlReason struct {
	Reason, Tenants, Keys string
	Groups                []htmlGroup
}

// htmlRow is an attack with a cell for each tenant.
type htmlRow struct {
	Key, Title string
	Cells      []htmlCell
}

// htmlCell is what came of an attack as a tenant, and what stopped it.
type htmlCell struct{ Text, Tone, By string }

// writeHTML writes the report as one HTML file.
func (r report) writeHTML(w io.Writer) error {
	page := htmlPage{Verdict: r.Verdict, Seconds: r.Seconds, Stale: r.Stale}
	for _, c := range r.Clusters {
		page.Clusters = append(page.Clusters, htmlCluster{c})
	}
	if err := htmlTemplate.Execute(w, page); err != nil {
		return fmt.Errorf("cannot write the page: %w", err)
	}
	return nil
}

// First is the attack as the first of the tenants.
func (g htmlGroup) First() attackMade { return g.first }

// Names are all tenants that it ended in this way for.
func (g htmlGroup) Names() string { return strings.Join(g.names, ", ") }

// As says what was found, as whom and in which way.
func (g htmlGroup) As(found string) string {
	return "as " + g.Names() + ", " + via(g.first.Via) + ": " + found
}

// Summary counts what came of the attacks.
func (c htmlCluster) Summary() string { return c.summary() }

// ReadSummary counts what was read of the cluster's folder.
func (c htmlCluster) ReadSummary() string { return c.Read.summary(c.Path) }

// NoTenants says what was looked for, if there are no tenants.
func (c htmlCluster) NoTenants() string {
	if c.Error == "" && len(c.Tenants) == 0 {
		return noTenants
	}
	return ""
}

// Causes are what is not ready, the cause before what waits for it.
func (c htmlCluster) Causes() []notReady { return c.causesFirst() }

// HasCauses says whether there is anything that keeps the cluster from being judged.
func (c htmlCluster) HasCauses() bool {
	return c.Error != "" || c.NoTenants() != "" || len(c.Unmapped) > 0 || len(c.NotReady) > 0
}

func (c htmlCluster) groups(chosen func(attackMade) bool) []htmlGroup {
	var all []htmlGroup
	for _, g := range c.grouped(chosen) {
		all = append(all, htmlGroup{g})
	}
	return all
}

// Through is what got through and is not accepted.
func (c htmlCluster) Through() []htmlGroup { return c.groups(isThrough) }

// AcceptedGroups is what the baseline accepts.
func (c htmlCluster) AcceptedGroups() []htmlGroup {
	return c.groups(func(a attackMade) bool { return a.Accepted != nil })
}

// Layers are the attacks that one control less would let through.
func (c htmlCluster) Layers() []htmlGroup {
	return c.groups(func(a attackMade) bool { return len(a.Missing) > 0 })
}

// Unproven is what is not proven and not accepted, by reason.
func (c htmlCluster) Unproven() []htmlReason {
	return htmlReasons(c.unproven(), func(a attackMade) string { return a.Reason })
}

// Absent is what is not installed, by what is not there.
func (c htmlCluster) Absent() []htmlReason {
	return htmlReasons(c.absent(), func(a attackMade) string { return a.Message })
}

func htmlReasons(all [][]*group, reason func(attackMade) string) []htmlReason {
	var reasons []htmlReason
	for _, groups := range all {
		r := htmlReason{Reason: reason(groups[0].first), Tenants: strings.Join(groups[0].names, ", "), Keys: keys(groups)}
		for _, g := range groups {
			r.Groups = append(r.Groups, htmlGroup{g})
		}
		reasons = append(reasons, r)
	}
	return reasons
}

// Matrix has a row for each attack that was tried, in the order of the catalogue, and a
// cell for each tenant.
func (c htmlCluster) Matrix() []htmlRow {
	made := map[[2]string]attackMade{}
	titles := map[string]string{}
	for _, a := range c.Attacks {
		made[[2]string{a.Key, a.Tenant}] = a
		titles[a.Key] = a.Title + ", " + via(a.Via)
	}
	var rows []htmlRow
	for _, key := range inOrder(titles) {
		row := htmlRow{Key: key, Title: titles[key]}
		for _, t := range c.Tenants {
			a, tried := made[[2]string{key, t.Name}]
			cell := htmlCell{Text: "–"}
			if tried {
				cell = a.cell()
			}
			if like, was := made[[2]string{key, t.Like}]; !tried && was {
				cell = like.cell()
				cell.By = "as " + t.Like
			}
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

// inOrder returns the keys of attacks in the order of the catalogue.
func inOrder(titles map[string]string) []string {
	var keys []string
	for _, a := range attack.Catalogue() {
		if _, tried := titles[a.Key()]; tried {
			keys = append(keys, a.Key())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(titles)) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// cell is how an attack is shown in the matrix.
func (a attackMade) cell() htmlCell {
	switch {
	case a.Accepted != nil:
		return htmlCell{"! accepted", toneOpen, a.Outcome}
	case isThrough(a):
		return htmlCell{"✗ got through", toneBad, ""}
	case isUnproven(a):
		return htmlCell{"? not proven", toneOpen, ""}
	case isAbsent(a):
		return htmlCell{"· not installed", "", ""}
	}
	return htmlCell{"✓ stopped", toneGood, "by " + a.Control}
}
