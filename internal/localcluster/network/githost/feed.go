package githost

import "sync"

// feed passes changes to the running Watch. Without a Watch it drops them.
type feed struct {
	mu      sync.Mutex
	signal  chan struct{} // nil while no Watch runs
	waiting []Change
}

// open starts to collect changes. It returns false if a Watch collects them already.
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

// send adds changes to the feed. It never blocks.
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

// wake makes the Watch check for new changes and new sources.
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
