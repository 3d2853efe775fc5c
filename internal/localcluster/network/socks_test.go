package network

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

type readWriter struct {
	io.Reader
	io.Writer
}

// greeting offers and sends a password, welcome is the answer.
const (
	greeting = "\x05\x01\x02\x01\x06tenure\x06secret"
	welcome  = "\x05\x02\x01\x00"
)

func TestSOCKSRequest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, sent, host string
		port               int
		answer             string
		fails              bool
	}{
		{"a name", greeting + "\x05\x01\x00\x03\x0bexample.com\x00\x16", "example.com", 22, welcome, false},
		{"an IPv4 address", greeting + "\x05\x01\x00\x01\xc6\x12\x00\x05\x01\xbb", "198.18.0.5", 443, welcome, false},
		{"an IPv6 address", greeting + "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x16", "::1", 22, welcome, false},
		{"one of several methods", "\x05\x02\x00\x02\x01\x06tenure\x06secret\x05\x01\x00\x03\x01a\x00\x16", "a", 22, welcome, false},
		{"no password", "\x05\x01\x00\x05\x01\x00\x03\x01a\x00\x16", "", 0, "\x05\xff", true},
		{"a wrong password", "\x05\x01\x02\x01\x06tenure\x06wrongs\x05\x01\x00\x03\x01a\x00\x16", "", 0, "\x05\x02\x01\x01", true},
		{"SOCKS 4", "\x04\x01\x00\x16", "", 0, "", true},
		{"BIND is not served", greeting + "\x05\x02\x00\x03\x01a\x00\x16", "", 0, welcome + "\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", true},
		{"an unknown form of address", greeting + "\x05\x01\x00\x02\x01a\x00\x16", "", 0, welcome + "\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00", true},
		{"an empty name", greeting + "\x05\x01\x00\x03\x00\x00\x16", "", 0, welcome + "\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00", true},
		{"port 0", greeting + "\x05\x01\x00\x03\x01a\x00\x00", "", 0, welcome + "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", true},
		{"an end in the middle", greeting + "\x05\x01\x00\x03\x05a", "", 0, welcome, true},
	} {
		var answer bytes.Buffer
		host, port, err := socksRequest(readWriter{strings.NewReader(tc.sent), &answer}, "secret")
		if host != tc.host || port != tc.port || (err != nil) != tc.fails || answer.String() != tc.answer {
			t.Errorf("%s: got %q, %d, %v and the answer %q, want %q, %d and %q", tc.reason, host, port, err, answer.String(), tc.host, tc.port, tc.answer)
		}
	}
}

func FuzzSOCKSRequest(f *testing.F) {
	f.Add([]byte(greeting + "\x05\x01\x00\x03\x0bexample.com\x00\x16"))
	f.Add([]byte(greeting + "\x05\x01\x00\x01\xc6\x12\x00\x05\x01\xbb"))
	f.Add([]byte("\x05\xff"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		host, port, err := socksRequest(readWriter{bytes.NewReader(sent), io.Discard}, "secret")
		if err != nil {
			if host != "" || port != 0 {
				t.Errorf("%q, %d together with %v", host, port, err)
			}
			return
		}
		if host == "" || port < 1 || port > 65535 {
			t.Errorf("accepted %q, %d", host, port)
		}
		var tail [2]byte
		binary.BigEndian.PutUint16(tail[:], uint16(port))
		if !bytes.Contains(sent, tail[:]) {
			t.Errorf("the port %d was not sent", port)
		}
	})
}

// viaSOCKS opens a connection to a name and returns the proxy's answer code.
func (r *running) viaSOCKS(host string, port uint16) (net.Conn, byte) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.socks.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	request := append([]byte("\x05\x01\x02\x01\x06tenure"+string(rune(len(r.secret)))+r.secret+"\x05\x01\x00\x03"), byte(len(host)))
	request = binary.BigEndian.AppendUint16(append(request, host...), port)
	if _, err := conn.Write(request); err != nil {
		r.t.Fatal(err)
	}
	answer := make([]byte, len(welcome)+10)
	if _, err := io.ReadFull(conn, answer); err != nil {
		r.t.Fatal(err)
	}
	return conn, answer[len(welcome)+1]
}

// TestSSH checks that port 22 serves SSH before the client sends a byte, and that
// other ports serve SSH to clients that begin with SSH's greeting. The handler
// receives the host, with the port unless it is 22.
func TestSSH(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("example.com", "", say("root"))
	n.HandleSSH("example.com:2222", func(conn net.Conn, host string) {
		_, _ = io.WriteString(conn, "for "+host)
	})
	n.Handle("http-only.example.com", "", say("root"))
	for _, tc := range []struct {
		reason, host string
		port         uint16
		say, hear    string
	}{
		{"the server may speak first at port 22", "example.com", 22, "", "for example.com"},
		{"a name in capitals", "Example.COM", 22, "", "for example.com"},
		{"SSH at another port is known by its greeting", "example.com", 2222, "SSH-2.0-go\r\n", "for example.com:2222"},
		{"HTTP at another port", "example.com", 2222, "GET /x HTTP/1.0\r\nHost: example.com\r\n\r\n", "root HTTP/1.0 example.com/x"},
		{"a host without SSH hangs up", "http-only.example.com", 22, "", ""},
	} {
		conn, code := n.viaSOCKS(tc.host, tc.port)
		if code != socksOK {
			t.Errorf("%s: the proxy answered %d", tc.reason, code)
			continue
		}
		if _, err := io.WriteString(conn, tc.say); err != nil {
			t.Fatal(err)
		}
		// A server that ends before it has read everything resets the connection.
		heard, _ := io.ReadAll(conn)
		if !strings.HasSuffix(string(heard), tc.hear) || tc.hear == "" && len(heard) > 0 {
			t.Errorf("%s: heard %q, want %q", tc.reason, heard, tc.hear)
		}
	}
	conn, err := n.viaProxy("example.com:22")
	if err != nil {
		t.Fatal(err)
	}
	if heard, _ := io.ReadAll(conn); string(heard) != "for example.com" {
		t.Errorf("over CONNECT: heard %q", heard)
	}
	for _, host := range []string{"github.com", "127.0.0.1", "localhost"} {
		if _, code := n.viaSOCKS(host, 22); code != socksNotAllowed {
			t.Errorf("%s: the proxy answered %d, want %d", host, code, socksNotAllowed)
		}
	}
}
