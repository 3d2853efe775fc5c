package githost

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Credentials grant access to a private repository: see [Host.Protect]. Each part that is
// set grants access alone.
type Credentials struct {
	// Username and Password are for HTTP basic authentication. If Username is empty,
	// the Password is valid for any user name.
	Username, Password string
	// Token is for HTTP bearer authentication. It is also valid as the password of any
	// user, as on Git hosts.
	Token string
	// Key is a public SSH key, as a line of authorized_keys (sshd(8)).
	Key string
	// ReadOnly denies pushes.
	ReadOnly bool
}

// access holds the credentials in a request; the other fields are empty.
type access struct {
	username, password, token string
	key                       []byte // in SSH wire format
}

// grant is a Credentials with its parsed key.
type grant struct {
	Credentials
	key []byte
}

func (g *grant) opens(a access) bool {
	same := func(want, got string) bool {
		return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(got)) == 1
	}
	switch {
	case a.key != nil:
		return len(g.key) > 0 && bytes.Equal(g.key, a.key)
	case same(g.Token, a.token), same(g.Token, a.password):
		return true
	}
	return same(g.Password, a.password) && (g.Username == "" || same(g.Username, a.username))
}

// Protect makes a repository private: only clients with one of the credentials have access, and
// without credentials no client has. Call it before or after adding the repository's folder. A
// repository that was never protected accepts all clients. It returns an error if the URL or a
// public key is not valid.
func (h *Host) Protect(url string, credentials ...Credentials) error {
	a, err := parseAddress(url)
	if err != nil {
		return err
	}
	grants := []grant{}
	for _, c := range credentials {
		g := grant{Credentials: c}
		if c.Key != "" {
			key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.Key))
			if err != nil {
				return fmt.Errorf("cannot protect %s: the public SSH key cannot be read: %w", url, err)
			}
			g.key = key.Marshal()
		}
		grants = append(grants, g)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.private[a] = grants
	return nil
}

// accessDecision is the result of an access check for a repository.
type accessDecision int

const (
	allowed  accessDecision = iota
	unknown                 // no repository of this host has these credentials
	foreign                 // the credentials are for another repository
	readOnly                // the credentials do not allow a push
)

// decide checks the access of a request to a repository.
func (h *Host) decide(r *repository, service string, shown access) accessDecision {
	h.mu.RLock()
	defer h.mu.RUnlock()
	grants, private := h.private[r.address]
	if !private {
		return allowed
	}
	answer := unknown
	for i := range grants {
		if !grants[i].opens(shown) {
			continue
		}
		if service != receivePack || !grants[i].ReadOnly {
			return allowed
		}
		answer = readOnly
	}
	if answer == unknown && h.known(r.address.host, shown) {
		return foreign
	}
	return answer
}

// known reports whether the credentials grant access to any private repository of a host.
// The caller holds the lock.
func (h *Host) known(host string, shown access) bool {
	for a, grants := range h.private {
		for i := range grants {
			if a.host == host && grants[i].opens(shown) {
				return true
			}
		}
	}
	return false
}

// askHTTP reports whether a request may access the repository. If not, it answers the
// request, as GitHub does.
func (h *Host) askHTTP(w http.ResponseWriter, req *http.Request, r *repository, service string) bool {
	shown := access{}
	header := req.Header.Get("Authorization")
	if user, password, ok := req.BasicAuth(); ok {
		shown.username, shown.password = user, password
	} else if scheme, token, ok := strings.Cut(header, " "); ok && strings.EqualFold(scheme, "Bearer") {
		shown.token = strings.TrimSpace(token)
	}
	switch h.decide(r, service, shown) {
	case allowed:
		return true
	case foreign:
		http.Error(w, "Repository not found.", http.StatusNotFound)
	case readOnly:
		http.Error(w, "Permission to "+r.address.path+" denied: write access to the repository is not granted.", http.StatusForbidden)
	default:
		w.Header().Set("WWW-Authenticate", `Basic realm="`+r.address.host+`"`)
		message := "Invalid username or token."
		if header == "" {
			message = "Authentication is required: the repository is private."
		}
		http.Error(w, message, http.StatusUnauthorized)
	}
	return false
}

// sshConfig returns the configuration of the SSH server for a host. A host without
// private repositories accepts every client. A host whose repositories are all
// private accepts their keys alone. A host with private and other repositories
// accepts any key: decide checks the key when the client names a repository.
func (h *Host) sshConfig(host string) *ssh.ServerConfig {
	h.mu.RLock()
	defer h.mu.RUnlock()
	private, public := false, false
	name, _ := requestAddress(host, "x")
	for a := range h.repositories {
		if a.host == name.host {
			_, is := h.private[a]
			private, public = private || is, public || !is
		}
	}
	config := &ssh.ServerConfig{NoClientAuth: !private}
	config.PublicKeyCallback = func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		h.mu.RLock()
		defer h.mu.RUnlock()
		if private && !public && !h.known(name.host, access{key: key.Marshal()}) {
			return nil, fmt.Errorf("%s opens no repository of %s", ssh.FingerprintSHA256(key), host)
		}
		return &ssh.Permissions{Extensions: map[string]string{keyExtension: string(key.Marshal())}}, nil
	}
	if !private {
		config.PasswordCallback = func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return nil, nil }
	}
	config.AddHostKey(h.signer)
	return config
}

// keyExtension is the extension that holds the key of a login.
const keyExtension = "key"

// askSSH returns an error if the client may not access the repository.
func (h *Host) askSSH(host string, r *repository, service string, permissions *ssh.Permissions) error {
	shown := access{key: []byte{}}
	if permissions != nil {
		shown.key = []byte(permissions.Extensions[keyExtension])
	}
	switch h.decide(r, service, shown) {
	case allowed:
		return nil
	case foreign:
		return errors.New("ERROR: Repository not found")
	case readOnly:
		return errors.New("ERROR: The key you are authenticating with has been marked as read only")
	default:
		return fmt.Errorf("git@%s: Permission denied (publickey)", host)
	}
}
