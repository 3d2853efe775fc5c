package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tenure-dev/tenure/internal/ui"
)

// usageError returns an error of the flag library in plain words, with a hint that names the help.
func usageError(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	code := ui.ExitCode(err)
	var hints []string
	if similar := similarFlags(cmd, err); len(similar) > 0 {
		hints = append(hints, "did you mean --"+strings.Join(similar, " or --")+"?")
	}
	return ui.WithHint(ui.WithExitCode(plainUsage(err), code), append(hints, "see `"+cmd.CommandPath()+" --help`")...)
}

// unknownFlag matches the errors about flags that a command does not have. A flag with one dash counts as
// several flags of one letter.
var unknownFlag = regexp.MustCompile(`^unknown (?:flag: --|shorthand flag: '.' in -)([\w-]+)$`)

// maxFlagDistance is the maximum number of wrong letters in a misspelled flag. One of three letters has at most
// one.
const maxFlagDistance = 2

// similarFlags returns the names of the flags that an unknown flag resembles: the one with the fewest
// wrong letters, or otherwise those with the same word.
func similarFlags(cmd *cobra.Command, err error) []string {
	m := unknownFlag.FindStringSubmatch(err.Error())
	if m == nil || len(m[1]) < 3 {
		return nil
	}
	var sameWord []string
	nearest, least := "", min(maxFlagDistance, len(m[1])/3)+1
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if slices.Contains(strings.Split(f.Name, "-"), m[1]) {
			sameWord = append(sameWord, f.Name)
		}
		if d := distance(m[1], f.Name); d < least {
			nearest, least = f.Name, d
		}
	})
	if nearest != "" {
		return []string{nearest}
	}
	return sameWord
}

// distance returns the number of letters to insert, remove, replace or swap with the next one that make b
// of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
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
	var suggestion []string
	switch {
	case strings.HasPrefix(text, "unknown command") && !cmd.HasSubCommands():
		// For a command without subcommands, cobra reports an unexpected argument as an unknown command.
		err = fmt.Errorf("%s takes no arguments, but was given %q", cmd.CommandPath(), args[0])
	case strings.HasPrefix(text, "unknown command"):
		cmd.SuggestionsMinimumDistance = 2
		if found := cmd.SuggestionsFor(args[0]); len(found) > 0 {
			slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(distance(args[0], a), distance(args[0], b)) })
			suggestion = []string{"did you mean `" + cmd.CommandPath() + " " + found[0] + "`?"}
		}
	case tooMany.MatchString(text):
		err = fmt.Errorf("%s takes at most %s argument, but was given %q too", cmd.CommandPath(), tooMany.FindStringSubmatch(text)[1], args[len(args)-1])
	case strings.HasPrefix(text, "invalid argument") && len(cmd.ValidArgs) > 0:
		err = fmt.Errorf("invalid argument %q: %s takes %s", args[0], cmd.CommandPath(), strings.Join(cmd.ValidArgs, " or "))
	}
	return ui.WithHint(usageError(cmd, ui.WithExitCode(err, code)), suggestion...)
}
