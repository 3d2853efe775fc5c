package bootstrap

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/ui"
)

// newBitbucketServer returns a command that accepts the flags of flux's, and only translates: it
// names the command that does the same.
func newBitbucketServer() *cobra.Command {
	var hostname, owner, repository, branch, folder, contextName string
	cmd := &cobra.Command{
		Use:   "bitbucket-server",
		Short: "Print the commands that connect the cluster with a repository on Bitbucket Server",
		Long: `Tenure creates no repositories and registers no deploy keys on Bitbucket Server. With the
flags of ` + "`flux bootstrap bitbucket-server`" + `, this command fails, and prints the commands that do
the same.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		// Flux has flags that do not matter here.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(*cobra.Command, []string) error {
			address := strings.Join([]string{or(hostname, "HOST"), or(owner, "OWNER"), or(repository, "REPOSITORY")}, "/")
			git := fmt.Sprintf("tenure bootstrap git --url=ssh://git@%s --branch=%s --path=%s", address, branch, or(folder, "PATH"))
			if contextName != "" {
				git += " --context=" + contextName
			}
			return ui.WithHint(errors.New("cannot bootstrap through the API of Bitbucket Server: Tenure creates no repositories and registers no deploy keys there"),
				"create the repository https://"+address+", and run: "+git,
				"or run `flux bootstrap bitbucket-server` with the same flags, and lock the fleet down: tenure profile multi-tenant --fleet . --path "+or(folder, "PATH"))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&hostname, "hostname", "", "name of the host")
	flags.StringVar(&owner, "owner", "", "owner of the repository")
	flags.StringVar(&repository, "repository", "", "name of the repository")
	flags.StringVar(&branch, "branch", "main", "the branch")
	flags.StringVar(&folder, "path", "", "the cluster's folder in the repository")
	flags.StringVar(&contextName, "context", "", "the context of the kubeconfig")
	flags.Bool("personal", false, "the owner is a user")
	flags.Bool("private", true, "the repository is private")
	return cmd
}

// or returns the text, or another text if it is empty.
func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
