package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/tenure-dev/tenure/internal/process/certs"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/internal/ui"
)

// loadTLS returns the TLS configuration of the listener, and a readiness check that fails
// while there is no certificate. It reloads certificates until the context ends.
func (o Options) loadTLS(ctx context.Context, api *rest.Config, log *slog.Logger) (*tls.Config, func(*http.Request) error, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if o.ClientCAFile != "" {
		authorities, err := certs.ReadAuthorities(o.ClientCAFile, time.Now)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the CA certificates of clients: %w", err)
		}
		authorities.Require(config, tls.VerifyClientCertIfGiven)
	}
	always := func(*http.Request) error { return nil }
	certFile, keyFile, err := o.certFiles()
	switch {
	case err != nil:
		return nil, nil, err
	case certFile == "" && o.TLSSecret != "":
		keeper, err := o.keeper(api)
		if err != nil {
			return nil, nil, err
		}
		config.GetCertificate = keeper.Certificate
		// Start returns only when the context ends.
		go func() { _ = keeper.Start(logr.NewContextWithSlogLogger(ctx, log)) }()
		return config, keeper.Ready, nil
	case certFile == "":
		return config, always, o.selfSigned(config, log)
	}
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the certificate: %w", err)
	}
	config.GetCertificate = watcher.GetCertificate
	go func() {
		if err := watcher.Start(ctx); err != nil {
			log.Error("the certificate is not read again", "error", err)
		}
	}()
	return config, always, nil
}

// certFiles returns the files of the certificate, or "" if the proxy issues its own.
func (o Options) certFiles() (cert, key string, err error) {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return "", "", errors.New("cannot serve TLS: --tls-cert-file and --tls-private-key-file go together")
	}
	switch {
	case o.CertFile != "":
		return o.CertFile, o.KeyFile, nil
	case o.TLSDir == "" && o.TLSSecret != "":
		return "", "", nil
	case o.TLSDir == "":
		return "", "", ui.WithHint(errors.New("cannot serve TLS: there is no certificate"),
			"give --tls-cert-file and --tls-private-key-file, or --tls-secret or --tls-dir to let the proxy make one")
	}
	cert, key = filepath.Join(o.TLSDir, "tls.crt"), filepath.Join(o.TLSDir, "tls.key")
	switch _, err := os.Stat(cert); {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("cannot read the certificate: %w", err)
	}
	return cert, key, nil
}

// selfSigned issues a certificate for the listener. The key stays in the process.
// selfSigned writes the authority to a file, so that clients can trust it.
func (o Options) selfSigned(config *tls.Config, log *slog.Logger) error {
	authority, err := pki.NewAuthority("tenure-proxy")
	if err != nil {
		return err
	}
	hosts := slices.Concat(o.TLSHosts, []string{"localhost", "127.0.0.1", "::1"})
	pair, err := authority.Issue(pki.Request{CommonName: "tenure-proxy", Hosts: hosts})
	if err != nil {
		return err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return fmt.Errorf("cannot use a certificate of the proxy's own: %w", err)
	}
	config.Certificates = []tls.Certificate{certificate}
	file := filepath.Join(o.TLSDir, "ca.crt")
	if err := os.WriteFile(file, authority.CertPEM, 0o644); err != nil { //nolint:gosec // certificates are public
		log.Warn("nobody can verify the proxy's certificate: the file with its CA cannot be written", "error", err)
		return nil
	}
	log.Info("the proxy created a certificate", "ca", file)
	return nil
}
