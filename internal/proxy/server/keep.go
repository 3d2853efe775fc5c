package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/process/certs"
	"github.com/tenure-dev/tenure/internal/ui"
)

// trustKey is the key in the ConfigMap, the same as in kube-root-ca.crt.
const trustKey = "ca.crt"

// keeper returns the Keeper of a certificate that all replicas share.
func (o Options) keeper(api *rest.Config) (*certs.Keeper, error) {
	if o.Namespace == "" || len(o.TLSHosts) == 0 || o.TLSTrust == "" {
		return nil, ui.WithHint(errors.New("cannot keep a certificate in a Secret: RUNTIME_NAMESPACE, --tls-host or --tls-trust is missing"),
			"say in which namespace the proxy runs, and under which names it is reached")
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot keep a certificate: %w", err)
	}
	// Use no cache: a cache would need the right to list Secrets and ConfigMaps.
	direct, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot keep a certificate: %w", err)
	}
	return &certs.Keeper{
		Client: direct, Namespace: o.Namespace, Secret: o.TLSSecret, Names: o.TLSHosts,
		Trust: o.publish(direct), Issue: certs.Issue, Now: time.Now,
	}, nil
}

// publish returns a function that writes the trusted authorities into the ConfigMap. The
// manager copies them into the kubeconfigs of tenants.
func (o Options) publish(c client.Client) func(context.Context, []byte) error {
	return func(ctx context.Context, trusted []byte) error {
		for {
			cm := &corev1.ConfigMap{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.TLSTrust}, cm); err != nil {
				return fmt.Errorf("cannot read ConfigMap %s/%s, which is part of config/proxy: %w", o.Namespace, o.TLSTrust, err)
			}
			if cm.Data[trustKey] == string(trusted) {
				return nil
			}
			cm.Data = map[string]string{trustKey: string(trusted)}
			err := c.Update(ctx, cm)
			if err == nil {
				return nil
			}
			if !apierrors.IsConflict(err) {
				return fmt.Errorf("cannot write the CA certificates to ConfigMap %s/%s: %w", o.Namespace, o.TLSTrust, err)
			}
		}
	}
}
