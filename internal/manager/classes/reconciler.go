// Package classes selects the classes of the cluster, such as storage classes, by their labels
// for the limits of tenants. A rule in the API server cannot read a class, so the manager writes
// the names of the selected classes to the TenantParameters of each namespace.
package classes

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Profiles reads the TenancyProfile. It returns nil without an error if there is none, and an
// error that wraps [tenancy.ErrInvalid] for an invalid profile.
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Reconciler sends the namespaces whose limits select classes by their labels to Changed, after
// each change of a class.
type Reconciler struct {
	// Client reads from a cache.
	Client   client.Reader
	Profiles Profiles
	// Changed receives the namespaces whose selected classes may have changed.
	Changed chan<- event.GenericEvent
}

// Reconcile handles the changes of all classes together. It returns an error if the profile or
// the Tenants cannot be read.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	profile, err := r.Profiles.Profile(ctx)
	if errors.Is(err, tenancy.ErrInvalid) || err == nil && profile == nil {
		// No parameters change, and all namespaces are reconciled with the next profile.
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	var tenants v1alpha1.TenantList
	var namespaces corev1.NamespaceList
	for _, list := range []client.ObjectList{&tenants, &namespaces} {
		// They are only read.
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, fmt.Errorf("cannot read which tenants select classes: %w", err)
		}
	}
	common := &profile.Spec.Tenants
	all := tenancy.SelectsClasses(common.Workloads, common.Network, common.Storage)
	selects := map[string]bool{}
	for i := range tenants.Items {
		t := &tenants.Items[i]
		selects[t.Name] = tenancy.SelectsClasses(t.Spec.Workloads, t.Spec.Network, t.Spec.Storage)
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		if _, ok := tenancy.TenantOf(ns.Labels); !ok || !all && !selects[ns.Labels[v1alpha1.LabelTenant]] {
			continue
		}
		select {
		case r.Changed <- event.GenericEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}}:
		case <-ctx.Done():
			return ctrl.Result{}, ctx.Err()
		}
	}
	return ctrl.Result{}, nil
}

// Reader selects the classes that a cache has.
type Reader struct {
	// Client reads from a cache.
	Client client.Reader
}

// Select returns the names of the classes that the selectors of the limits select: see
// [tenancy.SelectClasses]. A selector of a kind that the cluster does not serve selects
// nothing. It returns, as problem, an error in the limits or a selector that selects too many
// classes, and, as err, an error of the client.
func (r Reader) Select(ctx context.Context, limits *v1alpha1.Posture) (selected *v1alpha1.SelectedClasses, problem, err error) {
	return tenancy.SelectClasses(limits, func(kind schema.GroupVersionKind) ([]metav1.PartialObjectMetadata, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		// They are only read.
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !apimeta.IsNoMatchError(err) {
			return nil, err
		}
		return list.Items, nil
	})
}
