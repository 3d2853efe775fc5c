package network

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/gitauth"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
)

func TestParsePrivate(t *testing.T) {
	t.Parallel()
	key, err := gitauth.Generate(gitauth.KeyOptions{Algorithm: gitauth.Ed25519})
	if err != nil {
		t.Fatal(err)
	}
	indent := func(text []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ") }
	const url = "https://git.example.com/acme/a"
	for name, tc := range map[string]struct {
		reason, content string
		want            githost.Credentials
		refused         string
	}{
		"basic":     {"a user and a password", "kind: Secret\nstringData: {username: ann, password: pa55}", githost.Credentials{Username: "ann", Password: "pa55"}, ""},
		"data":      {"as the API server gives it", "kind: Secret\ndata: {bearerToken: dDBrZW4=}", githost.Credentials{Token: "t0ken"}, ""},
		"public":    {"a public key", "kind: Secret\nstringData: {identity.pub: 'ssh-ed25519 AAAA'}", githost.Credentials{Key: "ssh-ed25519 AAAA"}, ""},
		"private":   {"of a private key its public half; the password is the key's", "kind: Secret\nstringData:\n  password: x\n  identity: |\n    " + indent(key.Private), githost.Credentials{Key: string(key.Public)}, ""},
		"nothing":   {"no credentials", "kind: Secret\nstringData: {known_hosts: x}", githost.Credentials{}, "none of password"},
		"unread":    {"a key that cannot be read", "kind: Secret\nstringData: {identity: x}", githost.Credentials{}, "identity.pub"},
		"no Secret": {"another kind", "kind: ConfigMap\ndata: {password: pa55}", githost.Credentials{}, "not the manifest of a Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "secret.yaml")
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ParsePrivate(url + "=" + file)
			if tc.refused != "" {
				if !errors.Is(err, ErrPrivate) || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%s: want %q, got %v", tc.reason, tc.refused, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Private{URL: url, Credentials: tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for _, value := range []string{"", url, url + "=", "=x", "nothing=x", url + "=" + filepath.Join(t.TempDir(), "missing")} {
		if _, err := ParsePrivate(value); !errors.Is(err, ErrPrivate) {
			t.Errorf("%q: want ErrPrivate, got %v", value, err)
		}
	}
}

func TestCheckPrivate(t *testing.T) {
	t.Parallel()
	maps := []Map{{Kind: KindGit, URL: "https://git.example.com/acme/a"}, {Kind: KindHelm, URL: "https://git.example.com/acme/b"}}
	if err := CheckPrivate([]Private{{URL: "ssh://git@git.example.com/acme/a.git"}}, maps); err != nil {
		t.Errorf("another way to write the address: %v", err)
	}
	for _, url := range []string{"https://git.example.com/acme/b", "https://git.example.com/acme/c"} {
		if err := CheckPrivate([]Private{{URL: url}}, maps); !errors.Is(err, ErrPrivate) {
			t.Errorf("%s is no Git repository that is mapped: %v", url, err)
		}
	}
}
