package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxNamespaceReads is in how many namespaces, at most, the quotas of a tenant are read one
// namespace at a time. To read all at once is one request, for which the API server looks
// at the quotas of all tenants.
const maxNamespaceReads = 16

// quotaLocations are the namespaces, by tenant, in which there may be parts of its quotas. The
// zero value knows of none, and may be used from many goroutines.
//
// A part is made by the one manager that has the lease. So it is where this one has
// written, or where it was when this one asked about the whole cluster for the first
// time: also in a namespace that is not the tenant's any more, and of which no cache
// knows yet.
type quotaLocations struct {
	mu sync.Mutex
	of map[string]map[string]bool
}

// add remembers a namespace before a part is written into it, if it was asked about
// the whole cluster before.
func (p *quotaLocations) add(tenant, namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of[tenant]; known != nil {
		known[namespace] = true
	}
}

// set stores the quota objects of the whole cluster.
func (p *quotaLocations) set(tenant string, found []corev1.ResourceQuota) {
	known := map[string]bool{}
	for i := range found {
		known[found[i].Namespace] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]map[string]bool{}
	}
	p.of[tenant] = known
}

// get returns the namespaces, and false if the whole cluster has to be asked.
func (p *quotaLocations) get(tenant string) (map[string]bool, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.of[tenant]
	return maps.Clone(known), ok
}

// forget is for a tenant that is gone.
func (p *quotaLocations) forget(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, tenant)
}

// liveShares are the parts of a tenant's quotas as the API server has them. The parts
// that the cache has say where to look, too.
func (r *Reconciler) liveShares(ctx context.Context, f *reconcileState, cached []corev1.ResourceQuota) ([]corev1.ResourceQuota, error) {
	tenant := f.tenant.Name
	made := client.MatchingLabels{tenancy.LabelManaged: tenancy.ManagedValue, v1alpha1.LabelFluxTenant: tenant}
	where, ok := r.locations.get(tenant)
	if ok {
		for _, ns := range f.list {
			where[ns.Name] = true
		}
		for i := range cached {
			where[cached[i].Namespace] = true
		}
	}
	if !ok || len(where) > maxNamespaceReads {
		all, err := partsOf(ctx, r.APIReader, tenant, made)
		if err == nil {
			r.locations.set(tenant, all)
		}
		return all, err
	}
	var all []corev1.ResourceQuota
	for _, namespace := range slices.Sorted(maps.Keys(where)) {
		in, err := partsOf(ctx, r.APIReader, tenant, made, client.InNamespace(namespace))
		if err != nil {
			return nil, err
		}
		all = append(all, in...)
	}
	return all, nil
}

// partsOf returns the quotas that are parts of a tenant's, or were made for it in another
// way and are about to be, as the reader selects them: a cache by its index, the API
// server by labels.
func partsOf(ctx context.Context, c client.Reader, tenant string, which ...client.ListOption) ([]corev1.ResourceQuota, error) {
	var list corev1.ResourceQuotaList
	if err := c.List(ctx, &list, which...); err != nil {
		return nil, fmt.Errorf("cannot read the quotas of tenant %s: %w", tenant, err)
	}
	return list.Items, nil
}
