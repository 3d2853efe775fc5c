// Package isolation reconciles the ClusterNetworkPolicies of tenants, which stand above the
// NetworkPolicies that tenants write: see docs/design/isolation.md. It begins when the cluster
// serves the kind.
package isolation

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Profiles reads the TenancyProfile, as for [tenantnamespace.Reconciler].
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Reconciler reconciles the policies of tenants, with or without a Tenant.
type Reconciler struct {
	// Client reads from a cache and writes to the API server.
	Client   client.Client
	Profiles Profiles

	kind      schema.GroupVersionKind
	conflicts backoff.Conflicts
}

// Reconcile writes the policies of the tenant that the request names, and deletes the ones that are
// no longer desired. Without a valid profile it writes and deletes nothing. It returns an error if
// it cannot read or write an object.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	profile, err := r.Profiles.Profile(ctx)
	if errors.Is(err, tenancy.ErrInvalid) || err == nil && profile == nil {
		return ctrl.Result{}, nil // all tenants are reconciled with the next profile
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, err := r.desired(ctx, request.Name, profile)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.apply(ctx, request.Name, wanted)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: r.conflicts.After(request)}, nil
	}
	r.conflicts.Forget(request)
	return ctrl.Result{}, err
}

func (r *Reconciler) desired(ctx context.Context, name string, profile *v1alpha1.TenancyProfile) ([]*unstructured.Unstructured, error) {
	tenant := &v1alpha1.Tenant{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, tenant); apierrors.IsNotFound(err) {
		tenant = nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot read tenant %s: %w", name, err)
	}
	var namespaces corev1.NamespaceList
	if err := r.Client.List(ctx, &namespaces, client.MatchingFields{indexTenant: name}); err != nil {
		return nil, fmt.Errorf("cannot read the namespaces of tenant %s: %w", name, err)
	}
	return tenancy.ClusterIsolation(r.kind, name, tenant, namespaces.Items, profile)
}

func (r *Reconciler) apply(ctx context.Context, tenant string, wanted []*unstructured.Unstructured) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.kind)
	if err := r.Client.List(ctx, list, client.MatchingFields{indexTenant: tenant}); err != nil {
		return fmt.Errorf("cannot read the policies of tenant %s: %w", tenant, err)
	}
	have := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		have[list.Items[i].GetName()] = &list.Items[i]
	}
	for _, policy := range wanted {
		existing := have[policy.GetName()]
		delete(have, policy.GetName())
		if existing != nil && tenancy.UpToDate(existing, policy) {
			continue
		}
		if err := tenantnamespace.Apply(ctx, r.Client, policy); err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", r.kind.Kind, policy.GetName(), err)
		}
	}
	for name, policy := range have {
		uid := policy.GetUID()
		if err := r.Client.Delete(ctx, policy, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove %s %s: %w", r.kind.Kind, name, err)
		}
	}
	return nil
}
