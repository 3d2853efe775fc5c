package gitauth

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // how OpenSSH hashes names in known_hosts
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/net/proxy"
)

// scanTimeout is the timeout for reading the key of a host.
const scanTimeout = 30 * time.Second

// KnownHosts returns the keys of one host from the text of a known_hosts file, one per line. The
// host is HOST or HOST:PORT. Names may be hashed or patterns. KnownHosts leaves out revoked keys
// and certificate authorities, which Flux does not support. It returns [ErrInvalid] if the text
// cannot be parsed or has no key of the host.
func KnownHosts(text []byte, host string) ([]byte, error) {
	address := knownhosts.Normalize(withPort(host))
	var found bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' || line[0] == '@' {
			continue
		}
		_, names, key, _, _, err := ssh.ParseKnownHosts(line)
		if err != nil {
			return nil, fmt.Errorf("the known hosts %w: %w", ErrInvalid, err)
		}
		if matches(names, address) {
			fmt.Fprintln(&found, knownhosts.Line([]string{address}, key))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the known hosts %w: %w", ErrInvalid, err)
	}
	if found.Len() == 0 {
		return nil, fmt.Errorf("the known hosts %w: they have no key of %s", ErrInvalid, address)
	}
	return found.Bytes(), nil
}

// UserKnownHosts returns the lines of ~/.ssh/known_hosts for an SSH host. It fails if the file
// cannot be read, and as KnownHosts if the file has no key of the host.
func UserKnownHosts(host string) ([]byte, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find ~/.ssh/known_hosts: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(home, ".ssh", "known_hosts"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the known hosts: %w", err)
	}
	return KnownHosts(text, host)
}

// matches reports whether the names of a line match an address. A name with an exclamation
// mark excludes the address, whatever the other names are.
func matches(names []string, address string) bool {
	found := false
	for _, name := range names {
		pattern, negated := strings.CutPrefix(name, "!")
		if !matchesOne(pattern, address) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}

func matchesOne(pattern, address string) bool {
	if rest, hashed := strings.CutPrefix(pattern, "|1|"); hashed {
		salt64, sum64, _ := strings.Cut(rest, "|")
		salt, err := base64.StdEncoding.DecodeString(salt64)
		sum, err2 := base64.StdEncoding.DecodeString(sum64)
		if err != nil || err2 != nil {
			return false
		}
		mac := hmac.New(sha1.New, salt)
		mac.Write([]byte(address))
		return hmac.Equal(mac.Sum(nil), sum)
	}
	if pattern == address {
		return true
	}
	// Brackets around a host with a port are no character class here.
	escape := strings.NewReplacer("[", `\[`, "]", `\]`).Replace
	ok, err := path.Match(escape(pattern), address)
	return err == nil && ok
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err != nil {
		return net.JoinHostPort(strings.Trim(host, "[]"), "22")
	}
	return host
}

// Scan returns the key of a host, like ssh-keyscan. An attacker between this machine and the host
// can answer, so a person must compare the returned fingerprint with the one that the host's owner
// publishes. Scan uses the proxy in ALL_PROXY, like Flux. It returns an error if the host does not
// answer.
func Scan(ctx context.Context, host string) (line []byte, fingerprint string, err error) {
	return scan(ctx, host, nil)
}

// Pin reads the keys of a host and returns the line of the key with the fingerprint, which is
// SHA256: and base64, as ssh-keygen -l prints it. It returns [ErrInvalid] if the host has no such
// key, and another error if the host does not answer.
func Pin(ctx context.Context, host, fingerprint string) (line []byte, err error) {
	var seen []string
	var last error
	for _, algorithms := range [][]string{
		{ssh.KeyAlgoED25519},
		{ssh.KeyAlgoECDSA256}, {ssh.KeyAlgoECDSA384}, {ssh.KeyAlgoECDSA521},
		{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
	} {
		line, found, err := scan(ctx, host, algorithms)
		if err != nil {
			last = err // the host may have no key of this kind
			continue
		}
		_, sum, _ := strings.Cut(found, " ")
		if sum == strings.TrimRight(fingerprint, "=") {
			return line, nil
		}
		seen = append(seen, found)
	}
	if len(seen) == 0 {
		return nil, last
	}
	return nil, fmt.Errorf("the fingerprint %s %w: %s has %s", fingerprint, ErrInvalid, host, strings.Join(seen, ", "))
}

// scan returns a host's key for one of the algorithms; nil means any.
func scan(ctx context.Context, host string, algorithms []string) (line []byte, fingerprint string, err error) {
	address := withPort(host)
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	conn, err := proxy.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, "", fmt.Errorf("cannot read the key of %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	enough := errors.New("the key is known")
	_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			line = []byte(knownhosts.Line([]string{knownhosts.Normalize(address)}, key) + "\n")
			fingerprint = key.Type() + " " + ssh.FingerprintSHA256(key)
			return enough
		},
	})
	if line == nil {
		return nil, "", fmt.Errorf("cannot read the key of %s: %w", address, err)
	}
	return line, fingerprint, nil
}
