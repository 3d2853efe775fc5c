package credentials

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// MinLifetime is the shortest life that the API server gives a token.
const MinLifetime = 10 * time.Minute

// MaxLifetime bounds what a long timeout makes of a token's life.
const MaxLifetime = 24 * time.Hour

// Lifetime is how long a token is to live: as long as is wanted, but at least three
// times the longest timeout of Flux, so that one that is replaced after two thirds
// outlives whatever began with it. It is between [MinLifetime] and [MaxLifetime].
func Lifetime(wanted, maxTimeout time.Duration) time.Duration {
	return min(max(wanted, 3*maxTimeout, MinLifetime), MaxLifetime)
}

// Token is how long a token is good for.
type Token struct {
	// Issued and Expires are its beginning and its end.
	Issued, Expires time.Time
}

// Renew is when a token is replaced: after two thirds of its life, which may be
// shorter than what was asked for.
func (t Token) Renew() time.Time { return t.Expires.Add(-t.Overlap()) }

// Overlap is how long a token is still good when the next one takes its place.
func (t Token) Overlap() time.Duration { return t.Expires.Sub(t.Issued) / 3 }

// Due returns when a Secret with these annotations has to be written again, the zero
// time if now. What cannot be read is written again.
func Due(annotations map[string]string, inputs string, now time.Time) time.Time {
	renew, err := time.Parse(time.RFC3339, annotations[AnnotationRenew])
	// The farthest that a token of ours could be renewed, if clocks are right.
	if err != nil || annotations[AnnotationInputs] != inputs || !now.Before(renew) || renew.Sub(now) > MaxLifetime {
		return time.Time{}
	}
	return renew
}

// Target is what a kubeconfig leads to.
type Target struct {
	// Server is an https address, and ServerName the name in its certificate if
	// that is another one.
	Server, ServerName string
	// CA are the certificates, as PEM, that the server's is signed with.
	CA []byte
}

// Validate says what is wrong with a target.
func (t Target) Validate() error {
	u, err := url.Parse(t.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("cannot use %q as the address of a server: write https://HOST:PORT", t.Server)
	}
	if len(t.CA) == 0 {
		return errors.New("cannot use a server without the certificate of its authority")
	}
	return nil
}

// Inputs is a hash of all that a kubeconfig is made of, but the token: the Secret is
// written again when it changes. The Secret is the one that tokens are bound to.
func Inputs(target Target, account types.NamespacedName, uid, secret types.UID, lifetime time.Duration) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %s", target.Server, target.ServerName, target.CA, key(account), uid, secret, lifetime))
	return hex.EncodeToString(sum[:16])
}

// Kubeconfig is a kubeconfig with one cluster, user and context. The namespace is the
// context's.
func Kubeconfig(target Target, account types.NamespacedName, namespace, token string) ([]byte, error) {
	if err := target.Validate(); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, errors.New("cannot write a kubeconfig without a token")
	}
	const cluster = "tenure"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: target.Server, TLSServerName: target.ServerName, CertificateAuthorityData: target.CA}
	config.AuthInfos[account.Name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[account.Name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: account.Name, Namespace: namespace}
	config.CurrentContext = account.Name
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return out, nil
}
