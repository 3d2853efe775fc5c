// Package get implements `tenure get`, which prints Flux's objects and their status in the
// columns, and with the flags and aliases, of `flux get`.
package get

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
)

// NewCommand returns `get` with its subcommands.
func NewCommand(streams ui.IO) *cobra.Command { return newCommand(streams, connect) }

// connectFunc returns the client for a command.
type connectFunc func(context.Context, clusterFlags) (client.WithWatch, error)

// command is one subcommand: the kinds it shows.
type command struct {
	use     string
	aliases []string
	what    string // in the help: "Show <what> and their status"
	kinds   []flux.Kind
}

// isDelivery reports whether the command prints a kind that has a source.
func (c command) isDelivery() bool {
	return c.kinds[0] == flux.Kustomization || c.kinds[0] == flux.HelmRelease
}

// several reports whether the command prints several kinds, each in its own table.
func (c command) several() bool { return len(c.kinds) > 1 }

// examples returns examples of the command. path is the path of its parent.
func (c command) examples(path string) string {
	path += " " + c.use
	named := " dev-team -n apps -o yaml"
	if c.several() {
		named = " -n apps -o json"
	}
	return fmt.Sprintf("  %[1]s -A\n  %[1]s -A --status-selector ready=false\n  %[1]s%[2]s", path, named)
}

var (
	kustomizations = command{"kustomizations", []string{"ks", "kustomization"}, "Kustomizations", []flux.Kind{flux.Kustomization}}
	helmReleases   = command{"helmreleases", []string{"hr", "helmrelease"}, "HelmReleases", []flux.Kind{flux.HelmRelease}}
	resourceSets   = command{"resourcesets", []string{"rset", "resourceset"}, "ResourceSets of flux-operator", []flux.Kind{flux.ResourceSet}}
	sources        = command{"sources", []string{"source"}, "all sources", flux.SourceKinds()}
	everything     = command{"all", nil, "all objects", flux.AllKinds()}

	sourceCommands = []command{
		{"git", nil, "GitRepositories", []flux.Kind{flux.GitRepository}},
		{"helm", nil, "HelmRepositories", []flux.Kind{flux.HelmRepository}},
		{"oci", nil, "OCIRepositories", []flux.Kind{flux.OCIRepository}},
		{"bucket", nil, "Buckets", []flux.Kind{flux.Bucket}},
		{"chart", nil, "HelmCharts", []flux.Kind{flux.HelmChart}},
		{"external", nil, "ExternalArtifacts", []flux.Kind{flux.ExternalArtifact}},
		{"all", nil, "all sources", flux.SourceKinds()},
	}
)

func newCommand(streams ui.IO, connect connectFunc) *cobra.Command {
	o := &options{streams: streams, connect: connect}
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show Flux's objects and their status",
		Long:  "Show Flux's objects and their status, as `flux get` does.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.addFlags(cmd)
	sourcesCmd := o.subcommand("tenure get", sources)
	for _, c := range sourceCommands {
		sub := o.subcommand("tenure get sources", c)
		if !c.several() {
			// kubectl's names of the kind lead to flux's.
			kind := strings.ToLower(c.kinds[0].GroupVersionKind().Kind)
			sub.SuggestFor = []string{kind, strings.ToLower(c.what)}
			sourcesCmd.SuggestFor = append(sourcesCmd.SuggestFor, sub.SuggestFor...)
		}
		sourcesCmd.AddCommand(sub)
	}
	tenants, _ := o.tenants()
	for _, c := range []command{kustomizations, helmReleases, resourceSets, everything} {
		cmd.AddCommand(o.subcommand("tenure get", c))
	}
	cmd.AddCommand(sourcesCmd, tenants)
	return cmd
}

// subcommand returns the command. path is the path of its parent.
func (o *options) subcommand(path string, c command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     c.use + " [NAME]",
		Aliases: c.aliases,
		Short:   "Show " + c.what + " and their status",
		Long: "Show " + c.what + ` and their status.

-o wide adds the source of Kustomizations and HelmReleases. -o json and -o yaml print one
object for one name, and otherwise a list in the field items: not the manifests, but the
columns, with whole revisions. -o name prints names that kubectl takes.`,
		Example: c.examples(path),
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), c, strings.Join(args, ""))
		},
		ValidArgsFunction: o.completeNames(c),
	}
	if c.several() {
		cmd.Use, cmd.Args, cmd.ValidArgsFunction = c.use, cobra.NoArgs, cobra.NoFileCompletions
	}
	if c.isDelivery() {
		cmd.Flags().BoolVar(&o.showSource, "show-source", false, "show the source of each object")
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", outputTable, "how to print the objects: wide, name, json or yaml (default: a table)")
	complete.Flag(cmd, "output", complete.Words(outputs...))
	return cmd
}

// options are the flags of all subcommands.
type options struct {
	streams ui.IO
	connect connectFunc

	cluster        clusterFlags
	allNamespaces  bool
	noHeader       bool
	watch          bool
	showSource     bool
	labelSelector  string
	statusSelector string
	output         string
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	o.cluster.add(cmd)
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "show the objects of all namespaces")
	flags.BoolVar(&o.noHeader, "no-header", false, "leave out the header")
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on and show changes")
	flags.StringVarP(&o.labelSelector, "label-selector", "l", "", "show only objects with these labels")
	flags.StringVar(&o.statusSelector, "status-selector", "", "show only objects with this status: ready=false, ready!=true")
	complete.Flag(cmd, "status-selector", complete.Words("ready=true", "ready=false", "ready=unknown", "ready!=true"))
}

func (o *options) run(ctx context.Context, c command, name string) error {
	selection := flux.Selection{Kinds: c.kinds, Namespace: o.cluster.namespace, Name: name}
	if o.allNamespaces {
		selection.Namespace = ""
	}
	var err error
	if selection.Labels, err = labels.Parse(o.labelSelector); err != nil {
		return fmt.Errorf("cannot read --label-selector: %w", err)
	}
	if err := o.checkOutput(c); err != nil {
		return err
	}
	keep, err := statusFilter(o.statusSelector)
	if err != nil {
		return err
	}
	kube, err := o.connect(ctx, o.cluster)
	if err != nil {
		return err
	}
	// A watch would wait forever for an unreachable server, so start with a list.
	rows, err := flux.List(ctx, kube, selection)
	if err == nil && slices.Equal(c.kinds, everything.kinds) {
		var kinds []flux.Kind
		var more []flux.Row
		kinds, more, err = listOperator(ctx, kube, selection)
		c.kinds = slices.Concat(c.kinds, kinds)
		selection.Kinds, rows = c.kinds, append(rows, more...)
		flux.SortRows(rows)
	}
	if err == nil && len(rows) == 0 && c.several() {
		// Flux has the first kind in each installation.
		selection := selection
		selection.Kinds = c.kinds[:1]
		if _, missing := flux.List(ctx, kube, selection); errors.Is(missing, flux.ErrNotInstalled) {
			err = missing
		}
	}
	if errors.Is(err, flux.ErrNotInstalled) && slices.Contains(flux.OperatorKinds(), c.kinds[0]) {
		return ui.WithHint(fmt.Errorf("cannot list %s: the cluster does not have flux-operator", c.what), "`tenure get all` shows the objects of Flux")
	}
	if err != nil {
		return explain(err)
	}
	if o.watch {
		return o.follow(ctx, kube, c, selection, keep)
	}
	if len(rows) == 0 && !c.several() {
		return o.nothingFound(c, name)
	}
	rows = slices.DeleteFunc(rows, func(r flux.Row) bool { return !keep(r) })
	if o.output != outputTable && o.output != outputWide {
		return o.printObjects(rows, name)
	}
	if len(rows) == 0 {
		// As in kubectl, an empty list is no error.
		_, err := fmt.Fprintf(o.streams.Err, "no objects found in %s namespace\n", o.where())
		return err
	}
	return o.print(c, rows)
}

// listOperator lists the objects of flux-operator. It returns the kinds that the cluster has and that the user
// may list, of which tenants may list none, and their rows.
func listOperator(ctx context.Context, kube client.Reader, selection flux.Selection) (kinds []flux.Kind, rows []flux.Row, err error) {
	for _, kind := range flux.OperatorKinds() {
		selection.Kinds = []flux.Kind{kind}
		found, err := flux.List(ctx, kube, selection)
		switch {
		case errors.Is(err, flux.ErrNotInstalled) || apierrors.IsForbidden(err):
			continue
		case err != nil:
			return nil, nil, err
		}
		kinds, rows = append(kinds, kind), append(rows, found...)
	}
	return kinds, rows, nil
}

// nothingFound returns the same error as `flux get`.
func (o *options) nothingFound(c command, name string) error {
	namespace := o.where()
	err := fmt.Errorf("no %s objects found in %s namespace", c.kinds[0], namespace)
	if name != "" {
		err = fmt.Errorf("%s object '%s' not found in %s namespace", c.kinds[0], name, namespace)
	}
	if !o.allNamespaces {
		err = ui.WithHint(err, "use -n NAMESPACE or -A to look elsewhere")
	}
	return err
}

// where returns the selected namespace for a message.
func (o *options) where() string {
	if o.allNamespaces {
		return "any"
	}
	return fmt.Sprintf("%q", o.cluster.namespace)
}

// print prints a table for each kind that has rows.
func (o *options) print(c command, rows []flux.Row) error {
	screen := o.streams.Stdout()
	for _, kind := range c.kinds {
		var ofKind []flux.Row
		for _, row := range rows {
			if row.Kind == kind {
				ofKind = append(ofKind, row)
			}
		}
		if len(ofKind) == 0 {
			continue
		}
		header, cells := flux.Table(kind, ofKind, o.tableOptions(c))
		if err := (ui.Table{Header: header, Rows: cells, NoHeader: o.noHeader}).Print(screen); err != nil {
			return err
		}
		if c.several() {
			if _, err := fmt.Fprintln(screen); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *options) tableOptions(c command) flux.TableOptions {
	return flux.TableOptions{Namespace: o.allNamespaces, KindInName: c.several(), Source: o.showSource}
}

// follow shows one table, also of several kinds: tables below each other could
// not be followed in a pipe.
func (o *options) follow(ctx context.Context, kube client.WithWatch, c command, selection flux.Selection, keep func(flux.Row) bool) (err error) {
	live := ui.NewLive(o.streams.Stdout())
	defer func() { err = errors.Join(err, live.Close()) }()
	err = flux.Watch(ctx, kube, selection, func(rows []flux.Row) error {
		rows = slices.DeleteFunc(rows, func(r flux.Row) bool { return !keep(r) })
		table := ui.Table{NoHeader: o.noHeader}
		if c.several() {
			table.Header, table.Rows = flux.LiveTable(rows)
		}
		if !c.several() {
			table.Header, table.Rows = flux.Table(c.kinds[0], rows, o.tableOptions(c))
		}
		return live.Set(table, "")
	})
	return explain(err)
}

// statusFilter reads ready=STATUS and ready!=STATUS.
func statusFilter(selector string) (func(flux.Row) bool, error) {
	if selector == "" {
		return func(flux.Row) bool { return true }, nil
	}
	condition, status, ok := strings.Cut(selector, "=")
	condition, negated := strings.CutSuffix(condition, "!")
	if !ok || !strings.EqualFold(condition, "ready") {
		return nil, ui.WithHint(fmt.Errorf("cannot read --status-selector %q", selector), "use ready=STATUS or ready!=STATUS")
	}
	return func(r flux.Row) bool { return strings.EqualFold(r.Ready, status) != negated }, nil
}

// explain adds advice to an error of the cluster.
func explain(err error) error {
	if apimeta.IsNoMatchError(err) {
		err = fmt.Errorf("cannot find the tenants: %w", flux.ErrNotInstalled)
	}
	if errors.Is(err, flux.ErrNotInstalled) {
		return ui.WithHint(err, kubeflags.LocalHint(localcluster.Root(), "install flux, or choose another cluster with --kubeconfig or --context"))
	}
	if apierrors.IsForbidden(err) {
		return ui.WithHint(err, "name a namespace that you may read, as in `tenure get all -n NAMESPACE`, or use a kubeconfig for the proxy, which shows tenants all of theirs with -A and `tenure get tenants`")
	}
	return kubeflags.Explain(err)
}
