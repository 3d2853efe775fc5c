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
)

const (
	// interval is how often the Secret is read: replicas serve what it held at
	// most that long ago.
	interval = time.Minute
	// retry is how soon it is read again after a failure.
	retry = 2 * time.Second
)

// What the Secret holds, by key. The first three are those of a Secret for TLS.
const (
	keyCert, keyKey, keyTrusted = corev1.TLSCertKey, corev1.TLSPrivateKeyKey, "ca.crt"
	keyNextCert, keyNextKey     = "next.crt", "next.key"
)

// errNotYet says that there is no certificate yet.
var errNotYet = errors.New("there is no certificate yet")

// Keeper keeps the certificate. It runs in each replica.
type Keeper struct {
	// Client reads and writes the API server itself, without a cache: it needs
	// no right to list Secrets.
	Client client.Client
	// Namespace and Secret are where the certificate is. The Secret has to be
	// there, and may be empty: with it nobody needs the right to make Secrets.
	Namespace, Secret string
	// Names are what callers call the server by, at least one.
	Names []string
	// Trust tells callers which authorities to trust, PEM. It is called before a
	// certificate is served that needs it, and again at each look.
	Trust func(ctx context.Context, trusted []byte) error
	// Issue makes certificates, and Now is the time.
	Issue func(names []string, now time.Time) (Pair, error)
	Now   func() time.Time

	serving atomic.Pointer[tls.Certificate]
	once    sync.Once
	first   chan struct{}
}

// Serving is closed when there is a certificate.
func (k *Keeper) Serving() <-chan struct{} {
	k.once.Do(func() { k.first = make(chan struct{}) })
	return k.first
}

// NeedLeaderElection says that each replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start keeps the certificate until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("certs")
	for {
		wait := interval
		if err := k.Keep(ctx); err != nil {
			log.Error(err, "callers may not be served", "secret", k.Secret)
			wait = retry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Certificate is what a TLS server asks for.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errNotYet
}

// Ready fails until there is a certificate: a health check.
func (k *Keeper) Ready(*http.Request) error {
	_, err := k.Certificate(nil)
	return err
}

// Keep brings the Secret, what callers trust, and what is served up to date, in this
// order.
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

// secret returns what the Secret holds after it has been brought up to date. Who
// of several replicas is first decides for all.
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
