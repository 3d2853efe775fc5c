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

// Matrix returns the results as text: a row for each attack, a column for each row of the
// table, by number. An x marks an attack that got through, a dot a stopped one; a blank marks
// an attack that was not tried.
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

// Document writes the table as a page of Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Which control stops which attack

Each control of the example fleet, how it is taken away, and which attacks of
[the catalogue](attacks.md) then get through. ` + "`make ablation`" + ` does it and prints
the matrix; the tests check that it is so. Where a row has two controls, each of
them stops the attacks alone. Generated from test/ablation; do not edit.

`)
	table(&b, Rows(), Excluded())
	b.WriteString(`
## With Tenure's rules, role, manager and proxy

The same fleet with Tenure in the place of its own policies and role, and tenant
dev-team with an owner, who attacks as well. The proxy has no switch by which it would
do without a control. So for its rows another one stands before it, which has an admin's
rights: it takes the requests that the control is about, answers them as a proxy without
the control does, and passes all others on unchanged.

`)
	table(&b, TenureRows(), TenureExcluded())
	return b.String()
}

// table writes the rows, and the attacks without a row.
func table(b *strings.Builder, rows []Row, excluded map[string]Exclusion) {
	b.WriteString("| Without | Taken away | Gets through |\n|---|---|---|\n")
	for _, r := range rows {
		ways := make([]string, 0, len(r.Controls))
		for _, c := range r.Controls {
			ways = append(ways, c.Away)
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", r.Name(), strings.Join(ways, "; "), strings.Join(r.Through(), ", "))
	}
	b.WriteString("\nIn no row:\n\n| Attack | Why |\n|---|---|\n")
	for _, a := range catalog.Catalogue() {
		if e, ok := excluded[a.Key()]; ok {
			fmt.Fprintf(b, "| %s | %s |\n", a.Key(), e.Reason)
		}
	}
}
