package node

import "testing"

// Ports at which nobody listens yet are free for the system, which soon gives one
// twice.
func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	p, given := newPorts(), []int{}
	seen := map[int]bool{}
	for range 1000 {
		port, err := p.pick()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d is given twice, within %d", port, len(given))
		}
		seen[port] = true
		given = append(given, port)
	}
	p.giveBack(given[1:])
	if len(p.held) != 1 || !p.held[given[0]] {
		t.Errorf("%d ports are held after all but %d were given back", len(p.held), given[0])
	}
}
