// Package manager implements `tenure-server manager`: it wires the reconcilers of Tenants,
// namespaces and sources. The API server enforces the admission rules, which stay in force
// while no manager runs.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Options are the flags of the command.
type Options struct {
	// MetricsAddr is the address that serves metrics, HealthAddr the address that serves
	// /healthz and /readyz; "0" disables them.
	MetricsAddr, HealthAddr string
	// WebhookAddr is the address that serves the webhook for owners' namespaces over TLS; "0"
	// disables it.
	WebhookAddr string
	// WebhookClientCA is a file with the certificate authorities of the API server's
	// client certificate for webhooks, and WebhookClientName the name in that
	// certificate. Both are "" if the API server has no client certificate.
	WebhookClientCA, WebhookClientName string
	// EventsAddr is notification-controller's event endpoint; if it is "", tenants' Alerts get
	// no failures of the platform's objects.
	EventsAddr string
	// LeaderElection lets only one of several replicas reconcile at a time.
	LeaderElection bool
	// Capsule translates Capsule's Tenants. The manager then refuses to run beside Capsule
	// itself.
	Capsule bool
	// Release removes the manager's finalizers from all objects, and does nothing else, so
	// that the manager can be uninstalled.
	Release bool
	// ProxyURL is the server in tenants' kubeconfigs, and ProxyCA the ConfigMap in Namespace
	// whose key ca.crt holds the trusted certificates.
	ProxyURL, ProxyCA string
	// TokenLifetime is the wanted lifetime of tenants' tokens: see [credentials.Lifetime].
	TokenLifetime time.Duration
	// LogLevel is debug, info or error.
	LogLevel string
	// Namespace is the namespace in which the manager runs and keeps its lease.
	Namespace string
	// Instance is the name of this process in events.
	Instance string
	// now returns the time for tokens; nil means time.Now.
	now func() time.Time
	// webhookNames are the host names by which the API server calls the webhook; nil
	// stands for the names of its Service.
	webhookNames []string
	// another allows several managers in this process, which tests need.
	another bool
}

// gcPercent is the growth of the heap, in percent of the live heap, that starts a garbage
// collection, unless GOGC is set. Nearly all of the heap is the cache, which stays. 50 percent
// need a third less memory than Go's default, for little processor time.
const gcPercent = 50

// NewCommand returns `manager`.
func NewCommand(streams ui.IO) *cobra.Command {
	o := Options{Namespace: os.Getenv("RUNTIME_NAMESPACE")}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Reconcile the namespaces of tenants with the TenancyProfile and the Tenants",
		Long: `Manager creates the namespaces of Tenants, and in each namespace of a tenant the account,
the roles, the quotas and limits, and the parameters that the policies read. It writes the
status of Tenants and of the TenancyProfile, and tells a tenant by events why Flux could not
apply its objects.

It runs in the namespace that the variable RUNTIME_NAMESPACE names, and uses the
kubeconfig of KUBECONFIG or the Pod's own account.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			log, err := newLogger(streams, o.LogLevel)
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			config, err := ctrl.GetConfig()
			if err != nil {
				return ui.WithHint(fmt.Errorf("cannot find the API server: %w", err), "run it in a Pod, or set KUBECONFIG")
			}
			return Run(ctrl.LoggerInto(cmd.Context(), log), config, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "address that serves metrics")
	flags.StringVar(&o.HealthAddr, "health-addr", ":9440", "address that serves /healthz and /readyz")
	flags.StringVar(&o.WebhookAddr, "webhook-addr", ":9443", "address that serves the webhooks; 0 disables them")
	flags.StringVar(&o.WebhookClientCA, "webhook-client-ca", "", "`file` with the CA certificates of the client certificate that the API server presents to webhooks, read again after changes; with this flag, the webhooks refuse all other clients")
	flags.StringVar(&o.WebhookClientName, "webhook-client-name", "kube-apiserver", "common name or DNS name in the API server's client certificate")
	flags.StringVar(&o.EventsAddr, "events-addr", "", "address to which notification-controller receives events; without it, a tenant's Alerts get no events about the tenant's syncs in the platform's namespaces")
	flags.BoolVar(&o.LeaderElection, "enable-leader-election", false, "let only one of several replicas, the leader, reconcile")
	flags.BoolVar(&o.Capsule, "capsule", false, "create a Tenant for each Tenant of Capsule (capsule.clastix.io); needs config/capsule, and a cluster without Capsule's controller")
	flags.BoolVar(&o.Release, "release", false, "remove the manager's finalizers from all objects and do nothing else, before it is uninstalled; ready when no object has one")
	flags.StringVar(&o.ProxyURL, "proxy-url", "", "address of the server in the kubeconfigs of tenants' accounts (default https://tenure-proxy.NAMESPACE.svc:9001)")
	flags.StringVar(&o.ProxyCA, "proxy-ca", "tenure-proxy-ca", "`ConfigMap` in the manager's namespace, with the CA certificate of --proxy-url in the key ca.crt")
	flags.DurationVar(&o.TokenLifetime, "token-lifetime", time.Hour, "lifetime of the tokens in the kubeconfigs of tenants' accounts, at least three times the longest timeout of the TenancyProfile; the manager renews a token after two thirds of its lifetime")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info or error")
	return cmd
}

// complete checks the options and adds the values of the environment.
func (o *Options) complete() error {
	if o.Namespace == "" {
		return ui.WithHint(errors.New("cannot run the manager: RUNTIME_NAMESPACE is not set"), "set it to the namespace that the manager runs in")
	}
	if o.EventsAddr != "" {
		u, err := url.Parse(o.EventsAddr)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("cannot post events to %q: it is not an http address", o.EventsAddr)
		}
	}
	if o.ProxyURL == "" {
		o.ProxyURL = fmt.Sprintf("https://tenure-proxy.%s.svc:9001", o.Namespace)
	}
	if u, err := url.Parse(o.ProxyURL); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("cannot send tenants to %q: write https://HOST:PORT", o.ProxyURL)
	}
	if o.TokenLifetime < credentials.MinLifetime || o.TokenLifetime > credentials.MaxLifetime {
		return fmt.Errorf("cannot give tokens a life of %s: it has to be between %s and %s", o.TokenLifetime, credentials.MinLifetime, credentials.MaxLifetime)
	}
	if o.Instance == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("cannot find a name for this process: %w", err)
		}
		o.Instance = name
	}
	return nil
}

func newLogger(streams ui.IO, level string) (logr.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return logr.Logger{}, fmt.Errorf("cannot log at level %q: it is none of debug, info, error", level)
	}
	return logr.FromSlogHandler(withoutProbes{slog.NewJSONHandler(streams.Err, &slog.HandlerOptions{Level: l, ReplaceAttr: nameError})}), nil
}

// withoutProbes logs at level debug the line that controller-runtime writes for each failed probe. It
// does not name the reason, which [logReason] logs.
type withoutProbes struct{ slog.Handler }

// Handle implements [slog.Handler].
func (h withoutProbes) Handle(ctx context.Context, record slog.Record) error {
	if record.Message == "healthz check failed" {
		if !h.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		record.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements [slog.Handler].
func (h withoutProbes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutProbes{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h withoutProbes) WithGroup(name string) slog.Handler {
	return withoutProbes{h.Handler.WithGroup(name)}
}

// nameError names the error of a log line error: logr calls it err.
func nameError(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == "err" {
		a.Key = "error"
	}
	return a
}
