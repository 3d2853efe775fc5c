package network

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"time"
)

// These are the parts of SOCKS 5 (RFC 1928) that go-git's SSH transport uses: a
// password (RFC 1929), CONNECT, and the three forms of addresses. Server libraries
// have dialers and rules of their own, but this package needs its own.
const (
	socksVersion       = 5
	socksPassword      = 2
	socksNoMethod      = 0xff
	socksAuthVersion   = 1
	socksAuthFailed    = 1
	socksConnect       = 1
	socksIPv4          = 1
	socksDomain        = 3
	socksIPv6          = 4
	socksOK            = 0
	socksNotAllowed    = 2
	socksNoCommand     = 7
	socksNoAddressType = 8
)

// socksPatience limits the time for the greeting and the request.
const socksPatience = 10 * time.Second

// acceptPause is the delay after a failed Accept, for example when the system
// provides no more connections. http.Server waits too.
const acceptPause = 50 * time.Millisecond

func (n *Network) serveSOCKS(ctx context.Context, listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil && n.clients.begin():
			go func() {
				defer n.clients.serving.Done()
				n.socksConn(ctx, conn)
			}()
		case err == nil:
			_ = conn.Close()
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			n.cfg.Log.Warn("cannot accept a connection", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

// socksConn serves one client. It closes the connection or passes it on.
func (n *Network) socksConn(ctx context.Context, conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(socksPatience))
	host, port, err := socksRequest(conn, n.secret)
	if err != nil {
		n.cfg.Log.Debug("a SOCKS client was not understood", "error", err)
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	d, there, err := n.connectTo(ctx, host, port)
	if err != nil {
		n.refuse(net.JoinHostPort(host, strconv.Itoa(port)), err)
		_ = socksReply(conn, socksNotAllowed)
		_ = conn.Close()
		return
	}
	if err := socksReply(conn, socksOK); err != nil {
		n.cfg.Log.Debug("a SOCKS client is gone", "error", err)
	}
	n.join(conn, d, there)
}

var errSOCKS = errors.New("not a SOCKS 5 CONNECT request with the password of this proxy")

// socksRequest reads the greeting and the request of a client. It writes the answers
// that the protocol requires in between, and the answer to a refused request.
func socksRequest(conn io.ReadWriter, secret string) (host string, port int, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(conn, head); err != nil || head[0] != socksVersion {
		return "", 0, errors.Join(errSOCKS, err)
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(conn, methods); err != nil {
		return "", 0, errors.Join(errSOCKS, err)
	}
	method := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksPassword {
			method = socksPassword
		}
	}
	if _, err := conn.Write([]byte{socksVersion, method}); err != nil || method == socksNoMethod {
		return "", 0, errors.Join(errSOCKS, err)
	}
	if err := socksLogin(conn, secret); err != nil {
		return "", 0, errors.Join(errSOCKS, err)
	}
	request := make([]byte, 4)
	if _, err := io.ReadFull(conn, request); err != nil || request[0] != socksVersion {
		return "", 0, errors.Join(errSOCKS, err)
	}
	if request[1] != socksConnect {
		return "", 0, errors.Join(errSOCKS, socksReply(conn, socksNoCommand))
	}
	size := map[byte]int{socksIPv4: net.IPv4len, socksIPv6: net.IPv6len}[request[3]]
	if request[3] == socksDomain {
		length := make([]byte, 1)
		if _, err := io.ReadFull(conn, length); err != nil {
			return "", 0, errors.Join(errSOCKS, err)
		}
		size = int(length[0])
	}
	if size == 0 {
		return "", 0, errors.Join(errSOCKS, socksReply(conn, socksNoAddressType))
	}
	address := make([]byte, size+2)
	if _, err := io.ReadFull(conn, address); err != nil {
		return "", 0, errors.Join(errSOCKS, err)
	}
	host = string(address[:size])
	if request[3] != socksDomain {
		host = net.IP(address[:size]).String()
	}
	port = int(binary.BigEndian.Uint16(address[size:]))
	if port == 0 {
		return "", 0, errors.Join(errSOCKS, socksReply(conn, socksNotAllowed))
	}
	return host, port, nil
}

// socksLogin reads a user name and a password and returns an error if they are
// wrong.
func socksLogin(conn io.ReadWriter, secret string) error {
	version := make([]byte, 1)
	if _, err := io.ReadFull(conn, version); err != nil || version[0] != socksAuthVersion {
		return errors.Join(errSOCKS, err)
	}
	var said [2][]byte
	for i := range said {
		length := make([]byte, 1)
		if _, err := io.ReadFull(conn, length); err != nil {
			return err
		}
		said[i] = make([]byte, length[0])
		if _, err := io.ReadFull(conn, said[i]); err != nil {
			return err
		}
	}
	if subtle.ConstantTimeCompare(said[0], []byte(proxyUser))&subtle.ConstantTimeCompare(said[1], []byte(secret)) != 1 {
		_, err := conn.Write([]byte{socksAuthVersion, socksAuthFailed})
		return errors.Join(errors.New("wrong password"), err)
	}
	_, err := conn.Write([]byte{socksAuthVersion, socksOK})
	return err
}

// socksReply answers a request. The bound address in the answer is zero, because no
// client here uses it.
func socksReply(conn io.Writer, code byte) error {
	_, err := conn.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}
