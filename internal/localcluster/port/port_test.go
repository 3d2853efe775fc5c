package port

import (
	"net"
	"runtime"
	"strconv"
	"testing"
)

// TestReserve checks that the system assigns a reserved port to no listener and no
// client, and that a program can listen on the port by its number.
func TestReserve(t *testing.T) {
	t.Parallel()
	const ports, others = 200, 2000
	reserved := map[int]bool{}
	for range ports {
		number, release, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		if reserved[number] {
			t.Fatalf("port %d is reserved twice", number)
		}
		reserved[number] = true
	}
	if runtime.GOOS == "linux" {
		goesToNobody(t, reserved, others)
	}
	for number := range reserved {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the program cannot listen on its port: %v", err)
		}
		if second, err := net.Listen("tcp", address); err == nil {
			_ = second.Close()
			t.Errorf("two programs listen on port %d", number)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// goesToNobody opens listeners and connections, and checks that none of them has a
// reserved port.
func goesToNobody(t *testing.T, reserved map[int]bool, others int) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for range others {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []net.Addr{l.Addr(), c.LocalAddr()} {
			if number := address.(*net.TCPAddr).Port; reserved[number] {
				t.Errorf("reserved port %d was given away", number)
			}
		}
		_, _ = l.Close(), c.Close()
	}
}

// TestRelease checks that a released port is free again.
func TestRelease(t *testing.T) {
	t.Parallel()
	number, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	release()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number})
	if err != nil {
		t.Fatalf("a released port is not free: %v", err)
	}
	_ = l.Close()
}
