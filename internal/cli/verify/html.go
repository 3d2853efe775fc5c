package verify

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

//go:embed report.html
var htmlReport string

// htmlTemplate is the report as a web page: one file that sends no request and runs no
// script. html/template escapes all text from a cluster.
var htmlTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"clean": ui.Clean, "cleanLines": ui.CleanLines, "number": ui.Number, "seconds": seconds,
	"join": func(all []string) string { return ui.Clean(strings.Join(all, ", ")) },
	"mark": func(verdict string) string { return verdictMarks[verdict] },
	"tone": func(verdict string) string { return verdictTones[verdict] },
}).Parse(htmlReport))

// verdictMarks and verdictTones define the appearance of verdicts: a sign, and the name
// of its colour in the page.
var (
	verdictMarks = map[string]string{verdictSafe: "✓", verdictUnsafe: "✗", verdictUnjudged: "?"}
	verdictTones = map[string]string{verdictSafe: toneGood, verdictUnsafe: toneBad, verdictUnjudged: toneOpen}
)

// These are the names of the page's colours.
const (
	toneGood = "good"
	toneBad  = "bad"
	toneOpen = "open"
)

// htmlPage is the data of the template.
type htmlPage struct {
	Verdict  string
	Seconds  float64
	Clusters []htmlCluster
	Stale    []staleEntry
}

// htmlCluster is a cluster's report with the methods that the template calls.
type htmlCluster struct{ clusterReport }

// htmlGroup is an attack that had the same outcome for several tenants.
type htmlGroup struct{ *group }

// htmlFinding is an attack that got through. Parts has the tenants and ways, by the fix, and Patches has each patch
// that closes the attack alone, once.
type htmlFinding struct {
	Title, Keys         string
	References, Patches []string
	Parts               [][]htmlGroup
}

// htmlReason lists attacks with the same reason.
type htmlReason struct {
	Reason, Tenants, Keys string
	Groups                []htmlGroup
}

// htmlRow is an attack with a cell for each tenant.
type htmlRow struct {
	Key, Title string
	Cells      []htmlCell
}

// htmlCell is the outcome of an attack as a tenant, and the control that stopped it.
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

// First returns the attack as the first of the tenants.
func (g htmlGroup) First() attackMade { return g.first }

// Names returns the names of all tenants in the group.
func (g htmlGroup) Names() string { return strings.Join(g.names, ", ") }

// Way returns the tenants and the way of the attack.
func (g htmlGroup) Way() string { return "as " + g.Names() + ", " + via(g.first.Via) }

// Summary returns the numbers of attacks by outcome, as text.
func (c htmlCluster) Summary() string { return c.summary() }

// ReadSummary returns the numbers of files and objects of the cluster's folder, as text.
func (c htmlCluster) ReadSummary() string { return c.Read.Summary(c.Path) }

// NoTenants returns text about what verify looked for, if there are no tenants.
func (c htmlCluster) NoTenants() string {
	if c.Error == "" && len(c.Tenants) == 0 {
		return noTenants
	}
	return ""
}

// Held returns the Kustomizations that did not apply and may hold more tenants.
func (c htmlCluster) Held() []string { return c.stoppedAttacks() }

// NotTried describes what no attack tries.
func (c htmlCluster) NotTried() []string { return c.notTried() }

// Causes returns the objects that are not ready, each cause before the objects that wait
// for it.
func (c htmlCluster) Causes() []notReady { return c.causesFirst() }

// HasCauses reports whether the cluster has a problem outside of the attacks.
func (c htmlCluster) HasCauses() bool {
	return c.Error != "" || c.NoTenants() != "" || len(c.Unmapped) > 0 || len(c.Lacking) > 0 || len(c.Dependencies) > 0 || len(c.notTried()) > 0 || len(c.Faked) > 0 || len(c.Assumed) > 0 || len(c.Simulated) > 0 || len(c.NotReady) > 0
}

func (c htmlCluster) groups(chosen func(attackMade) bool) []htmlGroup {
	return htmlGroups(c.grouped(chosen))
}

func htmlGroups(groups []*group) []htmlGroup {
	var all []htmlGroup
	for _, g := range groups {
		all = append(all, htmlGroup{g})
	}
	return all
}

// Through returns the attacks that got through and that the baseline does not accept.
func (c htmlCluster) Through() []htmlFinding {
	var all []htmlFinding
	for _, groups := range c.through() {
		f := htmlFinding{Title: groups[0].first.Title, Keys: keys(groups), References: groups[0].first.References}
		for _, alike := range byFix(groups) {
			f.Parts = append(f.Parts, htmlGroups(alike))
		}
		for _, g := range groups {
			if patch := g.first.Patch; patch != "" && !slices.Contains(f.Patches, patch) {
				f.Patches = append(f.Patches, patch)
			}
		}
		all = append(all, f)
	}
	return all
}

// AcceptedGroups returns the attacks that the baseline accepts.
func (c htmlCluster) AcceptedGroups() []htmlGroup {
	var all []htmlGroup
	for _, groups := range c.accepted() {
		all = append(all, htmlGroup{&group{first: groups[0].first, names: names(groups)}})
	}
	return all
}

// Repeatable returns the attacks that were stopped and that people can repeat.
func (c htmlCluster) Repeatable() []htmlGroup {
	return c.groups(func(a attackMade) bool { return a.Outcome == string(catalog.Stopped) && a.Repeat != "" })
}

// Layers returns the attacks that would get through with one control less.
func (c htmlCluster) Layers() []htmlGroup {
	return c.groups(func(a attackMade) bool { return len(a.Missing) > 0 })
}

// Unproven returns the unproven attacks that the baseline does not accept, by reason.
func (c htmlCluster) Unproven() []htmlReason {
	return htmlReasons(c.unproven(), func(a attackMade) string { return a.Reason })
}

// Absent returns the attacks on parts that are not installed, by the missing part.
func (c htmlCluster) Absent() []htmlReason {
	return htmlReasons(c.absent(), func(a attackMade) string { return a.Message })
}

func htmlReasons(all [][]*group, reason func(attackMade) string) []htmlReason {
	var reasons []htmlReason
	for _, groups := range all {
		reasons = append(reasons, htmlReason{Reason: reason(groups[0].first), Tenants: strings.Join(groups[0].names, ", "), Keys: keys(groups), Groups: htmlGroups(groups)})
	}
	return reasons
}

// Matrix returns a row for each attack that was tried, in the order of the catalogue,
// with a cell for each tenant.
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
	for _, a := range catalog.Catalogue() {
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

// cell returns the cell of an attack in the matrix.
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
