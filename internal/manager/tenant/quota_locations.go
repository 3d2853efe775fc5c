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

// maxNamespaceReads is the maximum number of namespaces whose quotas are read with one request
// each. For more namespaces one request reads all quotas, for which the API server scans the
// quotas of all tenants.
const maxNamespaceReads = 16

// quotaLocations stores, by tenant, the namespaces that may have parts of its quotas. The zero
// value is empty. It is safe for concurrent use.
//
// Only the manager with the lease creates parts. So a part is in a namespace to which this
// manager has written, or in which it existed when this manager first listed the quotas of the
// whole cluster. That includes namespaces that no longer belong to the tenant, and namespaces
// that the cache does not show yet.
type quotaLocations struct {
	mu sync.Mutex
	of map[string]map[string]bool
}

// add adds a namespace before a part is written to it, if the quotas of the whole cluster were
// listed before.
func (p *quotaLocations) add(tenant, namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of[tenant]; known != nil {
		known[namespace] = true
	}
}

// set stores the namespaces of the parts in the whole cluster.
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

// get returns the namespaces, and false if the quotas of the whole cluster must be listed.
func (p *quotaLocations) get(tenant string) (map[string]bool, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.of[tenant]
	return maps.Clone(known), ok
}

// forget drops the namespaces of a deleted tenant.
func (p *quotaLocations) forget(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, tenant)
}

// liveShares reads the parts of a tenant's quotas at the API server: in the stored namespaces,
// and in the namespaces of the parts in the cache.
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

// partsOf returns the quotas that are parts of a tenant's quotas, or that the manager created
// for the tenant and will make parts. A cache selects them by its index, the API server by
// labels.
func partsOf(ctx context.Context, c client.Reader, tenant string, which ...client.ListOption) ([]corev1.ResourceQuota, error) {
	var list corev1.ResourceQuotaList
	if err := c.List(ctx, &list, which...); err != nil {
		return nil, fmt.Errorf("cannot read the quotas of tenant %s: %w", tenant, err)
	}
	return list.Items, nil
}
