package capsule

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/capsule"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// promoted reads the service accounts that owners have promoted, in the namespaces that the
// Tenant of Tenure lists: owners of the tenant, and those that have roles by its rules.
func (r *TenantReconciler) promoted(ctx context.Context, s *state) error {
	if s.ours == nil || s.configuration == nil || !s.configuration.Spec.AllowServiceAccountPromotion {
		return nil
	}
	for _, name := range s.ours.Status.Namespaces {
		var accounts corev1.ServiceAccountList
		if err := r.Client.List(ctx, &accounts, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("cannot list the service accounts of namespace %s: %w", name, err)
		}
		if !slices.ContainsFunc(accounts.Items, func(a corev1.ServiceAccount) bool { return promotes(&a) }) {
			continue
		}
		ns := &corev1.Namespace{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot read namespace %s: %w", name, err)
		}
		for i := range accounts.Items {
			a := &accounts.Items[i]
			if !a.DeletionTimestamp.IsZero() {
				continue
			}
			account := capsule.Account{Namespace: a.Namespace, Name: a.Name, Labels: a.Labels, NamespaceLabels: ns.Labels}
			if a.Labels[capsule.LabelPromote] == "true" {
				s.promoted = append(s.promoted, account)
			}
			if a.Labels[capsule.LabelEntitle] == "true" {
				s.entitled = append(s.entitled, account)
			}
		}
	}
	for _, all := range [][]capsule.Account{s.promoted, s.entitled} {
		slices.SortFunc(all, func(a, b capsule.Account) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return nil
}

// promotions returns the accounts that rules give roles, in the format of Capsule's status: an
// entry for each account and each set of namespaces in which it has the same roles.
func (r *TenantReconciler) promotions(ctx context.Context, s *state) ([]v1beta2.Promotion, error) {
	entitlements := capsule.Entitlements(s.theirs, s.configuration, s.entitled)
	if len(entitlements) == 0 {
		return nil, nil
	}
	var namespaces []corev1.Namespace
	for _, name := range s.ours.Status.Namespaces {
		ns := &corev1.Namespace{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cannot read namespace %s: %w", name, err)
		} else if err == nil {
			namespaces = append(namespaces, *ns)
		}
	}
	at := map[string]int{}
	var all []v1beta2.Promotion
	for _, e := range entitlements {
		targets := e.Targets(namespaces)
		if len(targets) == 0 {
			continue
		}
		name := "system:serviceaccount:" + e.Account.Namespace + ":" + e.Account.Name
		key := fmt.Sprintf("%q", append([]string{name}, targets...))
		if _, ok := at[key]; !ok {
			at[key] = len(all)
			all = append(all, v1beta2.Promotion{
				StatusOwner: v1beta2.StatusOwner{Identity: v1beta2.Identity{Kind: rbacv1.ServiceAccountKind, Name: name}}, Targets: targets,
			})
		}
		roles := &all[at[key]].ClusterRoles
		*roles = append(*roles, e.Role)
	}
	for i := range all {
		slices.Sort(all[i].ClusterRoles)
		all[i].ClusterRoles = slices.Compact(all[i].ClusterRoles)
	}
	return all, nil
}

// promotes reports whether a service account has a label by which Capsule promotes.
func promotes(o client.Object) bool {
	return o.GetLabels()[capsule.LabelPromote] == "true" || o.GetLabels()[capsule.LabelEntitle] == "true"
}

// promotion selects the events that add, change or remove a label by which Capsule promotes a
// service account.
var promotion = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return promotes(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return promotes(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return (promotes(e.ObjectOld) || promotes(e.ObjectNew)) && !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	},
}

// tenantOfAccount enqueues the Tenant of a service account's namespace.
func tenantOfAccount(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		ns := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, ns); err != nil {
			if !apierrors.IsNotFound(err) {
				ctrl.LoggerFrom(ctx).Error(err, "cannot read the namespace of a promoted service account", "namespace", o.GetNamespace())
			}
			return nil
		}
		return requestFor(capsuleLabel(ns))
	})
}
