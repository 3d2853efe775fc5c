package edit

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
)

// Lost are files to delete whose content Git cannot restore.
type Lost []string

// Notes returns a note that names the files, if there are any.
func (l Lost) Notes() []string {
	if len(l) == 0 {
		return nil
	}
	return []string{"Git cannot restore these files, because they have changes that are not committed: " + strings.Join(l, ", ")}
}

// Refuse returns an error if there are such files and the user is not asked for confirmation.
func (l Lost) Refuse(yes bool) error {
	if len(l) == 0 || !yes {
		return nil
	}
	return ui.WithHint(errors.New("cannot delete files with changes that are not committed"), "commit them first, or leave out --yes to confirm the deletion")
}

// Uncommitted returns those of the files in the folder dir whose content is not in the last commit, as `git status`
// reports it: changed, new and ignored files. Without git, and in a folder outside of a repository, it
// returns none. It returns an error if the context ends or git cannot be started.
func Uncommitted(ctx context.Context, dir string, files []string) (Lost, error) {
	if len(files) == 0 {
		return nil, nil
	}
	// The configuration of the repository must not start a program.
	args := []string{
		"-C", dir, "--literal-pathspecs", "--no-optional-locks", "-c", "core.fsmonitor=false",
		"status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching", "--",
	}
	out, err := exec.CommandContext(ctx, "git", append(args, files...)...).Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &exit):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot ask git for changes that are not committed: %w", err)
	}
	var changed Lost
	for entry := range strings.SplitSeq(string(out), "\x00") {
		// An entry is two letters, a space, and the path.
		if len(entry) > 3 {
			changed = append(changed, entry[3:])
		}
	}
	return changed, nil
}
