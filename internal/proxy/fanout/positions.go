package fanout

import (
	"container/list"
	"crypto/sha256"
	"net/url"
	"sync"
)

// maxPositions is the maximum number of points in the cache, and maxVersions the maximum number of
// namespaces in all of them, which take about 100 bytes each.
const maxPositions, maxVersions = 10_000, 200_000

// positions is a cache of the resource version of each namespace, by the resource versions
// from which clients may continue a watch. Events of several namespaces arrive in no common
// order: a client that has seen version 110 of one namespace may not have seen version 105
// of another, so the version alone does not say where to continue.
//
// If a point was evicted, or if another replica has it, the client lists again and loses no
// event.
type positions struct {
	mu     sync.Mutex
	points map[pointKey]*list.Element
	recent list.List // of point, the most recently used first
	held   int       // namespaces in all points
}

type pointKey [sha256.Size]byte

type point struct {
	key pointKey
	at  map[string]string // resource version by namespace
}

// key returns the key of a point: a hash of the identity, the resource, the selectors and
// the resource version.
func (q Request) key(query url.Values, version string) pointKey {
	about := url.Values{}
	for _, name := range []string{"labelSelector", "fieldSelector"} {
		about.Set(name, query.Get(name))
	}
	about.Set("resource", q.Prefix+"/"+q.Resource)
	about.Set("who", q.Identity)
	about.Set("version", version)
	return sha256.Sum256([]byte(about.Encode()))
}

// set stores a point, and evicts the least recently used points above the maximums.
func (p *positions) set(key pointKey, at map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.points == nil {
		p.points = map[pointKey]*list.Element{}
	}
	if old, ok := p.points[key]; ok {
		p.remove(old)
	}
	p.points[key] = p.recent.PushFront(point{key, at})
	p.held += len(at)
	for len(p.points) > maxPositions || p.held > maxVersions && len(p.points) > 1 {
		p.remove(p.recent.Back())
	}
}

func (p *positions) remove(e *list.Element) {
	gone := p.recent.Remove(e).(point)
	delete(p.points, gone.key)
	p.held -= len(gone.at)
}

// get returns a point, or nil if the point is unknown.
func (p *positions) get(key pointKey) map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.points[key]
	if !ok {
		return nil
	}
	p.recent.MoveToFront(found)
	return found.Value.(point).at
}
