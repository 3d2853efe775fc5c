package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster writes the tenant's cluster-scoped objects and deletes the ones that are no longer
// desired.
func (r *Reconciler) cluster(ctx context.Context, f *reconcileState) error {
	var names []string
	for _, ns := range f.list {
		if ns.DeletionTimestamp.IsZero() && !tenancy.OfPlatform(ns.Name, f.profile) {
			names = append(names, ns.Name)
		}
	}
	return r.applyCluster(ctx, f, tenancy.Cluster(f.tenant, f.profile, names))
}

func (r *Reconciler) applyCluster(ctx context.Context, f *reconcileState, wanted []client.Object) error {
	have, err := clusterObjects(ctx, r.Client, f.tenant.Name, client.MatchingFields{indexMade: f.tenant.Name})
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, object := range wanted {
		kept[clusterKey(object)] = true
		existing := have[clusterKey(object)]
		if existing != nil && tenancy.UpToDate(existing, object) {
			continue
		}
		err := tenantnamespace.Apply(ctx, r.Client, object)
		if problem := cmp.Or(r.unlabelled(ctx, object, err), refused(object, err)); problem != nil {
			if f.tenant.DeletionTimestamp.IsZero() {
				f.problem(ReasonFailed, "%v", problem)
			} else {
				// The object only gives rights, which end with the Tenant.
				delete(kept, clusterKey(object))
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
	}
	maps.DeleteFunc(have, func(key string, _ client.Object) bool { return kept[key] })
	return r.removeCluster(ctx, have)
}

// unlabelled returns an error that tells how to fix an object that exists without the manager's label, or nil. The
// cache has no such objects.
func (r *Reconciler) unlabelled(ctx context.Context, object client.Object, err error) error {
	if !apierrors.IsForbidden(err) {
		return nil
	}
	existing, ok := object.DeepCopyObject().(client.Object)
	if !ok || r.APIReader.Get(ctx, client.ObjectKeyFromObject(object), existing) != nil {
		return nil
	}
	return tenantnamespace.ExplainUnlabelled(existing, object, err)
}

// refused returns an error that tells how to fix a cluster-scoped object that the API server refused, or
// nil if the error is another one.
func refused(object client.Object, err error) error {
	if binding, ok := object.(*rbacv1.ClusterRoleBinding); ok {
		if problem := tenantnamespace.ExplainBinding(binding.RoleRef.Name, err); problem != nil {
			return problem
		}
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot apply %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
	return nil
}

// removeCluster deletes the cluster-scoped objects that the manager created for a tenant.
func (r *Reconciler) removeCluster(ctx context.Context, objects map[string]client.Object) error {
	for _, object := range objects {
		uid := object.GetUID()
		if err := r.Client.Delete(ctx, object, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// clusterObjects returns the cluster-scoped objects that the manager created for a tenant.
func clusterObjects(ctx context.Context, c client.Reader, tenant string, made client.ListOption) (map[string]client.Object, error) {
	var roles rbacv1.ClusterRoleList
	var bindings rbacv1.ClusterRoleBindingList
	for _, list := range []client.ObjectList{&roles, &bindings} {
		if err := c.List(ctx, list, made); err != nil {
			return nil, fmt.Errorf("cannot read the rights of tenant %s: %w", tenant, err)
		}
	}
	have := map[string]client.Object{}
	for i := range roles.Items {
		have[clusterKey(&roles.Items[i])] = &roles.Items[i]
	}
	for i := range bindings.Items {
		have[clusterKey(&bindings.Items[i])] = &bindings.Items[i]
	}
	return have, nil
}

func clusterKey(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }
