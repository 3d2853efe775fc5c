// Package incluster implements `tenure-server check`: the comparison of `tenure check` by a Job in
// the cluster. It has no part of the local cluster, and no fleet to compare with.
package incluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The modes of the rules.
const (
	modeEnforce = "enforce"
	modeWarn    = "warn"
)

// NewCommand returns the command.
func NewCommand(streams ui.IO) *cobra.Command {
	var namespace, mode string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that the cluster is locked down",
		Long: `Check compares the cluster with what this version of Tenure installs, as tenure check
does, and writes nothing. It connects with $KUBECONFIG, or as the account of its Pod.
The exit code is 1 when something is wrong, so that the Job fails.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := CheckMode(mode); err != nil {
				return err
			}
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}).ClientConfig()
			if err != nil {
				return ui.WithHint(fmt.Errorf("cannot find the cluster: %w", err), "run it in a Pod, or set $KUBECONFIG")
			}
			cluster, err := Connect(config, namespace)
			if err != nil {
				return err
			}
			cluster.Warn = mode == modeWarn
			results, err := cluster.Check(cmd.Context())
			return Print(streams, "", results, err)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", cmp.Or(os.Getenv("RUNTIME_NAMESPACE"), "flux-system"), "the `namespace` of Flux")
	cmd.Flags().StringVar(&mode, "mode", modeEnforce, "what the rules should do: enforce, or warn")
	return cmd
}

// CheckMode returns an error for a value of --mode that is no mode of the rules.
func CheckMode(mode string) error {
	if mode != modeEnforce && mode != modeWarn {
		return fmt.Errorf("--mode is enforce or warn, not %q", mode)
	}
	return nil
}

// Connect returns the cluster to check. namespace is Flux's namespace. It returns an error if the
// configuration is not valid.
func Connect(config *rest.Config, namespace string) (lockdown.Cluster, error) {
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return lockdown.Cluster{}, fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return lockdown.Cluster{}, fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	return lockdown.Cluster{Client: kube, Discovery: disco, Namespace: namespace}, nil
}

// Report is the output of the checks as JSON and YAML. The fields stay as they are in later versions.
type Report struct {
	// Checks are the results in the order of the checks, and Failed is the number of failed ones.
	Checks []Check `json:"checks"`
	Failed int     `json:"failed"`
	// Error is the reason why the checks ended early.
	Error string `json:"error,omitempty"`
}

// Check is a result in a [Report].
type Check struct {
	Name    string   `json:"name"`
	Ready   bool     `json:"ready"`
	Message string   `json:"message"`
	Fix     string   `json:"fix,omitempty"`
	Objects []string `json:"objects,omitempty"`
	Files   []string `json:"files,omitempty"`
}

// CheckOutput returns an error for a value of -o that [Print] does not know.
func CheckOutput(output string) error {
	if output != "" && output != ui.JSON && output != ui.YAML {
		return fmt.Errorf("-o is %s or %s, not %q", ui.JSON, ui.YAML, output)
	}
	return nil
}

// Print prints the results as a table or, with an output of [ui.Encode], as a [Report], and returns an
// error if a check failed. A fix of several checks is printed once, below the error. If err ended the
// checks early, Print also prints the results until then, and returns err.
func Print(streams ui.IO, output string, results []lockdown.Result, err error) error {
	if err != nil && len(results) == 0 {
		return err
	}
	shared := map[string]int{}
	if err == nil {
		shared = sharedFixes(results)
	}
	write := func() error { return tableOf(results, shared).Print(streams.Stdout()) }
	if output != "" {
		write = func() error { return ui.Encode(streams.Out, output, reportOf(results, err)) }
	}
	if printed := write(); printed != nil || err != nil {
		return errors.Join(err, printed)
	}
	wrong := reportOf(results, nil).Failed
	if wrong == 0 {
		return nil
	}
	var hints []string
	for _, fix := range slices.SortedFunc(maps.Keys(shared), func(a, b string) int { return cmp.Or(shared[b]-shared[a], cmp.Compare(a, b)) }) {
		hints = append(hints, fmt.Sprintf("for %d of them: %s", shared[fix], fix))
	}
	return ui.WithHint(fmt.Errorf("%d of %d checks failed", wrong, len(results)), hints...)
}

// tableOf returns the results as a table, without the shared fixes.
func tableOf(results []lockdown.Result, shared map[string]int) ui.Table {
	table := ui.Table{Header: []string{"CHECK", "READY", "MESSAGE"}}
	for _, r := range results {
		ready := "True"
		if !r.OK {
			ready = "False"
		}
		message := r.Message
		if len(r.Files) > 0 && !r.OK {
			message += " (" + strings.Join(r.Files, ", ") + ")"
		}
		if r.Fix != "" && shared[r.Fix] == 0 {
			message += ": " + r.Fix
		}
		table.Rows = append(table.Rows, []string{r.Name, ready, message})
	}
	return table
}

// reportOf returns the results and the error that ended the checks, or nil, as a report.
func reportOf(results []lockdown.Result, err error) Report {
	report := Report{Checks: []Check{}}
	for _, r := range results {
		report.Checks = append(report.Checks, Check{Name: r.Name, Ready: r.OK, Message: r.Message, Fix: r.Fix, Objects: r.Objects, Files: r.Files})
		if !r.OK {
			report.Failed++
		}
	}
	if err != nil {
		report.Error = err.Error()
	}
	return report
}

// sharedFixes returns the fixes of several results, with the number of these results.
func sharedFixes(results []lockdown.Result) map[string]int {
	count := map[string]int{}
	for _, r := range results {
		count[r.Fix]++
	}
	maps.DeleteFunc(count, func(fix string, n int) bool { return fix == "" || n == 1 })
	return count
}
