package get

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/flux"
)

// clusterFlags select the cluster and the namespace.
type clusterFlags struct {
	kubeflags.Flags

	namespace string
}

// add defines the flags. As in flux, and unlike in kubectl, the namespace is flux-system (or
// FLUX_SYSTEM_NAMESPACE) regardless of the context.
func (f *clusterFlags) add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	f.Add(cmd, flags)
	flags.StringVarP(&f.namespace, "namespace", "n", cmp.Or(os.Getenv("FLUX_SYSTEM_NAMESPACE"), "flux-system"), "the `namespace` to look in")
	complete.Flag(cmd, "namespace", complete.Names(&f.Flags, complete.Namespaces))
}

func connect(ctx context.Context, f clusterFlags) (client.WithWatch, error) {
	config, err := f.REST(ctx)
	if err != nil {
		return nil, err
	}
	return flux.NewClient(config)
}

func (o *options) completeNames(c command) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kube, err := o.connect(cmd.Context(), o.cluster)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), complete.Timeout)
		defer cancel()
		rows, err := flux.List(ctx, kube, flux.Selection{Kinds: c.kinds, Namespace: o.cluster.namespace})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, row := range rows {
			names = append(names, row.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
