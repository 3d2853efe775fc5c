package ui

import (
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// canvas is a block of lines at the bottom of a terminal that is drawn again
// and again. The cursor rests below it.
type canvas struct {
	screen *Screen
	drawn  []string
}

// draw replaces the block. It cuts lines to the terminal's width. The block must not be higher
// than [canvas.height]: lines that have scrolled off the screen cannot be drawn again.
func (c *canvas) draw(lines []string) error {
	return c.replace(nil, lines)
}

// print writes lines above the block, where they stay.
func (c *canvas) print(lines ...string) error {
	return c.replace(lines, c.drawn)
}

// clear removes the block.
func (c *canvas) clear() error { return c.draw(nil) }

// height returns the maximum number of lines of a block.
func (c *canvas) height() int {
	_, height := c.screen.Size()
	if height == 0 {
		return 23 // of the classic 24
	}
	return max(height-1, 1) // the cursor's line is below the block
}

// replace writes everything at once, so that the terminal shows no intermediate state.
func (c *canvas) replace(above, lines []string) error {
	var b strings.Builder
	if up := c.drawnRows(); up > 0 {
		b.WriteString(ansi.CursorUp(up))
	}
	b.WriteString("\r" + ansi.EraseScreenBelow)
	for _, line := range above {
		b.WriteString(line + "\n")
	}
	width := c.screen.width()
	c.drawn = make([]string, len(lines))
	for i, line := range lines {
		c.drawn[i] = Cut(line, width)
		b.WriteString(c.drawn[i] + "\n")
	}
	_, err := io.WriteString(c.screen, b.String())
	return err
}

// drawnRows returns the number of screen rows of the block. A terminal that has become
// narrower has wrapped the lines.
func (c *canvas) drawnRows() int {
	width := c.screen.width()
	rows := 0
	for _, line := range c.drawn {
		rows++
		if width > 0 {
			rows += max(ansi.StringWidth(line)-1, 0) / width
		}
	}
	return rows
}
