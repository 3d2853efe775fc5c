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

// positionShare divides both maximums: one user may have a quarter, so that the lists of a user do
// not evict the points of all others.
const positionShare = 4

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
	by     map[string]usage
}

// usage counts the points of a user, and their namespaces.
type usage struct{ points, held int }

type pointKey [sha256.Size]byte

type point struct {
	key     pointKey
	flowKey string            // the quota key of the user
	at      map[string]string // resource version by namespace
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

// set stores a point of a user, and evicts the least recently used points above the maximums. It
// stores no point with more namespaces than one user may have.
func (p *positions) set(flowKey string, key pointKey, at map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.points == nil {
		p.points, p.by = map[pointKey]*list.Element{}, map[string]usage{}
	}
	if old, ok := p.points[key]; ok {
		p.remove(old)
	}
	if len(at) > maxVersions/positionShare {
		return
	}
	p.points[key] = p.recent.PushFront(point{key, flowKey, at})
	p.count(flowKey, 1, len(at))
	for own := p.by[flowKey]; own.points > maxPositions/positionShare || own.held > maxVersions/positionShare; own = p.by[flowKey] {
		p.remove(p.oldest(flowKey))
	}
	for len(p.points) > maxPositions || p.held > maxVersions {
		p.remove(p.recent.Back())
	}
}

func (p *positions) remove(e *list.Element) {
	gone := p.recent.Remove(e).(point)
	delete(p.points, gone.key)
	p.count(gone.flowKey, -1, -len(gone.at))
}

// count adds points of a user, or subtracts them.
func (p *positions) count(flowKey string, points, namespaces int) {
	p.held += namespaces
	u := p.by[flowKey]
	if u = (usage{u.points + points, u.held + namespaces}); u.points == 0 {
		delete(p.by, flowKey)
		return
	}
	p.by[flowKey] = u
}

// oldest returns the least recently used point of a user who has one.
func (p *positions) oldest(flowKey string) *list.Element {
	e := p.recent.Back()
	for e.Value.(point).flowKey != flowKey {
		e = e.Prev()
	}
	return e
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
