package create

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/sops"
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

The command encrypts the Secret for the keys in the flags, or else in the .sops.yaml of the
current folder. Without such keys, or with --plain, it prints the Secret unencrypted: pipe it
to another program, or to a file that you then encrypt with SOPS. It prints no unencrypted
Secret on a terminal. It prints the public key to the error stream.`,
		Example: `  tenure create secret git dev-team-auth -n apps --export \
    --url ssh://git@github.com/acme/dev-team --known-hosts-file ~/.ssh/known_hosts > auth.yaml`,
		Args: one("name of the Secret"),
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
	if g.url == "" {
		return errNoURL
	}
	address, err := tenantrepo.ParseURL(g.url)
	if err != nil {
		return err
	}
	encrypt, err := o.encryption(g, secretName)
	if err != nil {
		return err
	}
	credentials, err := g.auth.credentials(cmd.Context(), o.streams, address)
	if err != nil {
		return err
	}
	labels, _ := metadata["labels"].(map[string]string)
	return o.printSecret(credentials, credentials.Secret(g.namespace, secretName, labels), encrypt)
}

// encryption returns the function that encrypts the Secret, or nil for a Secret in the clear. It
// warns of a Secret that is in the clear because no key is named: so does Flux's command write it,
// and the user encrypts the file with the program of SOPS.
func (o *options) encryption(g *gitSecret, secretName string) (func(map[string]any) ([]byte, error), error) {
	var to sops.Recipients
	err := fs.ErrNotExist
	if !g.plain {
		to, err = g.seal.recipients(os.DirFS("."), secretName+".yaml")
	}
	switch {
	case err == nil:
		return func(content map[string]any) ([]byte, error) { return seal(content, to) }, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if file, ok := o.streams.Out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return nil, ui.WithHint(errors.New("a secret is not printed on a terminal"),
			"send the output to another program or a file that only you can read, or encrypt the Secret: --age-recipient, --pgp or a .sops.yaml")
	}
	if g.plain {
		return nil, nil
	}
	_, err = fmt.Fprintln(o.streams.Err, "warning: the Secret is not encrypted, since no key is named: encrypt it before you commit it (sops --encrypt --in-place FILE), or name a key with --age-recipient, --pgp or a .sops.yaml; --plain turns this warning off")
	return nil, err
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
