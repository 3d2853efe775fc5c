// Command issuer is an OpenID Connect provider for tests, made of the certified library
// zitadel/oidc, and the program with which a person logs in there.
//
//	issuer CONFIG CERTIFICATE KEY
//
// serves the providers of a configuration (JSON, see [config]) on a free loopback port with TLS,
// prints its address, https://127.0.0.1:PORT, and ends when its input ends.
//
// Under the name kubectl-oidc_login it is a plugin of kubectl in the place of kubelogin: it takes
// the flags that `tenure kubeconfig --login` writes, logs the person of the variables
// TEST_LOGIN_NAME and TEST_LOGIN_PASSWORD in, by the authorization code flow with PKCE, and prints
// the ID token as kubectl expects it. It is its own browser.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func main() {
	run := serve
	if filepath.Base(os.Args[0]) == "kubectl-oidc_login" {
		run = login
	}
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// config maps the path of each provider, such as /dex, to the provider.
type config map[string]provider

// provider holds the clients and the users of one provider.
type provider struct {
	// Clients maps the name of each public client to the lifetime of its ID tokens, such as 1h.
	Clients map[string]string
	// Users maps the name of each user to the user.
	Users map[string]user
}

// user is a person.
type user struct {
	Password string
	// Claims maps each scope to the claims that it adds to an ID token.
	Claims map[string]map[string]any
}

// serve serves the providers until the input ends.
func serve(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: issuer CONFIG CERTIFICATE KEY")
	}
	content, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var providers config
	if err := json.Unmarshal(content, &providers); err != nil {
		return fmt.Errorf("cannot read %s: %w", args[0], err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := "https://" + listener.Addr().String()
	mux := http.NewServeMux()
	for path, p := range providers {
		handler, err := p.handler(address + path)
		if err != nil {
			return fmt.Errorf("cannot serve %s: %w", path, err)
		}
		mux.Handle(path+"/", http.StripPrefix(path, handler))
	}
	if _, err := fmt.Println(address); err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.ServeTLS(listener, args[1], args[2]); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
