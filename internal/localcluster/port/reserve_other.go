//go:build !linux

package port

import (
	"net"
	"sync"
)

// reserved are the ports that this process has reserved.
var reserved sync.Map

// reserve finds a free port that no part of this process has reserved. Other processes may
// still get the port: only Linux can keep it from them.
func reserve() (int, func(), error) {
	// Each listener stays open until a port is found, so that no iteration gets the
	// same port again.
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, nil, err
		}
		defer l.Close()
		number := l.Addr().(*net.TCPAddr).Port
		if _, taken := reserved.LoadOrStore(number, true); !taken {
			return number, func() { reserved.Delete(number) }, nil
		}
	}
}
