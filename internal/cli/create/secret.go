package create

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/ui"
)

// gitSecret are the flags of `create secret git`.
type gitSecret struct {
	namespace, url string
	auth           authFlags
	seal           sealFlags
	plain          bool
}

func (o *options) secret() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Write the manifest of a Secret",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	g := &gitSecret{}
	git := &cobra.Command{
		Use:   "git NAME",
		Short: "Write a Secret with the credentials of a Git repository, encrypted with SOPS",
		Long: `Write a Secret with the credentials of a Git repository: an SSH key pair made here
and the host's keys, or a user with a password, or a token.

It is encrypted for the keys that the .sops.yaml of the current folder or the flags
name. --plain leaves it as it is, for a pipe to another program. The public key goes to
the error stream.`,
		Example: "  tenure create secret git dev-team-auth -n apps --url ssh://git@github.com/acme/dev-team --known-hosts-file ~/.ssh/known_hosts --export > auth.yaml",
		Args:    name,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.runGitSecret(cmd, g, args[0])
		},
	}
	addNamespace(git, &g.namespace)
	git.Flags().StringVar(&g.url, "url", "", "address of the repository")
	git.Flags().BoolVar(&g.plain, "plain", false, "do not encrypt the Secret")
	g.auth.add(git)
	g.seal.add(git)
	cmd.AddCommand(git)
	return cmd
}

func (o *options) runGitSecret(cmd *cobra.Command, g *gitSecret, secretName string) error {
	metadata, err := o.metadata(g.namespace, secretName)
	if err != nil {
		return err
	}
	if !o.export {
		return o.print(nil)
	}
	address, err := tenantrepo.ParseURL(g.url)
	if err != nil {
		return err
	}
	if file, ok := o.streams.Out.(*os.File); g.plain && ok && term.IsTerminal(int(file.Fd())) {
		return ui.WithHint(errors.New("a secret is not printed on a terminal"), "send the output to another program or a file that only you can read, or leave out --plain")
	}
	var encrypt func(map[string]any) ([]byte, error)
	if !g.plain {
		to, err := g.seal.recipients(os.DirFS("."), secretName+".yaml")
		if errors.Is(err, fs.ErrNotExist) {
			return ui.WithHint(err, "or write the Secret in the clear with --plain")
		}
		if err != nil {
			return err
		}
		encrypt = func(content map[string]any) ([]byte, error) { return seal(content, to) }
	}
	credentials, err := g.auth.credentials(cmd.Context(), o.streams, address)
	if err != nil {
		return err
	}
	labels, _ := metadata["labels"].(map[string]string)
	return o.printSecret(credentials, credentials.Secret(g.namespace, secretName, labels), encrypt)
}

// printSecret prints a Secret, encrypted unless encrypt is nil, and then the public deploy
// key, which the user has to add to the Git host.
func (o *options) printSecret(c gitauth.Credentials, content map[string]any, encrypt func(map[string]any) ([]byte, error)) error {
	if encrypt == nil {
		if err := o.print(content); err != nil {
			return err
		}
	} else {
		sealed, err := encrypt(content)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(o.streams.Out, "---\n"+string(sealed)); err != nil {
			return err
		}
	}
	if c.Key == nil {
		return nil
	}
	_, err := io.WriteString(o.streams.Err, "deploy key: "+string(c.Key.Public))
	return err
}
