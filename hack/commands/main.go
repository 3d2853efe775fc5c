// Commands writes the reference of all commands, their output with --help, into the file that
// its argument names.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/cli"
	"github.com/tenure-dev/tenure/internal/server"
	"github.com/tenure-dev/tenure/internal/ui"
)

// introduction begins the page.
const introduction = `# Commands

Generated from the programs; do not edit. ` + "`tenure`" + ` is for people and pipelines,
` + "`tenure-server`" + ` runs inside a cluster.

## Exit codes

| Code | Commands | Meaning |
|---|---|---|
| 0 | all | success; ` + "`verify`" + `: the fleet is safe; ` + "`check`" + `: no row is wrong |
| 1 | all but ` + "`verify`" + ` | an error, also for wrong usage; ` + "`check`" + `: a row is wrong; ` + "`migrate capsule`" + `: Tenure refuses a Tenant |
| 1 | ` + "`verify`" + ` | an attack got through |
| 2 | ` + "`verify`" + ` | no verdict: the fleet does not run, an attack is not proven, or the run broke off |
| 3 | ` + "`verify`" + ` | wrong usage, or a file that it cannot read; it ran nothing |
| 130 | all of ` + "`tenure`" + ` | interrupted by Ctrl-C or SIGTERM; ` + "`tenure-server`" + ` then ends with 0 |

A pipeline can tell a finding of ` + "`verify`" + ` (1) from a mistake in its own flags (3). All errors go to the
error stream, so that the output of ` + "`-o json`" + ` stays JSON.
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: commands FILE")
		os.Exit(2)
	}
	var page strings.Builder
	page.WriteString(introduction)
	// The page does not depend on the width of a terminal.
	streams := ui.IO{In: strings.NewReader(""), Out: io.Discard, Err: os.Stderr}
	for _, root := range []*cobra.Command{cli.NewCommand(streams), server.NewCommand(streams)} {
		describe(&page, root)
	}
	if err := os.WriteFile(os.Args[1], []byte(page.String()), 0o644); err != nil { //nolint:gosec // a page that everybody may read
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// describe writes the help of a command and its subcommands.
func describe(page *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	fmt.Fprintf(page, "\n## %s\n\n```\n%s\n\n%s```\n", cmd.CommandPath(), strings.TrimSpace(about), cmd.UsageString())
	for _, sub := range cmd.Commands() {
		describe(page, sub)
	}
}
