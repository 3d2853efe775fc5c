package get

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/flux"
)

// completionTimeout is the timeout for shell completion.
const completionTimeout = 3 * time.Second

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
	if err := cmd.RegisterFlagCompletionFunc("namespace", f.completeNamespaces); err != nil {
		panic(err) // the flag does not exist: a mistake in the line above
	}
}

func connect(f clusterFlags) (client.WithWatch, error) {
	config, err := f.REST()
	if err != nil {
		return nil, err
	}
	return flux.NewClient(config)
}

// isUnreachable reports whether the connection to the API server failed.
func isUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

func (o *options) completeNames(c command) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kube, err := o.connect(o.cluster)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
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

func (f *clusterFlags) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	config, err := f.ClientConfig().ClientConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	kube, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := kube.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
