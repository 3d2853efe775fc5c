package network

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrNotMapped reports that an outside host is not mapped to a folder.
var ErrNotMapped = errors.New("not mapped")

// ErrForbidden reports that an address belongs to this machine or its link.
var ErrForbidden = errors.New("addresses of this machine cannot be reached from the local cluster")

// NotMappedError names the requested host and the flag that would map it.
type NotMappedError struct {
	// Host is the requested host, without a port.
	Host string
}

// keylessHost is the suffix of Sigstore's public hosts, which have the keys of keyless signatures and
// the log of these.
const keylessHost = ".sigstore.dev"

func (e *NotMappedError) Error() string {
	if strings.HasSuffix(e.Host, keylessHost) {
		return e.Host + " is not here, so that keyless signatures cannot be verified: the sources that need it are assumed, unless spec.verify.trustedRootSecretRef names a Secret with the keys"
	}
	return fmt.Sprintf("%s is not mapped (there is no network here: add --map https://%s/...=DIR, or --online)", e.Host, e.Host)
}

// Is makes errors.Is(err, ErrNotMapped) true.
func (e *NotMappedError) Is(target error) bool { return target == ErrNotMapped }

// Refusal is a requested address that is not mapped, or forbidden.
type Refusal struct {
	// Address is host:port, or host and path if only the path of a mapped host is
	// missing. A long address is truncated.
	Address string
	// Count is the number of requests for the address.
	Count int
	// First is the time of the first request.
	First time.Time
	// Err is the reason for the latest refusal. It is ErrNotMapped or ErrForbidden.
	Err error
}

// These limits bound the memory for refusals, which processes can cause: the number
// of addresses and the bytes of an address. Further addresses are refused and
// logged, but not counted.
const (
	maxRefusals      = 1000
	maxRefusedLength = 300
)

// Refused returns the refused addresses, in the order of their first requests; at
// most a thousand.
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

// refuse logs that an address could not be reached. It counts the address unless it
// may be reachable later, such as a Service without a ready Pod.
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
