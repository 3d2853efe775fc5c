package cli

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// TestWrapHelp checks that no line about a flag is wider than the terminal, and that a pipe gets a line for each
// flag.
func TestWrapHelp(t *testing.T) {
	t.Parallel()
	flags := func(width int) (lines []string) {
		var out bytes.Buffer
		cmd := NewCommand(ui.IO{In: strings.NewReader(""), Out: &out, Err: &out})
		wrapHelp(cmd, width)
		cmd.SetArgs([]string{"up", "--help"})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(out.String(), "\nFlags:\n")
		return strings.Split(strings.TrimSpace(after), "\n")
	}
	const width = 80
	wrapped := flags(width)
	for _, line := range wrapped {
		if ansi.StringWidth(line) > width {
			t.Errorf("the line is wider than %d columns: %s", width, line)
		}
	}
	for _, line := range flags(0) {
		if !strings.HasPrefix(strings.TrimSpace(line), "-") {
			t.Errorf("the line begins with no flag: %s", line)
		}
	}
	if len(wrapped) <= len(flags(0)) {
		t.Error("nothing was wrapped")
	}
}

// TestExamples checks that the help of each command without subcommands has examples.
func TestExamples(t *testing.T) {
	t.Parallel()
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() && !cmd.HasExample() && !slices.Contains([]string{"help", "completion"}, cmd.Parent().Name()) && cmd.Name() != "help" {
			t.Errorf("%s: the help has no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(NewCommand(ui.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
}
