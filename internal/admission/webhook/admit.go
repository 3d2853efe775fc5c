package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// withdrawTimeout is the maximum duration of the withdrawal of an admission. It equals the time that the
// API server waits for a decision.
const withdrawTimeout = 5 * time.Second

// errDoubt means that the data of this replica does not suffice for a decision.
var errDoubt = errors.New("the API server has to be asked")

// admit decides for a tenant, and writes the namespace into its reservations. It begins with the data of
// this replica: the Tenant of the cache, and the reservations if they were written for the same version of
// the Tenant. If the reservations are outdated, their write fails. Before admit refuses a request, it reads
// all data from the API server.
func (h *Handler) admit(ctx context.Context, name string, q *question, last **look) (*corev1.Namespace, error) {
	before, live := h.Reservations.Known(name), false
	for range maxAttempts {
		var t *v1alpha1.Tenant
		var d *Decision
		var err error
		if live {
			t, before, d, err = h.byServer(ctx, name, q, last)
		} else {
			t, before, d, err = h.byCache(ctx, name, q, before)
		}
		if refusal := (*Refusal)(nil); !live && (errors.As(err, &refusal) || errors.Is(err, errDoubt)) {
			live = true
			continue
		}
		if err != nil {
			return nil, err
		}
		if h.Refuses != nil {
			why, err := h.Refuses(ctx, q.user, q.groups, d.Namespace)
			if err != nil {
				return nil, err
			}
			if why != "" {
				return nil, refuse("%s", why)
			}
		}
		if q.dryRun {
			return d.Namespace, nil
		}
		if err := h.absent(ctx, q.namespace.Name); err != nil {
			return nil, err
		}
		err = h.Reservations.Write(ctx, t, before, d.Reserved)
		if errors.Is(err, reservations.ErrChanged) {
			before = nil
			continue
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, h.withdraw(ctx, t, q.request))
		}
		return d.Namespace, nil
	}
	return nil, fmt.Errorf("cannot admit the namespace %s: the reservations of tenant %s change all the time; try again", q.namespace.Name, name)
}

// withdraw removes an admission if the API server does not create the namespace, because it gets an error
// or has stopped waiting. Otherwise the namespace would count for two minutes, and the deletion of the
// tenant would wait for it.
func (h *Handler) withdraw(ctx context.Context, t *v1alpha1.Tenant, request types.UID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	return h.Reservations.Withdraw(ctx, t, request)
}

// absent returns an error if a namespace exists. The API server would refuse to create it after the webhook
// has admitted it. Then nothing would end the admission, and the deletion of the tenant would wait for the
// namespace.
func (h *Handler) absent(ctx context.Context, name string) error {
	for _, from := range []client.Reader{h.Client, h.APIReader} {
		err := from.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the namespace %s: %w", name, err)
		}
	}
	return apierrors.NewAlreadyExists(corev1.Resource("namespaces"), name)
}

// byCache decides from the cache and the last known reservations. It returns errDoubt if they do not
// suffice.
func (h *Handler) byCache(ctx context.Context, name string, q *question, before *reservations.Record) (*v1alpha1.Tenant, *reservations.Record, *Decision, error) {
	t := &v1alpha1.Tenant{}
	err := h.Client.Get(ctx, client.ObjectKey{Name: name}, t)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil, errDoubt
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot read the tenant %s: %w", name, err)
	}
	existing, err := namespaces(ctx, h.Client, name, client.MatchingFields{indexTenant: name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, nil, err
	}
	counts := !q.dryRun
	if before == nil && counts {
		if before, err = h.Reservations.Read(ctx, name); err != nil {
			return nil, nil, nil, err
		}
	}
	s := Situation{Tenant: t, Profile: q.profile, Owner: q.owner, Existing: append(existing, t.Status.Namespaces...), Request: q.request, Another: q.another, Now: h.Now()}
	if before != nil {
		s.Reserved = before.WithoutEnded(h.Reservations.Ended)
	}
	if counts && (!before.IsCurrent(t) || len(s.Reserved.Counted(existing)) > len(existing)+maxUnseen) {
		return nil, nil, nil, errDoubt
	}
	d, err := Decide(s, q.namespace)
	return t, before, d, err
}

// byServer decides from objects that it reads from the API server. Requests that arrived before the read
// share a refusal, so that many refused requests do not each wait for a read.
//
// byServer reads the Tenant after the reservations, so that the Tenant is not older than the Tenant for
// which they were written. It reads the namespaces after it knows which admissions have ended: the
// namespace of an ended admission exists by then, or never will.
func (h *Handler) byServer(ctx context.Context, name string, q *question, last **look) (*v1alpha1.Tenant, *reservations.Record, *Decision, error) {
	if l := *last; l != nil && l.tenant == name && l.began.After(q.asked) {
		s := l.Situation
		s.Profile, s.Owner, s.Request, s.Another, s.Now = q.profile, q.owner, q.request, q.another, h.Now()
		if _, err := Decide(s, q.namespace); err != nil {
			return nil, nil, nil, err
		}
	}
	*last = nil
	began := h.Now()
	before, err := h.Reservations.Read(ctx, name)
	if err != nil {
		return nil, nil, nil, err
	}
	s := Situation{Reserved: before.WithoutEnded(h.Reservations.Ended), Tenant: &v1alpha1.Tenant{}}
	err = h.APIReader.Get(ctx, client.ObjectKey{Name: name}, s.Tenant)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		h.Reservations.Forget(name)
		return nil, nil, nil, refuse("namespace %s: there is no tenant %q; put the name of a tenant of yours into the label %s", q.namespace.Name, name, v1alpha1.LabelTenant)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot read the tenant %s: %w", name, err)
	}
	if s.Existing, err = namespaces(ctx, h.APIReader, name, client.MatchingLabels{v1alpha1.LabelTenant: name}); err != nil {
		return nil, nil, nil, err
	}
	s.Reserved = s.Reserved.Confirm(s.Existing)
	*last = &look{tenant: name, began: began, Situation: s}
	s.Profile, s.Owner, s.Request, s.Another, s.Now = q.profile, q.owner, q.request, q.another, h.Now()
	d, err := Decide(s, q.namespace)
	return s.Tenant, before, d, err
}

// namespaces returns the names of a tenant's namespaces.
func namespaces(ctx context.Context, from client.Reader, tenant string, which ...client.ListOption) ([]string, error) {
	var list corev1.NamespaceList
	if err := from.List(ctx, &list, which...); err != nil {
		return nil, fmt.Errorf("cannot count the namespaces of tenant %s: %w", tenant, err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
