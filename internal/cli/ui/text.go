package ui

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// ellipsis ends text that was cut.
const ellipsis = "…"

// Clean makes text from elsewhere fit to be printed in a line: terminal
// sequences and characters that do not print are removed, and runs of white
// space, line breaks included, become one space.
func Clean(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(ansi.Strip(text), "\uFFFD")), " ")
	return strings.Map(func(r rune) rune {
		// Format characters can turn the direction of the text around them.
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, text)
}

// Cut shortens text to at most width columns of a terminal, with an ellipsis
// for what is left out. Sequences for colour have no width and are kept. A
// width below 1 means not to cut.
func Cut(text string, width int) string {
	if width < 1 {
		return text
	}
	return ansi.Truncate(text, width, ellipsis)
}

// pad fills text with spaces up to width columns.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}
