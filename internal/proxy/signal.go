package proxy

import (
	"sync"
	"time"
)

// settle is how long changes are gathered before those who wait for one are woken:
// the objects of a tenant come and go together.
const settle = 10 * time.Millisecond

// signal wakes all who wait for a change.
type signal struct {
	mu      sync.Mutex
	next    chan struct{}
	pending bool
}

func newSignal() *signal { return &signal{next: make(chan struct{})} }

// changed returns a channel that is closed after the next change. Take it before
// looking at what may change.
func (s *signal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// fire says that something has changed. Those who wait hear of it within 10 ms.
func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending {
		return
	}
	s.pending = true
	time.AfterFunc(settle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.next)
		s.next, s.pending = make(chan struct{}), false
	})
}
