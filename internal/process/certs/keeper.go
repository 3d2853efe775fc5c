package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/process"
)

const (
	// interval is the interval between reads of the Secret, and so the maximum age of the served
	// content.
	interval = time.Minute
	// retry is the retry interval after a failure.
	retry = 2 * time.Second
)

// Keys of the Secret. The first three are the keys of a TLS Secret.
const (
	keyCert, keyKey, keyTrusted = corev1.TLSCertKey, corev1.TLSPrivateKeyKey, "ca.crt"
	keyNextCert, keyNextKey     = "next.crt", "next.key"
)

// errNotYet reports that there is no certificate yet.
var errNotYet = errors.New("there is no certificate yet")

// Keeper rotates and serves the certificate. It runs in each replica.
type Keeper struct {
	// Client reads and writes the API server itself, without a cache: it needs
	// no right to list Secrets.
	Client client.Client
	// Namespace and Secret name the Secret of the certificate. The Secret must exist and may be
	// empty, so that no component needs the right to create Secrets.
	Namespace, Secret string
	// Names are the names by which callers reach the server, at least one.
	Names []string
	// Trust publishes the authorities that callers should trust, in PEM. Keep calls it before it
	// serves a certificate that needs them, and on each later run.
	Trust func(ctx context.Context, trusted []byte) error
	// Issue returns a new certificate, and Now returns the time.
	Issue func(names []string, now time.Time) (Pair, error)
	Now   func() time.Time

	serving atomic.Pointer[tls.Certificate]
	once    sync.Once
	first   chan struct{}
}

// Serving returns a channel that is closed once there is a certificate.
func (k *Keeper) Serving() <-chan struct{} {
	k.once.Do(func() { k.first = make(chan struct{}) })
	return k.first
}

// NeedLeaderElection returns false, since each replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start runs Keep regularly until the context ends. It logs failures of Keep and retries; its
// error is always nil.
func (k *Keeper) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("certs")
	for {
		wait := interval
		if err := k.Keep(ctx); err != nil {
			log.Error(err, "callers may not be served", "secret", k.Secret)
			wait = retry
		}
		if !process.Pause(ctx, wait) {
			return nil
		}
	}
}

// Certificate returns the certificate for a TLS server. It returns an error until there is a
// certificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errNotYet
}

// Ready is a health check. It fails until there is a certificate.
func (k *Keeper) Ready(*http.Request) error {
	_, err := k.Certificate(nil)
	return err
}

// Keep updates the Secret, then the authorities that callers trust, and then the served
// certificate. It returns an error if it cannot read or write the Secret, if the certificate in
// the Secret is not valid, or if Trust fails.
func (k *Keeper) Keep(ctx context.Context) error {
	bundle, err := k.secret(ctx)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(bundle.Current.Cert, bundle.Current.Key)
	if err != nil {
		return fmt.Errorf("cannot serve the certificate of Secret %s: %w", k.Secret, err)
	}
	if err := k.Trust(ctx, bundle.Trusted); err != nil {
		return err
	}
	k.Serving()
	if k.serving.Swap(&pair) == nil {
		close(k.first)
	}
	return nil
}

// secret updates the Secret and returns its content. If several replicas write, the first
// write wins and the others use it.
func (k *Keeper) secret(ctx context.Context) (Bundle, error) {
	for {
		secret := &corev1.Secret{}
		if err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Secret}, secret); err != nil {
			return Bundle{}, fmt.Errorf("cannot read Secret %s/%s of the certificate, which is part of our manifests: %w", k.Namespace, k.Secret, err)
		}
		before := read(secret)
		after, err := before.Advance(k.Names, k.Now(), k.Issue)
		if err != nil {
			return Bundle{}, err
		}
		if after.Equal(before) {
			return after, nil
		}
		write(secret, after)
		err = k.Client.Update(ctx, secret)
		if err == nil {
			return after, nil
		}
		if !apierrors.IsConflict(err) {
			return Bundle{}, fmt.Errorf("cannot write Secret %s/%s of the certificate: %w", k.Namespace, k.Secret, err)
		}
	}
}

func read(s *corev1.Secret) Bundle {
	return Bundle{
		Current: Pair{Cert: s.Data[keyCert], Key: s.Data[keyKey]},
		Next:    Pair{Cert: s.Data[keyNextCert], Key: s.Data[keyNextKey]},
		Trusted: s.Data[keyTrusted],
	}
}

func write(s *corev1.Secret, b Bundle) {
	// Other clients own the other keys in the Secret.
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[keyCert], s.Data[keyKey], s.Data[keyTrusted] = b.Current.Cert, b.Current.Key, b.Trusted
	delete(s.Data, keyNextCert)
	delete(s.Data, keyNextKey)
	if len(b.Next.Cert) > 0 {
		s.Data[keyNextCert], s.Data[keyNextKey] = b.Next.Cert, b.Next.Key
	}
}
