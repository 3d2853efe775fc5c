package network

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
)

// ErrPrivate is the error for an invalid value of --private.
var ErrPrivate = errors.New("cannot use --private")

// Private is a value of --private: a mapped Git repository and its credentials.
type Private struct {
	// URL is the repository's address.
	URL string
	// Credentials grant access to the repository.
	Credentials githost.Credentials
}

// ParsePrivate parses URL=FILE, where the file is the manifest of a Secret with the
// fields that Flux reads: username and password, bearerToken, or identity.pub or
// identity. The error is ErrPrivate and never contains the content of the file.
func ParsePrivate(value string) (Private, error) {
	address, file, ok := strings.Cut(value, "=")
	if !ok || address == "" || file == "" {
		return Private{}, fmt.Errorf("%w %q: it must be URL=FILE, such as https://github.com/acme/dev-team=secret.yaml", ErrPrivate, value)
	}
	if _, err := githost.Address(address); err != nil {
		return Private{}, fmt.Errorf("%w: %w", ErrPrivate, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return Private{}, fmt.Errorf("%w: %w", ErrPrivate, err)
	}
	secret := corev1.Secret{}
	if yaml.Unmarshal(content, &secret) != nil || secret.Kind != "Secret" {
		return Private{}, fmt.Errorf("%w: %s is not the manifest of a Secret", ErrPrivate, file)
	}
	credentials, err := credentialsOf(&secret)
	if err != nil {
		return Private{}, fmt.Errorf("%w: %s: %w", ErrPrivate, file, err)
	}
	return Private{URL: address, Credentials: credentials}, nil
}

func credentialsOf(secret *corev1.Secret) (githost.Credentials, error) {
	field := func(name string) string {
		if value, ok := secret.StringData[name]; ok {
			return value
		}
		return string(secret.Data[name])
	}
	c := githost.Credentials{Token: field("bearerToken"), Key: field("identity.pub")}
	private := field("identity")
	if private == "" {
		// If there is an SSH key, password is the passphrase of the key.
		c.Username, c.Password = field("username"), field("password")
	}
	if private != "" && c.Key == "" {
		signer, err := ssh.ParsePrivateKey([]byte(private))
		if err != nil {
			return githost.Credentials{}, errors.New("the SSH key in identity cannot be read: add its public half as identity.pub")
		}
		c.Key = string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	}
	if c == (githost.Credentials{}) {
		return c, errors.New("it has none of password, bearerToken, identity.pub and identity")
	}
	return c, nil
}

// CheckPrivate returns an error, which is ErrPrivate, if a repository is not mapped.
func CheckPrivate(private []Private, maps []Map) error {
	mapped := map[string]bool{}
	for _, m := range maps {
		if m.Kind != KindGit {
			continue
		}
		if address, err := githost.Address(m.URL); err == nil {
			mapped[address] = true
		}
	}
	for _, p := range private {
		address, err := githost.Address(p.URL)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPrivate, err)
		}
		if !mapped[address] {
			return fmt.Errorf("%w: no Git repository is mapped to %s: add --map %s=DIR", ErrPrivate, p.URL, p.URL)
		}
	}
	return nil
}
