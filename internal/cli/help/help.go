// Package help wraps the help of commands.
package help

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// pipeWidth is the number of columns of the help in a pipe, such as to a pager, and in the reference of the commands.
const pipeWidth = 100

// columns returns the number of columns of the help.
func columns(screen *ui.Screen) int {
	if width, _ := screen.Size(); screen.Interactive && width > 0 {
		return width
	}
	return pipeWidth
}

// Wrap wraps the descriptions of a command, its subcommands and their flags in the help to the width of a
// terminal, or to 100 columns for a pipe. Usage lines and examples stay as they are: people copy them.
func Wrap(cmd *cobra.Command, screen *ui.Screen) {
	width := columns(screen)
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "Flags.FlagUsages", fmt.Sprintf("Flags.FlagUsagesWrapped %d", width)))
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Long = wrapText(cmd.Long, width)
		help(cmd, args)
	})
}

// item matches the beginning of an indented line: a dash, or a term with its description in a column.
var item = regexp.MustCompile(`^ +(?:- +|\S+(?: \S+)*  +)?`)

// wrapText wraps the paragraphs and the items of a text that have a line with more than a number of columns.
func wrapText(text string, width int) string {
	var wrapped strings.Builder
	var block []string
	end := func() {
		if len(block) == 0 {
			return
		}
		first := item.FindString(block[0])
		tooLong := slices.ContainsFunc(block, func(line string) bool { return ansi.StringWidth(line) > width })
		joined := strings.Join(block, "\n") + "\n"
		if tooLong && !strings.HasPrefix(first, "\t") {
			screen := ui.Screen{Interactive: true, Size: func() (int, int) { return width, 0 }}
			joined = screen.Wrap(first, ansi.StringWidth(first), joined[len(first):])
		}
		wrapped.WriteString(joined)
		block = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if line == "" || len(block) > 0 && indent != ansi.StringWidth(item.FindString(block[0])) {
			end()
		}
		if line == "" {
			wrapped.WriteString("\n")
			continue
		}
		block = append(block, line)
	}
	end()
	return strings.TrimSuffix(wrapped.String(), "\n")
}
