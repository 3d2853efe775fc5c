package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// maxOverlaps is the maximum number of other tenants in the message of a condition.
const maxOverlaps = 3

// hosts compares the hosts that the Tenant allows with the hosts of all other Tenants, and with
// the hosts that the profile allows to Tenants without their own hosts.
func (r *Reconciler) hosts(ctx context.Context, f *reconcileState) error {
	own := f.tenant.Spec.Network.Hosts
	if own == nil {
		return nil
	}
	var list v1alpha1.TenantList
	// They are only read.
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot read the hosts of other tenants: %w", err)
	}
	compare := func(of string, other *v1alpha1.AllowedNames) {
		result, entries := tenancy.CompareHosts(own, other)
		if result != tenancy.Separate {
			f.shared = append(f.shared, sharedHosts{of: of, entries: entries, overlap: result == tenancy.Overlapping})
		}
	}
	compare("the TenancyProfile", f.profile.Spec.Tenants.Network.Hosts)
	for i := range list.Items {
		if t := &list.Items[i]; t.Name != f.tenant.Name {
			compare("tenant "+t.Name, t.Spec.Network.Hosts)
		}
	}
	return nil
}

// sharedHosts are entries of the Tenant and of another list which both allow the same host, or
// may do so.
type sharedHosts struct {
	of, entries string
	overlap     bool
}

// hostsSeparate returns the condition HostsSeparate of a Tenant that allows hosts.
func (f *reconcileState) hostsSeparate() metav1.Condition {
	c := metav1.Condition{
		Type: ConditionHostsSeparate, ObservedGeneration: f.tenant.Generation,
		Status: metav1.ConditionTrue, Reason: ReasonSeparate, Message: "no other tenant may use the same hosts",
	}
	shared := slices.Clone(f.shared)
	if slices.ContainsFunc(shared, func(s sharedHosts) bool { return s.overlap }) {
		shared = slices.DeleteFunc(shared, func(s sharedHosts) bool { return !s.overlap })
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonOverlapping, "other tenants may use the same hosts: "
	} else if len(shared) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonNotComparable, "other tenants may use the same hosts, since an expression cannot be compared: "
	} else {
		return c
	}
	var named []string
	for _, s := range shared[:min(len(shared), maxOverlaps)] {
		named = append(named, fmt.Sprintf("%s (%s)", s.of, s.entries))
	}
	c.Message += strings.Join(named, ", ")
	if more := len(shared) - maxOverlaps; more > 0 {
		c.Message += fmt.Sprintf(", and %d more", more)
	}
	return c
}

// sameHosts enqueues the other Tenants whose hosts may be those of a Tenant.
func sameHosts(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		tenant, ok := o.(*v1alpha1.Tenant)
		if !ok || tenant.Spec.Network.Hosts == nil {
			return nil
		}
		var list v1alpha1.TenantList
		if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list tenants")
		}
		var requests []reconcile.Request
		for i := range list.Items {
			t := &list.Items[i]
			if result, _ := tenancy.CompareHosts(tenant.Spec.Network.Hosts, t.Spec.Network.Hosts); t.Name != tenant.Name && result != tenancy.Separate {
				requests = append(requests, reconcile.Request{NamespacedName: named(t.Name)})
			}
		}
		return requests
	})
}

// hostsChanged is a predicate for updates that change the hosts of a Tenant.
var hostsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*v1alpha1.Tenant)
	after, ok2 := e.ObjectNew.(*v1alpha1.Tenant)
	return ok1 && ok2 && !equality.Semantic.DeepEqual(before.Spec.Network.Hosts, after.Spec.Network.Hosts)
}}
