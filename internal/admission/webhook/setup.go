package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rules "github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/admission/webhook/caller"
	"github.com/tenure-dev/tenure/internal/admission/webhook/quotatransfer"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	"github.com/tenure-dev/tenure/internal/process/certs"
	"github.com/tenure-dev/tenure/internal/process/httpserver"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Options configure the server of the webhook.
type Options struct {
	// Address is HOST:PORT; HOST may be empty.
	Address string
	// Namespace is the namespace of the Secret with the certificate, and of the reservations.
	Namespace string
	// Names are the DNS names by which the API server calls the webhook: see [ServiceNames].
	Names []string
	// Profiles returns the TenancyProfile.
	Profiles Profiles
	// ClientCA is a PEM file with the certificate authorities of the API server's client
	// certificate, and ClientName the name in that certificate. Both are empty if the API
	// server has no client certificate, as on managed clusters.
	ClientCA, ClientName string
	// Replica is the name of this replica, unique among all replicas.
	Replica string
	// Refuses is [Handler.Refuses].
	Refuses func(ctx context.Context, user string, groups []string, born *corev1.Namespace) (string, error)
	// Administers is [Handler.Administers].
	Administers func(ctx context.Context, owner []string) (bool, error)
	// More are the handlers of other webhooks, by the start of their paths.
	More map[string]admission.Handler
}

// ServiceNames returns the DNS names of the webhook's Service in a namespace.
func ServiceNames(namespace string) []string {
	name := rules.WebhookService + "." + namespace + ".svc"
	return []string{name, name + ".cluster.local"}
}

// Setup adds the webhook server to a manager. Each replica serves, also if it is not the leader, until the
// context ends. A replica is not ready before it has a certificate. Setup returns the reservations of this
// replica. It returns an error if the address is invalid, if the file with the client authorities cannot be
// read, or if an index, an informer, the certificate or the server cannot be added.
func Setup(ctx context.Context, mgr ctrlmanager.Manager, o Options) (*reservations.Keeper, error) {
	host, port, err := splitAddress(o.Address)
	if err != nil {
		return nil, err
	}
	direct, err := directClient(mgr)
	if err != nil {
		return nil, err
	}
	keeper := &certs.Keeper{
		Client: direct, Namespace: o.Namespace, Secret: rules.WebhookService, Names: o.Names,
		Trust: trust(direct, len(o.More) > 0), Issue: certs.Issue, Now: time.Now,
	}
	callers := &caller.Keeper{Client: direct, Namespace: o.Namespace, Secret: rules.WebhookService, Publish: publish(direct, len(o.More) > 0), Now: time.Now}
	certificates, err := clientCertificates(o.ClientCA, o.ClientName)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: keeper.Certificate, NextProtos: oneAtATime}
	certificates(config)
	paths := http.NewServeMux()
	// This server is never started: it adds the metrics of each path.
	registry := ctrlwebhook.NewServer(ctrlwebhook.Options{WebhookMux: paths})
	if err := errors.Join(Index(ctx, mgr.GetFieldIndexer()), quotatransfer.Index(ctx, mgr.GetFieldIndexer())); err != nil {
		return nil, err
	}
	reserved := &reservations.Keeper{Client: direct, Namespace: o.Namespace, Now: time.Now}
	if err := listen(ctx, mgr.GetCache(), reserved); err != nil {
		return nil, err
	}
	namespaces := NewHandler(mgr.GetClient(), mgr.GetAPIReader(), reserved, o.Profiles)
	namespaces.Refuses, namespaces.Administers = o.Refuses, o.Administers
	handlers := map[string]admission.Handler{
		rules.WebhookPath:      namespaces,
		rules.QuotaWebhookPath: &quotatransfer.Handler{Client: mgr.GetClient(), Replica: o.Replica, Owns: isOwner, Stopped: ctx.Done()},
	}
	maps.Copy(handlers, o.More)
	for prefix, handler := range handlers {
		registry.Register(prefix+"/", callers.Only(prefix, &admission.Webhook{Handler: handler}))
	}
	if err := errors.Join(mgr.Add(keeper), mgr.Add(callers)); err != nil {
		return nil, fmt.Errorf("cannot keep the webhook's certificate: %w", err)
	}
	if err := mgr.Add(&replica{net.JoinHostPort(host, strconv.Itoa(port)), config, paths, keeper, callers}); err != nil {
		return nil, fmt.Errorf("cannot serve the webhook: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-certificate", keeper.Ready); err != nil {
		return nil, fmt.Errorf("cannot serve the webhook: %w", err)
	}
	return reserved, nil
}

// oneAtATime is HTTP/1.1, for connections on which a client waits for the answer to a small request. With
// HTTP/2, each request passes through several more goroutines on both sides, which delays the owner's
// request.
var oneAtATime = []string{"http/1.1"}

// listen reports existing and deleted namespaces, and deleted tenants, to the reservations.
func listen(ctx context.Context, from cache.Cache, reserved *reservations.Keeper) error {
	for _, to := range []struct {
		kind    client.Object
		handler toolscache.ResourceEventHandlerFuncs
	}{
		{&corev1.Namespace{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { with(o, reserved.MarkSeen) },
			UpdateFunc: func(_, o any) { with(o, reserved.MarkSeen) },
			DeleteFunc: func(o any) { with(o, reserved.MarkSeen) },
		}},
		{&v1alpha1.Tenant{}, toolscache.ResourceEventHandlerFuncs{
			DeleteFunc: func(o any) { with(o, func(t client.Object) { reserved.Forget(t.GetName()) }) },
		}},
	} {
		informer, err := from.GetInformer(ctx, to.kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(to.handler)
		}
		if err != nil {
			return fmt.Errorf("cannot read the tenants and their namespaces: %w", err)
		}
	}
	return nil
}

// with calls a function with the object of an event.
func with(event any, do func(client.Object)) {
	if gone, ok := event.(toolscache.DeletedFinalStateUnknown); ok {
		event = gone.Obj
	}
	if o, ok := event.(client.Object); ok {
		do(o)
	}
}

// replica serves the webhooks after the manager has filled the cache and the certificate exists. Until then
// calls fail, as they should.
type replica struct {
	address  string
	config   *tls.Config
	paths    http.Handler
	reserved *certs.Keeper
	callers  *caller.Keeper
}

// NeedLeaderElection returns false: each replica serves.
func (r *replica) NeedLeaderElection() bool { return false }

// Start serves until the context ends. It waits until the certificate and the secret paths are ready, and
// returns the error of the server, or an error if it cannot listen at the address.
func (r *replica) Start(ctx context.Context) error {
	for _, ready := range []<-chan struct{}{r.reserved.Serving(), r.callers.Published()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.address)
	if err != nil {
		return fmt.Errorf("cannot serve the webhook: %w", err)
	}
	return (&ctrlmanager.Server{
		Name: "webhooks", Server: httpserver.New(ctx, r.paths), Listener: tls.NewListener(httpserver.Limit(listener), r.config),
		ShutdownTimeout: new(time.Minute),
	}).Start(ctx)
}

// isOwner reports whether the user of a request owns a tenant.
func isOwner(request admission.Request, tenant *v1alpha1.Tenant) bool {
	return owns(OwnerKeys(request.UserInfo), tenant)
}

// clientCertificates returns a TLS option that requires a client certificate from callers, if the API
// server has one. It returns an error if it cannot read the file, or if the file contains no certificate
// authority.
func clientCertificates(file, name string) (func(*tls.Config), error) {
	if file == "" {
		return func(*tls.Config) {}, nil
	}
	authorities, err := certs.ReadAuthorities(file, time.Now)
	if err != nil {
		return nil, fmt.Errorf("cannot read the authorities of the API server's certificate: %w", err)
	}
	return func(c *tls.Config) {
		authorities.Require(c, tls.RequireAndVerifyClientCert)
		c.VerifyConnection = func(state tls.ConnectionState) error {
			leaf := state.PeerCertificates[0]
			if leaf.Subject.CommonName == name || slices.Contains(leaf.DNSNames, name) {
				return nil
			}
			return fmt.Errorf("the caller's certificate is not that of %s", name)
		}
	}, nil
}

// directClient returns a client without a cache: a cache would need the right to list the objects.
func directClient(mgr ctrlmanager.Manager) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, admissionregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("cannot make a client for the webhook: %w", err)
		}
	}
	config := rest.CopyConfig(mgr.GetConfig())
	config.NextProtos = oneAtATime
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the webhook: %w", err)
	}
	return direct, nil
}

// splitAddress parses HOST:PORT; HOST may be empty.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("cannot serve the webhook at %q: it is not HOST:PORT, with a port from 1 to 65535", address)
	}
	return host, port, nil
}
