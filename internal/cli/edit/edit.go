// Package edit provides the steps of commands that change a user's files: plan, show the diff,
// ask for confirmation on a terminal, and write.
package edit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Flags select whether to ask for confirmation.
type Flags struct {
	Yes, DryRun bool
	// Brief names the files that are new instead of showing their content.
	Brief bool
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.Yes, "yes", "y", false, "make the change without asking")
	cmd.Flags().BoolVar(&f.DryRun, "dry-run", false, "show the change, and do not make it")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
}

// ErrDeclined reports that the user declined the change.
var ErrDeclined = errors.New("nothing was changed")

// Run plans a change of a folder and writes it unless the user declines. The diff goes to the
// output; the notes of the plan and the question go to the error stream. Run reports whether
// it wrote files.
func Run(ctx context.Context, streams ui.IO, flags Flags, dir string, plan func(*workspace.Set) (notes []string, err error)) (written bool, err error) {
	s, err := workspace.Open(dir)
	if err != nil {
		return false, fmt.Errorf("cannot read the fleet: %w", err)
	}
	defer func() { _ = s.Close() }()
	notes, err := plan(s)
	if err != nil {
		return false, err
	}
	diff := s.Diff()
	if diff == "" {
		_, err := fmt.Fprintln(streams.Err, "nothing to change")
		return false, err
	}
	if flags.Brief {
		diff = summary(s, diff)
	}
	if err := show(streams, diff); err != nil {
		return false, err
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(streams.Err, "• "+ui.Clean(note)); err != nil {
			return false, err
		}
	}
	if flags.DryRun {
		return false, nil
	}
	if !flags.Yes {
		if err := ask(ctx, streams); err != nil {
			return false, err
		}
	}
	if err := s.Apply(); err != nil {
		return false, fmt.Errorf("cannot change the fleet: %w", err)
	}
	_, err = fmt.Fprintln(streams.Err, "the files are written: look at them, commit and push")
	return true, err
}

// summary removes the content of new files from a diff.
func summary(s *workspace.Set, diff string) string {
	fresh := map[string]bool{}
	for _, name := range s.Changed() {
		_, err := fs.Stat(s.FS(), name)
		fresh["diff --git a/"+name+" b/"+name+"\n"] = errors.Is(err, fs.ErrNotExist)
	}
	var out strings.Builder
	skip := false
	for line := range strings.Lines(diff) {
		// Lines of files have a sign before them.
		if isNew, header := fresh[line]; header {
			if skip = isNew; isNew {
				name, _, _ := strings.Cut(strings.TrimPrefix(line, "diff --git a/"), " b/")
				out.WriteString("+ " + name + "\n")
			}
		}
		if !skip {
			out.WriteString(line)
		}
	}
	return out.String()
}

// show prints the diff, in colour on a terminal. It removes control characters from the lines
// of files, but keeps white space.
func show(streams ui.IO, diff string) error {
	screen := streams.Stdout()
	var out strings.Builder
	for line := range strings.Lines(diff) {
		colour := ui.Plain
		switch {
		case strings.HasPrefix(line, "+"):
			colour = ui.Green
		case strings.HasPrefix(line, "-"):
			colour = ui.Red
		case strings.HasPrefix(line, "@@"), strings.HasPrefix(line, "diff "):
			colour = ui.Faint
		}
		text := strings.TrimSuffix(line, "\n")
		if screen.Interactive {
			text = printable(text)
		}
		out.WriteString(screen.Paint(colour, text) + "\n")
	}
	_, err := io.WriteString(screen, out.String())
	return err
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, text)
}

// ask asks the user for confirmation on a terminal.
func ask(ctx context.Context, streams ui.IO) error {
	err := Confirm(ctx, streams, "make this change?")
	if errors.Is(err, ErrNobody) {
		return ui.WithHint(err, "make it with --yes, or only look with --dry-run")
	}
	return err
}

// ErrNobody reports that the input is not a terminal, so a question cannot be asked.
var ErrNobody = errors.New("nobody can be asked: the input is no terminal")

// Confirm asks the user a yes-or-no question on a terminal. The error is [ErrDeclined] for a
// no, and [ErrNobody] if the input is not a terminal.
func Confirm(ctx context.Context, streams ui.IO, question string) error {
	file, ok := streams.In.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return ErrNobody
	}
	if _, err := fmt.Fprint(streams.Err, question+" [y/N] "); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(file).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return ErrDeclined
	}
}
