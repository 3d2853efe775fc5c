package githost

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// sshKey returns a new key, and its public half as a line of authorized_keys.
func sshKey(t testing.TB) (signer ssh.Signer, public string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer, err = ssh.NewSignerFromKey(key); err != nil {
		t.Fatal(err)
	}
	return signer, string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

// protect serves two private repositories and a public one of git.example.com.
func protect(t testing.TB, fleet ...Credentials) *fixture {
	t.Helper()
	f := newFixture(t)
	for _, url := range []string{fleetURL, "https://git.example.com/acme/other", "https://git.example.com/acme/public"} {
		f.add(t, Mapping{URL: url, Branch: "main", Dir: t.TempDir()})
	}
	if err := f.Protect(fleetURL, fleet...); err != nil {
		t.Fatal(err)
	}
	if err := f.Protect("https://git.example.com/acme/other", Credentials{Token: "0ther"}); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPrivateOverHTTP(t *testing.T) {
	t.Parallel()
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	const fetch, push = "/info/refs?service=git-upload-pack", "/info/refs?service=git-receive-pack"
	f := protect(t, Credentials{Username: "ann", Password: "pa55"}, Credentials{Token: "t0ken", ReadOnly: true})
	for name, tc := range map[string]struct {
		reason, path, authorization string
		status                      int
		body                        string
	}{
		"basic":         {"user and password", "/acme/fleet" + fetch, basic("ann", "pa55"), 200, "# service"},
		"token":         {"a token as a bearer", "/acme/fleet" + fetch, "Bearer t0ken", 200, "# service"},
		"password":      {"a token as the password of any user", "/acme/fleet" + fetch, basic("git", "t0ken"), 200, "# service"},
		"push":          {"who may write pushes", "/acme/fleet.git" + push, basic("ann", "pa55"), 200, "# service"},
		"nothing":       {"git asks its user after this", "/acme/fleet" + fetch, "", 401, "Authentication is required"},
		"wrong":         {"a password that is not right", "/acme/fleet" + fetch, basic("ann", "pa5"), 401, "Invalid username or token"},
		"other user":    {"the password of somebody else", "/acme/fleet" + fetch, basic("bob", "pa55"), 401, "Invalid username or token"},
		"empty":         {"no password", "/acme/fleet" + fetch, basic("ann", ""), 401, "Invalid username or token"},
		"wrong token":   {"a token that has ended", "/acme/fleet" + fetch, "Bearer 0ld", 401, "Invalid username or token"},
		"elsewhere":     {"who reads another repository does not hear of this one", "/acme/fleet" + fetch, "Bearer 0ther", 404, "Repository not found"},
		"read only":     {"who only reads does not push", "/acme/fleet" + push, "Bearer t0ken", 403, "write access to the repository is not granted"},
		"public":        {"a repository that is not protected takes anything", "/acme/public" + fetch, basic("any", "thing"), 200, "# service"},
		"public, plain": {"and nothing", "/acme/public" + fetch, "", 200, "# service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			if tc.authorization != "" {
				header.Set("Authorization", tc.authorization)
			}
			status, body := f.request(t, "GET", tc.path, header, nil)
			if status != tc.status || !strings.Contains(body, tc.body) {
				t.Errorf("%s: want %d %q, got %d %q", tc.reason, tc.status, tc.body, status, body)
			}
		})
	}
	t.Run("every request is asked", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/acme/fleet/git-upload-pack", "/acme/fleet/git-receive-pack"} {
			if status, body := f.request(t, "POST", path, http.Header{}, strings.NewReader("0000")); status != 401 {
				t.Errorf("POST %s: want 401, got %d %q", path, status, body)
			}
		}
	})
}

func TestPrivateOverSSH(t *testing.T) {
	t.Parallel()
	mine, public := sshKey(t)
	readOnly, readOnlyPublic := sshKey(t)
	stranger, _ := sshKey(t)
	other, otherPublic := sshKey(t)
	f := protect(t, Credentials{Key: public}, Credentials{Key: readOnlyPublic, ReadOnly: true})
	if err := f.Protect("https://git.example.com/acme/other", Credentials{Key: otherPublic}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason  string
		key     ssh.Signer
		command string
		want    string // on standard error, "" if it runs
	}{
		"mine":      {"the repository's own key", mine, "git-upload-pack '/acme/fleet'", ""},
		"push":      {"which also writes", mine, "git-receive-pack '/acme/fleet'", ""},
		"reads":     {"a key that only reads", readOnly, "git-upload-pack '/acme/fleet.git'", ""},
		"writes":    {"and does not write", readOnly, "git-receive-pack '/acme/fleet'", "marked as read only"},
		"stranger":  {"a key that nobody knows", stranger, "git-upload-pack '/acme/fleet'", "Permission denied (publickey)"},
		"elsewhere": {"another repository's key", other, "git-upload-pack '/acme/fleet'", "ERROR: Repository not found"},
		"public":    {"any key opens what is not private", stranger, "git-upload-pack '/acme/public'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := login(t, f.ssh(t), tc.key)
			if err != nil {
				t.Fatal(err)
			}
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			complaint := &strings.Builder{}
			session.Stdin, session.Stderr = strings.NewReader("0000"), complaint
			err = session.Run(tc.command)
			if tc.want == "" && err != nil || !strings.Contains(complaint.String(), tc.want) {
				t.Errorf("%s: want %q, got %v %q", tc.reason, tc.want, err, complaint)
			}
			if tc.want != "" && err == nil {
				t.Errorf("%s: it ran", tc.reason)
			}
		})
	}
	if _, err := login(t, f.ssh(t), nil); err == nil {
		t.Error("a host with private repositories asks for no key")
	}
	if err := f.Protect(fleetURL, Credentials{Key: "ssh-ed25519 nonsense"}); err == nil {
		t.Error("a key that cannot be read protects a repository")
	}
}

// TestPrivateHost checks that an unknown key cannot log in to a host that has
// private repositories only.
func TestPrivateHost(t *testing.T) {
	t.Parallel()
	mine, public := sshKey(t)
	stranger, _ := sshKey(t)
	f := newFixture(t)
	f.add(t, Mapping{URL: fleetURL, Branch: "main", Dir: t.TempDir()})
	if err := f.Protect(fleetURL, Credentials{Key: public}); err != nil {
		t.Fatal(err)
	}
	if _, err := login(t, f.ssh(t), mine); err != nil {
		t.Error(err)
	}
	if _, err := login(t, f.ssh(t), stranger); err == nil || !strings.Contains(err.Error(), "unable to authenticate") {
		t.Errorf("a strange key logs in: %v", err)
	}
	if err := f.Protect(fleetURL); err != nil {
		t.Fatal(err)
	}
	if _, err := login(t, f.ssh(t), mine); err == nil {
		t.Error("a key that was taken away logs in")
	}
}

func login(t testing.TB, address string, key ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ClientConfig{User: "git", HostKeyCallback: ssh.InsecureIgnoreHostKey()}
	if key != nil {
		config.Auth = []ssh.AuthMethod{ssh.PublicKeys(key)}
	}
	c, channels, requests, err := ssh.NewClientConn(conn, "git.example.com:22", config)
	if err != nil {
		return nil, err
	}
	client := ssh.NewClient(c, channels, requests)
	t.Cleanup(func() { _ = client.Close() })
	return client, nil
}
