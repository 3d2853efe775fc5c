package get

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
)

// completionTimeout is the timeout for shell completion.
const completionTimeout = 3 * time.Second

// clusterFlags select the cluster and the namespace.
type clusterFlags struct {
	kubeconfig string
	context    string
	namespace  string
}

// add defines the flags. As in flux, and unlike in kubectl, the namespace is flux-system (or
// FLUX_SYSTEM_NAMESPACE) regardless of the context.
func (f *clusterFlags) add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig `file` (default $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&f.context, "context", "", "the `context` of the kubeconfig")
	flags.StringVarP(&f.namespace, "namespace", "n", cmp.Or(os.Getenv("FLUX_SYSTEM_NAMESPACE"), "flux-system"), "the `namespace` to look in")
	for name, complete := range map[string]cobra.CompletionFunc{"context": f.completeContexts, "namespace": f.completeNamespaces} {
		if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // the flag does not exist: a mistake in the lines above
		}
	}
}

func (f *clusterFlags) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

func connect(f clusterFlags) (client.WithWatch, error) {
	config, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	return flux.NewClient(config)
}

func (f *clusterFlags) restConfig() (*rest.Config, error) {
	config, err := f.config().ClientConfig()
	if err != nil {
		return nil, ui.WithHint(fmt.Errorf("cannot find a cluster: %w", err),
			localHint(localcluster.Root(), "name one with --kubeconfig or $KUBECONFIG"))
	}
	return config, nil
}

// localHint returns the advice, followed by how to use a running local cluster or how to start
// one.
func localHint(root, advice string) string {
	names, err := localcluster.Running(root)
	if err != nil || len(names) == 0 {
		return advice + "; `tenure up` starts a local one and prints its kubeconfig"
	}
	name := names[0]
	if slices.Contains(names, localcluster.DefaultName) {
		name = localcluster.DefaultName
	}
	return fmt.Sprintf("%s; for the local cluster %s that runs here: export KUBECONFIG=%s", advice, name, filepath.Join(root, name, "kubeconfig"))
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

func (f *clusterFlags) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := f.config().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func (f *clusterFlags) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	config, err := f.config().ClientConfig()
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
