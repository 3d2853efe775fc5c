package ui

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
)

// ellipsis ends text that was cut.
const ellipsis = "…"

// Clean returns text that is safe to print in a line: it removes terminal sequences and
// non-printing characters, and replaces runs of white space, including line breaks, with one
// space.
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

// CleanLines is like [Clean] for text of several lines, such as commands: it leaves line
// breaks and runs of white space as they are.
func CleanLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(ansi.Strip(text), "\uFFFD"))
}

// Cut shortens text to at most width columns of a terminal, and marks the cut with an
// ellipsis. Colour sequences have no width and are kept. A width below 1 disables cutting.
func Cut(text string, width int) string {
	if width < 1 {
		return text
	}
	return ansi.Truncate(text, width, ellipsis)
}

// Wrap cleans text and wraps it to the width of the screen: the first line begins with first,
// the others with rest spaces. It never breaks words, such as addresses. In a pipe the text is
// one line. A command in backticks stays on one line, so that people can copy it. The result ends with
// a line break.
func (s *Screen) Wrap(first string, rest int, text string) string {
	width := s.width()
	var b strings.Builder
	b.WriteString(first)
	column := ansi.StringWidth(first)
	for i, word := range words(Clean(text)) {
		switch length := ansi.StringWidth(word); {
		case i == 0:
			column += length
		case width > 0 && column+1+length > width:
			b.WriteString("\n" + strings.Repeat(" ", rest))
			column = rest + length
		default:
			b.WriteString(" ")
			column += 1 + length
		}
		b.WriteString(word)
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// words returns the words of a text. Backticks make several words one.
func words(text string) []string {
	var all []string
	inside := false
	for _, word := range strings.Fields(text) {
		if inside {
			all[len(all)-1] += " " + word
		} else {
			all = append(all, word)
		}
		inside = inside != (strings.Count(word, "`")%2 == 1)
	}
	return all
}

// Pad fills text with spaces up to width columns of a terminal. It does not change wider text.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// Number returns a number with its noun, such as "1 file" and "2 files".
func Number(n int, noun string) string { return fmt.Sprintf("%d %s", n, Plural(n, noun)) }

// Plural returns a noun with an s unless the number is 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
