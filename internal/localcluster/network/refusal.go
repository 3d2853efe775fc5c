package network

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotMapped says that a host of the outside world has no place here.
var ErrNotMapped = errors.New("not mapped")

// ErrForbidden says that an address belongs to this machine or its link.
var ErrForbidden = errors.New("addresses of this machine cannot be reached from the local cluster")

// NotMappedError names the host that was asked for and the way out.
type NotMappedError struct {
	// Host is the host as it was asked for, without a port.
	Host string
}

func (e *NotMappedError) Error() string {
	return fmt.Sprintf("%s is not mapped (there is no network here: add --map https://%s/...=DIR, or --online)", e.Host, e.Host)
}

// Is makes errors.Is(err, ErrNotMapped) true.
func (e *NotMappedError) Is(target error) bool { return target == ErrNotMapped }

// Refusal is an address that was asked for and is not mapped, or forbidden.
type Refusal struct {
	// Address is host:port, or host and path if only the path of a mapped
	// host is missing. A very long one is cut.
	Address string
	// Count is how often it was asked for.
	Count int
	// First is when it was asked for first.
	First time.Time
	// Err is the reason that was given last. It is ErrNotMapped or
	// ErrForbidden.
	Err error
}

// What a process can make us remember is bounded: so many addresses of so many
// bytes. More are refused and logged, but not counted.
const (
	maxRefusals      = 1000
	maxRefusedLength = 300
)

// Refused returns the addresses that were asked for in vain, in the order in
// which they were asked for first; at most a thousand.
func (n *Network) Refused() []Refusal {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := make([]Refusal, 0, len(n.refused))
	for _, r := range n.refused {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Refusal) int { return a.First.Compare(b.First) })
	return all
}

// refuse notes that an address could not be reached. What may well work later,
// such as a Service without a ready Pod, is logged alone.
func (n *Network) refuse(address string, err error) {
	if len(address) > maxRefusedLength {
		address = address[:maxRefusedLength] + "..."
	}
	n.cfg.Log.Warn("refused", "address", address, "reason", err)
	if !errors.Is(err, ErrNotMapped) && !errors.Is(err, ErrForbidden) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.refused[address]
	if r == nil {
		if len(n.refused) >= maxRefusals {
			return
		}
		r = &Refusal{Address: address, First: time.Now()}
		n.refused[address] = r
	}
	r.Count, r.Err = r.Count+1, err
}
