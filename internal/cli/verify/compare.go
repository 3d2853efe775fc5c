package verify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// commentMarker is the start of a comment, by which CI finds the comment of the previous
// run.
const commentMarker = "<!-- tenure verify -->"

// These limits keep a comment below GitHub's maximum of 65,536 characters.
const (
	maxCommentRows  = 40
	maxCommentWords = 300
)

// difference is an attack as a tenant whose outcome changed. The outcome is empty in a
// report that does not have the attack.
type difference struct {
	cluster, key, tenant, title string
	before, now                 string
	// why is the evidence or the reason of the attack, and fix the advice against it.
	why, fix string
}

// comparison holds the changes from one report to another.
type comparison struct {
	worse, better, others []difference
	// same is the number of attacks with an unchanged outcome.
	same int
}

// readReport reads a report that verify wrote with -o json.
func readReport(file string) (*report, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the report to compare with: %w", err)
	}
	var r report
	err = json.Unmarshal(content, &r)
	if err == nil && (r.Verdict == "" || len(r.Clusters) == 0) {
		err = errNoReport
	}
	if err != nil {
		return nil, ui.WithHint(fmt.Errorf("cannot read the report to compare with: %s is none: %w", file, err),
			"write it on the main branch: tenure verify … -o json=main.json")
	}
	return &r, nil
}

// errNoReport is the error for a file that is JSON, but not a report.
var errNoReport = errors.New("it has no verdict and no clusters")

// state returns the outcome of an attack for a comparison.
func (a attackMade) state() string {
	if a.Accepted != nil {
		return "accepted, " + a.Outcome
	}
	return a.Outcome
}

// concern returns a number for a state; it is greater for a worse state.
func concern(state string) int {
	switch state {
	case string(catalog.GotThrough):
		return 3
	case string(catalog.NotProven):
		return 2
	case string(catalog.Stopped), string(catalog.NotInstalled), "":
		return 0
	}
	return 1 // accepted
}

// attackID identifies an attack as a tenant of a cluster.
type attackID struct{ cluster, key, tenant string }

// byAttack returns the attacks of all clusters.
func (r report) byAttack() map[attackID]attackMade {
	all := map[attackID]attackMade{}
	for _, c := range r.Clusters {
		for _, a := range c.Attacks {
			all[attackID{c.Path, a.Key, a.Tenant}] = a
		}
	}
	return all
}

// compare compares a report with an earlier one.
func compare(before, now report) comparison {
	was, is := before.byAttack(), now.byAttack()
	ids := maps.Clone(was)
	maps.Copy(ids, is)
	var c comparison
	for _, id := range slices.SortedFunc(maps.Keys(ids), func(a, b attackID) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.key, b.key), cmp.Compare(a.tenant, b.tenant))
	}) {
		a := is[id]
		d := difference{
			cluster: id.cluster, key: id.key, tenant: id.tenant, title: titleOf(id.key),
			before: was[id].state(), now: a.state(), why: cmp.Or(a.Evidence, a.Reason, a.Message), fix: a.Fix,
		}
		switch {
		case d.before == d.now:
			c.same++
		case concern(d.now) > concern(d.before):
			c.worse = append(c.worse, d)
		case concern(d.now) < concern(d.before):
			c.better = append(c.better, d)
		default:
			c.others = append(c.others, d)
		}
	}
	// The worst first.
	slices.SortStableFunc(c.worse, func(a, b difference) int { return concern(b.now) - concern(a.now) })
	return c
}

// titleOf returns the title of an attack in the catalogue, or "" if the catalogue lacks
// the attack, as with a report of another version.
func titleOf(key string) string {
	i := slices.IndexFunc(catalog.Catalogue(), func(a catalog.Attack) bool { return a.Key() == key })
	if i < 0 {
		return ""
	}
	return catalog.Catalogue()[i].Title
}

// writeMarkdown writes the changes since another report, as a comment for a pull request.
// It formats text from a cluster or a file as code, in which nothing becomes a link, a
// mention or markup.
func (r report) writeMarkdown(w io.Writer, before *report) error {
	c := compare(*before, r)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n## %s tenure verify: %s\n\n", commentMarker, verdictMarks[r.Verdict], r.Verdict)
	for _, now := range r.Clusters {
		was := "not there"
		if i := slices.IndexFunc(before.Clusters, func(c clusterReport) bool { return c.Path == now.Path }); i >= 0 {
			was = before.Clusters[i].Verdict
		}
		fmt.Fprintf(&b, "- %s: **%s**, on the main branch %s. %s\n", code(now.Path), now.Verdict, code(was), code(now.summary()))
	}
	for _, gone := range before.Clusters {
		if !slices.ContainsFunc(r.Clusters, func(c clusterReport) bool { return c.Path == gone.Path }) {
			fmt.Fprintf(&b, "- %s is not there any more.\n", code(gone.Path))
		}
	}
	b.WriteString("\n")
	r.writeCauses(&b, *before)
	writeDifferences(&b, "Worse than on the main branch", c.worse, true)
	writeDifferences(&b, "Better than on the main branch", c.better, false)
	writeDifferences(&b, "Otherwise changed", c.others, false)
	if len(c.worse)+len(c.better)+len(c.others) == 0 {
		b.WriteString("Nothing changed against the main branch.\n\n")
	}
	fmt.Fprintf(&b, "%s ended as on the main branch.\n", ui.Number(c.same, "attack"))
	_, err := io.WriteString(w, b.String())
	return err
}

// writeCauses lists the objects that are not ready now and were ready before, and the
// errors of runs that broke off.
func (r report) writeCauses(b *strings.Builder, before report) {
	known := map[string]bool{}
	for _, c := range before.Clusters {
		for _, n := range c.NotReady {
			known[c.Path+" "+n.Object] = true
		}
	}
	shown := 0
	for _, c := range r.Clusters {
		if c.Error != "" {
			fmt.Fprintf(b, "> %s broke off: %s\n>\n", code(c.Path), code(c.Error))
			shown++
		}
		for _, n := range c.causesFirst() {
			if known[c.Path+" "+n.Object] || shown >= maxCommentRows {
				continue
			}
			shown++
			fmt.Fprintf(b, "> %s is not ready, as it was: %s\n>\n", code(n.Object), code(n.Reason))
		}
	}
	if shown > 0 {
		b.WriteString("\n")
	}
}

// writeDifferences writes a table, if there is anything to show.
func writeDifferences(b *strings.Builder, title string, all []difference, explained bool) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "### %s (%d)\n\n| A tenant … | As | Before | Now | Code |\n|---|---|---|---|---|\n", title, len(all))
	for _, d := range all[:min(len(all), maxCommentRows)] {
		fmt.Fprintf(b, "| %s | %s in %s | %s | **%s** | %s |\n", cmp.Or(d.title, "…"), code(d.tenant), code(d.cluster), orNotTried(d.before), orNotTried(d.now), code(d.key))
	}
	if more := len(all) - maxCommentRows; more > 0 {
		fmt.Fprintf(b, "\nAnd %d more.\n", more)
	}
	b.WriteString("\n")
	if !explained {
		return
	}
	b.WriteString("<details><summary>Evidence and fixes</summary>\n\n")
	for _, d := range all[:min(len(all), maxCommentRows)] {
		fmt.Fprintf(b, "- %s as %s: %s", code(d.key), code(d.tenant), code(d.why))
		if d.fix != "" {
			fmt.Fprintf(b, "; fix: %s", code(d.fix))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n</details>\n\n")
}

// orNotTried returns the text for a state. It shows a state from a file only if it is one
// of ours.
func orNotTried(state string) string {
	outcome := strings.TrimPrefix(state, "accepted, ")
	if slices.Contains([]catalog.Outcome{catalog.GotThrough, catalog.NotProven, catalog.Stopped, catalog.NotInstalled}, catalog.Outcome(outcome)) {
		return state
	}
	return "not tried"
}

// code returns text as a code span of GitHub's Markdown, which is also valid in a table.
func code(text string) string {
	text = ui.Cut(ui.Clean(text), maxCommentWords)
	if text == "" {
		return "–"
	}
	return "`" + strings.NewReplacer("`", "'", "|", "\\|").Replace(text) + "`"
}
