package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/client/rp"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"golang.org/x/oauth2"
)

// redirectURL is where kubelogin waits for the code.
const redirectURL = "http://localhost:8000"

// login logs a person in and prints the ID token for kubectl.
func login(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "get-token" {
		return errors.New("usage: kubectl oidc-login get-token --oidc-issuer-url=… --oidc-client-id=…")
	}
	flags := flag.NewFlagSet("get-token", flag.ContinueOnError)
	issuer := flags.String("oidc-issuer-url", "", "")
	name := flags.String("oidc-client-id", "", "")
	authority := flags.String("certificate-authority-data", "", "")
	scopes := []string{oidc.ScopeOpenID}
	flags.Func("oidc-extra-scope", "", func(scope string) error {
		scopes = append(scopes, scope)
		return nil
	})
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	client, err := browser(*authority)
	if err != nil {
		return err
	}
	party, err := rp.NewRelyingPartyOIDC(ctx, *issuer, *name, "", redirectURL, scopes, rp.WithHTTPClient(client))
	if err != nil {
		return err
	}
	verifier, state := oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	code, err := authorize(ctx, client, rp.AuthURL(state, party, rp.WithCodeChallenge(oidc.NewSHACodeChallenge(verifier))), state)
	if err != nil {
		return err
	}
	tokens, err := rp.CodeExchange[*oidc.IDTokenClaims](ctx, code, party, rp.WithCodeVerifier(verifier))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1",
		"kind":       "ExecCredential",
		"status": map[string]any{
			"token":               tokens.IDToken,
			"expirationTimestamp": tokens.IDTokenClaims.GetExpiration().UTC().Format(time.RFC3339),
		},
	})
}

// browser returns a client that trusts an authority and does not follow the redirect to kubelogin.
func browser(authority string) (*http.Client, error) {
	content, err := base64.StdEncoding.DecodeString(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, errors.New("the authority has no certificate")
	}
	return &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), redirectURL) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}, nil
}

// authorize opens the page of an authorization request, logs in there, and returns the code.
func authorize(ctx context.Context, client *http.Client, address, state string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	page, err := client.Do(request)
	if err != nil {
		return "", err
	}
	_ = page.Body.Close()
	form := url.Values{"name": {os.Getenv("TEST_LOGIN_NAME")}, "password": {os.Getenv("TEST_LOGIN_PASSWORD")}}
	if request, err = http.NewRequestWithContext(ctx, http.MethodPost, page.Request.URL.String(), strings.NewReader(form.Encode())); err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	_ = answer.Body.Close()
	to, err := answer.Location()
	if err != nil {
		return "", fmt.Errorf("cannot log in as %s: %s answered %s", form.Get("name"), page.Request.URL.Path, answer.Status)
	}
	if query := to.Query(); query.Get("state") == state && query.Get("code") != "" {
		return query.Get("code"), nil
	}
	return "", fmt.Errorf("cannot log in as %s: the provider sent the browser to %s", form.Get("name"), to)
}
