package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/capsule"
	"github.com/tenure-dev/tenure/internal/manager/replication"
	"github.com/tenure-dev/tenure/internal/manager/tenant"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

const (
	// releaseDelay is the time from the removal of the last label of a namespace to the
	// removal of the finalizers: the API server's policies learn of both separately, and
	// refuse requests in a namespace with the label and without parameters.
	releaseDelay = 2 * time.Second
	// releaseInterval is the interval at which a releaser lists the objects again.
	releaseInterval = 500 * time.Millisecond
)

// releaser removes the manager's finalizers from all objects, so that the manager can be
// uninstalled. It runs in the place of the controllers, and changes nothing else but the
// label by which namespaces have rules of their own (from then on the profile governs them) and the
// right of owners to create namespaces.
type releaser struct {
	client client.Client
	kinds  []heldKind
	done   atomic.Bool
}

// heldKind is a kind of objects with a finalizer of the manager.
type heldKind struct {
	schema.GroupVersionKind
	finalizer string
}

// errHeld is returned by the readiness check until the last finalizer is removed.
var errHeld = errors.New("objects still have finalizers of the manager")

// runReleaser runs a releaser until the context ends. It is ready when no object has a
// finalizer of the manager.
func runReleaser(ctx context.Context, config *rest.Config, o Options) error {
	mgr, err := newManager(ctx, config, o)
	if err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	// Without a cache: the releaser reads a few lists.
	c, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	r := &releaser{client: c, kinds: heldKinds(o.Capsule)}
	if err := errors.Join(mgr.Add(r), mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("released", r.check)); err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("cannot run the manager: %w", err)
	}
	return nil
}

// heldKinds returns the kinds whose objects have a finalizer of the manager.
func heldKinds(withCapsule bool) []heldKind {
	kinds := []heldKind{
		{v1alpha1.GroupVersion.WithKind("TenantParameters"), tenancy.Finalizer},
		{corev1.SchemeGroupVersion.WithKind("ResourceQuota"), tenancy.QuotaFinalizer},
		{v1alpha1.GroupVersion.WithKind("Tenant"), tenant.Finalizer},
	}
	if withCapsule {
		kinds = append(kinds,
			heldKind{v1beta2.GroupVersion.WithKind("Tenant"), capsule.Finalizer},
			heldKind{v1beta2.GroupVersion.WithKind("TenantResource"), replication.Finalizer},
			heldKind{v1beta2.GroupVersion.WithKind("GlobalTenantResource"), replication.Finalizer},
		)
	}
	return kinds
}

func (r *releaser) check(*http.Request) error {
	if !r.done.Load() {
		return errHeld
	}
	return nil
}

// Start removes the finalizers from all objects, and from objects that are created later, until
// the context ends. It implements [ctrlmanager.Runnable]. It runs only while this replica has the
// lease, so that no other replica sets finalizers. It logs failures and retries; its error is
// always nil.
func (r *releaser) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx)
	tick := time.NewTicker(releaseInterval)
	defer tick.Stop()
	labelled := time.Now() // the last time that a namespace had the label
	for {
		more, err := r.unlabel(ctx)
		if more {
			labelled = time.Now()
		}
		err = errors.Join(err, r.disown(ctx), r.endOwners(ctx))
		left := true
		if err == nil && time.Since(labelled) >= releaseDelay {
			left, err = r.unfinalize(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log.Error(err, "not released yet")
		}
		if done := err == nil && !left; done != r.done.Swap(done) && done {
			log.Info("no object has a finalizer of the manager: it can be uninstalled")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// unlabel removes the label of parameters from all namespaces, and reports whether one had
// it.
func (r *releaser) unlabel(ctx context.Context) (had bool, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.client.List(ctx, list, client.HasLabels{v1alpha1.LabelParameters}); err != nil {
		return false, fmt.Errorf("cannot read the namespaces of tenants: %w", err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, r.patch(ctx, &list.Items[i], map[string]any{"labels": map[string]any{v1alpha1.LabelParameters: nil}}))
	}
	return len(list.Items) > 0, errors.Join(errs...)
}

// disown removes the owner references to Capsule's Tenants that the manager added to namespaces:
// otherwise Kubernetes would delete the namespaces together with the kinds of Capsule.
func (r *releaser) disown(ctx context.Context) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("cannot read the namespaces: %w", err)
	}
	var errs []error
	for i := range list.Items {
		ns := &list.Items[i]
		owner, given := ns.Annotations[capsule.AnnotationReference]
		if !given {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(ns.OwnerReferences), func(ref metav1.OwnerReference) bool { return string(ref.UID) == owner })
		errs = append(errs, r.patch(ctx, ns, map[string]any{
			"ownerReferences": kept, "annotations": map[string]any{capsule.AnnotationReference: nil}, "resourceVersion": ns.ResourceVersion,
		}))
	}
	return errors.Join(errs...)
}

// endOwners deletes the roles with which owners create namespaces, and their bindings: without the rules and the
// webhooks, owners could create every namespace, with every label.
func (r *releaser) endOwners(ctx context.Context) error {
	var errs []error
	for _, kind := range []string{"ClusterRoleBinding", "ClusterRole"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(kind + "List"))
		if err := r.client.List(ctx, list, client.MatchingLabels{tenancy.LabelManaged: tenancy.ManagedValue}); err != nil {
			errs = append(errs, fmt.Errorf("cannot read the roles of owners: %w", err))
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			if !strings.HasPrefix(o.Name, tenancy.OwnersPrefix) {
				continue
			}
			if err := r.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				errs = append(errs, fmt.Errorf("cannot delete %s %s: %w", kind, o.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// unfinalize removes the manager's finalizers, and reports whether an object had one.
func (r *releaser) unfinalize(ctx context.Context) (had bool, err error) {
	var errs []error
	for _, kind := range r.kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := r.client.List(ctx, list)
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // no such kind, so no object
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot read objects of kind %s: %w", kind.Kind, err))
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			kept := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == kind.finalizer })
			if len(kept) == len(o.Finalizers) {
				continue
			}
			had = true
			errs = append(errs, r.patch(ctx, o, map[string]any{"finalizers": kept, "resourceVersion": o.ResourceVersion}))
		}
	}
	return had, errors.Join(errs...)
}

// patch changes the metadata of an object that may be gone.
func (r *releaser) patch(ctx context.Context, o *metav1.PartialObjectMetadata, metadata map[string]any) error {
	content, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("cannot release %s %s: %w", o.Kind, o.Name, err)
	}
	if err := r.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, content), client.FieldOwner(leaseName)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release %s %s: %w", o.Kind, client.ObjectKeyFromObject(o), err)
	}
	return nil
}
