package node

import (
	"net"
	"sync"
)

// ports are those that were given to processes. A process listens a second or more
// after its port was found to be free: meanwhile another one must not get it.
type ports struct {
	mu   sync.Mutex
	held map[int]bool
}

func newPorts() *ports { return &ports{held: map[int]bool{}} }

// pick finds a port of loopback that is free now and that no process of the node
// has, and holds it until it is given back. A program of somebody else may take it
// before it is used; the process then fails and is restarted with another one.
func (p *ports) pick() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var tried []net.Listener
	defer func() {
		for _, l := range tried {
			_ = l.Close()
		}
	}()
	for {
		l, err := net.Listen("tcp", net.JoinHostPort(listenHost, "0"))
		if err != nil {
			return 0, err
		}
		// Each stays open until one is found, so that no round finds the same again.
		tried = append(tried, l)
		if port := l.Addr().(*net.TCPAddr).Port; !p.held[port] {
			p.held[port] = true
			return port, nil
		}
	}
}

// giveBack ends the hold of ports at which nothing listens any more.
func (p *ports) giveBack(given []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range given {
		delete(p.held, port)
	}
}
