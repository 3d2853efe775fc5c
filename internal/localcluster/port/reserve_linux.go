package port

import (
	"errors"
	"syscall"
)

// reserve binds a socket with SO_REUSEADDR and does not listen. Linux never assigns the port
// of a bound socket to another socket. A program that sets SO_REUSEADDR too, as Go programs
// do, can still listen on the port by its number: see socket(7).
func reserve() (int, func(), error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	number, err := bind(socket)
	if err != nil {
		return 0, nil, errors.Join(err, syscall.Close(socket))
	}
	return number, func() { _ = syscall.Close(socket) }, nil
}

func bind(socket int) (int, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}
