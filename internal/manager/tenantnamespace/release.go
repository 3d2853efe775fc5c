package tenantnamespace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// releaseShares removes the finalizers of the namespace's parts of a Tenant's quotas once
// their usage is zero. Until then the parts have to count, even while the namespace is being
// deleted. In a remaining namespace the Tenant's reconciler recreates the parts that the
// Tenant should have, so releaseShares skips them. The Tenant may be nil.
func (r *Reconciler) releaseShares(ctx context.Context, ns *corev1.Namespace, tenant *v1alpha1.Tenant, have *contents) error {
	for _, q := range have.quotas {
		if tenant != nil && isShareOf(q, tenant) && slices.ContainsFunc(tenancy.QuotasOf(tenant, ns.Name, ns.Labels), func(of v1alpha1.TenantQuota) bool {
			return of.Scope != "Namespace" && tenancy.QuotaObjectName(tenant, of.Name) == q.Name
		}) {
			continue
		}
		if q.DeletionTimestamp.IsZero() || !slices.Contains(q.Finalizers, tenancy.QuotaFinalizer) || !ns.DeletionTimestamp.IsZero() && inUse(q) {
			continue
		}
		if err := ReleaseQuota(ctx, r.Client, q, false); err != nil {
			return err
		}
	}
	return nil
}

// inUse reports whether a quota counts any object other than the quota itself.
func inUse(q *corev1.ResourceQuota) bool {
	for name, used := range q.Status.Used {
		if !used.IsZero() && strings.TrimPrefix(string(name), "count/") != "resourcequotas" {
			return true
		}
	}
	return false
}

// ReleaseQuota removes the finalizer of a namespace's part of a Tenant's quota and, if remove is
// set, deletes the part. It returns a conflict for a part that changed since it was read, because
// its usage may have grown, and other errors of the API server.
func ReleaseQuota(ctx context.Context, c client.Client, object client.Object, remove bool) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	metadata := map[string]any{"resourceVersion": version}
	if remove && object.GetDeletionTimestamp().IsZero() {
		if err := c.Delete(ctx, object.DeepCopyObject().(client.Object), client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
			return err
		}
		// The deletion has changed the resource version.
		metadata = map[string]any{}
	}
	kept := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == tenancy.QuotaFinalizer })
	if len(kept) == len(object.GetFinalizers()) {
		return nil
	}
	metadata["finalizers"] = kept
	patch := mergePatch(object, metadata)
	if err := c.Patch(ctx, object.DeepCopyObject().(client.Object), patch, client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot remove the finalizer of quota %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// prepareDeletion prepares the deletion of a Tenant: it ends deliveries to the namespace, and gives the
// manager the right to delete it.
func (r *Reconciler) prepareDeletion(ctx context.Context, desired *tenancy.Objects, have *contents) error {
	if err := r.endDeliveries(ctx, have); err != nil {
		return err
	}
	for _, object := range desired.Bindings {
		existing := have.find(object)
		if object.GetName() != tenancy.OffboardingBinding || existing != nil && tenancy.UpToDate(existing, object) {
			continue
		}
		if err := r.applyObject(ctx, existing, object); err != nil {
			return fmt.Errorf("cannot apply RoleBinding %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
	}
	return nil
}

// endDeliveries ends the deliveries of a tenant that is being deleted. The deletion of the namespaces
// deletes the delivered objects. endDeliveries keeps Flux from pruning them at the same time, with an
// account that is deleted too.
func (r *Reconciler) endDeliveries(ctx context.Context, have *contents) error {
	for _, o := range have.syncs {
		if o.GetLabels()[tenancy.LabelManaged] != tenancy.ManagedValue || o.GetKind() != tenancy.KustomizationKind.Kind {
			continue
		}
		if prune, _, _ := unstructured.NestedBool(o.Object, "spec", "prune"); !prune {
			continue
		}
		// The UID protects a new object with the same name. A resource version would
		// make the deletion fail after each change.
		uid := o.GetUID()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"prune":false,"suspend":true}}`, uid))
		if err := r.Client.Patch(ctx, o.DeepCopy(), patch, client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot stop Kustomization %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
		if err := r.Client.Delete(ctx, o.DeepCopy(), client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove Kustomization %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// tearDown deletes the manager's objects in a namespace that no longer belongs to a tenant.
func (r *Reconciler) tearDown(ctx context.Context, ns *corev1.Namespace, have *contents) (ctrl.Result, error) {
	var rest []client.Object
	for _, object := range have.ours(nil) {
		if object != client.Object(have.parameters) {
			rest = append(rest, object)
		}
	}
	if err := r.prune(ctx, rest, nil); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.removeKeys(ctx, ns.Name, nil, have); err != nil {
		return ctrl.Result{}, err
	}
	if have.parameters == nil {
		return ctrl.Result{}, r.label(ctx, ns, nil)
	}
	if have.parameters.DeletionTimestamp.IsZero() {
		if err := r.prune(ctx, []client.Object{have.parameters}, nil); err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.release(ctx, ns, have)
}

// release removes the label from the namespace and, once the API server has noticed that,
// removes the finalizer of parameters that are being deleted. In a namespace that is
// being deleted it does so even before their deletion: Kubernetes deletes the contents of
// a namespace five seconds after the namespace, and retries eight seconds later if a
// finalizer is left.
func (r *Reconciler) release(ctx context.Context, ns *corev1.Namespace, have *contents) (ctrl.Result, error) {
	if err := r.releaseShares(ctx, ns, nil, have); err != nil {
		return ctrl.Result{}, err
	}
	if have.parameters == nil {
		return ctrl.Result{}, nil
	}
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled {
		r.unlabelled.forget(ns.Name)
		return ctrl.Result{}, r.label(ctx, ns, nil)
	}
	if wait := r.unlabelled.first(ns.Name, r.Now()).Add(propagationDelay).Sub(r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if ns.DeletionTimestamp.IsZero() && have.parameters.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.unfinalize(ctx, have.parameters)
}

// unfinalize removes the manager's finalizer from parameters.
func (r *Reconciler) unfinalize(ctx context.Context, parameters *v1alpha1.TenantParameters) error {
	if !slices.Contains(parameters.Finalizers, tenancy.Finalizer) {
		return nil
	}
	var kept []string
	for _, f := range parameters.Finalizers {
		if f != tenancy.Finalizer {
			kept = append(kept, f)
		}
	}
	patch := mergePatch(parameters, map[string]any{"resourceVersion": parameters.ResourceVersion, "finalizers": kept})
	err := r.Client.Patch(ctx, &v1alpha1.TenantParameters{ObjectMeta: metav1.ObjectMeta{Namespace: parameters.Namespace, Name: parameters.Name}}, patch, client.FieldOwner(FieldManager))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove the finalizer of the parameters of namespace %s: %w", parameters.Namespace, err)
	}
	return nil
}
