// Package complete has the shell completions that several commands share. A completion that fails
// offers nothing: a shell cannot show an error.
package complete

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/kubeflags"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
)

// Timeout is the timeout of a completion that reads a cluster.
const Timeout = 3 * time.Second

// The kinds of a cluster whose names are offered.
var (
	Namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
	Tenants    = v1alpha1.GroupVersion.WithResource("tenants")
)

// Flag registers the completion of a flag's value. It panics if the command has no such flag.
func Flag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err)
	}
}

// Words offers fixed words.
func Words(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// List offers fixed words for a flag that takes several with commas between them: each word once.
func List(words ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		given := typed[:strings.LastIndex(typed, ",")+1]
		var lists []string
		for _, word := range words {
			if !slices.Contains(strings.Split(given, ","), word) {
				lists = append(lists, given+word)
			}
		}
		return lists, cobra.ShellCompDirectiveNoFileComp
	}
}

// KeyFlags registers the completions of the flags that choose a new SSH key.
func KeyFlags(cmd *cobra.Command) {
	Flag(cmd, "ssh-key-algorithm", Words(gitauth.ECDSA, gitauth.Ed25519, gitauth.RSA))
	Flag(cmd, "ssh-ecdsa-curve", Words("p256", "p384", "p521"))
}

// Names offers the names of a cluster's objects of a kind that is not in a namespace.
func Names(flags *kubeflags.Flags, kind schema.GroupVersionResource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		config, err := flags.ClientConfig().ClientConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		kube, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), Timeout)
		defer cancel()
		list, err := kube.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// Clusters offers the folders of the clusters in a fleet. Without a folder, it looks in the working
// directory.
func Clusters(fleet *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		found, err := layout.Look(cmp.Or(*fleet, "."))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var paths []string
		for _, cluster := range found.Clusters {
			paths = append(paths, cluster.Path)
		}
		return paths, cobra.ShellCompDirectiveNoFileComp
	}
}

// FleetTenants offers the tenants in a fleet's folder. Without a folder, it looks in the working
// directory.
func FleetTenants(fleet *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, err := tenantrepo.Names(os.DirFS(cmp.Or(*fleet, ".")))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// First uses a completion for the first argument, and offers nothing for further ones.
func First(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, word)
	}
}
