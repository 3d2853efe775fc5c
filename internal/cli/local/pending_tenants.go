package local

import (
	"context"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/localcluster"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tenantsPause is how long a fleet without failures waits for its Tenants: a fleet may have Tenants and
// no manager.
const tenantsPause = 20 * time.Second

// pendingTenants waits for the objects that Tenure's manager creates for Tenants. Flux does not know them: a
// Kustomization is ready as soon as it has applied the Tenant.
type pendingTenants struct {
	kube  client.Reader
	since time.Time // of the first pending Tenant
}

// pending reports whether the manager still works on a Tenant, for at most [tenantsPause]. Tenants that
// cannot be read are not pending: most fleets have none.
func (p *pendingTenants) pending(ctx context.Context, cluster *localcluster.Cluster) bool {
	if p.kube == nil {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			return false
		}
		kube, err := client.New(cluster.REST, client.Options{Scheme: scheme})
		if err != nil {
			return false
		}
		p.kube = kube
	}
	return p.unfinished(ctx, time.Now())
}

func (p *pendingTenants) unfinished(ctx context.Context, now time.Time) bool {
	var list v1alpha1.TenantList
	if err := p.kube.List(ctx, &list); err != nil {
		return false
	}
	for i := range list.Items {
		t := &list.Items[i]
		if !t.DeletionTimestamp.IsZero() || !inProgress(t) {
			continue
		}
		if p.since.IsZero() {
			p.since = now
		}
		return now.Sub(p.since) < tenantsPause
	}
	return false
}

// inProgress reports whether the manager has not finished a Tenant. What it reports as failed does not
// change by waiting, except that the API server does not enforce the rules yet.
func inProgress(t *v1alpha1.Tenant) bool {
	ready := apimeta.FindStatusCondition(t.Status.Conditions, "Ready")
	return ready == nil || ready.ObservedGeneration != t.Generation || ready.Status == metav1.ConditionUnknown || ready.Reason == "RulesNotEnforced"
}
