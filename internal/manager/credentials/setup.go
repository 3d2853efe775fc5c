package credentials

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// indexOwner indexes Tenants by the accounts that own them, indexAccount the objects of
	// credentials by account, and indexAsking the accounts that request credentials.
	indexOwner   = "credentials.owner"
	indexAccount = "credentials.account"
	indexAsking  = "credentials.asking"
	// indexTenant indexes namespaces by their Tenant.
	indexTenant = tenantnamespace.IndexTenant
	// concurrent is the number of accounts that are reconciled at a time.
	concurrent = 4
	// look is the interval at which the target is compared with its previous value.
	look = 10 * time.Second
)

// Setup adds the reconciler to a manager, after the namespace reconciler. It returns an error
// if the manager refuses the controller, an index or a watch.
func (r *Reconciler) Setup(ctx context.Context, mgr manager.Manager) error {
	if err := index(ctx, mgr); err != nil {
		return err
	}
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	c := mgr.GetClient()
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return everybody(ctx, c) })
	changed := make(chan event.GenericEvent, 1)
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.watchTarget(ctx, changed) })); err != nil {
		return fmt.Errorf("cannot watch where kubeconfigs lead to: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("credentials").
		For(&corev1.ServiceAccount{}, builder.WithPredicates(annotated)).
		Watches(&v1alpha1.Tenant{}, handler.EnqueueRequestsFromMapFunc(owners), builder.WithPredicates(predicate.Or[client.Object](tenantnamespace.SpecChanged, deleted))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return concerned(ctx, c, o)
		}), builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, deleted))).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return requests(accountOf(o))
		})).
		// An account that the manager created for credentials is created again.
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return requests(accountOf(o))
		}), builder.WithPredicates(removed)).
		Watches(profile, all, builder.WithPredicates(tenantnamespace.SpecChanged)).
		WatchesRawSource(source.Channel(changed, all)).
		WithOptions(controller.Options{RateLimiter: backoff.RateLimiter(), MaxConcurrentReconciles: concurrent, LogConstructor: tenantnamespace.LogConstructor(mgr.GetLogger(), "credentials", tenantnamespace.TenantByNamespace(mgr.GetClient()))}).
		Complete(r)
}

// indexes returns the indexes of the cache.
var indexes = []struct {
	object client.Object
	name   string
	of     client.IndexerFunc
}{
	{&v1alpha1.Tenant{}, indexOwner, func(o client.Object) []string { return names(owners(context.Background(), o)) }},
	{&rbacv1.RoleBinding{}, indexAccount, accountOf},
	{&corev1.ServiceAccount{}, indexAsking, func(o client.Object) []string {
		if credentials.Asked(o.GetAnnotations()) == credentials.None {
			return nil
		}
		return []string{"true"}
	}},
}

func index(ctx context.Context, mgr manager.Manager) error {
	for _, i := range indexes {
		if err := mgr.GetFieldIndexer().IndexField(ctx, i.object, i.name, i.of); err != nil {
			return fmt.Errorf("cannot index %T: %w", i.object, err)
		}
	}
	return nil
}

// accountOf returns the account whose credentials an object of the manager belongs to.
func accountOf(o client.Object) []string {
	account, ok := credentials.AccountOf(o.GetAnnotations())
	if !ok || !credentials.Ours(o, account) {
		return nil
	}
	return []string{account.String()}
}

// owners are the accounts that own a Tenant.
func owners(_ context.Context, o client.Object) []reconcile.Request {
	tenant, ok := o.(*v1alpha1.Tenant)
	if !ok {
		return nil
	}
	var found []reconcile.Request
	for _, owner := range tenant.Spec.Owners {
		if owner.Kind == rbacv1.ServiceAccountKind {
			found = append(found, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}})
		}
	}
	return found
}

// concerned returns the accounts that own the Tenant of a namespace, the accounts in the
// namespace, and the accounts that have credentials in it.
func concerned(ctx context.Context, c client.Reader, namespace client.Object) []reconcile.Request {
	var found []reconcile.Request
	tenant := &v1alpha1.Tenant{}
	if name := namespace.GetLabels()[v1alpha1.LabelTenant]; name != "" && c.Get(ctx, client.ObjectKey{Name: name}, tenant) == nil {
		found = owners(ctx, tenant)
	}
	var accounts corev1.ServiceAccountList
	if err := c.List(ctx, &accounts, client.InNamespace(namespace.GetName()), client.MatchingFields{indexAsking: "true"}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the accounts of a namespace")
	}
	for i := range accounts.Items {
		found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&accounts.Items[i])})
	}
	var bindings rbacv1.RoleBindingList
	if err := c.List(ctx, &bindings, client.InNamespace(namespace.GetName()), client.HasLabels{credentials.Label}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the credentials of a namespace")
	}
	for i := range bindings.Items {
		found = append(found, requests(accountOf(&bindings.Items[i]))...)
	}
	return found
}

// everybody returns requests for all accounts that request or have credentials: an account may
// have withdrawn its request while there was no valid profile.
func everybody(ctx context.Context, c client.Reader) []reconcile.Request {
	var accounts corev1.ServiceAccountList
	if err := c.List(ctx, &accounts, client.MatchingFields{indexAsking: "true"}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list accounts")
	}
	found := map[reconcile.Request]bool{}
	for i := range accounts.Items {
		found[reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&accounts.Items[i])}] = true
	}
	var bindings rbacv1.RoleBindingList
	if err := c.List(ctx, &bindings, client.HasLabels{credentials.Label}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list credentials")
	}
	for i := range bindings.Items {
		for _, r := range requests(accountOf(&bindings.Items[i])) {
			found[r] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}

func requests(accounts []string) []reconcile.Request {
	var found []reconcile.Request
	for _, a := range accounts {
		if account, ok := credentials.AccountOf(map[string]string{tenancy.AnnotationAccount: a}); ok {
			found = append(found, reconcile.Request{NamespacedName: account})
		}
	}
	return found
}

func names(found []reconcile.Request) []string {
	var out []string
	for _, f := range found {
		out = append(out, f.String())
	}
	return out
}

// annotated is a predicate for accounts that request credentials, or did before the event.
var annotated = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return requestsCredentials(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return requestsCredentials(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return (requestsCredentials(e.ObjectOld) || requestsCredentials(e.ObjectNew)) &&
			(!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID())
	},
}

func requestsCredentials(o client.Object) bool {
	return credentials.Asked(o.GetAnnotations()) != credentials.None
}

// deleted is a predicate for updates that set the deletion timestamp.
var deleted = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

// removed is a predicate for deletions.
var removed = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// watchTarget enqueues all accounts when the address or the certificate authority of the target
// changes. The cluster has one of each, so it reads them at intervals instead of watching them.
func (r *Reconciler) watchTarget(ctx context.Context, changed chan<- event.GenericEvent) error {
	before := ""
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if target, err := r.Targets.Target(ctx); err == nil {
			now := credentials.Inputs(target, types.NamespacedName{}, "", "", 0)
			if before != now {
				select {
				case changed <- event.GenericEvent{Object: &corev1.ServiceAccount{}}:
				case <-ctx.Done():
					return nil
				}
			}
			before = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
