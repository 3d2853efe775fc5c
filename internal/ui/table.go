package ui

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// gap is the space between columns, as in kubectl.
const gap = "   "

// minMessage is the minimum width of a last column that is cut. On a narrower terminal,
// whole lines are cut.
const minMessage = 10

// minLive is the minimum width of the last column of a redrawn table. With less, the table has no column
// REVISION.
const minLive = 30

// minWrapped is the minimum width of a wrapped last column. If the other columns leave less,
// the last column goes below them.
const minWrapped = 40

// Table is a set of aligned columns. The content of a cell in column READY sets its
// colour. On a terminal the last column, which gives the reason, is wrapped and never
// cut.
type Table struct {
	// Header are the columns' names.
	Header []string
	// NoHeader omits the header.
	NoHeader bool
	// Rows are the cells. They may come from a cluster: they are cleaned
	// before they are printed.
	Rows [][]string
}

// Print writes the table to the screen, or returns the error of writing it.
func (t Table) Print(screen *Screen) error {
	var widths []int
	lines := t.lines(screen, &widths, wrapped)
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(screen, strings.Join(lines, "\n")+"\n")
	return err
}

// lay returns the lines of a table that is redrawn: each row is one line, cut to the
// terminal's width. On a narrow terminal, the column REVISION leaves its room to the message.
func (t Table) lay(screen *Screen, widths *[]int) []string {
	revision := slices.Index(t.Header, "REVISION")
	if revision < 0 || screen.width() == 0 {
		return t.lines(screen, widths, cut)
	}
	used := 0
	for column := range t.Header[:len(t.Header)-1] {
		used += len(gap) + slices.Max(t.cellWidths(column))
	}
	if screen.width()-used < minLive {
		t = t.without(revision)
	}
	return t.lines(screen, widths, cut)
}

// cellWidths returns the widths of the cells of a column, and of its name.
func (t Table) cellWidths(column int) []int {
	widths := []int{ansi.StringWidth(t.Header[column])}
	for _, row := range t.Rows {
		widths = append(widths, ansi.StringWidth(Clean(row[column])))
	}
	return widths
}

// without returns the table without a column.
func (t Table) without(column int) Table {
	remove := func(row []string) []string { return slices.Delete(slices.Clone(row), column, column+1) }
	t.Header = remove(t.Header)
	rows := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = remove(row)
	}
	t.Rows = rows
	return t
}

// lines returns the lines of a table, and formats each row with the given function. The
// columns are at least as wide as widths, and lines stores their actual widths in it, so
// that rows printed one after the other stay aligned.
func (t Table) lines(screen *Screen, widths *[]int, row rowFunc) []string {
	var cells [][]string
	if !t.NoHeader {
		cells = append(cells, t.Header)
	}
	for _, values := range t.Rows {
		clean := make([]string, len(values))
		for i, cell := range values {
			clean[i] = Clean(cell)
		}
		cells = append(cells, clean)
	}
	for _, values := range cells {
		for column, cell := range values {
			if column == len(*widths) {
				*widths = append(*widths, 0)
			}
			(*widths)[column] = max((*widths)[column], ansi.StringWidth(cell))
		}
	}
	ready := slices.Index(t.Header, "READY")
	lines := make([]string, len(cells))
	for i, values := range cells {
		colour := ready
		if i == 0 && !t.NoHeader {
			colour = -1
		}
		lines[i] = row(screen, values, *widths, colour)
	}
	return lines
}

// rowFunc formats a row of cells and colours the cell at index ready, if any.
type rowFunc func(screen *Screen, row []string, widths []int, ready int) string

// cut formats a row as one line, and cuts the last column to the remaining width.
func cut(screen *Screen, row []string, widths []int, ready int) string {
	text, used := columns(screen, row, widths, ready)
	last := row[len(row)-1]
	if width := screen.width(); width > 0 {
		last = Cut(last, max(width-used, minMessage))
	}
	return Cut(strings.TrimRight(text+paintReady(screen, row, last, ready), " "), screen.width())
}

// wrapped formats a row with the complete last column, in as many lines as needed.
func wrapped(screen *Screen, row []string, widths []int, ready int) string {
	text, used := columns(screen, row, widths, ready)
	last := row[len(row)-1]
	width := screen.width()
	switch {
	case width == 0 || used+ansi.StringWidth(last) <= width || ready == len(row)-1:
		text += paintReady(screen, row, last, ready)
	case width-used >= minWrapped:
		text = screen.Wrap(text, used, last)
	default:
		text = strings.TrimRight(broken(screen, row, widths, ready), " ") + "\n" + screen.Wrap(strings.Repeat(" ", below), below, last)
	}
	return strings.TrimRight(text, " \n")
}

// below is the indentation of the lines of a row after the first one.
const below = 2

// broken aligns all cells of a row except the last like columns, and begins another line before a cell that
// does not fit into the width of the screen.
func broken(screen *Screen, row []string, widths []int, ready int) (text string) {
	column := 0
	for i, cell := range row[:len(row)-1] {
		if i > 0 && column+ansi.StringWidth(cell) > screen.width() {
			text = strings.TrimRight(text, " ") + "\n" + strings.Repeat(" ", below)
			column = below
		}
		column += widths[i] + len(gap)
		if i == ready {
			cell = screen.Paint(readyColour(cell), cell)
		}
		text += Pad(cell, widths[i]) + gap
	}
	return text
}

// columns aligns all cells of a row except the last, and returns their total width.
func columns(screen *Screen, row []string, widths []int, ready int) (text string, used int) {
	var b strings.Builder
	for i, cell := range row[:len(row)-1] {
		if i == ready {
			cell = screen.Paint(readyColour(cell), cell)
		}
		b.WriteString(Pad(cell, widths[i]) + gap)
		used += widths[i] + len(gap)
	}
	return b.String(), used
}

// paintReady colours a last cell, if it is the cell of column READY.
func paintReady(screen *Screen, row []string, last string, ready int) string {
	if ready != len(row)-1 {
		return last
	}
	return screen.Paint(readyColour(row[ready]), last)
}

func readyColour(status string) Colour {
	switch status {
	case "True":
		return Green
	case "False":
		return Red
	}
	return Yellow
}
