package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/cli/edit"
	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"github.com/tenure-dev/tenure/internal/ui"
)

// passwordVariable is Flux's name for it.
const passwordVariable = "GIT_PASSWORD"

// access holds the flags for access to the repository, by this program and by the cluster.
type access struct {
	username, passwordFile  string
	passwordArgument        string
	tokenAuth, bearer       bool
	privateKeyFile          string
	key                     gitauth.KeyOptions
	sshHostname             string
	knownHosts, fingerprint string
	caFile                  string
}

// add adds the flags of every command.
func (a *access) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&a.tokenAuth, "token-auth", false, "give the cluster the password or token, over HTTPS, instead of an SSH key")
	flags.StringVar(&a.key.Algorithm, "ssh-key-algorithm", gitauth.ECDSA, "algorithm of a new SSH key: ecdsa, ed25519 or rsa")
	flags.IntVar(&a.key.RSABits, "ssh-rsa-bits", 2048, "size of a new RSA key")
	flags.StringVar(&a.key.Curve, "ssh-ecdsa-curve", "p384", "curve of a new ECDSA key: p256, p384 or p521")
	complete.KeyFlags(cmd)
	flags.StringVar(&a.sshHostname, "ssh-hostname", "", "the SSH host, as HOST or HOST:PORT, if it differs from the host in the repository's address")
	flags.StringVar(&a.knownHosts, "ssh-known-hosts-file", "", "file with the SSH host's keys (default ~/.ssh/known_hosts)")
	flags.StringVar(&a.fingerprint, "ssh-host-key-fingerprint", "", "fingerprint of the SSH host's key, as SHA256:…, which the owner of the host publishes")
	flags.StringVar(&a.caFile, "ca-file", "", "file with the CA certificate of the HTTPS host")
	cmd.MarkFlagsMutuallyExclusive("ssh-known-hosts-file", "ssh-host-key-fingerprint")
}

// addGit adds the flags of `tenure bootstrap git`.
func (a *access) addGit(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&a.username, "username", "u", "git", "user name for HTTPS; for SSH, the user name with which the cluster reads the repository")
	flags.StringVar(&a.passwordFile, "password-file", "", "file with the password or token, or with the password of the private key; - for the input (default $"+passwordVariable+")")
	flags.StringVarP(&a.passwordArgument, "password", "p", "", "the password or token itself; every user of the machine can see it: use --password-file")
	flags.BoolVar(&a.bearer, "with-bearer-token", false, "send the password as a bearer token; implies --token-auth")
	flags.StringVar(&a.privateKeyFile, "private-key-file", "", "SSH private key, for pushing and for the cluster")
	cmd.MarkFlagsMutuallyExclusive("password", "password-file")
	cmd.MarkFlagsMutuallyExclusive("private-key-file", "token-auth")
	cmd.MarkFlagsMutuallyExclusive("private-key-file", "with-bearer-token")
}

// resolve returns the credentials for the push, the URL from which the cluster reads the
// repository, and the cluster's credentials. It reads them from flags and files, and asks for
// missing ones. It does not create the cluster's deploy key.
func (o *options) resolve(ctx context.Context) (push gitauth.Credentials, address string, read gitauth.Credentials, err error) {
	a := &o.access
	a.tokenAuth = a.tokenAuth || a.bearer
	from, err := tenantrepo.ParseURL(o.url)
	if err != nil {
		return push, "", read, err
	}
	if from.Scheme == "http" && !o.insecure {
		return push, "", read, ui.WithHint(fmt.Errorf("credentials would be sent to http://%s in clear", from.Host), "use https://, or --allow-insecure-http if nobody can listen")
	}
	to := a.clusterURL(from)
	if from.Scheme == "ssh" {
		push, err = a.sshCredentials(ctx, o.streams, from)
	} else {
		push, err = a.httpCredentials(ctx, o.streams, from)
	}
	if err != nil {
		return push, "", read, err
	}
	switch to.Scheme {
	case from.Scheme:
		read = push
	case "ssh":
		read.KnownHosts, err = a.hostKeys(ctx, o.streams, to.Host)
	default:
		read, err = a.httpCredentials(ctx, o.streams, to)
	}
	return push, to.String(), read, err
}

// clusterURL returns the URL from which the cluster reads the repository: SSH with a deploy
// key, or HTTPS with a token.
func (a *access) clusterURL(from *url.URL) *url.URL {
	to := *from
	switch {
	case a.tokenAuth && from.Scheme == "ssh":
		to.Scheme, to.User, to.Host = "https", nil, from.Hostname()
	case !a.tokenAuth && from.Scheme != "ssh":
		to.Scheme, to.User, to.Host = "ssh", url.User(a.username), from.Hostname()
	case from.Scheme == "ssh" && from.User == nil:
		to.User = url.User(a.username)
	}
	if to.Scheme == "ssh" && a.sshHostname != "" {
		to.Host = a.sshHostname
	}
	return &to
}

func (a *access) httpCredentials(ctx context.Context, streams ui.IO, address *url.URL) (gitauth.Credentials, error) {
	var c gitauth.Credentials
	var err error
	if c.CA, err = a.authority(); err != nil {
		return c, err
	}
	password, err := a.password(ctx, streams, "password or token for "+address.Host)
	if err != nil {
		return c, err
	}
	if a.bearer {
		c.Token = password
	} else {
		c.Username, c.Password = a.username, password
	}
	if address.Scheme == "http" {
		return c, nil // --allow-insecure-http was given
	}
	return c, c.Check(address)
}

// authority returns the content of --ca-file; nil without the flag.
func (a *access) authority() ([]byte, error) {
	if a.caFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(a.caFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA certificate: %w", err)
	}
	return content, nil
}

func (a *access) sshCredentials(ctx context.Context, streams ui.IO, address *url.URL) (gitauth.Credentials, error) {
	var c gitauth.Credentials
	var err error
	if a.privateKeyFile != "" {
		private, err := os.ReadFile(a.privateKeyFile)
		if err != nil {
			return c, fmt.Errorf("cannot read the private key: %w", err)
		}
		password := os.Getenv(passwordVariable)
		if a.passwordFile != "" || a.passwordArgument != "" {
			if password, err = a.password(ctx, streams, "password of the private key"); err != nil {
				return c, err
			}
		}
		pair, err := gitauth.ParseKey(private, password)
		if err != nil {
			return c, fmt.Errorf("%s: %w", a.privateKeyFile, err)
		}
		c.Key = &pair
	}
	c.KnownHosts, err = a.hostKeys(ctx, streams, address.Host)
	return c, err
}

// password returns the password from its flag, with a warning, the environment, a file, the input
// or a prompt. It reads the input once.
func (a *access) password(ctx context.Context, streams ui.IO, what string) (string, error) {
	if a.passwordArgument != "" {
		return a.passwordArgument, ui.WarnArgument(streams, "password")
	}
	if a.passwordFile == "" {
		if password := os.Getenv(passwordVariable); password != "" {
			return password, nil
		}
	}
	password, err := ui.ReadSecret(ctx, streams, a.passwordFile, what)
	if err != nil && a.passwordFile == "" {
		return "", ui.WithHint(err, "or put it into the variable "+passwordVariable)
	}
	return password, err
}

// hostKeys returns the verified keys of an SSH host. It takes them from a fingerprint or a
// file; without these, the user confirms the host's key at a prompt.
func (a *access) hostKeys(ctx context.Context, streams ui.IO, host string) ([]byte, error) {
	if a.fingerprint != "" {
		return gitauth.Pin(ctx, host, a.fingerprint)
	}
	if a.knownHosts != "" {
		content, err := os.ReadFile(a.knownHosts)
		if err != nil {
			return nil, fmt.Errorf("cannot read the known hosts: %w", err)
		}
		return gitauth.KnownHosts(content, host)
	}
	if lines, err := gitauth.UserKnownHosts(host); err == nil {
		return lines, nil
	}
	line, fingerprint, err := gitauth.Scan(ctx, host)
	if err != nil {
		return nil, err
	}
	kind, sum, _ := strings.Cut(ui.Clean(fingerprint), " ")
	err = edit.Confirm(ctx, streams, fmt.Sprintf("%s says that its %s key is %s. Does the owner of the host publish this key?", host, kind, sum))
	if errors.Is(err, edit.ErrNobody) || errors.Is(err, edit.ErrDeclined) {
		return nil, ui.WithHint(fmt.Errorf("the key of the SSH host %s is not known, it says %s %s: %w", host, kind, sum, err),
			"compare it with what the host's owner says, and give it with --ssh-host-key-fingerprint, or name a file with --ssh-known-hosts-file")
	}
	return line, err
}
