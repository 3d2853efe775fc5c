// Package port reserves ports of 127.0.0.1 for programs that are about to listen on
// them.
//
// A program of the local cluster learns its port from a flag and listens a second or
// more later. Without a reservation the system may give the port to another program
// or to a client's connection meanwhile.
package port

import (
	"fmt"
	"sync"
)

// Reserve reserves a free port until the first call of release. A program can listen on the
// reserved port by its number. On Linux, the system assigns the port to no other socket; elsewhere,
// the port is only reserved against other calls in this process. It returns an error if there is no
// free port.
func Reserve() (number int, release func(), err error) {
	number, release, err = reserve()
	if err != nil {
		return 0, nil, fmt.Errorf("cannot reserve a port of 127.0.0.1: %w", err)
	}
	return number, sync.OnceFunc(release), nil
}
