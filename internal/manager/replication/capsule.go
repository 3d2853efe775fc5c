package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Finalizer keeps a TenantResource or GlobalTenantResource until its objects are
	// deleted.
	Finalizer = "tenure.dev/replicated"
	// FieldManager is the field manager of the status.
	FieldManager = "tenure-manager-capsule"
	// conditionReady is the condition that all objects are in place.
	conditionReady = "Ready"
	// conditionHonoured is the condition that every field has an effect.
	conditionHonoured = "Honoured"
	// reasonDependency: another declaration must be ready first.
	reasonDependency = "DependencyNotReady"
)

// CapsuleReconciler replicates the objects of Capsule's TenantResources and
// GlobalTenantResources.
type CapsuleReconciler struct {
	// Client reads from a cache and writes status and finalizers.
	Client   client.Client
	Engine   *Engine
	Profiles Profiles

	kind      kindOfCapsule
	conflicts backoff.Conflicts
}

// Reconcile creates, updates and deletes the objects of one declaration. It returns an error of
// the API server; the controller then retries.
func (r *CapsuleReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o := r.kind.empty()
	if err := r.Client.Get(ctx, request.NamespacedName, o); err != nil {
		if apierrors.IsNotFound(err) {
			r.Engine.waits.forget(fieldManager(r.kind.name, request.Namespace, request.Name))
			r.conflicts.Forget(request)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, o)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: r.conflicts.After(request)}, nil
	}
	r.conflicts.Forget(request)
	return result, err
}

func (r *CapsuleReconciler) reconcile(ctx context.Context, o client.Object) (ctrl.Result, error) {
	d := r.kind.read(o)
	prunes := d.spec.PruningOnDelete == nil || *d.spec.PruningOnDelete
	has := slices.Contains(o.GetFinalizers(), Finalizer)
	switch deleting := !o.GetDeletionTimestamp().IsZero(); {
	case deleting && !has:
		return ctrl.Result{}, nil
	case deleting && !prunes:
		return ctrl.Result{}, r.finalize(ctx, o, false)
	case deleting:
		return r.leave(ctx, o, d)
	case !deleting && has != prunes:
		// The change of the finalizer causes no event, so the reconcile continues.
		if err := r.finalize(ctx, o, prunes); err != nil {
			return ctrl.Result{}, err
		}
	}
	period, problem := period(d.spec.ResyncPeriod)
	var early problems
	if problem != "" {
		early.add(reasonRefused, "spec.resyncPeriod: %s", problem)
	}
	if d.spec.Cordoned {
		return ctrl.Result{}, r.write(ctx, o, d, nil, &metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: ReasonCordoned, Message: "spec.cordoned is true: the objects are left as they are",
		})
	}
	if waits, err := r.waits(ctx, o, d); err != nil || waits != "" {
		c := &metav1.Condition{Status: metav1.ConditionUnknown, Reason: reasonDependency, Message: waits}
		if err == nil {
			err = r.write(ctx, o, d, nil, c)
		}
		return ctrl.Result{RequeueAfter: requeueDelay}, err
	}
	j, err := r.job(ctx, o, d, &early)
	if err != nil {
		return ctrl.Result{}, err
	}
	if j == nil {
		// Profiles are not watched here.
		return ctrl.Result{RequeueAfter: resync}, nil
	}
	done, err := r.Engine.run(ctx, j, early)
	if err != nil {
		return ctrl.Result{}, err
	}
	c := done.condition()
	d.status.Size = int32(done.size) // bounded by MaxObjects
	d.status.ProcessedItems = processedItems(done.processed)
	if failed := failures(done.processed); failed > 0 && c.Status == metav1.ConditionFalse {
		c.Message = fmt.Sprintf("applying of %d resources failed, of %d: %s", failed, len(done.processed), c.Message)
	}
	return ctrl.Result{RequeueAfter: done.after(period)}, r.write(ctx, o, d, done.inventory, &c)
}

// leave deletes the objects of a declaration that is being deleted, and then removes its
// finalizer. It reads the inventory only: a mistake in the spec, or a missing profile, must
// not block the deletion forever.
func (r *CapsuleReconciler) leave(ctx context.Context, o client.Object, d *declaration) (ctrl.Result, error) {
	j := r.empty(o, d)
	var tenants []string
	if d.tenants == nil {
		var none problems // isManaged decides by the namespace's tenant
		var err error
		if tenants, err = r.tenants(ctx, o, d, &none); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	j.mine = func(held replication.Held) bool { return r.isManaged(ctx, o, d, tenants, held) }
	done, err := r.Engine.run(ctx, j, problems{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(done.inventory) == 0 || r.leaving(ctx, o) {
		return ctrl.Result{}, r.finalize(ctx, o, false)
	}
	c := done.condition()
	return ctrl.Result{RequeueAfter: done.after(resync)}, r.write(ctx, o, d, done.inventory, &c)
}

// empty returns a job without objects.
func (r *CapsuleReconciler) empty(o client.Object, d *declaration) *job {
	return &job{
		manager: fieldManager(r.kind.name, o.GetNamespace(), o.GetName()),
		have:    readCapsule(d.status.Inventory),
		save: func(ctx context.Context, inventory replication.Inventory) error {
			return r.write(ctx, o, d, inventory, nil)
		},
	}
}

// job returns the job of a declaration, or nil if no object may be created.
func (r *CapsuleReconciler) job(ctx context.Context, o client.Object, d *declaration, p *problems) (*job, error) {
	j := r.empty(o, d)
	tenants, err := r.tenants(ctx, o, d, p)
	if err != nil {
		return nil, err
	}
	owner := map[string]string{}
	j.once = d.once
	if j.once {
		if j.scopes, err = r.onceScopes(ctx, d, tenants); err != nil || j.scopes == nil {
			return nil, err
		}
		tenants = nil
	}
	for _, tenant := range tenants {
		s, err := scopeOf(ctx, r.Client, r.Profiles, tenant)
		if err != nil || s == nil {
			return nil, err
		}
		if s.object, err = r.readable(ctx, tenant); err != nil {
			return nil, err
		}
		j.scopes = append(j.scopes, *s)
		for _, ns := range s.namespaces {
			owner[ns.Name] = tenant
		}
	}
	j.mine = func(held replication.Held) bool { return r.isManaged(ctx, o, d, tenants, held) }
	account, problem, err := r.account(ctx, o, d, tenants, owner)
	if err != nil {
		return nil, err
	}
	if problem != "" {
		p.add(reasonRefused, "%s", problem)
		j.scopes = nil
	}
	if d.refused == "" && problem == "" {
		j.entries = capsuleEntries(d, account, j.scopes, r.Engine.scope, p)
	}
	if d.refused != "" {
		p.add(reasonRefused, "%s", d.refused)
	}
	return j, nil
}

// readable returns what templates can read of a Tenant of Capsule: all of it, without the bookkeeping of the
// API server. It returns nil for a tenant without one.
func (r *CapsuleReconciler) readable(ctx context.Context, tenant string) (map[string]any, error) {
	t := &v1beta2.Tenant{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: tenant}, t); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot read Capsule's Tenant %s: %w", tenant, err)
	}
	t.ManagedFields = nil
	return runtime.DefaultUnstructuredConverter.ToUnstructured(t)
}

// tenants returns the names of the tenants whose namespaces get the objects.
func (r *CapsuleReconciler) tenants(ctx context.Context, o client.Object, d *declaration, p *problems) ([]string, error) {
	if d.tenants == nil {
		ns := &corev1.Namespace{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, ns); err != nil {
			return nil, fmt.Errorf("cannot read namespace %s: %w", o.GetNamespace(), err)
		}
		if tenant := ns.Labels[v1alpha1.LabelTenant]; tenant != "" {
			return []string{tenant}, nil
		}
		p.add(reasonRefused, "namespace %s is no tenant's", ns.Name)
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(d.tenants)
	if err != nil {
		p.add(reasonRefused, "spec.tenantSelector: %v", err)
		return nil, nil
	}
	var list v1beta2.TenantList
	if err := r.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("cannot read Capsule's Tenants: %w", err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	d.selected = names
	return names, nil
}

// account returns the account that applies the objects in a namespace. A tenant's own
// declaration is applied by one of the reconciler accounts of its namespace, so that the API
// server limits it to that account's rights. With [v1alpha1.ReplicationTenant] in the profile,
// a tenant's declaration has the account with the tenant's name in each of its namespaces.
func (r *CapsuleReconciler) account(ctx context.Context, o client.Object, d *declaration, tenants []string, owner map[string]string) (func(string) replication.Account, string, error) {
	if d.tenants != nil {
		if d.account != nil {
			return func(string) replication.Account { return *d.account }, "", nil
		}
		d.perNamespace = true
		return func(namespace string) replication.Account {
			return replication.Account{Namespace: namespace, Name: owner[namespace]}
		}, "", nil
	}
	if len(tenants) == 0 {
		return nil, "", nil
	}
	profile, err := r.Profiles.Profile(ctx)
	if err != nil {
		return nil, "", err
	}
	ofTenant := profile != nil && profile.Spec.Capsule.Replication == v1alpha1.ReplicationTenant
	one := replication.Account{Namespace: o.GetNamespace(), Name: tenants[0]}
	if d.account != nil {
		one.Name = d.account.Name
	}
	d.status.ServiceAccount = &v1beta2.Account{Name: one.Name, Namespace: one.Namespace}
	if ofTenant && d.account != nil {
		return func(string) replication.Account { return one }, "", nil
	}
	if ofTenant {
		d.perNamespace = true
		return func(namespace string) replication.Account {
			return replication.Account{Namespace: namespace, Name: tenants[0]}
		}, "", nil
	}
	allowed, err := r.reconcilers(ctx, one.Namespace, tenants[0])
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(allowed, one.Name) {
		return nil, fmt.Sprintf("spec.serviceAccount: account %s of namespace %s is none that tenant %s may be applied as (allowed: %s)",
			one.Name, one.Namespace, tenants[0], join(allowed)), nil
	}
	return func(string) replication.Account { return one }, "", nil
}

// reconcilers returns the accounts of a namespace that may apply a tenant's objects: Flux's
// reconciler accounts, and the accounts that own the tenant.
func (r *CapsuleReconciler) reconcilers(ctx context.Context, namespace, tenant string) ([]string, error) {
	allowed := []string{tenant}
	parameters := &v1alpha1.TenantParameters{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ParametersName}, parameters)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot read the parameters of namespace %s: %w", namespace, err)
	}
	allowed = append(allowed, parameters.Spec.Tenants.Accounts.Reconcilers...)
	t := &v1alpha1.Tenant{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: tenant}, t); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot read tenant %s: %w", tenant, err)
	}
	for _, owner := range t.Spec.Owners {
		if owner.Kind == "ServiceAccount" && owner.Namespace == namespace {
			allowed = append(allowed, owner.Name)
		}
	}
	slices.Sort(allowed)
	return slices.Compact(allowed), nil
}

// onceScopes returns a scope for each tenant, or a single one without a tenant, for objects that are applied
// once. It returns nil if no object may be created because there is no valid profile.
func (r *CapsuleReconciler) onceScopes(ctx context.Context, d *declaration, tenants []string) ([]scope, error) {
	profile, err := r.Profiles.Profile(ctx)
	if errors.Is(err, tenancy.ErrInvalid) || err == nil && profile == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d.alone {
		return []scope{{}}, nil
	}
	scopes := []scope{}
	for _, tenant := range tenants {
		scopes = append(scopes, scope{tenant: tenant})
	}
	return scopes, nil
}

// isManaged reports whether an object may be deleted: from the tenant's namespaces, or for a declaration of
// a platform admin from the namespaces of any tenant. Outside of them, the declaration's account deletes
// what it applied. A namespace that left its tenant keeps the objects of its own account, as
// which the manager no longer acts.
func (r *CapsuleReconciler) isManaged(ctx context.Context, o client.Object, d *declaration, tenants []string, held replication.Held) bool {
	if held.Namespace == "" {
		return o.GetNamespace() == ""
	}
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: held.Namespace}, ns); err != nil || !ns.DeletionTimestamp.IsZero() {
		return false
	}
	tenant := ns.Labels[v1alpha1.LabelTenant]
	switch {
	case o.GetNamespace() != "":
		return slices.Contains(tenants, tenant)
	case tenant != "":
		return true
	}
	return held.Account.Namespace != held.Namespace || d.account != nil && *d.account == held.Account
}

// leaving reports whether the declaration's namespace is being deleted, which the finalizer
// must not delay.
func (r *CapsuleReconciler) leaving(ctx context.Context, o client.Object) bool {
	if o.GetNamespace() == "" {
		return false
	}
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: o.GetNamespace()}, ns)
	return apierrors.IsNotFound(err) || err == nil && !ns.DeletionTimestamp.IsZero()
}

// waits returns a message about the declaration in spec.dependsOn that is missing or not ready,
// or "".
func (r *CapsuleReconciler) waits(ctx context.Context, o client.Object, d *declaration) (string, error) {
	for _, on := range d.spec.DependsOn {
		other := r.kind.empty()
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: on.Name}, other)
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("spec.dependsOn: there is no %s %s", r.kind.name, on.Name), nil
		}
		if err != nil {
			return "", fmt.Errorf("cannot read %s %s: %w", r.kind.name, on.Name, err)
		}
		status := r.kind.read(other).status
		if status.ObservedGeneration != other.GetGeneration() || !apimeta.IsStatusConditionTrue(status.Conditions, conditionReady) {
			return fmt.Sprintf("spec.dependsOn: waits for %s %s", r.kind.name, on.Name), nil
		}
	}
	return "", nil
}

// finalize adds or removes the finalizer.
func (r *CapsuleReconciler) finalize(ctx context.Context, o client.Object, wanted bool) error {
	before := o.DeepCopyObject().(client.Object)
	kept := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == Finalizer })
	if wanted {
		kept = append(kept, Finalizer)
	}
	o.SetFinalizers(kept)
	err := r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot change the finalizers of %s %s: %w", r.kind.name, o.GetName(), err)
	}
	return nil
}

// write writes the status if it differs. A nil inventory or condition stays unchanged.
func (r *CapsuleReconciler) write(ctx context.Context, o client.Object, d *declaration, inventory replication.Inventory, c *metav1.Condition) error {
	if inventory != nil {
		d.status.Inventory = writeCapsule(inventory)
	}
	if c != nil {
		honoured := honoured()
		for kind, c := range map[string]*metav1.Condition{conditionReady: c, conditionHonoured: &honoured} {
			c.Type, c.ObservedGeneration = kind, o.GetGeneration()
			apimeta.SetStatusCondition(&d.status.Conditions, *c)
		}
		slices.SortFunc(d.status.Conditions, byType)
		d.status.ObservedGeneration = o.GetGeneration()
	}
	before := o.DeepCopyObject().(client.Object)
	r.kind.set(o, d)
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	err := r.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of %s %s: %w", r.kind.name, o.GetName(), err)
	}
	return nil
}

// all returns all objects of the kind.
func (r *CapsuleReconciler) all(ctx context.Context) []reconcile.Request {
	list := r.kind.list()
	if err := r.Client.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list what Capsule's kinds replicate")
		return nil
	}
	var requests []reconcile.Request
	_ = apimeta.EachListItem(list, each(&requests))
	return requests
}
