package proxy

import (
	"sync"
	"time"
)

// coalesceDelay is the delay after a change during which further changes are collected
// before the waiting goroutines wake up: the objects of a tenant change together.
const coalesceDelay = 10 * time.Millisecond

// changeSignal wakes all goroutines that wait for a change.
type changeSignal struct {
	mu      sync.Mutex
	next    chan struct{}
	pending bool
}

func newSignal() *changeSignal { return &changeSignal{next: make(chan struct{})} }

// changed returns a channel that is closed after the next change. Call it before reading the
// state that may change.
func (s *changeSignal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// fire announces a change. The waiting goroutines wake up within 10 ms.
func (s *changeSignal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending {
		return
	}
	s.pending = true
	time.AfterFunc(coalesceDelay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.next)
		s.next, s.pending = make(chan struct{}), false
	})
}
