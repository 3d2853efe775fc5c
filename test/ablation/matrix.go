package ablation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// Name returns the names of the row's controls, joined, or "nothing" for a row without
// controls.
func (r Row) Name() string {
	names := make([]string, 0, len(r.Controls))
	for _, c := range r.Controls {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, " and ")
}

// Matrix returns the results as text: a line for each attack, and a column for each row of the table, by
// number. An x marks an attack that got through, and a dot a stopped attack; a blank marks an attack that
// was not tried.
func Matrix(all []Measured) string {
	var b strings.Builder
	for i, m := range all {
		fmt.Fprintf(&b, "%3d  without %s (%.1fs)\n", i+1, m.Row.Name(), m.Took.Seconds())
	}
	width := 0
	for _, a := range catalog.Catalogue() {
		width = max(width, len(a.Key()))
	}
	line := func(first string, cell func(int, Measured) string) {
		var cells strings.Builder
		for i, m := range all {
			fmt.Fprintf(&cells, " %2s", cell(i, m))
		}
		fmt.Fprintf(&b, "%-*s %s\n", width, first, strings.TrimRight(cells.String(), " "))
	}
	b.WriteString("\n")
	line("", func(i int, _ Measured) string { return fmt.Sprint(i + 1) })
	for _, a := range catalog.Catalogue() {
		key := a.Key()
		line(key, func(_ int, m Measured) string {
			switch {
			case Excluded()[key].Through || slices.Contains(m.Through, key):
				return "x"
			case slices.Contains(m.Tried, key):
				return "."
			}
			return ""
		})
	}
	return b.String()
}

//go:generate go run ../../hack/ablation ../../docs/reference/ablation.md

// Document returns the table as a page of Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Which control stops which attack

The table lists each control of the example fleet, how the test removes it, and the attacks of
[the catalogue](attacks.md) that then get through. ` + "`make ablation`" + ` runs the attacks and
prints the matrix; the tests check it. If a row has several controls, each of them alone stops
the attacks. Generated from test/ablation; do not edit.

`)
	table(&b, Rows(), Excluded())
	b.WriteString(`
## With Tenure's rules, role, manager and proxy

Here the same fleet has Tenure instead of its own policies and role. The tenant dev-team has an
owner, who attacks as well. The proxy has no switch that disables a control. So the test puts
another proxy with an admin's rights before it. That proxy answers the requests that the control
is about as if the control did not exist, and passes all other requests on unchanged.

`)
	table(&b, TenureRows(), TenureExcluded())
	return b.String()
}

// table writes the rows, and the attacks without a row.
func table(b *strings.Builder, rows []Row, excluded map[string]Exclusion) {
	b.WriteString("| Without | How it is removed | Attacks that get through |\n|---|---|---|\n")
	for _, r := range rows {
		ways := make([]string, 0, len(r.Controls))
		for _, c := range r.Controls {
			ways = append(ways, c.Away)
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", r.Name(), strings.Join(ways, "; "), strings.Join(r.Through(), ", "))
	}
	b.WriteString("\nAttacks in no row:\n\n| Attack | Reason |\n|---|---|\n")
	for _, a := range catalog.Catalogue() {
		if e, ok := excluded[a.Key()]; ok {
			fmt.Fprintf(b, "| %s | %s |\n", a.Key(), e.Reason)
		}
	}
}
