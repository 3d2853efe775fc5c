// Package verify implements `tenure verify`: it runs a fleet on a local cluster, attacks it as
// each of its tenants, and reports the attacks that got through: for people (text.go,
// html.go), for programs (JSON), and for CI (junit.go, sarif.go, compare.go).
package verify

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// Exit codes for an unsafe fleet, for a fleet without a verdict, and for wrong usage or input;
// in the last case verify runs nothing.
const (
	exitUnsafe   = 1
	exitUnjudged = 2
	exitUsage    = 3
)

type options struct {
	fleet    local.Flags
	outputs  []string
	baseline string
	compare  string
	all      bool
	// attacks are IDs or keys of the attacks to try; empty for all.
	attacks []string
	// tenants and platform are selectors of namespaces.
	tenants, platform []string
}

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Attack a fleet as its tenants, and report attacks that get through",
		Long: `Verify runs a fleet on a local cluster, with a real Kubernetes and a real Flux, and
attacks it as each of its tenants: through the API with the tenant's identity, through
Tenure's proxy with the tenant's token, if the fleet has the proxy, and through Git with
commits to a local copy of the tenant's repository, or pushes to a local copy of its OCI
artifact. Verify changes nothing outside the local cluster. With several --path, it runs
one cluster after the other.

Each attack has one of four results:
  stopped        a control refused it, and the same steps on the tenant's own objects work
  got through    the report names the changed object, and the fix
  not proven     verify could not try it here; the report gives the reason
  not installed  the fleet lacks the target of the attack; this proves nothing

Verify finds the tenants by labels and by the objects that Flux applies. The report, and
"tenure get tenants --why", show the evidence. To correct it, use --tenants and --platform.
The file ` + local.FileName + ` in the fleet's folder can hold the values of flags, under their names.

Exit codes:
  0    the fleet is ready, and no attack got through or is not proven, except for those
       that --baseline accepts
  1    an attack got through
  2    no verdict: the fleet does not run here or has no tenants, an attack is not proven,
       or the run broke off
  3    wrong usage, or verify cannot read the fleet or a file; it ran nothing
  130  interrupted; the report has the results so far
Of several clusters, the worst verdict counts. With --attack, verify tries only some of the
attacks and never calls the fleet safe: the exit code is 1 or 2.`,
		Example: `  # test the folder of a pull request
  tenure verify --fleet . --path clusters/staging \
    --map https://github.com/acme/dev-team=../dev-team

  # two clusters, with accepted risks; the text on the terminal, the rest for CI
  tenure verify --fleet . --path clusters/staging --path clusters/production \
    --baseline accepted-risks.yaml -o sarif=verify.sarif -o junit=verify.xml

  # for a pull request: the differences from the main branch, and a page to read
  tenure verify --fleet . --path clusters/staging --compare main.json \
    -o markdown=comment.md -o html=verify.html

  # after a fix: try only the attack that got through
  tenure verify --fleet . --path clusters/staging --attack I4-git

  # for a program
  tenure verify --fleet . --path clusters/staging -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			return ui.WithExitCode(cobra.NoArgs(cmd, args), exitUsage)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := o.complete(streams)
			if err != nil {
				return ui.WithExitCode(err, exitUsage)
			}
			if err := v.fleet.Programs(cmd.Context(), streams.Err); err != nil {
				return ui.WithExitCode(err, exitUsage)
			}
			return v.run(cmd.Context())
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return ui.WithExitCode(cmd.Parent().FlagErrorFunc()(cmd, err), exitUsage)
	})
	o.fleet.AddSeveral(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.outputs, "output", "o", nil, "form of the report: text, json, junit, sarif, html or markdown, with =FILE to write it to a file; repeatable. verify also prints the text, unless another form goes to the standard output")
	flags.StringVar(&o.baseline, "baseline", "", "file of accepted risks: attacks that may get through or stay not proven, each until a date, without a change of the verdict")
	flags.StringVar(&o.compare, "compare", "", "report of the main branch, written with -o json; -o markdown then lists the differences, as a comment for a pull request")
	flags.StringArrayVar(&o.tenants, "tenants", nil, "namespaces of tenants, as namespace=NAME, label=KEY[=VALUE] or source=ADDRESS, where * stands for any characters; repeatable, besides the list in "+local.FileName)
	flags.StringArrayVar(&o.platform, "platform", nil, "namespaces of the platform, in the form of --tenants; verify does not attack as their accounts; repeatable, besides the list in "+local.FileName)
	flags.StringSliceVar(&o.attacks, "attack", nil, "try these attacks alone, by their ID in the report, such as I4, or their code, such as I4-git; repeatable, or with commas")
	flags.BoolVar(&o.all, "all", false, "list in the text each stopped attack with its title, and for each attack the commands that repeat it")
	_ = cmd.MarkFlagFilename("baseline", "yaml", "yml")
	_ = cmd.MarkFlagFilename("compare", "json")
	complete.Flag(cmd, "attack", complete.List(slices.Sorted(maps.Keys(attackNames()))...))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formNames(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

// complete checks everything that can be checked before a cluster starts.
func (o *options) complete(streams ui.IO) (*verification, error) {
	outputs, err := parseOutputs(o.outputs)
	if err != nil {
		return nil, err
	}
	notes, err := o.fleet.Complete()
	if err != nil {
		return nil, err
	}
	if err := checkAttacks(o.attacks, outputs); err != nil {
		return nil, err
	}
	choice, err := o.choice()
	if err != nil {
		return nil, err
	}
	accepted, err := readBaseline(o.baseline)
	if err != nil {
		return nil, err
	}
	before, err := readReport(o.compare)
	if err != nil {
		return nil, err
	}
	if commented := slices.ContainsFunc(outputs, func(out output) bool { return out.form == formMarkdown }); commented != (before != nil) {
		return nil, ui.WithHint(errors.New("-o markdown and --compare need each other"), "write a report on the main branch with -o json=main.json, and then --compare main.json -o markdown=comment.md")
	}
	// This finds a mistake in the last cluster's path before the first cluster runs. It
	// uses an invented address, because a fleet without an address may be mapped.
	for _, path := range o.fleet.Paths {
		if _, err := layout.Load(o.fleet.Cluster.Fleet, path, layout.Options{URL: "https://fleet.invalid", Branch: "main"}); err != nil {
			return nil, err
		}
	}
	for _, note := range notes {
		fmt.Fprintln(streams.Err, "• "+note)
	}
	return &verification{
		streams: streams, fleet: o.fleet, outputs: outputs, all: o.all, before: before, choice: choice,
		display:   &local.Display{Screen: streams.Stderr()},
		judgement: judgement{baseline: accepted, now: time.Now(), attacks: o.attacks},
	}, nil
}

// choice returns the selectors of the fleet's file and of the flags.
func (o *options) choice() (discovery.Choice, error) {
	flags, err := discovery.NewChoice(o.tenants, o.platform)
	if err != nil {
		return discovery.Choice{}, err
	}
	file, err := discovery.NewChoice(o.fleet.Tenants, o.fleet.Platform)
	if err != nil {
		return discovery.Choice{}, fmt.Errorf("%s: %w", local.FileName, err)
	}
	return file.With(flags), nil
}

// attackNames returns the IDs and the keys of all attacks.
func attackNames() map[string]bool {
	names := map[string]bool{}
	for _, a := range catalog.Catalogue() {
		names[a.ID], names[a.Key()] = true, true
	}
	return names
}

// checkAttacks returns an error for an attack that is not in the catalogue, and for a report that
// CI takes for that of a whole run.
func checkAttacks(chosen []string, outputs outputs) error {
	known := attackNames()
	for _, name := range chosen {
		if !known[name] {
			return ui.WithHint(fmt.Errorf("--attack %s: there is no such attack", name), "an attack has an ID, such as I4, and a code, such as I4-git: the report and docs/reference/attacks.md list them")
		}
	}
	for _, out := range outputs {
		if len(chosen) > 0 && !slices.Contains([]string{"text", "json", "html"}, out.form) {
			return ui.WithHint(fmt.Errorf("--attack and -o %s exclude each other: that report is of all attacks", out.form), "use -o text, json or html, or leave out --attack")
		}
	}
	return nil
}

// readBaseline reads the file of accepted risks, if there is one. It returns an error for an
// unknown attack, because the entry would accept nothing.
func readBaseline(file string) (baseline.Baseline, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the baseline: %w", err)
	}
	accepted, err := baseline.Parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	known := attackNames()
	var unknown []string
	for i, e := range accepted {
		if !known[e.ID] {
			unknown = append(unknown, fmt.Sprintf("entry %d: there is no attack %s", i+1, e.ID))
		}
	}
	if len(unknown) > 0 {
		return nil, ui.WithHint(fmt.Errorf("%s: %w: %s", file, baseline.ErrInvalid, strings.Join(unknown, "; ")),
			"an entry's id is that of the report, such as A1, or with the way, such as A1-api")
	}
	return accepted, nil
}
