package help

import (
	"bytes"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// TestWrap checks that no line of the help is wider than a terminal, or than 100 columns in a pipe.
func TestWrap(t *testing.T) {
	t.Parallel()
	const limit = 100
	for _, tc := range []struct {
		reason        string
		screen, width int
	}{
		{"a narrow terminal", 60, 60},
		{"a wide terminal", 200, 200},
		{"a pipe", 0, limit},
		{"a terminal without a width", -1, limit},
	} {
		var out bytes.Buffer
		long := strings.Repeat("many words ", 40)
		cmd := &cobra.Command{Use: "root", Long: long + "\n\n  - " + long, Run: func(*cobra.Command, []string) {}}
		cmd.Flags().String("flag", "", long)
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--help"})
		Wrap(cmd, &ui.Screen{Interactive: tc.screen != 0, Size: func() (int, int) { return max(tc.screen, 0), 0 }})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(out.String()) {
			widest = max(widest, ansi.StringWidth(strings.TrimRight(line, "\n")))
		}
		if widest > tc.width || widest < tc.width-12 {
			t.Errorf("%s: want lines of up to %d columns, got %d", tc.reason, tc.width, widest)
		}
	}
}

// TestWrapText checks that wrapped text keeps its paragraphs, lists and columns.
func TestWrapText(t *testing.T) {
	t.Parallel()
	text := `A paragraph of two lines,
which is too wide in one.

It lists:
  - an item that is far too wide
    and goes on
  - another
Codes:
  0    success
  130  interrupted by a signal of
       the user`
	want := `A paragraph of two
lines, which is too
wide in one.

It lists:
  - an item that is
    far too wide and
    goes on
  - another
Codes:
  0    success
  130  interrupted by
       a signal of the
       user`
	if diff := cmp.Diff(want, wrapText(text, 22)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(text, wrapText(text, 80)); diff != "" {
		t.Errorf("text that fits stays as it is (-want +got):\n%s", diff)
	}
}
