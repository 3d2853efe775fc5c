package proxy

import (
	"context"
	"fmt"
	"sync"
)

// How many watches are being opened at the API server at a time: together, and for
// one user. To the API server all of them are the proxy's, and it lets so many begin
// at once as the shares of its priority level are: some 80, if nothing has been
// changed. Those beyond it queue there behind each other whoever they are for, and
// are refused after a quarter of the time of a request. Here everybody waits for
// their own.
const maxOpening, maxOpeningEach = 32, 8

// gate lets some at a time in, and of each user fewer, so that nobody waits behind
// all of what another has asked for.
type gate struct {
	all  chan struct{}
	each int

	mu    sync.Mutex
	users map[string]*queue
}

// queue is what one user has before the gate.
type queue struct {
	in   chan struct{}
	size int // those in it and those who wait
}

func newGate(all, each int) *gate {
	return &gate{all: make(chan struct{}, all), each: each, users: map[string]*queue{}}
}

// enter waits until somebody may go in. Whoever got in calls leave, once. It fails
// when the context ends before.
func (g *gate) enter(ctx context.Context, who string) (leave func(), err error) {
	q := g.join(who)
	defer func() {
		if err != nil {
			g.quit(who, q)
			err = fmt.Errorf("cannot open the watch: %w", err)
		}
	}()
	select {
	case q.in <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case g.all <- struct{}{}:
	case <-ctx.Done():
		<-q.in
		return nil, context.Cause(ctx)
	}
	return func() {
		<-g.all
		<-q.in
		g.quit(who, q)
	}, nil
}

func (g *gate) join(who string) *queue {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.users[who]
	if q == nil {
		q = &queue{in: make(chan struct{}, g.each)}
		g.users[who] = q
	}
	q.size++
	return q
}

func (g *gate) quit(who string, q *queue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.size--; q.size == 0 {
		delete(g.users, who)
	}
}
