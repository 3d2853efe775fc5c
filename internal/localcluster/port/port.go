// Package port reserves ports of 127.0.0.1 for programs that are about to listen on them.
//
// A program of the local cluster learns its port from a flag and listens a second or
// more later. Without a reservation the system may give the port to another program or
// to a client's connection meanwhile.
package port

import (
	"fmt"
	"sync"
)

// Reserve reserves a free port until release is called, once or more often. The system gives
// a reserved port to nobody who asks for any port; a program that is told its number can
// listen on it.
func Reserve() (number int, release func(), err error) {
	number, release, err = reserve()
	if err != nil {
		return 0, nil, fmt.Errorf("cannot reserve a port of 127.0.0.1: %w", err)
	}
	return number, sync.OnceFunc(release), nil
}
