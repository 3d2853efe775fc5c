package provider

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/test/fixtures/testprovider"
)

var kinds = []Kind{GitHub, GitLab, Gitea, BitbucketServer}

// start serves a provider over HTTPS and returns a config of a repository there.
func start(t *testing.T, kind Kind) (*testprovider.Server, Config) {
	t.Helper()
	fake := &testprovider.Server{
		Users: map[string]string{"t0ken": "jane", "r3ad": "john"}, Admins: []string{"jane"}, Owners: []string{"acme"},
	}
	server := httptest.NewTLSServer(fake)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return fake, Config{
		Kind: kind, Hostname: server.Listener.Addr().String(), CA: ca, Token: "t0ken",
		Owner: "acme", Repository: "fleet",
	}
}

func open(t *testing.T, c Config) *Host {
	t.Helper()
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func publicKey(t *testing.T) string {
	t.Helper()
	pair, err := gitauth.Generate(gitauth.KeyOptions{Algorithm: gitauth.Ed25519})
	if err != nil {
		t.Fatal(err)
	}
	return string(pair.Public)
}

// TestProviders creates a repository and registers keys by the API of each provider.
func TestProviders(t *testing.T) {
	for _, kind := range kinds {
		for name, owner := range map[string]string{"organization": "acme", "user": "jane"} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				fake, c := start(t, kind)
				c.Owner, c.Personal = owner, owner == "jane"
				testProvider(t, fake, c)
			})
		}
	}
}

func testProvider(t *testing.T, fake *testprovider.Server, c Config) {
	ctx, repository := t.Context(), c.Owner+"/fleet"
	first, second := publicKey(t), publicKey(t)
	expect := func(reason string, want ...testprovider.Key) {
		t.Helper()
		got := []testprovider.Key{}
		for _, key := range fake.Repository(repository).Keys {
			got = append(got, key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	line := func(key string) string { return strings.Join(strings.Fields(key)[:2], " ") }
	for _, run := range []struct {
		reason  string
		key     string
		write   bool
		created bool
		changed bool
	}{
		{"a new repository and key", first, false, true, true},
		{"a second run changes nothing", first, false, false, false},
		{"the key gets write access", first, true, false, true},
		{"the key loses write access", first, false, false, true},
		{"a new key replaces the key with its title", second, false, false, true},
		{"and changes nothing again", second, false, false, false},
	} {
		writes := fake.Writes()
		h := open(t, c)
		created, err := h.Ensure(ctx)
		if err != nil || created != run.created {
			t.Fatalf("%s: created %t, %v", run.reason, created, err)
		}
		changed, err := h.EnsureDeployKey(ctx, "title", run.key+"\n", run.write)
		if err != nil || changed != run.changed {
			t.Fatalf("%s: changed %t, %v", run.reason, changed, err)
		}
		if !run.created && !run.changed && fake.Writes() != writes {
			t.Errorf("%s: %d writes", run.reason, fake.Writes()-writes)
		}
		expect(run.reason, testprovider.Key{Title: "title", Key: line(run.key), ReadOnly: !run.write})
	}
	if !fake.Repository(repository).Private {
		t.Error("the repository is public")
	}
}

// TestRefusals shows the error of each refusal. None has the token.
func TestRefusals(t *testing.T) {
	for _, kind := range kinds {
		for name, test := range map[string]struct {
			reason string
			edit   func(*testprovider.Server, *Config)
			want   error
			text   string
		}{
			"WrongToken": {
				reason: "The provider does not know the token.",
				edit:   func(_ *testprovider.Server, c *Config) { c.Token = "wr0ng" },
				want:   ErrToken, text: "the token is refused by 127.0.0.1",
			},
			"MayNotCreate": {
				reason: "The repository does not exist, and the user may not create it.",
				edit:   func(_ *testprovider.Server, c *Config) { c.Token = "r3ad" },
				want:   ErrRights, text: "cannot create the repository acme/fleet",
			},
			"MayNotRegister": {
				reason: "The user reads the repository, but has no rights for its keys.",
				edit: func(s *testprovider.Server, c *Config) {
					s.Add("acme/fleet")
					c.Token = "r3ad"
				},
				want: ErrRights, text: "cannot register the deploy key at acme/fleet",
			},
			"NoOwner": {
				reason: "There is no organization of this name.",
				edit:   func(_ *testprovider.Server, c *Config) { c.Owner = "none" },
				want:   ErrRights, text: "cannot create the repository none/fleet",
			},
			"OtherUser": {
				reason: "The token is of another user than the owner.",
				edit:   func(_ *testprovider.Server, c *Config) { c.Owner, c.Personal = "john", true },
				want:   ErrOwner, text: "the token is not of the user john",
			},
			"NoHost": {
				reason: "Nothing answers.",
				edit:   func(_ *testprovider.Server, c *Config) { c.Hostname = "127.0.0.1:1" },
				want:   ErrUnreachable, text: "refused",
			},
			"UnknownAuthority": {
				reason: "The certificate is of an authority that nobody named.",
				edit:   func(_ *testprovider.Server, c *Config) { c.CA = nil },
				want:   ErrUnreachable, text: "certificate",
			},
		} {
			if kind == BitbucketServer && name == "OtherUser" {
				continue // the project of another user is one that the token may not write: MayNotCreate
			}
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel() // the package for GitLab tries again for some seconds
				fake, c := start(t, kind)
				test.edit(fake, &c)
				h := open(t, c)
				_, err := h.Ensure(t.Context())
				if err == nil {
					_, err = h.EnsureDeployKey(t.Context(), "title", publicKey(t), false)
				}
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
					t.Fatalf("%s\ngot %v, want %v with %q", test.reason, err, test.want, test.text)
				}
				if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), c.Token) {
					t.Errorf("the error has several lines, or the token: %q", err)
				}
			})
		}
	}
}

// TestRedirect shows that the token does not follow a redirect to another host.
func TestRedirect(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			var stolen string
			thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				stolen = r.Header.Get("Authorization") + r.Header.Get("Private-Token")
			}))
			defer thief.Close()
			server := httptest.NewTLSServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
			defer server.Close()
			_, c := start(t, kind)
			c.Hostname = server.Listener.Addr().String() // all servers of httptest have one certificate
			if _, err := open(t, c).Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "redirects to https://127.0.0.1") {
				t.Errorf("got %v, want that the redirect is refused", err)
			}
			if stolen != "" {
				t.Errorf("the other host got %q", stolen)
			}
		})
	}
}

// TestAddresses shows the addresses of a repository: those of the flux CLI.
func TestAddresses(t *testing.T) {
	c := Config{Hostname: "git.example.com:8443", Owner: "acme/platform", Repository: "fleet"}
	bitbucket := Config{Kind: BitbucketServer, Hostname: "git.example.com:8443", Owner: "ACME", Repository: "fleet"}
	personal := Config{Kind: BitbucketServer, Hostname: "git.example.com", Owner: "jane", Personal: true, Repository: "fleet"}
	for got, want := range map[string]string{
		c.URL():                           "https://git.example.com:8443/acme/platform/fleet.git",
		c.SSH(""):                         "ssh://git@git.example.com/acme/platform/fleet",
		c.SSH("ssh.git.example.com:2222"): "ssh://git@ssh.git.example.com:2222/acme/platform/fleet",
		bitbucket.URL():                   "https://git.example.com:8443/scm/ACME/fleet.git",
		bitbucket.SSH(""):                 "ssh://git@git.example.com:7999/ACME/fleet.git",
		bitbucket.SSH("ssh.example.com"):  "ssh://git@ssh.example.com/ACME/fleet.git",
		personal.URL():                    "https://git.example.com/scm/~jane/fleet.git",
		personal.SSH(""):                  "ssh://git@git.example.com:7999/~jane/fleet.git",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestBadInput shows what New and EnsureDeployKey refuse.
func TestBadInput(t *testing.T) {
	if _, err := New(Config{CA: []byte("none")}); err == nil {
		t.Error("a bad authority is accepted")
	}
	_, c := start(t, GitHub)
	h := open(t, c)
	if _, err := h.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.EnsureDeployKey(t.Context(), "title", "no key", false); err == nil {
		t.Error("a bad key is accepted")
	}
}
