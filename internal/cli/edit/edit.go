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
	"slices"
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
	// Tenant says in errors that the folder is a tenant's repository, and not the platform's.
	Tenant bool
}

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.Yes, "yes", "y", false, "make the change without asking")
	cmd.Flags().BoolVar(&f.DryRun, "dry-run", false, "show the change, and do not make it")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
}

// names returns the names of the folder's content and of its repository.
func (f *Flags) names() (content, repository string) {
	if f.Tenant {
		return "the repository", "the tenant's repository"
	}
	return "the fleet", "the platform's repository"
}

// ErrDeclined reports that the user declined the change.
var ErrDeclined = errors.New("nothing was changed")

// Run plans a change of a folder and writes it unless the user declines. The diff goes to the
// output; the notes of the plan and the question go to the error stream. Run reports whether
// it wrote files.
func Run(ctx context.Context, streams ui.IO, flags Flags, dir string, plan func(*workspace.Set) (notes []string, err error)) (written bool, err error) {
	content, repository := flags.names()
	s, err := workspace.Open(dir)
	if err != nil {
		return false, explainFolder(dir, content, repository, err)
	}
	defer func() { _ = s.Close() }()
	notes, err := plan(s)
	if err != nil {
		return false, err
	}
	diff := s.Diff()
	if flags.Brief {
		diff = summary(s, diff)
	}
	if diff != "" {
		if err := Show(streams, diff); err != nil {
			return false, err
		}
	}
	lost, err := Uncommitted(ctx, dir, s.Removed())
	if err != nil {
		return false, err
	}
	for _, note := range append(notes, lost.Notes()...) {
		if _, err := io.WriteString(streams.Err, streams.Stderr().Wrap("• ", 2, note)); err != nil {
			return false, err
		}
	}
	if diff == "" {
		_, err := fmt.Fprintln(streams.Err, "nothing to change")
		return false, err
	}
	if flags.DryRun {
		return false, nil
	}
	if err := lost.Refuse(flags.Yes); err != nil {
		return false, err
	}
	if !flags.Yes {
		if err := Ask(ctx, streams, "make this change?"); err != nil {
			return false, err
		}
	}
	if err := s.Apply(); err != nil {
		return false, fmt.Errorf("cannot change %s: %w", content, err)
	}
	_, err = fmt.Fprintln(streams.Err, "the files are written: look at them, commit and push")
	return true, err
}

// explainFolder returns the error of a folder that cannot be opened, with the way out. content and repository are
// of [Flags.names].
func explainFolder(dir, content, repository string, err error) error {
	info, statErr := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ui.WithHint(fmt.Errorf("cannot read %s: there is no folder %s", content, dir), "name the folder of "+repository+"; for a new one, create it first: mkdir "+dir)
	case statErr == nil && !info.IsDir():
		return fmt.Errorf("cannot read %s: %s is a file: name the folder of %s", content, dir, repository)
	}
	return fmt.Errorf("cannot read %s: %w", content, err)
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

// A new file of more than shortFile lines is one that Tenure generates, such as its policies. On a
// terminal, Show prints its first firstLines lines.
const (
	shortFile  = 60
	firstLines = 10
)

// Show prints a diff of [workspace.Set.Diff]. On a terminal it is in colour, and long new files are
// cut; in a pipe it is whole, for `git apply`. Show removes control characters from the lines of
// files, but keeps white space. It returns an error if it cannot write to the output.
func Show(streams ui.IO, diff string) error {
	screen := streams.Stdout()
	_, err := io.WriteString(screen, render(screen, diff))
	return err
}

func render(screen *ui.Screen, diff string) string {
	var out strings.Builder
	write := func(colour ui.Colour, line string) { out.WriteString(screen.Paint(colour, line) + "\n") }
	lines := strings.Split(strings.TrimSuffix(diff, "\n"), "\n")
	for len(lines) > 0 {
		file := lines
		// Lines of files have a sign before them.
		if next := slices.IndexFunc(lines[1:], func(line string) bool { return strings.HasPrefix(line, "diff --git ") }); next >= 0 {
			file = lines[:next+1]
		}
		lines = lines[len(file):]
		shown := file
		if screen.Interactive && len(file) > shortFile && strings.HasPrefix(file[1], "new file ") {
			shown = file[:firstLines]
		}
		for _, line := range shown {
			if screen.Interactive {
				line = printable(line)
			}
			write(colourOf(line), line)
		}
		if rest := len(file) - len(shown); rest > 0 {
			write(ui.Faint, fmt.Sprintf("… %d more lines: --dry-run into a pipe or file prints all", rest))
		}
	}
	return out.String()
}

// colourOf returns the colour of a line of a diff.
func colourOf(line string) ui.Colour {
	switch {
	case strings.HasPrefix(line, "+"):
		return ui.Green
	case strings.HasPrefix(line, "-"):
		return ui.Red
	case strings.HasPrefix(line, "@@"), strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "new file "):
		return ui.Faint
	}
	return ui.Plain
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, text)
}

// Ask asks the user on a terminal whether to make a change. It returns the error of [Confirm], with a
// hint that names --yes and --dry-run.
func Ask(ctx context.Context, streams ui.IO, question string) error {
	err := Confirm(ctx, streams, question)
	if errors.Is(err, ErrNobody) {
		return ui.WithHint(err, "confirm with --yes, or only show the change with --dry-run")
	}
	return err
}

// ErrNobody reports that the input is not a terminal, so a question cannot be asked.
var ErrNobody = errors.New("cannot ask for confirmation: the input is not a terminal")

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
	answer, err := ui.Await(ctx, streams.Err, func() (string, error) {
		line, _ := bufio.NewReader(file).ReadString('\n')
		return strings.ToLower(strings.TrimSpace(line)), nil
	})
	if err != nil {
		return err
	}
	if answer == "y" || answer == "yes" {
		return nil
	}
	return ErrDeclined
}
