package fanout

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

func versions(n int) map[string]string {
	at := map[string]string{}
	for i := range n {
		at[fmt.Sprint(i)] = "1"
	}
	return at
}

// TestBoundsOfPositions checks that the memory for the points of watches does not grow with the
// number of namespaces.
func TestBoundsOfPositions(t *testing.T) {
	t.Parallel()
	const namespaces = 1000
	var p positions
	at := versions(namespaces)
	for i := range 2 * maxVersions / namespaces {
		p.set(fmt.Sprint(i%8), pointKey{byte(i), byte(i >> 8)}, at)
	}
	if got := len(p.points); got != maxVersions/namespaces || p.held != maxVersions {
		t.Errorf("%d points with %d namespaces are kept", got, p.held)
	}
	for namespaces, want := range map[int]int{1: maxTrail, 100: maxTrailed / 100, 10 * maxTrailed: 1} {
		w := &watcher{at: versions(namespaces)}
		for range 2 * maxTrail {
			w.mark()
		}
		if got := len(w.trail); got != want {
			t.Errorf("a watch of %d namespaces keeps %d points, want %d", namespaces, got, want)
		}
	}
}

// TestShareOfPositions checks that one user cannot evict the points of another user.
func TestShareOfPositions(t *testing.T) {
	t.Parallel()
	for _, namespaces := range []int{1, 1000, 2 * maxVersions} {
		var p positions
		first := pointKey{1}
		p.set("modest", first, versions(3))
		at := versions(namespaces)
		for i := range maxPositions + 1 {
			p.set("greedy", pointKey{2, byte(i), byte(i >> 8)}, at)
		}
		if p.get(first) == nil {
			t.Errorf("points of %d namespaces evict those of another user", namespaces)
		}
		greedy := p.by["greedy"]
		want := min(maxPositions/positionShare, maxVersions/positionShare/namespaces)
		if greedy.points != want || greedy.held != want*namespaces {
			t.Errorf("one user has %d points with %d namespaces", greedy.points, greedy.held)
		}
		if len(p.points) != greedy.points+1 || p.held != greedy.held+3 || len(p.by) > 2 {
			t.Errorf("%d points with %d namespaces are counted for %d users", len(p.points), p.held, len(p.by))
		}
	}
}

// TestDecoderForgets checks that a Decoder returns events of all sizes in order, and does not keep
// the memory of a large one.
func TestDecoderForgets(t *testing.T) {
	t.Parallel()
	var sizes []int
	var body strings.Builder
	for _, size := range []int{1, maxKept, 10 * maxKept, 2, 3, 5 * maxKept, 6 * maxKept, 1} {
		sizes = append(sizes, size)
		fmt.Fprintf(&body, `{"type":"ADDED","object":"%s"}`+"\n", strings.Repeat("x", size))
	}
	d := NewDecoder(strings.NewReader(body.String()))
	for i, size := range sizes {
		d.wait()
		before := d.json
		next, err := d.Next()
		if err != nil || next.Type != watch.Added || len(next.Object) != size+2 {
			t.Fatalf("event %d: got %s of %d bytes, %v", i, next.Type, len(next.Object), err)
		}
		if forgets := d.json != before; forgets != (size+2 > maxKept) {
			t.Errorf("event %d of %d bytes: the memory is dropped: %v", i, size, forgets)
		}
	}
	if _, err := d.Next(); err == nil {
		t.Error("there is another event")
	}
}
