package reservations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// content is the annotation of the Lease with the reservations. The manager needs few rights for
	// Leases: unlike ConfigMaps, the Leases of a namespace hold neither configuration nor secrets.
	content = "tenure.dev/ledger"
	// prefix begins the names of the Leases; the tenant's name follows.
	prefix = "tenure-ledger-"
	// fieldOwner is the field manager of the Leases.
	fieldOwner = "tenure-webhook"
	// remembered is the minimum time for which a Keeper remembers the mark of a namespace. It only has to
	// be longer than [Lifetime].
	remembered = 5 * Lifetime
)

// ErrChanged means that another replica has changed the reservations since they were read. Read them again.
var ErrChanged = errors.New("another replica has changed the reservations")

// Record holds reservations that were read or written.
type Record struct {
	// Reservations is the content of the Lease.
	Reservations
	// lease is the Lease with the reservations, or nil if there is none yet.
	lease *coordinationv1.Lease
}

// Keeper reads and writes the reservations for one replica, and knows which admissions have ended. The zero
// value with Client, Namespace and Now is ready to use. It is safe for concurrent use.
type Keeper struct {
	// Client reads and writes through the API server, without a cache.
	Client client.Client
	// Namespace is the namespace of the Leases.
	Namespace string
	// Now returns the current time.
	Now func() time.Time

	mu    sync.Mutex
	known map[string]*Record
	// seen are the marks of the namespaces that appeared: the first set since the time since, the second
	// before it.
	seen  [2]map[types.UID]bool
	since time.Time
}

// Known returns the record that this replica last read or wrote, or nil. The record may be
// outdated; then [Keeper.Write] returns [ErrChanged].
func (k *Keeper) Known(tenant string) *Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[tenant]
}

// Forget removes a deleted tenant from the memory of this replica.
func (k *Keeper) Forget(tenant string) { k.keep(tenant, nil) }

func (k *Keeper) keep(tenant string, r *Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r == nil {
		delete(k.known, tenant)
		return
	}
	if k.known == nil {
		k.known = map[string]*Record{}
	}
	k.known[tenant] = r
}

// Read reads a tenant's reservations from the API server. The record is empty if there are none.
// It returns an error if the Lease cannot be read, or if its content cannot be decoded.
func (k *Keeper) Read(ctx context.Context, tenant string) (*Record, error) {
	lease := &coordinationv1.Lease{}
	err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: prefix + tenant}, lease)
	if apierrors.IsNotFound(err) {
		k.Forget(tenant)
		return &Record{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the reservations of tenant %s: %w", tenant, err)
	}
	l, err := Decode(lease.Annotations[content])
	if err != nil {
		return nil, fmt.Errorf("the Lease %s/%s does not hold the reservations of tenant %s, delete it: %w", k.Namespace, lease.Name, tenant, err)
	}
	r := &Record{Reservations: l, lease: lease}
	k.keep(tenant, r)
	return r, nil
}

// Write replaces the reservations in before by l. It returns [ErrChanged] if they have changed since they
// were read, and another error if the reservations are too large or the API server refuses the write.
func (k *Keeper) Write(ctx context.Context, t *v1alpha1.Tenant, before *Record, l Reservations) error {
	encoded, err := l.Encode()
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: prefix + t.Name}}
	write := func() error { return k.Client.Create(ctx, lease, client.FieldOwner(fieldOwner)) }
	if before.lease != nil {
		lease = before.lease.DeepCopy()
		write = func() error { return k.Client.Update(ctx, lease, client.FieldOwner(fieldOwner)) }
	}
	if len(lease.ManagedFields) > 0 {
		// There is one field manager, so managed fields are not needed. An empty entry
		// removes them, which makes each write cheaper.
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	annotations := maps.Clone(lease.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[content] = encoded
	lease.Annotations = annotations
	lease.Labels = map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelTenant: t.Name}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Tenant", Name: t.Name, UID: t.UID}}
	if err := write(); err != nil {
		// The write may have succeeded in spite of the error.
		k.Forget(t.Name)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			return ErrChanged
		}
		return fmt.Errorf("cannot write the reservations of tenant %s: %w", t.Name, err)
	}
	k.keep(t.Name, &Record{Reservations: l, lease: lease})
	return nil
}

// Withdraw removes the admission of a request that created no namespace and will create none. It does
// nothing if there is no such admission, or if the reservations belong to another Tenant with the same
// name. It returns the errors of [Keeper.Read] and [Keeper.Write].
func (k *Keeper) Withdraw(ctx context.Context, t *v1alpha1.Tenant, request types.UID) error {
	for {
		r, err := k.Read(ctx, t.Name)
		if err != nil {
			return err
		}
		left := r.Without(request)
		if r.Tenant != t.UID || len(left.Admitted) == len(r.Admitted) {
			return nil
		}
		if err := k.Write(ctx, t, r, left); !errors.Is(err, ErrChanged) {
			return err
		}
	}
}

// Ended reports whether the request of an admission has ended. An ended admission stays ended.
func (k *Keeper) Ended(a Admission) bool {
	if !k.Now().Before(a.At.Add(Lifetime)) {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen[0][a.Request] || k.seen[1][a.Request]
}

// MarkSeen records that an admitted namespace exists or existed, so that its request has ended.
func (k *Keeper) MarkSeen(namespace client.Object) {
	mark := types.UID(namespace.GetAnnotations()[Mark])
	now := k.Now()
	// After a start, the cache reports all namespaces. The admissions of old namespaces ended long ago.
	if mark == "" || namespace.GetCreationTimestamp().Add(remembered).Before(now) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[0] == nil || now.Sub(k.since) > remembered {
		k.seen = [2]map[types.UID]bool{{}, k.seen[0]}
		k.since = now
	}
	k.seen[0][mark] = true
}

// Close stops the admission of namespaces for a Tenant that is being deleted, also by replicas
// that have not seen the deletion yet. It returns the name of an admitted namespace that may still
// appear, or "". It returns the errors of [Keeper.Read] and [Keeper.Write].
func (k *Keeper) Close(ctx context.Context, t *v1alpha1.Tenant) (string, error) {
	r, err := k.Read(ctx, t.Name)
	if err != nil {
		return "", err
	}
	// If there are no reservations yet, an empty object prevents other replicas from
	// creating it.
	settled := r.WithoutEnded(k.Ended)
	if !r.Closed || r.Tenant != t.UID {
		settled = settled.ForTenant(t)
		settled.Closed = true
		if err := k.Write(ctx, t, r, settled); err != nil {
			return "", err
		}
	}
	for _, a := range settled.Admitted {
		return a.Name, nil
	}
	return "", nil
}
