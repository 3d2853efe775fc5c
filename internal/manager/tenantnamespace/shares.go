package tenantnamespace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// releaseShares removes the finalizers of the namespace's parts of a Tenant's quotas once
// their usage is zero. Until then the parts have to count, even while the namespace is being
// deleted. In a remaining namespace the Tenant's reconciler recreates the parts that the
// Tenant should have, so releaseShares skips them. The Tenant may be nil.
func (r *Reconciler) releaseShares(ctx context.Context, ns *corev1.Namespace, tenant *v1alpha1.Tenant, have *contents) error {
	for _, q := range have.quotas {
		if tenant != nil && isShareOf(q, tenant) && slices.ContainsFunc(tenant.Spec.Quotas, func(of v1alpha1.TenantQuota) bool {
			return of.Scope != "Namespace" && tenancy.QuotaObjectName(of.Name) == q.Name
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

// ReleaseQuota removes the finalizer of a namespace's part of a Tenant's quota and, if remove
// is set, deletes it. It returns a conflict for a part that changed since it was read,
// because its usage may have grown.
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
		return fmt.Errorf("cannot let quota %s/%s go: %w", object.GetNamespace(), object.GetName(), err)
	}
	return nil
}
