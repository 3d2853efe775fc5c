package gitauth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

func TestGenerate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		options KeyOptions
		want    string // type of the public key, "" for an error
	}{
		"default": {reason: "what Flux makes", want: "ecdsa-sha2-nistp384"},
		"p521":    {reason: "another curve", options: KeyOptions{Algorithm: ECDSA, Curve: "p521"}, want: "ecdsa-sha2-nistp521"},
		"ed25519": {reason: "a key without parameters", options: KeyOptions{Algorithm: Ed25519}, want: "ssh-ed25519"},
		"rsa":     {reason: "the oldest hosts know nothing else", options: KeyOptions{Algorithm: RSA}, want: "ssh-rsa"},
		"short":   {reason: "a key that is too short", options: KeyOptions{Algorithm: RSA, RSABits: 1024}},
		"dsa":     {reason: "an algorithm that nobody uses any more", options: KeyOptions{Algorithm: "dsa"}},
		"curve":   {reason: "a curve that does not exist", options: KeyOptions{Curve: "p1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair, err := Generate(tc.options)
			if tc.want == "" {
				if !errors.Is(err, ErrInvalid) {
					t.Errorf("%s: got %v, want an error", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			read, err := ParseKey(pair.Private, "")
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if !bytes.Equal(read.Public, pair.Public) || !strings.HasPrefix(string(pair.Public), tc.want+" ") {
				t.Errorf("%s: the public key is %q, and %q when read again", tc.reason, pair.Public, read.Public)
			}
		})
	}
}

func TestParseKeyWithPassword(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	text := pemText(block.Type, block.Bytes)
	for password, ok := range map[string]bool{"hunter2": true, "": false, "wrong": false} {
		pair, err := ParseKey(text, password)
		if (err == nil) != ok {
			t.Errorf("the password %q: %v", password, err)
		}
		if ok && pair.Password != "hunter2" {
			t.Error("Flux needs the password too, and does not get it")
		}
	}
	if _, err := ParseKey([]byte("no key"), ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("text that is no key is taken: %v", err)
	}
}

func TestKnownHosts(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	for name, tc := range map[string]struct {
		reason, line, host, want string
	}{
		"name":    {reason: "a plain name", line: "git.example.com,192.0.2.1 " + key, host: "git.example.com", want: "git.example.com " + key + "\n"},
		"hashed":  {reason: "what OpenSSH writes on many systems", line: knownhosts.HashHostname("git.example.com") + " " + key, host: "git.example.com:22", want: "git.example.com " + key + "\n"},
		"port":    {reason: "a port of its own", line: "[git.example.com]:2222 " + key, host: "git.example.com:2222", want: "[git.example.com]:2222 " + key + "\n"},
		"pattern": {reason: "a pattern", line: "*.example.com " + key, host: "git.example.com", want: "git.example.com " + key + "\n"},
		"no":      {reason: "a pattern that excludes it", line: "*.example.com,!git.example.com " + key, host: "git.example.com"},
		"other":   {reason: "the same host at another port may be another one", line: "git.example.com " + key, host: "git.example.com:2222"},
		"revoked": {reason: "a key that is not to be trusted", line: "@revoked git.example.com " + key, host: "git.example.com"},
		"broken":  {reason: "a line that is none", line: "git.example.com nonsense", host: "git.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := KnownHosts([]byte("# hosts\n\n"+tc.line+"\n"), tc.host)
			if (tc.want == "") != errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.want == "" {
				return
			}
			// The library that Flux uses must find it too.
			file := filepath.Join(t.TempDir(), "known_hosts")
			if err := os.WriteFile(file, got, 0o600); err != nil {
				t.Fatal(err)
			}
			check, err := knownhosts.New(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(withPort(tc.host), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 22}, signer.PublicKey()); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// TestScan scans a server that has only one key.
func TestScan(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			config := &ssh.ServerConfig{NoClientAuth: true}
			config.AddHostKey(signer)
			_, _, _, _ = ssh.NewServerConn(conn, config)
			_ = conn.Close()
		}
	}()
	host := listener.Addr().String()
	line, fingerprint, err := Scan(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	if want := "ssh-ed25519 " + ssh.FingerprintSHA256(signer.PublicKey()); fingerprint != want {
		t.Errorf("the fingerprint is %s, want %s", fingerprint, want)
	}
	if _, err := KnownHosts(line, host); err != nil {
		t.Errorf("the line is not the host's: %v", err)
	}
	_, sum, _ := strings.Cut(fingerprint, " ")
	if pinned, err := Pin(t.Context(), host, sum); err != nil || !bytes.Equal(pinned, line) {
		t.Errorf("the host with the right fingerprint: %q, %v", pinned, err)
	}
	if _, err := Pin(t.Context(), host, "SHA256:AAAA"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), sum) {
		t.Errorf("a host with another fingerprint: %v", err)
	}
	_ = listener.Close()
	if _, _, err := Scan(t.Context(), host); err == nil {
		t.Error("a host that does not answer has a key")
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	pair, err := Generate(KeyOptions{Algorithm: Ed25519})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason, address string
		credentials     Credentials
		ok              bool
	}{
		"ssh":      {"a key and the host's", "ssh://git@example.com/a", Credentials{Key: &pair, KnownHosts: []byte("x")}, true},
		"no hosts": {"without the host's keys anybody could be the host", "ssh://git@example.com/a", Credentials{Key: &pair}, false},
		"token":    {"a token", "https://example.com/a", Credentials{Token: "t"}, true},
		"basic":    {"a user with a password", "https://example.com/a", Credentials{Username: "u", Password: "p"}, true},
		"half":     {"a user without a password", "https://example.com/a", Credentials{Username: "u"}, false},
		"both":     {"Flux would take one of them", "https://example.com/a", Credentials{Username: "u", Password: "p", Token: "t"}, false},
		"clear":    {"passwords in clear", "http://example.com/a", Credentials{Token: "t"}, false},
		"mixed":    {"a key for https", "https://example.com/a", Credentials{Key: &pair, KnownHosts: []byte("x")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, err := url.Parse(tc.address)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.credentials.Check(address); (err == nil) != tc.ok {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// FuzzKnownHosts checks that all lines that KnownHosts returns for any text are for the host.
func FuzzKnownHosts(f *testing.F) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
	f.Add("git.example.com " + key)
	f.Add("|1|x|y " + key)
	f.Add("@cert-authority * " + key)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := KnownHosts([]byte(text), "git.example.com")
		for line := range strings.Lines(string(got)) {
			if err != nil || !strings.HasPrefix(line, "git.example.com ") {
				t.Errorf("got %q, %v", line, err)
			}
		}
	})
}

func pemText(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}
