package githost

import "sync"

// feed carries changes to the one Watch that runs, from whoever made them.
// Without a Watch they are dropped.
type feed struct {
	mu      sync.Mutex
	signal  chan struct{} // nil while nobody watches
	waiting []Change
}

// open begins to collect. It returns false if somebody collects already.
func (f *feed) open() (signal <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signal != nil {
		return nil, false
	}
	f.signal = make(chan struct{}, 1)
	return f.signal, true
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signal, f.waiting = nil, nil
}

// send never blocks.
func (f *feed) send(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	f.mu.Lock()
	if f.signal != nil {
		f.waiting = append(f.waiting, changes...)
	}
	f.mu.Unlock()
	f.wake()
}

// wake makes the watcher look whether anything is new: changes or sources.
func (f *feed) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signal == nil {
		return
	}
	select {
	case f.signal <- struct{}{}:
	default:
	}
}

func (f *feed) take() []Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	changes := f.waiting
	f.waiting = nil
	return changes
}
