package create

import (
	"context"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/ui"
)

// authFlags are the flags for access to a private repository. Flags take secrets from files: every
// user of a machine can see the arguments of all programs. Flux's flags with the secret itself are
// accepted, with a warning.
type authFlags struct {
	username       string
	password       string
	token          string
	passwordFile   string
	tokenFile      string
	privateKeyFile string
	knownHostsFile string
	scanHostKey    bool
	caFile         string
	key            gitauth.KeyOptions
}

func (a *authFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&a.username, "username", "u", "", "user for HTTPS")
	flags.StringVar(&a.passwordFile, "password-file", "", "file with the password for HTTPS, or of the private key; - for the input")
	flags.StringVar(&a.tokenFile, "bearer-token-file", "", "file with a bearer token for HTTPS; - for the input")
	flags.StringVarP(&a.password, "password", "p", "", "password for HTTPS, or of the private key; every user of the machine can see it: use --password-file")
	flags.StringVar(&a.token, "bearer-token", "", "bearer token for HTTPS; every user of the machine can see it: use --bearer-token-file")
	flags.StringVar(&a.privateKeyFile, "private-key-file", "", "SSH private key to use instead of a new one")
	flags.StringVar(&a.key.Algorithm, "ssh-key-algorithm", gitauth.ECDSA, "algorithm of a new SSH key: ecdsa, ed25519 or rsa")
	flags.IntVar(&a.key.RSABits, "ssh-rsa-bits", 2048, "size of a new RSA key")
	flags.StringVar(&a.key.Curve, "ssh-ecdsa-curve", "p384", "curve of a new ECDSA key: p256, p384 or p521")
	complete.KeyFlags(cmd)
	flags.StringVar(&a.knownHostsFile, "known-hosts-file", "", "file with the SSH host's keys (default ~/.ssh/known_hosts)")
	flags.BoolVar(&a.scanHostKey, "scan-host-key", false, "ask the SSH host for its key over the network, and trust the answer")
	flags.StringVar(&a.caFile, "ca-crt-file", "", "file with the CA certificate of the HTTPS host")
	cmd.MarkFlagsMutuallyExclusive("known-hosts-file", "scan-host-key")
	cmd.MarkFlagsMutuallyExclusive("bearer-token-file", "bearer-token", "password-file", "password")
	cmd.MarkFlagsMutuallyExclusive("bearer-token-file", "username")
	cmd.MarkFlagsMutuallyExclusive("bearer-token", "username")
}

// secret returns a secret: the value of its flag, with a warning, or else the content of its file,
// or the answer of the user.
func (a *authFlags) secret(ctx context.Context, streams ui.IO, flag, value, file, what string) (string, error) {
	if value == "" {
		return ui.ReadSecret(ctx, streams, file, what)
	}
	return value, ui.WarnArgument(streams, flag)
}

// credentials returns the credentials for the repository. It reads them, generates them or
// asks for them.
func (a *authFlags) credentials(ctx context.Context, streams ui.IO, address *url.URL) (gitauth.Credentials, error) {
	var c gitauth.Credentials
	var err error
	if address.Scheme == "ssh" {
		c, err = a.ssh(ctx, streams, address)
	} else {
		c, err = a.https(ctx, streams, address)
	}
	if err != nil {
		return gitauth.Credentials{}, err
	}
	return c, c.Check(address)
}

func (a *authFlags) ssh(ctx context.Context, streams ui.IO, address *url.URL) (gitauth.Credentials, error) {
	var c gitauth.Credentials
	var err error
	if c.KnownHosts, err = a.hostKeys(ctx, streams, address.Host); err != nil {
		return c, err
	}
	pair, err := a.keyPair(ctx, streams)
	c.Key = &pair
	return c, err
}

// hostKeys returns the lines of known_hosts for an SSH host: from --known-hosts-file, from the host
// itself with --scan-host-key, or else from the user's own known_hosts.
func (a *authFlags) hostKeys(ctx context.Context, streams ui.IO, host string) ([]byte, error) {
	switch {
	case a.knownHostsFile != "":
		text, err := os.ReadFile(a.knownHostsFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the known hosts: %w", err)
		}
		lines, err := gitauth.KnownHosts(text, host)
		if err != nil {
			return nil, ui.WithHint(err, "compare it with the key that the owner of the host publishes, and add it to the file; or trust the host's answer with --scan-host-key")
		}
		return lines, nil
	case a.scanHostKey:
		line, fingerprint, err := gitauth.Scan(ctx, host)
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintf(streams.Err, "• %s says that its key is %s: compare this with the key that the owner of the host publishes\n", host, ui.Clean(fingerprint))
		return line, err
	}
	lines, err := gitauth.UserKnownHosts(host)
	if err != nil {
		return nil, ui.WithHint(fmt.Errorf("the keys of the SSH host %s are not known: %w", host, err),
			"connect to it once with ssh, name a file that has them with --known-hosts-file, or ask the host with --scan-host-key")
	}
	return lines, nil
}

func (a *authFlags) keyPair(ctx context.Context, streams ui.IO) (gitauth.KeyPair, error) {
	if a.privateKeyFile == "" {
		return gitauth.Generate(a.key)
	}
	private, err := os.ReadFile(a.privateKeyFile)
	if err != nil {
		return gitauth.KeyPair{}, fmt.Errorf("cannot read the private key: %w", err)
	}
	password := ""
	if a.passwordFile != "" || a.password != "" {
		if password, err = a.secret(ctx, streams, "password", a.password, a.passwordFile, "password of the private key"); err != nil {
			return gitauth.KeyPair{}, err
		}
	}
	pair, err := gitauth.ParseKey(private, password)
	if err != nil {
		return pair, fmt.Errorf("%s: %w", a.privateKeyFile, err)
	}
	return pair, nil
}

func (a *authFlags) https(ctx context.Context, streams ui.IO, address *url.URL) (gitauth.Credentials, error) {
	c := gitauth.Credentials{Username: a.username}
	var err error
	if a.caFile != "" {
		if c.CA, err = os.ReadFile(a.caFile); err != nil {
			return c, fmt.Errorf("cannot read the CA certificate: %w", err)
		}
	}
	if a.tokenFile != "" || a.token != "" {
		c.Token, err = a.secret(ctx, streams, "bearer-token", a.token, a.tokenFile, "token")
		return c, err
	}
	if c.Username == "" {
		// Hosts that accept a token as password ignore the user name.
		c.Username = "git"
	}
	c.Password, err = a.secret(ctx, streams, "password", a.password, a.passwordFile, "token or password for "+address.Host)
	return c, err
}
