// Package server is the command `tenure-server proxy`: the listeners, certificates and
// shutdown of internal/proxy.
package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tenure-dev/tenure/internal/proxy"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Options are the flags of the command.
type Options struct {
	// Listen is the address that serves requests, with TLS.
	Listen string
	// CertFile and KeyFile are the files of the certificate, PEM encoded. They are read
	// again when they change.
	CertFile, KeyFile string
	// TLSDir is used if CertFile and KeyFile are empty: a folder with tls.crt and tls.key.
	// If the files do not exist, the proxy uses the certificate in TLSSecret. Without
	// TLSSecret, it issues a certificate for this process and tries to write the authority
	// into the folder as ca.crt.
	TLSDir string
	// TLSSecret is a Secret in Namespace in which the replicas of the proxy keep a
	// certificate that they issue, and renew before it expires. TLSTrust is the ConfigMap
	// in which they publish the trusted authorities, with key ca.crt. Both have to exist
	// and may be empty. "" keeps no certificate.
	TLSSecret, TLSTrust string
	// Namespace is the namespace of the proxy: the variable RUNTIME_NAMESPACE.
	Namespace string
	// TLSHosts are the names in a certificate that the proxy issues.
	TLSHosts []string
	// ClientCAFile is the file with the authority of accepted client certificates; ""
	// accepts none.
	ClientCAFile string
	// MetricsAddr is the address of the metrics, and HealthAddr the address of /healthz and
	// /readyz; "0" disables them.
	MetricsAddr, HealthAddr string
	// ShutdownTimeout is the maximum time that open requests may take after a signal.
	ShutdownTimeout time.Duration
	// Capsule also reads ProxySettings and GlobalProxySettings.
	Capsule bool
	// Limits are the limits of requests.
	Limits proxy.Limits
	// LogLevel is debug, info or error.
	LogLevel string
	// AuditLogPath is the file to which audit events are appended; "-" is the standard
	// output, "" disables audit events.
	AuditLogPath string
}

// NewCommand returns the command `proxy`.
func NewCommand(streams ui.IO) *cobra.Command {
	o := Options{Namespace: os.Getenv("RUNTIME_NAMESPACE")}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Show tenants their part of the cluster",
		Long: `Proxy stands between tenants and the API server. It answers lists and watches of
namespaces, of Tenants, of all namespaces (kubectl get pods -A) and of shared
cluster-scoped kinds with the objects that the caller may see. It passes every other
request on to the API server with the caller's own token.

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
	flags.StringVar(&o.CertFile, "tls-cert-file", "", "file with the certificate; the proxy reads a changed file again")
	flags.StringVar(&o.KeyFile, "tls-private-key-file", "", "file with the key of the certificate")
	flags.StringVar(&o.TLSDir, "tls-dir", "", "folder with tls.crt and tls.key; if the files do not exist, the proxy creates a certificate")
	flags.StringVar(&o.TLSSecret, "tls-secret", "", "`Secret` in the proxy's namespace, in which the replicas share the certificate that they create; needs the variable RUNTIME_NAMESPACE")
	flags.StringVar(&o.TLSTrust, "tls-trust", "tenure-proxy-ca", "`ConfigMap` in the proxy's namespace; the proxy writes the CA of this certificate into its key ca.crt")
	flags.StringArrayVar(&o.TLSHosts, "tls-host", nil, "name in the certificate that the proxy creates; repeatable")
	flags.StringVar(&o.ClientCAFile, "client-ca-file", "", "file with the CA of accepted client certificates, read again after changes; the proxy needs the right to impersonate their users")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "address that serves metrics")
	flags.StringVar(&o.HealthAddr, "health-addr", ":9440", "address that serves /healthz and /readyz")
	flags.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", 30*time.Second, "maximum time for open requests to end after a signal")
	flags.BoolVar(&o.Capsule, "capsule", false, "also show the objects that Capsule's ProxySettings and GlobalProxySettings (capsule.clastix.io) select; needs config/capsule")
	flags.IntVar(&o.Limits.MaxInFlight, "max-requests-inflight", 0, "requests at a time, without watches and upgrades; 0 is the default of 400")
	flags.IntVar(&o.Limits.MaxWatches, "max-watches", 0, "watches that one user may have open; 0 is the default of 1000")
	flags.IntVar(&o.Limits.MaxLists, "max-lists", 0, "lists that the proxy answers for one user at a time; 0 is the default of 50")
	flags.StringVar(&o.AuditLogPath, "audit-log-path", "", "file for audit events of the requests that the proxy answers or refuses itself; - is the standard output")
	flags.StringVar(&o.LogLevel, "log-level", "info", "debug, info or error")
	return cmd
}

// openAuditLog returns the writer of audit events, or nil for "". It returns an error if it
// cannot open the file, so that the proxy does not start.
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
