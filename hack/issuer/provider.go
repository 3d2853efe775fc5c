package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// handler returns the handler of a provider whose issuer is an address with a path, without the
// path.
func (p provider) handler(issuer string) (http.Handler, error) {
	store := &store{provider: p, issuer: issuer, lifetimes: map[string]time.Duration{}}
	clients := map[string]*storage.Client{}
	for name, lifetime := range p.Clients {
		// kubelogin listens on this port for the code.
		clients[name] = storage.NativeClient(name, redirectURL)
		var err error
		if store.lifetimes[name], err = time.ParseDuration(lifetime); err != nil {
			return nil, err
		}
	}
	store.Storage = storage.NewStorageWithClients(users(p.Users), clients)
	options := &op.Config{CodeMethodS256: true, SupportedScopes: []string{oidc.ScopeOpenID}}
	if _, err := rand.Read(options.CryptoKey[:]); err != nil {
		return nil, err
	}
	server, err := op.NewProvider(options, store, op.StaticIssuer(issuer))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<form method="post">name, password</form>`)
	})
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if err := store.CheckUsernamePassword(r.FormValue("name"), r.FormValue("password"), id); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, op.AuthCallbackURL(server)(op.ContextWithIssuer(r.Context(), issuer), id), http.StatusFound)
	})
	mux.Handle("/", server)
	return mux, nil
}

// store is the library's storage in memory, with the claims, clients and lifetimes of a provider.
type store struct {
	*storage.Storage

	provider  provider
	issuer    string
	lifetimes map[string]time.Duration
}

// GetClientByClientID returns a client with the lifetime of the configuration.
func (s *store) GetClientByClientID(ctx context.Context, name string) (op.Client, error) {
	known, err := s.Storage.GetClientByClientID(ctx, name)
	if err != nil {
		return nil, err
	}
	return &client{known, s.issuer + "/login?id=", s.lifetimes[name]}, nil
}

// SetUserinfoFromRequest adds the claims of the requested scopes to an ID token.
func (s *store) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	info.Subject = request.GetSubject()
	for _, scope := range scopes {
		for claim, value := range s.provider.Users[info.Subject].Claims[scope] {
			info.AppendClaims(claim, value)
		}
	}
	return nil
}

// client is a public client that may ask for every scope.
type client struct {
	op.Client

	login    string
	lifetime time.Duration
}

// LoginURL returns the address of the page where a person logs in.
func (c *client) LoginURL(id string) string { return c.login + id }

// IDTokenLifetime returns the lifetime of ID tokens.
func (c *client) IDTokenLifetime() time.Duration { return c.lifetime }

// IsScopeAllowed allows each scope.
func (c *client) IsScopeAllowed(string) bool { return true }

// IDTokenUserinfoClaimsAssertion puts all claims into the ID token, from which the API server
// reads them.
func (c *client) IDTokenUserinfoClaimsAssertion() bool { return true }

// users are the users of a provider, by their names.
type users map[string]user

// GetUserByID returns a user, or nil.
func (u users) GetUserByID(name string) *storage.User {
	known, ok := u[name]
	if !ok {
		return nil
	}
	return &storage.User{ID: name, Username: name, Password: known.Password}
}

// GetUserByUsername returns a user, or nil.
func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }

// ExampleClientID returns the name of an account of the library's examples.
func (u users) ExampleClientID() string { return "unused" }
