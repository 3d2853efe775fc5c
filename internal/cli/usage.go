package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/ui"
)

// usageError returns an error of the flag library in plain words, with a hint that names the help.
func usageError(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	code := ui.ExitCode(err)
	return ui.WithHint(ui.WithExitCode(plainUsage(err), code), "see `"+cmd.CommandPath()+" --help`")
}

// The errors of the flag library that are about a value of a wrong type, and about flags that need or
// exclude each other.
var (
	wrongValue = regexp.MustCompile(`^invalid argument "(.*)" for "(?:-\w, )?(--[\w-]+)" flag: (strconv\.ParseBool|strconv\.ParseU?[iI]nt|strconv\.Atoi|time): `)
	exclusive  = regexp.MustCompile(`^if any flags in the group \[.+\] are set none of the others can be; \[(.+)\] were all set$`)
)

// plainUsage returns an error of the flag library in plain words.
func plainUsage(err error) error {
	text := err.Error()
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		want := "a whole number"
		switch m[3] {
		case "time":
			want = "a number with a unit, such as 30s or 10m"
		case "strconv.ParseBool":
			want = "true or false, after an equals sign"
		}
		return fmt.Errorf("%s is %s, not %q", m[2], want, m[1])
	}
	if m := exclusive.FindStringSubmatch(text); m != nil {
		return errors.New(flagNames(m[1]) + " exclude each other: give one of them")
	}
	return err
}

// isGroupError reports whether an error is about flags that exclude each other, which the flag
// library finds after it has read the flags.
func isGroupError(err error) bool {
	return err != nil && exclusive.MatchString(err.Error())
}

// flagNames returns names of flags, which spaces separate, as text.
func flagNames(names string) string {
	return "--" + strings.Join(strings.Fields(names), " and --")
}

// tooMany matches the error about too many arguments.
var tooMany = regexp.MustCompile(`^accepts at most (\d+) arg\(s\), received \d+$`)

// argsError returns an error about arguments in plain words, with the command that a misspelled one
// resembles.
func argsError(cmd *cobra.Command, args []string, err error) error {
	if err == nil {
		return nil
	}
	text, code := err.Error(), ui.ExitCode(err)
	switch {
	case strings.HasPrefix(text, "unknown command") && !cmd.HasSubCommands():
		// For a command without subcommands, cobra reports an unexpected argument as an unknown command.
		err = fmt.Errorf("%s takes no arguments, but was given %q", cmd.CommandPath(), args[0])
	case strings.HasPrefix(text, "unknown command"):
		cmd.SuggestionsMinimumDistance = 2
		if found := cmd.SuggestionsFor(args[0]); len(found) > 0 {
			err = ui.WithHint(err, "did you mean `"+cmd.CommandPath()+" "+found[0]+"`?")
		}
	case tooMany.MatchString(text):
		err = fmt.Errorf("%s takes at most %s argument, but was given %q too", cmd.CommandPath(), tooMany.FindStringSubmatch(text)[1], args[len(args)-1])
	case strings.HasPrefix(text, "invalid argument") && len(cmd.ValidArgs) > 0:
		err = fmt.Errorf("invalid argument %q: %s takes %s", args[0], cmd.CommandPath(), strings.Join(cmd.ValidArgs, " or "))
	}
	return usageError(cmd, ui.WithExitCode(err, code))
}
