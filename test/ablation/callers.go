package ablation

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secretPath returns the control that only the API server knows the paths of the webhooks. The webhook
// cannot run without a secret path. So a server in front of the webhook changes the path of every request
// for the webhook to the secret path.
func secretPath() Control {
	return Control{
		Name: "secret paths of the webhooks",
		Away: "a server before the webhook adds the secret path to every request",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			nothing := func(context.Context) error { return nil }
			address, secret, err := catalog.WebhookAddress(ctx, t.admin)
			if err == nil && address == "" {
				err = errors.New("the fleet has no webhook for owners' namespaces")
			}
			if err != nil {
				return nothing, err
			}
			world := t.opts.Attack.Network
			server, at, err := t.believer(ctx, world.Client(), address, secret)
			if err != nil {
				return nothing, err
			}
			t.opts.Attack.Network = diverted{world, address, at}
			return func(context.Context) error {
				t.opts.Attack.Network = world
				return server.Close()
			}, nil
		},
	}
}

// believer starts a server on loopback that forwards every request for namespaces to the webhook with the
// secret path. It returns the server and its address.
func (t *target) believer(ctx context.Context, world *http.Client, address, secret string) (*http.Server, string, error) {
	way, ok := world.Transport.(*http.Transport)
	if !ok {
		return nil, "", errors.New("the webhook cannot be reached from here")
	}
	way = way.Clone()
	way.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // on loopback, to the fleet's own webhook
	var pair corev1.Secret
	if err := t.admin.Get(ctx, client.ObjectKey{Namespace: t.opts.Attack.Platform, Name: admission.WebhookService}, &pair); err != nil {
		return nil, "", fmt.Errorf("cannot read the certificate of the webhook: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Data[corev1.TLSCertKey], pair.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, "", fmt.Errorf("cannot use the certificate of the webhook: %w", err)
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort("127.0.0.1", "0"), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, "", err
	}
	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{ErrorLog: quiet, ReadHeaderTimeout: patience, Handler: &httputil.ReverseProxy{
		Transport: way, ErrorLog: quiet,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "https", address
			if strings.HasPrefix(pr.In.URL.Path, admission.WebhookPath) {
				pr.Out.URL.Path = secret
			}
		},
	}}
	go func() { _ = server.Serve(listener) }()
	return server, listener.Addr().String(), nil
}
