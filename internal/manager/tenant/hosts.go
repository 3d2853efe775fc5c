package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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

const (
	// theProfile and theOthers name, in the message of a condition, what allows the hosts of Tenants that set none.
	theProfile = "the TenancyProfile"
	theOthers  = "tenants without network.hosts"
)

// everyName stands for the hosts of Tenants without hosts of their own, if the profile has none either.
var everyName = &v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{"*"}}

// hosts compares the hosts that the Tenant allows with the hosts of all other Tenants, and with the hosts that
// Tenants without hosts of their own may have: those of the profile, or every name if the profile has none.
func (r *Reconciler) hosts(ctx context.Context, f *reconcileState) error {
	profile := f.profile.Spec.Tenants.Network.Hosts
	if f.ownHosts = ownHosts(f.tenant, profile); f.ownHosts == nil {
		return nil
	}
	var list v1alpha1.TenantList
	// They are only read.
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot read the hosts of other tenants: %w", err)
	}
	compare := func(of string, other *v1alpha1.AllowedNames) {
		result, entries := tenancy.CompareHosts(f.ownHosts, other)
		if result != tenancy.Separate {
			f.shared = append(f.shared, sharedHosts{of: of, entries: entries, overlap: result == tenancy.Overlapping})
		}
	}
	if profile != nil {
		compare(theProfile, profile)
	} else if oneWithoutHosts(list.Items) {
		compare(theOthers, everyName)
	}
	for i := range list.Items {
		if t := &list.Items[i]; t.Name != f.tenant.Name {
			compare("tenant "+t.Name, ownHosts(t, profile))
		}
	}
	return nil
}

// ownHosts returns the hosts that a Tenant sets. It returns nil for those that a Tenant has of the profile: a Tenant of
// Capsule's, or one that replaced it, has all but the wildcards.
func ownHosts(t *v1alpha1.Tenant, profile *v1alpha1.AllowedNames) *v1alpha1.AllowedNames {
	own := t.Spec.Network.Hosts
	if profile != nil && equality.Semantic.DeepEqual(own, capsule.WithoutWildcards(profile)) {
		return nil
	}
	return own
}

// oneWithoutHosts reports whether one of the Tenants sets no hosts, so that the profile decides.
func oneWithoutHosts(tenants []v1alpha1.Tenant) bool {
	for i := range tenants {
		if tenants[i].Spec.Network.Hosts == nil {
			return true
		}
	}
	return false
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
	var lists []string
	for _, s := range shared[:min(len(shared), maxOverlaps)] {
		lists = append(lists, fmt.Sprintf("%s (%s)", s.of, s.entries))
	}
	c.Message += strings.Join(lists, ", ")
	if more := len(shared) - maxOverlaps; more > 0 {
		c.Message += fmt.Sprintf(", and %d more", more)
	}
	return c
}

// sameHosts enqueues the other Tenants whose condition HostsSeparate may change with the hosts of a Tenant.
func (r *Reconciler) sameHosts() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		tenant, ok := o.(*v1alpha1.Tenant)
		if !ok {
			return nil
		}
		own := tenant.Spec.Network.Hosts
		if own == nil && !r.everyName(ctx) {
			return nil
		}
		var list v1alpha1.TenantList
		if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list tenants")
		}
		others := oneWithoutHosts(list.Items)
		var requests []reconcile.Request
		for i := range list.Items {
			t := &list.Items[i]
			if t.Name == tenant.Name || t.Spec.Network.Hosts == nil {
				continue
			}
			if own == nil && namesOthers(t) == others {
				continue // only the first and the last Tenant without hosts change the condition
			}
			if result, _ := tenancy.CompareHosts(own, t.Spec.Network.Hosts); own == nil || result != tenancy.Separate {
				requests = append(requests, reconcile.Request{NamespacedName: named(t.Name)})
			}
		}
		return requests
	})
}

// everyName reports whether Tenants without hosts of their own may have every name, as the profile has no hosts.
func (r *Reconciler) everyName(ctx context.Context) bool {
	profile, err := r.Profiles.Profile(ctx)
	return err != nil || profile != nil && profile.Spec.Tenants.Network.Hosts == nil
}

// namesOthers reports whether the condition HostsSeparate of a Tenant names the Tenants without hosts.
func namesOthers(t *v1alpha1.Tenant) bool {
	c := apimeta.FindStatusCondition(t.Status.Conditions, ConditionHostsSeparate)
	return c != nil && strings.Contains(c.Message, theOthers)
}

// hostsChanged is a predicate for updates that change the hosts of a Tenant.
var hostsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*v1alpha1.Tenant)
	after, ok2 := e.ObjectNew.(*v1alpha1.Tenant)
	return ok1 && ok2 && !equality.Semantic.DeepEqual(before.Spec.Network.Hosts, after.Spec.Network.Hosts)
}}
