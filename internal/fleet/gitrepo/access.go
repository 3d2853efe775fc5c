package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
)

// sshTimeout bounds the connection and the handshake.
const sshTimeout = 30 * time.Second

// ErrNoAgent reports that there is neither an SSH key nor an agent with a key.
var ErrNoAgent = errors.New("there is no SSH key and no SSH agent")

// access holds the means of access to a host.
type access struct {
	// method is nil without credentials.
	method transport.AuthMethod
	agent  net.Conn
}

func newAccess(ctx context.Context, remote Remote) (*access, error) {
	address, err := url.Parse(remote.URL)
	if err != nil {
		return nil, fmt.Errorf("cannot clone: %w", gitauth.ErrInvalid) // the error may contain a password
	}
	c := remote.Credentials
	switch {
	case address.Scheme == "ssh":
		return sshAccess(ctx, address, c)
	case c.Token != "":
		return &access{method: &githttp.TokenAuth{Token: c.Token}}, nil
	case c.Username != "" || c.Password != "":
		return &access{method: &githttp.BasicAuth{Username: c.Username, Password: c.Password}}, nil
	}
	return &access{}, nil
}

func sshAccess(ctx context.Context, address *url.URL, c gitauth.Credentials) (*access, error) {
	hosts, err := hostKeys(c.KnownHosts)
	if err != nil {
		return nil, err
	}
	method := &sshMethod{user: "git", hosts: hosts}
	if name := address.User.Username(); name != "" {
		method.user = name
	}
	if c.Key != nil {
		signer, err := c.Key.Signer()
		if err != nil {
			return nil, err
		}
		method.login = ssh.PublicKeys(signer)
		return &access{method: method}, nil
	}
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil, ErrNoAgent
	}
	conn, err := (&net.Dialer{Timeout: sshTimeout}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("cannot use the SSH agent: %w", errors.Join(ErrNoAgent, err))
	}
	method.login = ssh.PublicKeysCallback(agent.NewClient(conn).Signers)
	return &access{method: method, agent: conn}, nil
}

func (a *access) close() error {
	if a.agent == nil {
		return nil
	}
	return a.agent.Close()
}

// hostKeys reads the lines for one host.
func hostKeys(text []byte) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	for len(bytes.TrimSpace(text)) > 0 {
		_, _, key, _, rest, err := ssh.ParseKnownHosts(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read the known hosts: %w", err)
		}
		keys, text = append(keys, key), rest
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("cannot trust the host: %w: its key is not known", ErrHostKey)
	}
	return keys, nil
}

// sshMethod authenticates with keys at a host with known keys. It implements go-git's
// ssh.AuthMethod.
type sshMethod struct {
	user  string
	login ssh.AuthMethod
	hosts []ssh.PublicKey
}

// Name implements go-git's AuthMethod.
func (*sshMethod) Name() string { return "ssh-public-keys" }

// String implements go-git's AuthMethod.
func (m *sshMethod) String() string { return "user: " + m.user + ", " + m.Name() }

// ClientConfig implements go-git's AuthMethod.
func (m *sshMethod) ClientConfig() (*ssh.ClientConfig, error) {
	return &ssh.ClientConfig{
		User: m.user, Auth: []ssh.AuthMethod{m.login}, Timeout: sshTimeout,
		HostKeyAlgorithms: m.algorithms(),
		HostKeyCallback: func(host string, _ net.Addr, key ssh.PublicKey) error {
			if slices.ContainsFunc(m.hosts, func(known ssh.PublicKey) bool { return bytes.Equal(known.Marshal(), key.Marshal()) }) {
				return nil
			}
			return fmt.Errorf("%w: %s has %s %s", ErrHostKey, host, key.Type(), ssh.FingerprintSHA256(key))
		},
	}, nil
}

// algorithms returns the algorithms of the known keys, without SHA-1. They make a host with
// several keys present one of these.
func (m *sshMethod) algorithms() []string {
	var all []string
	for _, key := range m.hosts {
		if key.Type() == ssh.KeyAlgoRSA {
			all = append(all, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		all = append(all, key.Type())
	}
	return all
}
