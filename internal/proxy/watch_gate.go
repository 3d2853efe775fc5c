package proxy

import (
	"context"
	"fmt"
	"sync"
)

// maxOpening and maxOpeningEach are the maximum numbers of watches that the proxy opens at
// the API server at the same time, for all users and for one user. To the API server all
// these requests come from the proxy. By default it starts about 80 of them at the same time
// (the shares of the priority level), queues the others without regard to the user, and
// refuses them after a quarter of the request timeout. In the proxy a user waits only for
// the user's own requests.
const maxOpening, maxOpeningEach = 32, 8

// watchGate limits the number of concurrent requests, in total and for each user, so that the
// requests of one user do not delay the requests of another.
type watchGate struct {
	all  chan struct{}
	each int

	mu    sync.Mutex
	users map[string]*queue
}

// queue holds the running and waiting requests of one user.
type queue struct {
	in   chan struct{}
	size int // running and waiting requests
}

func newGate(all, each int) *watchGate {
	return &watchGate{all: make(chan struct{}, all), each: each, users: map[string]*queue{}}
}

// enter waits until both limits allow one more request of a user. The caller calls leave
// once. enter returns the context's error if the context ends before.
func (g *watchGate) enter(ctx context.Context, who string) (leave func(), err error) {
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

func (g *watchGate) join(who string) *queue {
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

func (g *watchGate) quit(who string, q *queue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.size--; q.size == 0 {
		delete(g.users, who)
	}
}
