// Package server is `tenure-server proxy`: the command around internal/proxy, with
// its listeners, certificates and shutdown.
package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tenure-dev/tenure/internal/ui"
)

// Options are the flags of the command.
type Options struct {
	// Listen is where requests are served, with TLS.
	Listen string
	// CertFile and KeyFile are the certificate, PEM encoded; they are read again
	// when they change.
	CertFile, KeyFile string
	// TLSDir, when the two are not given, is a folder with tls.crt and tls.key. If
	// they are not there, the proxy makes its own: the one of TLSSecret, or, without,
	// one for this process, whose authority it writes into the folder as ca.crt, if it
	// can.
	TLSDir string
	// TLSSecret is a Secret in Namespace in which the replicas of the proxy keep a
	// certificate that they make, and replace before it ends. TLSTrust is the
	// ConfigMap in which they say whom to trust, with key ca.crt. Both have to be
	// there, and may be empty. "" keeps none.
	TLSSecret, TLSTrust string
	// Namespace is where the proxy runs: the variable RUNTIME_NAMESPACE.
	Namespace string
	// TLSHosts are the names in a certificate of the proxy's own.
	TLSHosts []string
	// ClientCAFile is the authority of client certificates that are accepted; ""
	// accepts none.
	ClientCAFile string
	// MetricsAddr and HealthAddr are where metrics and the answers of /healthz and
	// /readyz are served; "0" is nowhere.
	MetricsAddr, HealthAddr string
	// ShutdownTimeout is how long requests may take to end after a signal.
	ShutdownTimeout time.Duration
	// Capsule also reads ProxySettings and GlobalProxySettings.
	Capsule bool
	// MaxInFlight, MaxWatches and MaxLists are those of internal/proxy.
	MaxInFlight, MaxWatches, MaxLists int
	// LogLevel is debug, info or error.
	LogLevel string
	// AuditLogPath is the file that audit events are appended to; "-" is the standard
	// output, "" is none.
	AuditLogPath string
}

// NewCommand returns `proxy`.
func NewCommand(streams ui.IO) *cobra.Command {
	o := Options{Namespace: os.Getenv("RUNTIME_NAMESPACE")}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Show tenants their part of the cluster",
		Long: `Proxy stands between tenants and the API server. It answers lists and watches of
namespaces and Tenants with what the caller may see of them, and of cluster-scoped
kinds that are shared with the caller, and passes every other request on with the
caller's own token.

It uses the kubeconfig of KUBECONFIG or the Pod's own account.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.Level
			if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
				return fmt.Errorf("cannot log at level %q: it is none of debug, info, error", o.LogLevel)
			}
			config, err := ctrl.GetConfig()
			if err != nil {
				return ui.WithHint(fmt.Errorf("cannot find the API server: %w", err), "run it in a Pod, or set KUBECONFIG")
			}
			log := slog.New(slog.NewJSONHandler(streams.Err, &slog.HandlerOptions{Level: level}))
			events, closeEvents, err := openAuditLog(o.AuditLogPath, streams.Out)
			if err != nil {
				return err
			}
			defer closeEvents()
			return Run(cmd.Context(), config, o, events, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Listen, "listen", ":9001", "address that serves requests")
	flags.StringVar(&o.CertFile, "tls-cert-file", "", "certificate, read again when it changes")
	flags.StringVar(&o.KeyFile, "tls-private-key-file", "", "key of the certificate")
	flags.StringVar(&o.TLSDir, "tls-dir", "", "folder with tls.crt and tls.key; without them the proxy makes a certificate of its own")
	flags.StringVar(&o.TLSSecret, "tls-secret", "", "`Secret` beside the proxy in which its replicas keep a certificate of their own; needs the variable RUNTIME_NAMESPACE")
	flags.StringVar(&o.TLSTrust, "tls-trust", "tenure-proxy-ca", "`ConfigMap` beside the proxy whose key ca.crt then says whom to trust")
	flags.StringArrayVar(&o.TLSHosts, "tls-host", nil, "name in a certificate of the proxy's own (repeatable)")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", "", "authority of the client certificates that are accepted, for which the proxy needs the right to impersonate their users")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "address that serves metrics")
	flags.StringVar(&o.HealthAddr, "health-addr", ":9440", "address that serves /healthz and /readyz")
	flags.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "how long requests may take to end after a signal")
	flags.BoolVar(&o.Capsule, "capsule", false, "also show what ProxySettings and GlobalProxySettings of Capsule's (capsule.clastix.io) say; needs config/capsule")
	flags.IntVar(&o.MaxInFlight, "max-requests-inflight", 0, "requests at a time, without watches and upgrades; 0 is the default of 400")
	flags.IntVar(&o.MaxWatches, "max-watches", 0, "watches that one user may have open; 0 is the default of 1000")
	flags.IntVar(&o.MaxLists, "max-lists", 0, "lists that are answered for one user at a time; 0 is the default of 50")
	flags.StringVar(&o.AuditLogPath, "audit-log-path", "", "file that audit events of what the proxy answers or refuses itself are appended to; - is the standard output")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info or error")
	return cmd
}

// openAuditLog opens what audit events are written to; nil if they are not. A proxy
// that is to write them and cannot does not start.
func openAuditLog(path string, out io.Writer) (events io.Writer, closeEvents func(), err error) {
	switch path {
	case "":
		return nil, func() {}, nil
	case "-":
		return out, func() {}, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write the audit log: %w", err)
	}
	return file, func() { _ = file.Close() }, nil // events are written at once
}
