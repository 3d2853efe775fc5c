package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// TestExamples checks that the help of each command without subcommands has examples, which are not wrapped, so
// they fit into a terminal.
func TestExamples(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && !cmd.HasExample() && !slices.Contains([]string{"help", "completion"}, cmd.Parent().Name()) && cmd.Name() != "help" {
			t.Errorf("%s: the help has no example", cmd.CommandPath())
		}
		const terminal, longest = 100, 80
		for line := range strings.Lines(cmd.Example) {
			if width := ansi.StringWidth(strings.TrimSpace(line)); width > terminal {
				t.Errorf("%s: the example has %d columns: %s", cmd.CommandPath(), width, line)
			}
		}
		if list := cmd.Parent(); list != nil && ansi.StringWidth(cmd.Short) > longest {
			t.Errorf("%s: the line in the list of %s is too long: %s", cmd.CommandPath(), list.CommandPath(), cmd.Short)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(NewCommand(ui.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
}
