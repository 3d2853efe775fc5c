// Package reservations counts the namespaces that a tenant's owners create, so that their number never
// exceeds the tenant's quota.
//
// Each Tenant with an admitted namespace has reservations: the names of namespaces that may exist, and
// the open admissions, whose result is not known yet. The webhook reserves a name before it admits the
// namespace, by compare and swap: of two replicas with the same count, one writes and the other counts
// again. An admission ends when its namespace appears with the admission's mark, when the webhook withdraws
// it because the API server gets no answer, or after two minutes. A name is released when it has no open
// admission and the API server reports that the namespace does not exist. So the reservations hold every
// namespace that a cache does not contain yet: see docs/design/owners-namespaces.md.
package reservations

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Mark is the annotation of a namespace with the UID of the admission that created it.
	// Only the webhook writes it, and it only shows that the request has ended.
	Mark = admission.AdmissionMark
	// Lifetime is the time for which an admission counts if its namespace does not appear. A request to the
	// API server ends after a minute, so the namespace exists by then or never will; the rest allows for
	// differences between the clocks of replicas.
	Lifetime = 2 * time.Minute
	// MaxSize is the maximum size of the reservations, in bytes. It leaves room for the Lease's other
	// annotations: Kubernetes limits the annotations of an object to 256 KiB. It suffices for 10,000 names
	// of 20 characters.
	MaxSize = 250_000
)

// Admission is the admission of a namespace that may not exist yet.
type Admission struct {
	// Name is the name of the namespace.
	Name string `json:"name"`
	// Request is the UID of the admission request, and the [Mark] of the namespace.
	Request types.UID `json:"request"`
	// At is the time of the admission.
	At time.Time `json:"at"`
}

// Reservations are the reserved names and open admissions of a Tenant. The methods do not change
// their receiver.
type Reservations struct {
	// Tenant and Generation are the UID and generation of the Tenant at the last decision.
	Tenant     types.UID `json:"tenant"`
	Generation int64     `json:"generation"`
	// Closed is set if the Tenant is being deleted and gets no more namespaces.
	Closed bool `json:"closed,omitempty"`
	// Names are the sorted names of namespaces that may exist and have no open admission.
	Names []string `json:"names,omitempty"`
	// Admitted are the admissions that may not have ended.
	Admitted []Admission `json:"admitted,omitempty"`
}

// IsCurrent reports whether the reservations were written for the current version of a Tenant.
func (l Reservations) IsCurrent(t *v1alpha1.Tenant) bool {
	return l.Tenant == t.UID && l.Generation == t.Generation && !l.Closed
}

// ForTenant returns the reservations for the current version of a Tenant. Admissions for an earlier
// Tenant with the same name still count, because their namespaces may still appear.
func (l Reservations) ForTenant(t *v1alpha1.Tenant) Reservations {
	l.Tenant, l.Generation, l.Closed = t.UID, t.Generation, false
	return l
}

// WithoutEnded returns the reservations without the admissions that have ended, which the function over
// reports. It keeps their names, because their namespaces may exist.
func (l Reservations) WithoutEnded(over func(Admission) bool) Reservations {
	names, left := slices.Clone(l.Names), []Admission(nil)
	for _, a := range l.Admitted {
		if over(a) {
			names = append(names, a.Name)
			continue
		}
		left = append(left, a)
	}
	slices.Sort(names)
	l.Names, l.Admitted = slices.Compact(names), left
	return l
}

// Confirm returns the reservations with the names of the existing namespaces. The caller must read these
// namespaces from the API server after the call of WithoutEnded: otherwise the namespace of an admission
// that ended in between would be missing.
func (l Reservations) Confirm(namespaces []string) Reservations {
	l.Names = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	return l
}

// Admit returns the reservations with another admission.
func (l Reservations) Admit(a Admission) Reservations {
	l.Admitted = append(slices.Clone(l.Admitted), a)
	return l
}

// Without returns the reservations without the admission of a request.
func (l Reservations) Without(request types.UID) Reservations {
	l.Admitted = slices.DeleteFunc(slices.Clone(l.Admitted), func(a Admission) bool { return a.Request == request })
	return l
}

// Counted returns all names that count against the quota: the reserved names and the known
// namespaces.
func (l Reservations) Counted(known []string) map[string]bool {
	counted := make(map[string]bool, len(l.Names)+len(l.Admitted)+1)
	for _, name := range l.Names {
		counted[name] = true
	}
	for _, a := range l.Admitted {
		counted[a.Name] = true
	}
	for _, name := range known {
		counted[name] = true
	}
	return counted
}

// Encode encodes the reservations as JSON. It returns an error if they are longer than [MaxSize].
func (l Reservations) Encode() (string, error) {
	content, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("cannot write down the namespaces: %w", err)
	}
	if len(content) > MaxSize {
		return "", fmt.Errorf("cannot keep count of %d namespaces: their names have to fit into %d bytes; ask the platform team for a second tenant", len(l.Names)+len(l.Admitted), MaxSize)
	}
	return string(content), nil
}

// Decode decodes the result of [Reservations.Encode]. It returns an error if the content is not
// such JSON.
func Decode(content string) (Reservations, error) {
	var l Reservations
	if err := json.Unmarshal([]byte(content), &l); err != nil {
		return Reservations{}, fmt.Errorf("cannot read the namespaces that were written down: %w", err)
	}
	return l, nil
}
