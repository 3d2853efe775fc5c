package tenant

import (
	"slices"
	"sync"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
)

// Reports holds the latest result for each namespace of a Tenant. The zero value is ready to
// use. Reports is safe for concurrent use.
type Reports struct {
	// Changed, if set, is called with the name of a Tenant with a new report.
	Changed func(tenant string)

	mu    sync.Mutex
	known map[string]report
	// failing are the errors of the namespaces that the namespace reconciler retries.
	failing map[string]report
}

// report is the result for one generation of one Tenant. It has the UID, since the generations
// of a later Tenant of the same name begin at one again.
type report struct {
	tenant     types.UID
	generation int64
	problem    string
}

// Report implements [tenantnamespace.Reports].
func (r *Reports) Report(tenant *v1alpha1.Tenant, namespace string, problem error) {
	is := report{tenant: tenant.UID, generation: tenant.Generation}
	if problem != nil {
		is.problem = problem.Error()
	}
	r.mu.Lock()
	before := r.known[namespace]
	if r.known == nil {
		r.known = map[string]report{}
	}
	r.known[namespace] = is
	delete(r.failing, namespace)
	r.mu.Unlock()
	if before != is && r.Changed != nil {
		r.Changed(tenant.Name)
	}
}

// Retry implements [tenantnamespace.Reports].
func (r *Reports) Retry(tenant *v1alpha1.Tenant, namespace string, err error) {
	is := report{tenant: tenant.UID, generation: tenant.Generation, problem: err.Error()}
	r.mu.Lock()
	known := r.known[namespace]
	news := r.failing[namespace] != is && (known.tenant != is.tenant || known.generation != is.generation)
	if r.failing == nil {
		r.failing = map[string]report{}
	}
	r.failing[namespace] = is
	r.mu.Unlock()
	if news && r.Changed != nil {
		r.Changed(tenant.Name)
	}
}

// Forget implements [tenantnamespace.Reports].
func (r *Reports) Forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, namespace)
	delete(r.failing, namespace)
}

// failure returns the error for which a namespace is not yet reconciled with the current version of the
// Tenant, or "".
func (r *Reports) failure(namespace string, tenant *v1alpha1.Tenant) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is := r.failing[namespace]; is.tenant == tenant.UID && is.generation == tenant.Generation {
		return is.problem
	}
	return ""
}

// about reports whether a namespace was reconciled with the current version of the Tenant.
func (r *Reports) about(namespace string, tenant *v1alpha1.Tenant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, ok := r.known[namespace]
	return ok && is.tenant == tenant.UID && is.generation == tenant.Generation
}

// problem returns the problem that the report on a namespace has.
func (r *Reports) problem(namespace string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[namespace].problem
}

// fresh reports whether one of the namespaces has no report yet.
func (r *Reports) fresh(namespaces []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(namespaces, func(name string) bool {
		_, ok := r.known[name]
		return !ok
	})
}
