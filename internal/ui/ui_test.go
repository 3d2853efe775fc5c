package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

// pipe returns a screen without capabilities.
func pipe() (*Screen, *bytes.Buffer) {
	var b bytes.Buffer
	return NewScreen(&b), &b
}

func TestTablePrint(t *testing.T) {
	t.Parallel()
	header := []string{"NAME", "READY", "MESSAGE"}
	tests := map[string]struct {
		reason string
		table  Table
		width  int
		colour bool
		want   string
	}{
		"aligned": {
			reason: "columns are as wide as their widest cell, without space at the end",
			table:  Table{Header: header, Rows: [][]string{{"a", "True", "ok"}, {"longer", "False", ""}}},
			want:   "NAME     READY   MESSAGE\na        True    ok\nlonger   False\n",
		},
		"no header": {
			reason: "the header takes no part in the widths when it is not shown",
			table:  Table{Header: header, NoHeader: true, Rows: [][]string{{"a", "True", "ok"}}},
			want:   "a   True   ok\n",
		},
		"no rows": {
			reason: "nothing but a header that is left out is nothing",
			table:  Table{Header: header, NoHeader: true},
			want:   "",
		},
		"wide characters": {
			reason: "widths are columns of the terminal, not bytes or letters",
			table:  Table{Header: header, Rows: [][]string{{"日本", "True", "ok"}, {"abcd", "True", "ok"}}},
			want:   "NAME   READY   MESSAGE\n日本   True    ok\nabcd   True    ok\n",
		},
		"several lines": {
			reason: "a row is a line, whatever a tenant writes into a message",
			table:  Table{Header: header, Rows: [][]string{{"a", "False", "one\n\ttwo\x1b[2J\x07 three\u202e"}}},
			want:   "NAME   READY   MESSAGE\na      False   one two three\n",
		},
		"pipe does not cut": {
			reason: "programs want the whole message",
			table:  Table{Header: header, Rows: [][]string{{"a", "False", strings.Repeat("x", 300)}}},
			want:   "NAME   READY   MESSAGE\na      False   " + strings.Repeat("x", 300) + "\n",
		},
		"terminal wraps": {
			reason: "a message says why, so it is wrapped in its column and never cut",
			table:  Table{Header: header, Rows: [][]string{{"a", "False", strings.Repeat("no way ", 10) + "refused"}, {"b", "True", "ok"}}},
			width:  60,
			want:   "NAME   READY   MESSAGE\na      False   no way no way no way no way no way no way no\n               way no way no way no way refused\nb      True    ok\n",
		},
		"narrow terminal": {
			reason: "where there is no room beside the other columns, the message goes below them",
			table:  Table{Header: header, Rows: [][]string{{"a-long-name", "False", "the message is refused"}}},
			width:  22,
			want:   "NAME          READY\n  MESSAGE\na-long-name   False\n  the message is\n  refused\n",
		},
		"narrower than the columns": {
			reason: "a cell that does not fit goes below the row, in one piece",
			table:  Table{Header: []string{"NAMESPACE", "NAME", "READY", "MESSAGE"}, Rows: [][]string{{"flux-system", "a-long-name", "False", "refused"}}},
			width:  22, colour: true,
			want: "NAMESPACE     NAME\n  READY\n  MESSAGE\nflux-system\n  a-long-name   \x1b[31mFalse\x1b[m\n  refused\n",
		},
		"long word": {
			reason: "a word that has no room is left to the terminal",
			table:  Table{Header: header, Rows: [][]string{{"a", "False", strings.Repeat("x", 300)}}},
			width:  30,
			want:   "NAME   READY   MESSAGE\na      False\n  " + strings.Repeat("x", 300) + "\n",
		},
		"colour": {
			reason: "READY is green, red or, when it is not known, yellow; colours take no room",
			table:  Table{Header: header, Rows: [][]string{{"a", "True", "x"}, {"b", "False", "x"}, {"c", "Unknown", "x"}}},
			width:  80, colour: true,
			want: "NAME   READY     MESSAGE\na      \x1b[32mTrue\x1b[m      x\nb      \x1b[31mFalse\x1b[m     x\nc      \x1b[33mUnknown\x1b[m   x\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			screen := &Screen{Writer: &b, Interactive: tt.width > 0, Colour: tt.colour, Size: func() (int, int) { return tt.width, 24 }}
			if err := tt.table.Print(screen); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func FuzzCleanAndCut(f *testing.F) {
	for _, seed := range []string{"", "plain", "日本語", "a\nb", "\x1b[31mred\x1b[m", "\x9b31m", "e\u0301", "👩‍👩‍👧", "\xff\xfe", "\x1b]0;title\x07x", "\u202eabc"} {
		f.Add(seed, 5)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		clean := Clean(s)
		if !utf8.ValidString(clean) {
			t.Errorf("Clean(%q) = %q is not valid UTF-8", s, clean)
		}
		if strings.ContainsFunc(clean, unicode.IsControl) {
			t.Errorf("Clean(%q) = %q has control characters", s, clean)
		}
		cut := Cut(clean, width)
		if width > 0 && ansi.StringWidth(cut) > width {
			t.Errorf("Cut(%q, %d) = %q takes %d columns", clean, width, cut, ansi.StringWidth(cut))
		}
		if (width < 1 || ansi.StringWidth(clean) <= width) && cut != clean {
			t.Errorf("Cut(%q, %d) = %q changed text that fits", clean, width, cut)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	base := errors.New("cannot do it: no")
	tests := map[string]struct {
		reason string
		err    error
		text   string
		code   int
	}{
		"plain":    {"a message and the general code", base, "✗ cannot do it: no\n", 1},
		"hint":     {"a hint is below the message", WithHint(base, "try this", "or that"), "✗ cannot do it: no\n  try this\n  or that\n", 1},
		"wrapped":  {"hints are found below other errors", fmt.Errorf("cannot start: %w", WithHint(base, "try this")), "✗ cannot start: cannot do it: no\n  try this\n", 1},
		"two":      {"an outer hint does not hide an inner one", WithHint(WithHint(base, "inner"), "outer"), "✗ cannot do it: no\n  outer\n  inner\n", 1},
		"code":     {"a code changes nothing in the text", WithExitCode(WithHint(base, "x"), 2), "✗ cannot do it: no\n  x\n", 2},
		"lines":    {"joined errors stay lines", errors.Join(base, errors.New("and no")), "✗ cannot do it: no\n  and no\n", 1},
		"sequence": {"messages quote what others wrote", errors.New("bad \x1b[2Jname"), "✗ bad name\n", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			screen, b := pipe()
			PrintError(screen, tt.err)
			if diff := cmp.Diff(tt.text, b.String()); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
			if got := ExitCode(tt.err); got != tt.code {
				t.Errorf("%s\nExitCode = %d, want %d", tt.reason, got, tt.code)
			}
		})
	}
	if ExitCode(nil) != 0 || WithHint(nil, "x") != nil || WithExitCode(nil, 2) != nil {
		t.Error("nil must stay nil and mean success")
	}
}

// terminal is a fake terminal. Like a real one, it has a grid of rows.
type terminal struct {
	mu            sync.Mutex
	width, height int
	rows          []string // all rows, including rows that have scrolled off
	row           int      // the cursor's, in rows
	lost          bool     // the cursor was moved out of the screen
}

func (t *terminal) screen() *Screen {
	return &Screen{Writer: t, Interactive: true, Size: func() (int, int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.width, t.height
	}}
}

// Write interprets the output of canvas: lines, cursor up, erase below.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := string(p)
	for s != "" {
		var n int
		switch {
		case strings.HasPrefix(s, ansi.EraseScreenBelow):
			t.rows = t.rows[:min(t.row, len(t.rows))]
			s = s[len(ansi.EraseScreenBelow):]
		case strings.HasPrefix(s, "\r"):
			s = s[1:]
		case strings.HasPrefix(s, "\x1b["):
			if _, err := fmt.Sscanf(s, "\x1b[%dA", &n); err != nil {
				n = 1
			}
			top := max(0, len(t.rows)+1-t.height)
			if t.row -= n; t.row < top {
				t.lost, t.row = true, top
			}
			s = s[strings.IndexByte(s, 'A')+1:]
		default:
			line, rest, _ := strings.Cut(s, "\n")
			for ok := true; ok; ok = line != "" {
				part := ansi.Truncate(line, t.width, "")
				t.rows = append(t.rows[:t.row], part)
				t.row++
				line = strings.TrimPrefix(line, part)
			}
			s = rest
		}
	}
	return len(p), nil
}

// resize wraps the rows again, as terminals do.
func (t *terminal) resize(width, height int) {
	t.mu.Lock()
	old := t.rows
	t.rows, t.row, t.width, t.height = nil, 0, width, height
	t.mu.Unlock()
	for _, row := range old {
		_, _ = t.Write([]byte(row + "\n"))
	}
}

func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost {
		return "the cursor left the screen"
	}
	return strings.Join(t.rows, "\n")
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, first, text string
		width               int
		want                string
	}{
		{"a pipe is not wrapped", "✗ ", strings.Repeat("word ", 30), 0, "✗ " + strings.TrimSpace(strings.Repeat("word ", 30)) + "\n"},
		{"the next lines are indented", "✗ ", "one two three", 9, "✗ one two\n    three\n"},
		{"what is exactly as wide fits", "✗ ", "one two", 9, "✗ one two\n"},
		{"a flag is not broken at its hyphens", "", "the flag --no-cross-namespace-refs", 12, "the flag\n    --no-cross-namespace-refs\n"},
		{"colour has no width", "\x1b[31m✗\x1b[m ", "one two", 9, "\x1b[31m✗\x1b[m one two\n"},
		{"a command in backticks can be copied", "", "run `tenure get tenants -o wide`, and look", 12, "run\n    `tenure get tenants -o wide`,\n    and look\n"},
		{"what a tenant wrote is cleaned", "", "one\n\x1b[2Jtwo", 80, "one two\n"},
		{"nothing is a line", "head:", "", 80, "head:\n"},
	} {
		screen := &Screen{Interactive: true, Size: func() (int, int) { return tc.width, 24 }}
		if diff := cmp.Diff(tc.want, screen.Wrap(tc.first, 4, tc.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestPrintErrorWraps checks that an error and its hints are wrapped at words on a terminal, and not in a pipe.
func TestPrintErrorWraps(t *testing.T) {
	t.Parallel()
	err := WithHint(errors.New("cannot do this\nnor the other thing"), "see `tenure up --help` or the page")
	for width, want := range map[int]string{
		0:  "✗ cannot do this\n  nor the other thing\n  see `tenure up --help` or the page\n",
		14: "✗ cannot do\n  this\n  nor the\n  other thing\n  see\n  `tenure up --help`\n  or the page\n",
	} {
		var out bytes.Buffer
		PrintError(&Screen{Writer: &out, Interactive: true, Size: func() (int, int) { return width, 24 }}, err)
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
}

// TestAwait checks that an interrupt ends a question at once, on a line of its own, and that an answer
// prints nothing.
func TestAwait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	if got, err := Await(ctx, &out, func() (string, error) { return "yes", nil }); got != "yes" || err != nil || out.Len() > 0 {
		t.Errorf("an answer: got %q, %v and the output %q", got, err, out.String())
	}
	answer := make(chan string)
	defer close(answer)
	cancel()
	if _, err := Await(ctx, &out, func() (string, error) { return <-answer, nil }); !errors.Is(err, context.Canceled) || out.String() != "\n" {
		t.Errorf("an interrupt: got %v and the output %q", err, out.String())
	}
}
