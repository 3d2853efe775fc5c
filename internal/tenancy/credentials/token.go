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

// MinLifetime is the shortest lifetime of a token that the API server accepts.
const MinLifetime = 10 * time.Minute

// MaxLifetime is the longest lifetime of a token that the manager requests.
const MaxLifetime = 24 * time.Hour

// Lifetime returns the lifetime to request for a token: the wanted one, but at least three
// times the longest timeout of Flux. The manager replaces a token after two thirds of its
// lifetime, so a reconciliation that began with the old token can still finish with it. The
// result is between [MinLifetime] and [MaxLifetime].
func Lifetime(wanted, maxTimeout time.Duration) time.Duration {
	return min(max(wanted, 3*maxTimeout, MinLifetime), MaxLifetime)
}

// Token is the period in which a token is valid.
type Token struct {
	// Issued and Expires are the begin and the end of the period.
	Issued, Expires time.Time
}

// Renew returns the time at which the manager replaces the token: after two thirds of the
// lifetime. The API server may issue a shorter lifetime than the manager requested.
func (t Token) Renew() time.Time { return t.Expires.Add(-t.Overlap()) }

// Overlap returns how long the token remains valid after it was replaced: a third of its
// lifetime.
func (t Token) Overlap() time.Duration { return t.Expires.Sub(t.Issued) / 3 }

// Due returns the time at which the manager has to replace the token in a Secret with these
// annotations. It returns the zero time if the manager has to replace it now: the
// annotations cannot be parsed, the inputs differ (see [Inputs]), or the time has come.
func Due(annotations map[string]string, inputs string, now time.Time) time.Time {
	renew, err := time.Parse(time.RFC3339, annotations[AnnotationRenew])
	// No token of the manager lives longer than MaxLifetime. A later time comes from a wrong
	// clock or another writer.
	if err != nil || annotations[AnnotationInputs] != inputs || !now.Before(renew) || renew.Sub(now) > MaxLifetime {
		return time.Time{}
	}
	return renew
}

// Target is the server that a kubeconfig connects to.
type Target struct {
	// Server is an https address. ServerName is the host name in the server's certificate,
	// if it differs from the address.
	Server, ServerName string
	// CA are the certificates of the authority that signed the server's certificate, as PEM.
	CA []byte
}

// Validate returns an error if Server is not https://HOST:PORT, without user, query and
// fragment, or if CA is empty.
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

// Inputs returns a hash of everything in a kubeconfig except the token. When it changes, the
// manager writes the Secret again. Parameter secret is the UID of the Secret that the tokens
// are bound to.
func Inputs(target Target, account types.NamespacedName, uid, secret types.UID, lifetime time.Duration) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %s", target.Server, target.ServerName, target.CA, key(account), uid, secret, lifetime))
	return hex.EncodeToString(sum[:16])
}

// Kubeconfig returns a kubeconfig with one cluster, user and context; namespace is the
// default namespace of the context. It returns an error if the target is not valid (see
// [Target.Validate]), if the token is empty, or if client-go cannot encode the kubeconfig.
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
