package credentials

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// caKey is the key of the certificates in a ConfigMap, as in kube-root-ca.crt.
const caKey = "ca.crt"

// Proxy is the proxy that kubeconfigs lead to. It implements [Targets].
type Proxy struct {
	// APIReader reads from the API server.
	APIReader client.Reader
	// URL is the address of the proxy.
	URL string
	// Namespace and ConfigMap are where the certificates of its authority are, with
	// key ca.crt.
	Namespace, ConfigMap string
}

// Target implements [Targets].
func (p Proxy) Target(ctx context.Context) (credentials.Target, error) {
	cm := &corev1.ConfigMap{}
	if err := p.APIReader.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.ConfigMap}, cm); err != nil {
		return credentials.Target{}, fmt.Errorf("cannot read the CA certificates from ConfigMap %s/%s: %w", p.Namespace, p.ConfigMap, err)
	}
	target := credentials.Target{Server: p.URL, CA: []byte(cm.Data[caKey])}
	if err := target.Validate(); err != nil {
		return credentials.Target{}, fmt.Errorf("ConfigMap %s/%s: %w", p.Namespace, p.ConfigMap, err)
	}
	return target, nil
}
