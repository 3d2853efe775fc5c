package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// offboard removes a tenant in an order in which no step blocks: it stops the creation of
// namespaces, ends deliveries, deletes the namespaces (including admitted namespaces that do
// not exist yet) and the owners' rights, and releases the Tenant. Each step waits for the
// previous step, and the condition names the objects that it waits for.
func (r *Reconciler) offboard(ctx context.Context, tenant *v1alpha1.Tenant) (ctrl.Result, error) {
	if !slices.Contains(tenant.Finalizers, Finalizer) {
		return ctrl.Result{}, nil
	}
	f := &reconcileState{tenant: tenant}
	if tenant.Spec.Protected {
		// The deletion bypassed the admission policy.
		f.problem(ReasonProtected, "the tenant is protected, so the manager deletes nothing: set spec.protected to false first")
		return r.finish(ctx, f)
	}
	profile, err := r.Profiles.Profile(ctx)
	if err != nil || profile == nil {
		f.problem(ReasonNoProfile, "there is no valid TenancyProfile named %s, so nothing is removed", v1alpha1.ProfileName)
		return r.finish(ctx, f)
	}
	f.profile = profile
	for _, step := range []func(context.Context, *reconcileState) error{r.namespaces, r.disown, r.deliveries, r.leave, r.await, r.last} {
		if err := step(ctx, f); err != nil {
			return ctrl.Result{}, err
		}
		if f.reason != "" {
			result, err := r.finish(ctx, f)
			result.RequeueAfter = requeueDelay
			return result, err
		}
	}
	kept := slices.DeleteFunc(slices.Clone(tenant.Finalizers), func(name string) bool { return name == Finalizer })
	return ctrl.Result{}, r.finalize(ctx, tenant, kept)
}

// disown removes the right to create namespaces and the shared cluster resources.
func (r *Reconciler) disown(ctx context.Context, f *reconcileState) error {
	return r.applyCluster(ctx, f, tenancy.Cluster(f.tenant, f.profile, nil))
}

// deliveries waits until the namespace reconciler has ended all deliveries of Flux. That
// reconciler may still work with an older version of the Tenant, until it reports that it has
// seen the deletion. When the cache shows no delivery, deliveries also reads the API server,
// since the cache may be behind, before a namespace is deleted.
func (r *Reconciler) deliveries(ctx context.Context, f *reconcileState) error {
	var leaving []string
	for _, ns := range f.list {
		if !ns.DeletionTimestamp.IsZero() {
			continue
		}
		if !r.Reports.about(ns.Name, f.tenant) {
			f.problem(ReasonDeleting, "waits for deliveries to namespace %s to be stopped", ns.Name)
			continue
		}
		if err := delivered(ctx, r.Client, f, client.InNamespace(ns.Name)); err != nil {
			return err
		}
		if leaves(f, ns) {
			leaving = append(leaving, ns.Name)
		}
	}
	if f.reason != "" {
		return nil
	}
	return r.ended(ctx, f, leaving)
}

// ended reads at the API server whether Flux delivers objects to the namespaces: one request
// for each namespace or, for many namespaces, one request for the Tenant, for which the API
// server scans the Kustomizations of all tenants.
func (r *Reconciler) ended(ctx context.Context, f *reconcileState, namespaces []string) error {
	if len(namespaces) > maxNamespaceReads {
		return delivered(ctx, r.APIReader, f, client.MatchingLabels{v1alpha1.LabelFluxTenant: f.tenant.Name})
	}
	for _, name := range namespaces {
		if err := delivered(ctx, r.APIReader, f, client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}

// delivered adds a problem for each remaining Kustomization that the manager created.
func delivered(ctx context.Context, from client.Reader, f *reconcileState, where client.ListOption) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(tenancy.KustomizationKind)
	err := from.List(ctx, list, client.MatchingLabels{tenancy.LabelManaged: tenancy.ManagedValue}, where)
	if err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) { // Flux is not installed, or no longer
		return fmt.Errorf("cannot read the deliveries to tenant %s: %w", f.tenant.Name, err)
	}
	for i := range list.Items {
		f.problem(ReasonDeleting, "waits for Kustomization %s/%s to end", list.Items[i].GetNamespace(), list.Items[i].GetName())
	}
	return nil
}

// leave deletes the namespaces and waits until they are deleted.
func (r *Reconciler) leave(ctx context.Context, f *reconcileState) error {
	for _, ns := range f.list {
		if !leaves(f, ns) {
			continue
		}
		if ns.DeletionTimestamp.IsZero() {
			uid, version := ns.UID, ns.ResourceVersion
			err := r.Client.Delete(ctx, ns.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version})
			if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("cannot delete namespace %s: %w", ns.Name, err)
			}
			// Either the manager does not have the right yet, which the namespace reconciler
			// grants, or the namespace has just changed.
			if apierrors.IsForbidden(err) {
				f.problem(ReasonDeleting, "waits for the right to delete namespace %s", ns.Name)
				continue
			}
		}
		f.problem(ReasonDeleting, "waits for the deletion of namespace %s%s", ns.Name, remains(ns))
	}
	return nil
}

// leaves reports whether the deletion of the tenant deletes a namespace.
func leaves(f *reconcileState, ns *corev1.Namespace) bool {
	return tenancy.Leaves(ns.Labels, f.profile) && !tenancy.OfPlatform(ns.Name, f.profile)
}

// await waits until no admitted namespace of a Tenant with a namespace quota can appear any
// more: such a namespace would have no Tenant, and a later Tenant of the same name would not
// count it.
func (r *Reconciler) await(ctx context.Context, f *reconcileState) error {
	if r.Reservations == nil {
		return nil
	}
	name, err := r.Reservations.Close(ctx, f.tenant)
	if err != nil {
		return fmt.Errorf("cannot close the reservations of tenant %s: %w", f.tenant.Name, err)
	}
	if name != "" {
		f.problem(ReasonDeleting, "waits for namespace %s, which an owner may still be creating, for two minutes at most", name)
	}
	return nil
}

// last lists the remaining objects at the API server, because the cache may not show the
// latest writes of this manager or of a manager that was killed. After the Tenant is deleted
// no reconciler looks again, and a later Tenant of the same name would get these objects.
// last also removes the owners' rights.
func (r *Reconciler) last(ctx context.Context, f *reconcileState) error {
	var namespaces corev1.NamespaceList
	if err := r.APIReader.List(ctx, &namespaces, client.MatchingLabels{v1alpha1.LabelTenant: f.tenant.Name}); err != nil {
		return fmt.Errorf("cannot read the namespaces of tenant %s: %w", f.tenant.Name, err)
	}
	var staying []string
	for i := range namespaces.Items {
		if leaves(f, &namespaces.Items[i]) {
			f.problem(ReasonDeleting, "waits for the deletion of namespace %s%s", namespaces.Items[i].Name, remains(&namespaces.Items[i]))
			continue
		}
		staying = append(staying, namespaces.Items[i].Name)
	}
	if f.reason != "" {
		return nil
	}
	if err := r.ended(ctx, f, staying); err != nil || f.reason != "" {
		return err
	}
	made := client.MatchingLabels{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelTenant: f.tenant.Name}
	have, err := clusterObjects(ctx, r.APIReader, f.tenant.Name, made)
	if err != nil {
		return err
	}
	return r.removeCluster(ctx, have)
}

// remains returns what Kubernetes reports as remaining in a namespace.
func remains(ns *corev1.Namespace) string {
	var left []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.NamespaceContentRemaining || c.Type == corev1.NamespaceFinalizersRemaining) {
			left = append(left, c.Message)
		}
	}
	if len(left) == 0 {
		return ""
	}
	slices.Sort(left)
	return ": " + strings.Join(left, "; ")
}
