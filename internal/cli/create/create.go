// Package create implements `tenure create`, which creates a tenant with all its objects, or
// the objects one by one, with the flags of `flux create`.
package create

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns `create` with its subcommands.
func NewCommand(streams ui.IO) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Write the manifests of a fleet, a tenant, or its parts",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.BoolVar(&o.export, "export", false, "print the manifests as YAML")
	durationflag.Positive(flags, &o.interval, "interval", time.Minute, "interval at which Flux reconciles the object")
	flags.StringSliceVar(&o.labels, "label", nil, "labels of the objects, as KEY=VALUE; repeatable")
	cmd.AddCommand(o.fleet(), o.repository(), o.tenant(), o.source(), o.kustomization(), o.secret())
	return cmd
}

// options are the flags of all subcommands.
type options struct {
	streams  ui.IO
	export   bool
	interval time.Duration
	labels   []string
}

// parseLabels reads --label.
func (o *options) parseLabels() (map[string]string, error) {
	labels := map[string]string{}
	for _, text := range o.labels {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("the label %q is not valid: write KEY=VALUE", text)
		}
		if errs := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(errs) > 0 {
			return nil, fmt.Errorf("the label %q is not valid: %s", text, errs[0])
		}
		labels[key] = value
	}
	return labels, nil
}

// folder validates the only argument of a subcommand, the folder of a repository.
func folder(cmd *cobra.Command, args []string) error {
	err := one("folder of the repository")(cmd, args)
	if len(args) == 0 {
		return ui.WithHint(err, "name it, such as . for this one")
	}
	return err
}

// one validates the only argument of a subcommand. what names it, such as "name of the tenant".
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("the %s is missing", what)
		case len(args) > 1:
			return fmt.Errorf("one %s was expected, but there are more arguments: %q", what, args[1])
		}
		return nil
	}
}
