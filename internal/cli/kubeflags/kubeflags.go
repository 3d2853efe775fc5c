// Package kubeflags has the flags that select a cluster, which several commands share:
// --kubeconfig, --context and --request-timeout.
package kubeflags

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags select a cluster.
type Flags struct {
	// Kubeconfig is a file. Without it, $KUBECONFIG or ~/.kube/config is read.
	Kubeconfig string
	// Context is a context of the kubeconfig. Without it, the current one is used.
	Context string
	// RequestTimeout limits the wait for each answer of the API server; 0 waits without a limit.
	RequestTimeout time.Duration
}

// requestTimeout is the default of [Flags.RequestTimeout]. The API server itself waits up to this long for a webhook.
const requestTimeout = 30 * time.Second

// Add adds the flags to a command's flags, with completion of contexts.
func (f *Flags) Add(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "the kubeconfig `file` (default $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&f.Context, "context", "", "the `context` of the kubeconfig")
	durationflag.Limit(flags, &f.RequestTimeout, "request-timeout", requestTimeout, "how long to wait for each answer of the API server; 0 is no limit")
	if err := cmd.RegisterFlagCompletionFunc("context", f.completeContexts); err != nil {
		panic(err) // the flag does not exist: a mistake in the lines above
	}
}

// ClientConfig returns a configuration that reads the kubeconfig when one of its methods is called.
func (f *Flags) ClientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
}

// REST returns the configuration of a client for the selected cluster. Its requests end with the context, and
// wait for an answer until the limit in the flags. The error has a hint that names the ways to select a
// cluster.
func (f *Flags) REST(ctx context.Context) (*rest.Config, error) {
	config, err := f.ClientConfig().ClientConfig()
	if err == nil {
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return answerLimit{RoundTripper: rt, command: ctx, limit: f.RequestTimeout}
		})
		return config, nil
	}
	advice, cause := f.diagnose(err)
	return nil, ui.WithHint(fmt.Errorf("cannot find a cluster: %w", cause), advice)
}

// maxContexts is the maximum number of contexts that a hint lists.
const maxContexts = 10

// diagnose returns the way out of an error of the kubeconfig, and the error in plain words.
func (f *Flags) diagnose(err error) (advice string, cause error) {
	advice = LocalHint(localcluster.Root(), "name one with --kubeconfig or $KUBECONFIG")
	var contexts []string
	raw, rawErr := f.ClientConfig().RawConfig()
	if rawErr == nil {
		contexts = slices.Sorted(maps.Keys(raw.Contexts))
	}
	list := strings.Join(contexts[:min(len(contexts), maxContexts)], ", ")
	if len(contexts) > maxContexts {
		list += ", …"
	}
	file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	_, missing := os.Stat(file)
	switch {
	case len(contexts) > 0 && f.Context != "" && !slices.Contains(contexts, f.Context):
		return "the contexts of the kubeconfig: " + list, err
	case f.Kubeconfig == "" && file != "" && errors.Is(missing, fs.ErrNotExist):
		return advice, fmt.Errorf("$KUBECONFIG is %s, and there is no such file", file)
	case f.Context != "" && len(contexts) == 0 && rawErr == nil:
		return advice, fmt.Errorf("context %q does not exist: there is no kubeconfig, or it has no contexts", f.Context)
	case !clientcmd.IsEmptyConfig(err):
		return advice, err
	case len(contexts) > 0:
		return "choose one with --context: " + list, errors.New("the kubeconfig has no current context")
	}
	return advice, errors.New("there is no kubeconfig, or it is empty")
}

// Explain adds advice to an error if the API server could not be reached, did not answer in time, or does not
// accept the credential. If the user lacks a right, it adds advice to an error that has none.
func Explain(err error) error {
	const other = "choose another user with --context or --kubeconfig"
	switch {
	case apierrors.IsUnauthorized(err):
		return ui.WithHint(err, "the credential in the kubeconfig is not valid, or has expired: log in again, or "+other)
	case apierrors.IsForbidden(err) && len(ui.Hints(err)) == 0:
		return ui.WithHint(err, "the command needs more rights: "+other)
	}
	op, request := (*net.OpError)(nil), (*url.Error)(nil)
	if errors.As(err, &op) || errors.As(err, &request) && request.Timeout() {
		return ui.WithHint(err, LocalHint(localcluster.Root(), "check that the cluster is running"))
	}
	return err
}

// LocalHint returns the advice, followed by how to use a running local cluster or, if there is
// none, how to start one. It ignores the clusters of `tenure verify`, which end with this command.
// root is the folder of the local clusters.
func LocalHint(root, advice string) string {
	names, err := localcluster.Running(root)
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, localcluster.VerifyPrefix) })
	if err != nil || len(names) == 0 {
		return advice + "; `tenure up` starts a local one and prints its kubeconfig"
	}
	name := names[0]
	if slices.Contains(names, localcluster.DefaultName) {
		name = localcluster.DefaultName
	}
	return fmt.Sprintf("%s; for the local cluster %s that runs here: export KUBECONFIG=%s", advice, name, filepath.Join(root, name, "kubeconfig"))
}

func (f *Flags) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := f.ClientConfig().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
