package ui

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// gap is what kubectl puts between columns.
const gap = "   "

// minMessage is the least that is left of a last column; on a terminal that is
// too narrow even for that, whole lines are cut.
const minMessage = 10

// Table is aligned columns. The cells of a column READY are coloured by what
// they say, and the last column is cut to what is left of the terminal's width.
type Table struct {
	// Header are the columns' names.
	Header []string
	// NoHeader leaves the header out of what is printed.
	NoHeader bool
	// Rows are the cells. They may come from a cluster: they are cleaned
	// before they are printed.
	Rows [][]string
}

// Print writes the table.
func (t Table) Print(screen *Screen) error {
	var widths []int
	lines := t.lay(screen, &widths)
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(screen, strings.Join(lines, "\n")+"\n")
	return err
}

// lay makes the lines of a table. The columns are as wide as widths at least,
// and widths grows to what they are, so that rows printed one after the other
// stay aligned.
func (t Table) lay(screen *Screen, widths *[]int) []string {
	var cells [][]string
	if !t.NoHeader {
		cells = append(cells, t.Header)
	}
	for _, row := range t.Rows {
		clean := make([]string, len(row))
		for i, cell := range row {
			clean[i] = Clean(cell)
		}
		cells = append(cells, clean)
	}
	for _, row := range cells {
		for column, cell := range row {
			if column == len(*widths) {
				*widths = append(*widths, 0)
			}
			(*widths)[column] = max((*widths)[column], ansi.StringWidth(cell))
		}
	}
	ready := slices.Index(t.Header, "READY")
	lines := make([]string, len(cells))
	for i, row := range cells {
		if i == 0 && !t.NoHeader {
			lines[i] = line(screen, row, *widths, -1)
			continue
		}
		lines[i] = line(screen, row, *widths, ready)
	}
	return lines
}

// line aligns the cells of a row and colours the one at index ready, if any.
func line(screen *Screen, row []string, widths []int, ready int) string {
	var b strings.Builder
	used := 0
	for i, cell := range row {
		last := i == len(row)-1
		if width := screen.width(); last && width > 0 {
			cell = Cut(cell, max(width-used, minMessage))
		}
		text := cell
		if i == ready {
			text = screen.Paint(readyColour(cell), cell)
		}
		if !last {
			text = Pad(text, widths[i]) + gap
			used += widths[i] + len(gap)
		}
		b.WriteString(text)
	}
	return Cut(strings.TrimRight(b.String(), " "), screen.width())
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
