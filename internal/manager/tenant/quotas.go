package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// quotas distributes the quotas of the whole tenant among its namespaces.
func (r *Reconciler) quotas(ctx context.Context, f *reconcileState) error {
	shares, err := partsOf(ctx, r.Client, f.tenant.Name, client.MatchingFields{indexMade: f.tenant.Name})
	if err != nil {
		return err
	}
	live, err := r.renew(ctx, f, shares)
	if err != nil {
		return err
	}
	if live {
		if shares, err = r.liveShares(ctx, f, shares); err != nil {
			return err
		}
	}
	now := r.Now()
	rebalance := r.pace.see(f.tenant.Name, shares, now) || !r.Moves
	if !rebalance && slices.ContainsFunc(f.tenant.Spec.Quotas, tenancy.SharedByTenant) {
		f.lookAgain(quiet)
	}
	for _, q := range f.tenant.Spec.Quotas {
		if !tenancy.SharedByTenant(q) {
			continue
		}
		writes, over := divide(f, q, shares, rebalance, now)
		if len(writes) > 0 && !live {
			// The cache may be behind the latest writes, and two raises without
			// knowledge of each other could exceed the limit.
			if shares, err = r.liveShares(ctx, f, shares); err != nil {
				return err
			}
			live = true
			r.pace.see(f.tenant.Name, shares, now)
			writes, over = divide(f, q, shares, rebalance, now)
		}
		for _, name := range over {
			f.exceeded = append(f.exceeded, string(name))
		}
		for _, object := range writes {
			ok, err := r.write(ctx, f, r.announced(f, object, shares, now))
			if err != nil {
				return err
			}
			if !ok {
				break
			}
		}
	}
	return r.pruneShares(ctx, f, shares)
}

// announced returns the part to write. It first marks a part that should change, so that
// requests in its namespace wait, and changes it once they have waited for movingDelay.
// It changes a part at once if requests wait anyway, or if no webhook lets them wait.
func (r *Reconciler) announced(f *reconcileState, want *corev1.ResourceQuota, shares []corev1.ResourceQuota, now time.Time) *corev1.ResourceQuota {
	i := slices.IndexFunc(shares, func(o corev1.ResourceQuota) bool { return shareKey(&o) == shareKey(want) })
	if !r.Moves || i < 0 || !isShare(&shares[i]) || equality.Semantic.DeepEqual(shares[i].Spec.Hard, want.Spec.Hard) {
		return want
	}
	if smaller := tenancy.Lacks(want.Spec.Hard, shares[i].Spec.Hard); r.pace.ready(f.tenant.Name, want, smaller, now) {
		return want
	}
	f.lookAgain(movingDelay)
	marked := want.DeepCopy()
	marked.Spec.Hard = shares[i].Spec.Hard
	marked.Annotations = map[string]string{tenancy.AnnotationMoving: tenancy.DividedValue}
	return marked
}

// isShare reports whether a quota already is a part of a Tenant's quota.
func isShare(q *corev1.ResourceQuota) bool {
	return q.Labels[tenancy.LabelQuotaScope] == tenancy.QuotaScopeTenant
}

// write applies a part of a quota, and returns false if the API server refuses it. A missing
// namespace is not a problem.
func (r *Reconciler) write(ctx context.Context, f *reconcileState, object *corev1.ResourceQuota) (ok bool, err error) {
	r.locations.add(f.tenant.Name, object.Namespace)
	err = tenantnamespace.Apply(ctx, r.Client, object)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		name := object.Name
		for _, q := range f.tenant.Spec.Quotas {
			if tenancy.QuotaObjectName(f.tenant, q.Name) == object.Name {
				name = q.Name
			}
		}
		f.problem(ReasonInvalid, "quota %s cannot be kept: %v", name, cmp.Or(r.unlabelled(ctx, object, err), err))
		return false, nil
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("cannot apply quota %s/%s: %w", object.Namespace, object.Name, err)
	}
	return true, nil
}

// renew releases and recreates, with the same limits, the parts that a person or an
// interrupted manager deleted in a remaining namespace. Otherwise the next distribution would
// give the quota that is used there to other namespaces. It reports whether there were any.
func (r *Reconciler) renew(ctx context.Context, f *reconcileState, shares []corev1.ResourceQuota) (renewed bool, err error) {
	for i := range shares {
		o := &shares[i]
		stays := slices.ContainsFunc(f.list, func(ns *corev1.Namespace) bool {
			return ns.Name == o.Namespace && ns.DeletionTimestamp.IsZero() && !tenancy.OfPlatform(ns.Name, f.profile)
		})
		of := slices.IndexFunc(f.tenant.Spec.Quotas, func(q v1alpha1.TenantQuota) bool {
			return tenancy.SharedByTenant(q) && tenancy.QuotaObjectName(f.tenant, q.Name) == o.Name
		})
		if !stays || of < 0 || !f.bounds(f.tenant.Spec.Quotas[of].Name, o.Namespace) || o.DeletionTimestamp.IsZero() || !slices.Contains(o.Finalizers, tenancy.QuotaFinalizer) {
			continue
		}
		if err := tenantnamespace.ReleaseQuota(ctx, r.Client, o, false); err != nil {
			return false, err
		}
		if len(o.Finalizers) > 1 {
			continue // it is not gone yet, and nothing can be in its place
		}
		quota := f.tenant.Spec.Quotas[of]
		hard := maps.Clone(o.Spec.Hard)
		maps.DeleteFunc(hard, func(name corev1.ResourceName, _ resource.Quantity) bool {
			_, bounded := quota.Hard[name]
			return !bounded
		})
		if _, err := r.write(ctx, f, tenancy.ShareQuota(f.tenant, o.Namespace, quota, hard)); err != nil {
			return false, err
		}
		renewed = true
	}
	return renewed, nil
}

// divide returns the parts to write for one quota of the Tenant.
func divide(f *reconcileState, q v1alpha1.TenantQuota, all []corev1.ResourceQuota, rebalance bool, now time.Time) (writes []*corev1.ResourceQuota, over []corev1.ResourceName) {
	name := tenancy.QuotaObjectName(f.tenant, q.Name)
	have := map[string]*corev1.ResourceQuota{}
	for i := range all {
		if all[i].Name == name {
			have[all[i].Namespace] = &all[i]
		}
	}
	var shares []tenancy.Share
	for _, ns := range f.list {
		if tenancy.OfPlatform(ns.Name, f.profile) || !f.bounds(q.Name, ns.Name) {
			continue
		}
		s := tenancy.Share{Namespace: ns.Name, Leaving: !ns.DeletionTimestamp.IsZero()}
		if o := have[ns.Name]; o != nil {
			s.Exists, s.Hard, s.Enforced, s.Used = true, o.Spec.Hard, o.Status.Hard, o.Status.Used
			s.Leaving = s.Leaving || !o.DeletionTimestamp.IsZero()
			wishes, _ := tenancy.ReadQuotaRequests(o, now)
			s.Wanted = wishes.Open(o.Status.Used)
		}
		shares = append(shares, s)
		delete(have, ns.Name)
	}
	// A part still counts if the namespace lost its label or is not in the cache yet, or until
	// pruneShares deletes it.
	for namespace, o := range have {
		shares = append(shares, tenancy.Share{Namespace: namespace, Exists: true, Leaving: true, Hard: o.Spec.Hard, Enforced: o.Status.Hard, Used: o.Status.Used})
	}
	hard, over := tenancy.DistributeQuota(corev1.ResourceList(q.Hard), shares, rebalance)
	for _, s := range shares {
		next, stays := hard[s.Namespace]
		if !stays {
			continue
		}
		want := tenancy.ShareQuota(f.tenant, s.Namespace, q, next)
		if s.Exists {
			i := slices.IndexFunc(all, func(o corev1.ResourceQuota) bool { return o.Name == name && o.Namespace == s.Namespace })
			if tenancy.UpToDate(&all[i], want) && all[i].Annotations[tenancy.AnnotationMoving] == "" {
				continue
			}
		}
		writes = append(writes, want)
	}
	return writes, over
}

// bounds reports whether the Tenant has a quota of this name that applies to a namespace, or
// to a namespace that is not in the list.
func (f *reconcileState) bounds(quota, namespace string) bool {
	named := func(q v1alpha1.TenantQuota) bool { return q.Name == quota }
	i := slices.IndexFunc(f.list, func(ns *corev1.Namespace) bool { return ns.Name == namespace })
	if i < 0 {
		return slices.ContainsFunc(f.tenant.Spec.Quotas, named)
	}
	return slices.ContainsFunc(tenancy.QuotasOf(f.tenant, namespace, f.list[i].Labels), named)
}

// pruneShares deletes parts of quotas that the Tenant no longer has, or that no longer apply to
// their namespace.
func (r *Reconciler) pruneShares(ctx context.Context, f *reconcileState, shares []corev1.ResourceQuota) error {
	for i := range shares {
		o := &shares[i]
		wanted := slices.ContainsFunc(f.tenant.Spec.Quotas, func(q v1alpha1.TenantQuota) bool {
			return tenancy.SharedByTenant(q) && tenancy.QuotaObjectName(f.tenant, q.Name) == o.Name && f.bounds(q.Name, o.Namespace)
		})
		if wanted || o.Labels[tenancy.LabelQuotaScope] != tenancy.QuotaScopeTenant {
			continue
		}
		// A part that became a quota of the namespace has lost the label by now.
		if slices.ContainsFunc(f.tenant.Spec.Quotas, func(q v1alpha1.TenantQuota) bool {
			return !tenancy.SharedByTenant(q) && tenancy.QuotaObjectName(f.tenant, q.Name) == o.Name && f.bounds(q.Name, o.Namespace)
		}) {
			continue
		}
		if err := tenantnamespace.ReleaseQuota(ctx, r.Client, o, true); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove quota %s/%s: %w", o.Namespace, o.Name, err)
		}
	}
	return nil
}
