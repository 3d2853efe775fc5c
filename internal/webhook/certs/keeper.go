package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/tenure-dev/tenure/internal/admission"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Secret is the name of the Secret that replicas share.
	Secret = admission.WebhookService

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
var errNotYet = errors.New("the webhook has no certificate yet")

// Keeper keeps the certificate. It runs in each replica.
type Keeper struct {
	// Client reads and writes the API server itself, without a cache: it needs
	// no right to list Secrets.
	Client client.Client
	// Namespace is where the Secret is.
	Namespace string
	// Names are what the API server calls the webhook by, at least one.
	Names []string
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
			log.Error(err, "owners of tenants may have to wait with new namespaces")
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

// Keep brings the Secret, what is served, and what the API server trusts up to
// date, in this order.
func (k *Keeper) Keep(ctx context.Context) error {
	bundle, err := k.secret(ctx)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(bundle.Current.Cert, bundle.Current.Key)
	if err != nil {
		return fmt.Errorf("cannot serve the certificate of Secret %s: %w", Secret, err)
	}
	if err := k.trust(ctx, bundle.Trusted); err != nil {
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
	secret := &corev1.Secret{}
	for {
		if err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: Secret}, secret); err != nil {
			return Bundle{}, fmt.Errorf("cannot read the webhook's Secret %s/%s, which is part of config/webhook: %w", k.Namespace, Secret, err)
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
			return Bundle{}, fmt.Errorf("cannot write the webhook's Secret %s/%s: %w", k.Namespace, Secret, err)
		}
	}
}

// trust tells the API server which authorities to trust.
func (k *Keeper) trust(ctx context.Context, trusted []byte) error {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	for {
		if err := k.Client.Get(ctx, client.ObjectKey{Name: admission.WebhookName}, configuration); err != nil {
			return fmt.Errorf("cannot read the webhook's configuration %s, which is part of config/webhook: %w", admission.WebhookName, err)
		}
		changed := false
		for i := range configuration.Webhooks {
			if c := &configuration.Webhooks[i].ClientConfig; !bytes.Equal(c.CABundle, trusted) {
				c.CABundle, changed = trusted, true
			}
		}
		if !changed {
			return nil
		}
		err := k.Client.Update(ctx, configuration)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("cannot tell the API server whom to trust in %s: %w", admission.WebhookName, err)
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
	s.Data = map[string][]byte{keyCert: b.Current.Cert, keyKey: b.Current.Key, keyTrusted: b.Trusted}
	if len(b.Next.Cert) > 0 {
		s.Data[keyNextCert], s.Data[keyNextKey] = b.Next.Cert, b.Next.Key
	}
}
