package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"sigs.k8s.io/yaml"
)

// loginPage is the page whose configurations of the API server and commands the test of logins uses.
const loginPage = "log-in-with-oidc.md"

// publicProxy is the name by which people reach the proxy in that test.
const publicProxy = "proxy.example.com"

// The paths of the providers, with tokens as those of the programs with these names. The tokens of
// the fourth are as Dex's and soon expire.
const (
	dexPath      = "/dex"
	keycloakPath = "/realms/acme"
	entraPath    = "/9122040d-6c67-4c5b-b112-36a304b66dad/v2.0"
	briefPath    = "/brief"
)

// brief is the lifetime of the tokens of the fourth provider.
const brief = "30s"

// issuer is a running OpenID Connect provider, and ca the file with the authority of its certificate.
type issuer struct {
	url, ca string
}

// startIssuer starts the providers: see hack/issuer.
func startIssuer(t *testing.T) issuer {
	t.Helper()
	type claims = map[string]map[string]any
	type user struct {
		Password string
		Claims   claims
	}
	type provider struct {
		Clients map[string]string
		Users   map[string]user
	}
	// Dex gives the groups and the address to clients that ask for these scopes.
	dex := func(email string, groups ...string) user {
		return user{"secret", claims{"email": {"email": email, "email_verified": true}, "groups": {"groups": groups}}}
	}
	clients := map[string]string{"kubernetes": "1h", "another": "1h"}
	unverified := dex("alice@example.com", "team-one")
	unverified.Claims["email"]["email_verified"] = false
	config := map[string]provider{
		dexPath: {clients, map[string]user{
			"alice":      dex("alice@example.com", "team-one"),
			"bob":        dex("bob@example.com", "team-two", "everybody"),
			"nobody":     dex("nobody@example.com"),
			"mallory":    dex("system:kube-controller-manager", "system:masters"),
			"unverified": unverified,
		}},
		briefPath: {map[string]string{"kubernetes": brief}, map[string]user{"alice": dex("alice@example.com", "team-one")}},
		keycloakPath: {clients, map[string]user{
			"carol": {"secret", claims{"openid": {"preferred_username": "carol", "groups": []string{"team-one"}}}},
		}},
		entraPath: {map[string]string{entraClient: "1h"}, map[string]user{
			"dave": {"secret", claims{
				"openid":  {"groups": []string{"id-of-team-one"}},
				"profile": {"oid": "3f7e1c0a-6f0d-4d53-9b37-0d1a5f6f2c11", "preferred_username": "dave@example.com"},
			}},
		}},
	}
	dir := t.TempDir()
	content, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.NewAuthority("issuer")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Request{CommonName: "issuer", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"config.json": content, "ca.crt": authority.CertPEM, "tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM} {
		write(t, string(content), dir, name)
	}
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "tenure-issuer"), "config.json", "tls.crt", "tls.key")
	cmd.Dir, cmd.Stderr = dir, t.Output()
	input, err := cmd.StdinPipe() // its end ends the program
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start the provider: run `make clients`: %v", err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider has not started: %v", err)
	}
	return issuer{strings.TrimSpace(address), filepath.Join(dir, "ca.crt")}
}

// entraClient is the name of the client in the page's configuration for Entra.
const entraClient = "b1c3a5f0-7a0a-4c1e-8d4c-1c2f5a3b7e90"

// authentication returns the configurations of the page for the API server as one, with the
// addresses and the authority of the test's providers.
func (i issuer) authentication(t *testing.T) []byte {
	t.Helper()
	ca, err := os.ReadFile(i.ca)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"# Dex\n": dexPath, "# Keycloak\n": keycloakPath, "# Entra\n": entraPath}
	var all map[string]any
	var authenticators []any
	add := func(block, path string) {
		all = nil
		if err := yaml.Unmarshal([]byte(block), &all); err != nil {
			t.Fatal(err)
		}
		authenticator := all["jwt"].([]any)[0].(map[string]any)
		at := authenticator["issuer"].(map[string]any)
		at["url"], at["certificateAuthority"] = i.url+path, string(ca)
		authenticators = append(authenticators, authenticator)
	}
	for _, block := range pageBlocks(t)["docs/how-to/"+loginPage] {
		for begins, path := range paths {
			if !strings.HasPrefix(block, begins) {
				continue
			}
			add(block, path)
			if path == dexPath {
				add(block, briefPath)
			}
		}
	}
	if len(authenticators) != 4 {
		t.Fatalf("%s has configurations for %d providers, want Dex, Keycloak and Entra", loginPage, len(authenticators)-1)
	}
	all["jwt"] = authenticators
	content, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// testLogin lets people log in at providers and use the proxy through a gateway that passes TLS
// through.
func testLogin(r run, i issuer) {
	admin := proxied{run: r, kubeconfig: r.Kubeconfig}
	admin.watching("kubectl", []string{"port-forward", "-n", "flux-system", "service/tenure-proxy", ":9001"}, func(line string) bool {
		address, _, found := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ->")
		if !found {
			return false
		}
		i.testPeople(r, passTLSThrough(r.t, publicProxy, address))
		return true
	})
}

// testPeople logs people in, with kubeconfigs for an address of the proxy. The fleet's tenant one
// belongs to the groups oidc:team-one and oidc:id-of-team-one, and the tenant two to oidc:team-two.
func (i issuer) testPeople(r run, address string) {
	kubeconfig := func(path, client string, scopes ...string) string {
		file := filepath.Join(r.t.TempDir(), "kubeconfig")
		args := []string{
			"kubeconfig", "one", "--login", "--server", "https://" + address, "--server-name", publicProxy, "-o", file,
			"--oidc-issuer-url", i.url + path, "--oidc-client-id", client, "--oidc-ca-file", i.ca,
		}
		for _, scope := range scopes {
			args = append(args, "--oidc-extra-scope", scope)
		}
		r.tenure(r.Kubeconfig, args...)
		return file
	}
	person := func(name, file string) proxied {
		return proxied{run: r, kubeconfig: file, env: []string{"TEST_LOGIN_NAME=" + name, "TEST_LOGIN_PASSWORD=secret"}}
	}
	dex, keycloak := kubeconfig(dexPath, "kubernetes", "groups", "email"), kubeconfig(keycloakPath, "kubernetes")
	entra := kubeconfig(entraPath, entraClient, "profile")
	if content, err := os.ReadFile(dex); err != nil || strings.Contains(string(content), "secret") || strings.Contains(string(content), "token:") {
		r.t.Errorf("the kubeconfig has a secret: %v\n%s", err, content)
	}

	// A token that expires during the test.
	expiring := withToken(r, kubeconfig(briefPath, "kubernetes", "groups", "email"), "alice")
	if got := expiring.runs("kubectl", "get", "namespaces", "-o", "name"); got == "" {
		r.t.Error("a token that has not expired yet is useless")
	}

	for _, tc := range []struct {
		reason  string
		who     proxied
		name    string
		groups  []string
		visible string
	}{
		{"a member of the group that owns tenant one, at Dex", person("alice", dex), "oidc:alice@example.com", []string{"oidc:team-one"}, "one one-more"},
		{"a member at Keycloak", person("carol", keycloak), "oidc:carol", []string{"oidc:team-one"}, "one one-more"},
		{"a member at Entra", person("dave", entra), "oidc:3f7e1c0a-6f0d-4d53-9b37-0d1a5f6f2c11", []string{"oidc:id-of-team-one"}, "one one-more"},
		{"a member of another group", person("bob", dex), "oidc:bob@example.com", []string{"oidc:team-two", "oidc:everybody"}, "two two-more"},
		{"a person without groups", person("nobody", dex), "oidc:nobody@example.com", nil, ""},
		{"a provider that names Kubernetes' own", person("mallory", dex), "oidc:system:kube-controller-manager", []string{"oidc:system:masters"}, ""},
	} {
		var review struct {
			Status struct {
				UserInfo struct {
					Username string
					Groups   []string
				}
			}
		}
		if err := json.Unmarshal([]byte(tc.who.runs("kubectl", "auth", "whoami", "-o", "json")), &review); err != nil {
			r.t.Fatal(err)
		}
		got := review.Status.UserInfo
		if diff := cmp.Diff(append(slices.Clone(tc.groups), "system:authenticated"), got.Groups); got.Username != tc.name || diff != "" {
			r.t.Errorf("%s: want %s, got %s; groups (-want +got):\n%s", tc.reason, tc.name, got.Username, diff)
		}
		if got, want := tc.who.runs("kubectl", "get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}"), tc.visible; got != want {
			r.t.Errorf("%s: want the namespaces %q, got %q", tc.reason, want, got)
		}
	}
	alice, mallory := person("alice", dex), person("mallory", dex)
	if out := table(alice.runs("kubectl", "get", "kustomizations.kustomize.toolkit.fluxcd.io", "-A", "--no-headers", "-o", "custom-columns=N:.metadata.namespace")); !cmp.Equal([]string{"one"}, out) {
		r.t.Errorf("in all namespaces, a member of tenant one sees objects of %v", out)
	}
	if out := alice.runs("kubectl", "get", "pods", "-A", "--no-headers", "-o", "custom-columns=N:.metadata.namespace"); strings.Contains(out, "two") || strings.Contains(out, "flux-system") {
		r.t.Errorf("a member of tenant one sees Pods of %s", out)
	}
	alice.refused("is forbidden", "kubectl", "get", "pods", "-n", "two")
	alice.runs("kubectl", "create", "configmap", "by-alice", "-n", "one")
	mallory.refused("is forbidden", "kubectl", "get", "secrets", "-n", "flux-system")
	mallory.refused("is forbidden", "kubectl", "get", "nodes")

	const refused = "You must be logged in to the server"
	person("alice", kubeconfig(dexPath, "another", "groups", "email")).refused(refused, "kubectl", "get", "namespaces")
	person("unverified", dex).refused(refused, "kubectl", "get", "namespaces")
	wrong := person("alice", dex)
	wrong.env[1] = "TEST_LOGIN_PASSWORD=guessed"
	wrong.refused("cannot log in as alice", "kubectl", "get", "namespaces")
	testwait.For(r.t, "the token to expire", patience, func() (bool, string) {
		out, errs, err := expiring.program("kubectl", "get", "namespaces", "-o", "name")
		return err != nil && strings.Contains(errs, refused), out + errs
	})
}

// withToken returns a person who keeps the token of one login, in a kubeconfig without a login
// plugin.
func withToken(r run, file, name string) proxied {
	r.t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	var config struct {
		Users []struct {
			User struct{ Exec struct{ Args []string } }
		}
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		r.t.Fatal(err)
	}
	login := proxied{run: r, kubeconfig: file, env: []string{"TEST_LOGIN_NAME=" + name, "TEST_LOGIN_PASSWORD=secret"}}
	var credential struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(login.runs("kubectl", config.Users[0].User.Exec.Args...)), &credential); err != nil {
		r.t.Fatal(err)
	}
	login.runs("kubectl", "config", "set-credentials", "expiring", "--token", credential.Status.Token)
	login.runs("kubectl", "config", "set-context", "--current", "--user", "expiring")
	return login
}

// TestAuthenticationConfig checks that `tenure up` gives the file to the API server, which refuses one
// without prefixes.
func TestAuthenticationConfig(t *testing.T) {
	t.Parallel()
	const without = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt: [{issuer: {url: "https://dex.example.com", audiences: [kubernetes]}, claimMappings: {username: {claim: email}}}]
`
	file := filepath.Join(newFolder(t, map[string]string{"authentication.yaml": without}), "authentication.yaml")
	h := home(t)
	tenure(t, h, "up", "--authentication-config", file).fails("The API server refuses it.", startup, "jwt[0].claimMappings.username.prefix: Required value")
	nothingLeft(t, h)
}

// passTLSThrough forwards the connections whose ClientHello names a host, unread, to an address, and
// closes others. It returns its own address.
func passTLSThrough(t *testing.T, host, backend string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client, host, backend)
		}
	}()
	return listener.Addr().String()
}

func forward(client net.Conn, host, backend string) {
	defer client.Close()
	hello := &helloConn{Conn: client}
	errRead := errors.New("the ClientHello is read")
	name := ""
	_ = tls.Server(hello, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name = info.ServerName
		return nil, errRead
	}}).Handshake()
	if name != host {
		return
	}
	server, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, io.MultiReader(&hello.read, client))
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

// helloConn keeps the bytes that it reads, and writes nothing.
type helloConn struct {
	net.Conn

	read bytes.Buffer
}

func (c *helloConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Write(b[:n])
	return n, err
}

func (c *helloConn) Write(b []byte) (int, error) { return len(b), nil }
