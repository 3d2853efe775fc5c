package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ConditionReplicated is the condition of a Tenant with objects that its namespaces have
	// them.
	ConditionReplicated = "Replicated"
	// ReasonInPlace is the reason when all objects are in place.
	ReasonInPlace = "InPlace"
	// ReasonCordoned is the reason when a cordon stops replication.
	ReasonCordoned = "Cordoned"
)

// Profiles reads the TenancyProfile: see [tenantnamespace.Profiles].
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// TenantReconciler replicates the objects of Tenants.
type TenantReconciler struct {
	// Client reads from a cache and writes the status of Tenants.
	Client   client.Client
	Engine   *Engine
	Profiles Profiles

	conflicts backoff.Conflicts
}

// Reconcile creates, updates and deletes the objects of one Tenant. The deletion of a Tenant
// deletes its namespaces with these objects. Reconcile returns an error of the API server; the
// controller then retries.
func (r *TenantReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	tenant := &v1alpha1.Tenant{}
	if err := r.Client.Get(ctx, request.NamespacedName, tenant); err != nil {
		if apierrors.IsNotFound(err) {
			r.Engine.waits.forget(fieldManager("Tenant", "", request.Name))
			r.conflicts.Forget(request)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !tenant.DeletionTimestamp.IsZero() || len(tenant.Spec.Objects)+len(tenant.Status.Objects) == 0 && apimeta.FindStatusCondition(tenant.Status.Conditions, ConditionReplicated) == nil {
		return ctrl.Result{}, nil
	}
	result, err := r.reconcile(ctx, tenant)
	if apierrors.IsConflict(err) {
		// Another client changed the object first: reconcile with the next version.
		return ctrl.Result{RequeueAfter: r.conflicts.After(request)}, nil
	}
	r.conflicts.Forget(request)
	return result, err
}

func (r *TenantReconciler) reconcile(ctx context.Context, tenant *v1alpha1.Tenant) (ctrl.Result, error) {
	if tenant.Spec.Cordoned {
		return ctrl.Result{}, r.write(ctx, tenant, nil, &metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: ReasonCordoned, Message: "while the tenant is cordoned, its objects are left as they are",
		})
	}
	s, err := scopeOf(ctx, r.Client, r.Profiles, tenant.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		// Profiles are not watched here.
		return ctrl.Result{RequeueAfter: resync}, nil
	}
	j := &job{
		manager: fieldManager("Tenant", "", tenant.Name),
		scopes:  []scope{*s},
		have:    readTenant(tenant.Status.Objects),
		mine:    func(held replication.Held) bool { return s.has(held.Namespace) },
		save: func(ctx context.Context, inventory replication.Inventory) error {
			return r.write(ctx, tenant, inventory, nil)
		},
	}
	var early problems
	for i := range tenant.Spec.Objects {
		if e := tenantEntry(tenant, &tenant.Spec.Objects[i], s, &early); e != nil {
			j.entries = append(j.entries, *e)
		}
	}
	done, err := r.Engine.run(ctx, j, early)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(tenant.Spec.Objects)+len(done.inventory) == 0 {
		return ctrl.Result{}, r.write(ctx, tenant, done.inventory, &metav1.Condition{})
	}
	c := done.condition()
	return ctrl.Result{RequeueAfter: done.after(resync)}, r.write(ctx, tenant, done.inventory, &c)
}

// write writes the status if it differs. A nil inventory or condition stays unchanged; a
// condition without a status is removed.
func (r *TenantReconciler) write(ctx context.Context, tenant *v1alpha1.Tenant, inventory replication.Inventory, c *metav1.Condition) error {
	before := tenant.Status.DeepCopy()
	if inventory != nil {
		tenant.Status.Objects = writeTenant(inventory)
	}
	if c != nil {
		c.Type, c.ObservedGeneration = ConditionReplicated, tenant.Generation
		if c.Status == "" {
			apimeta.RemoveStatusCondition(&tenant.Status.Conditions, ConditionReplicated)
		} else {
			apimeta.SetStatusCondition(&tenant.Status.Conditions, *c)
		}
	}
	if equality.Semantic.DeepEqual(*before, tenant.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, tenant, client.FieldOwner(tenantnamespace.FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of tenant %s: %w", tenant.Name, err)
	}
	return nil
}

// condition returns the condition with the result of a job.
func (r *result) condition() metav1.Condition {
	c := metav1.Condition{Status: metav1.ConditionFalse, Reason: r.problems.reason, Message: r.problems.message()}
	switch r.problems.reason {
	case "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonInPlace, fmt.Sprintf("%d objects are in place", r.size)
		if r.size == 1 {
			c.Message = "1 object is in place"
		}
	case reasonWaiting:
		c.Status = metav1.ConditionUnknown
	}
	return c
}

// scopeOf reads the namespaces of a tenant. It returns nil if no object may be created
// because there is no valid profile.
func scopeOf(ctx context.Context, c client.Reader, profiles Profiles, tenant string) (*scope, error) {
	profile, err := profiles.Profile(ctx)
	if errors.Is(err, tenancy.ErrInvalid) || err == nil && profile == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list corev1.NamespaceList
	if err := c.List(ctx, &list, client.MatchingFields{tenantnamespace.IndexTenant: tenant}); err != nil {
		return nil, fmt.Errorf("cannot read the namespaces of tenant %s: %w", tenant, err)
	}
	named := &v1alpha1.Tenant{}
	if err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Name: tenant}, named)); err != nil {
		return nil, fmt.Errorf("cannot read tenant %s: %w", tenant, err)
	}
	s := &scope{tenant: tenant}
	for i := range list.Items {
		ns := &list.Items[i]
		_, settled := ns.Labels[v1alpha1.LabelParameters]
		switch {
		case !ns.DeletionTimestamp.IsZero(), tenancy.OfPlatform(ns.Name, profile):
		case !settled:
			s.waiting = append(s.waiting, ns.Name)
		default:
			s.namespaces = append(s.namespaces, replication.Namespace{Name: ns.Name, Labels: tenancy.TrustedLabels(ns.Labels, named), Chosen: ns.Labels})
		}
	}
	return s, nil
}

// has reports whether a namespace belongs to the tenant.
func (s *scope) has(namespace string) bool {
	return slices.Contains(s.waiting, namespace) ||
		slices.ContainsFunc(s.namespaces, func(ns replication.Namespace) bool { return ns.Name == namespace })
}

// tenantEntry returns the entry for a list of a Tenant's objects.
func tenantEntry(tenant *v1alpha1.Tenant, o *v1alpha1.ReplicatedObjects, s *scope, p *problems) *entry {
	name := o.ServiceAccount
	if name == "" {
		name = tenant.Name
	}
	e := &entry{adopt: o.Adopt, force: o.Force, account: func(namespace string) replication.Account {
		return replication.Account{Namespace: namespace, Name: name}
	}}
	e.Name = "objects " + o.Name
	var err error
	if e.Selector, err = selector(o.NamespaceSelector); err != nil {
		p.add(reasonRefused, "%s: namespaceSelector: %v", e.Name, err)
		return nil
	}
	for _, item := range o.Items {
		e.Items = append(e.Items, item.Raw)
	}
	for i, from := range o.From {
		src := source{where: fmt.Sprintf("%s, from %d", e.Name, i), namespace: from.Namespace, name: from.Name}
		if src.kind, err = kindOf(from.APIVersion, from.Kind); err == nil {
			src.selector, err = selector(from.Selector)
		}
		if err != nil {
			p.add(reasonRefused, "%s: %v", src.where, err)
			continue
		}
		src.reader = reader(s, e.account)
		e.from = append(e.from, src)
	}
	return e
}

// reader returns the account that reads objects from a namespace: the account of the
// namespace if it is the tenant's, and otherwise the account of the target namespace.
func reader(s *scope, account func(string) replication.Account) func(source, namespace string) replication.Account {
	return func(source, namespace string) replication.Account {
		if s.has(source) {
			return account(source)
		}
		return account(namespace)
	}
}

// selector parses a selector; nil selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

func readTenant(list []v1alpha1.ReplicatedObject) replication.Inventory {
	var kept []replication.Kept
	for _, o := range list {
		kept = append(kept, replication.Kept{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, Account: replication.Account{Name: o.ServiceAccount}, Namespaces: o.Namespaces})
	}
	return replication.ReadInventory(kept)
}

func writeTenant(inventory replication.Inventory) []v1alpha1.ReplicatedObject {
	var list []v1alpha1.ReplicatedObject
	for _, k := range inventory.List() {
		list = append(list, v1alpha1.ReplicatedObject{APIVersion: k.APIVersion, Kind: k.Kind, Name: k.Name, ServiceAccount: k.Account.Name, Namespaces: k.Namespaces})
	}
	return list
}
