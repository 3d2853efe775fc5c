// Package tenant reconciles the cluster-scoped resources of a Tenant: its namespaces, the
// cluster-wide rights of its owners, the distribution of its quotas, and its status. It
// removes them in order when the Tenant is deleted. Package tenantnamespace reconciles the
// objects in each namespace.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Finalizer keeps a Tenant that is being deleted until all its objects are deleted.
const Finalizer = "tenure.dev/tenant"

// requeueDelay is the requeue delay for changes that cause no event.
const requeueDelay = 500 * time.Millisecond

// Profiles reads the TenancyProfile: see [tenantnamespace.Profiles].
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Rules reports whether the API server enforces the rules for tenants.
type Rules interface {
	// Enforced returns an error if it cannot find out.
	Enforced(ctx context.Context) (bool, error)
}

// Reservations count the namespaces that owners create: see internal/admission/webhook/reservations.
type Reservations interface {
	// Close stops the admission of namespaces, and returns the name of an admitted namespace
	// that may still appear.
	Close(ctx context.Context, tenant *v1alpha1.Tenant) (string, error)
}

// Reconciler reconciles Tenants.
type Reconciler struct {
	// Client reads from a cache and writes to the API server; APIReader reads
	// from the API server.
	Client    client.Client
	APIReader client.Reader
	Profiles  Profiles
	Rules     Rules
	// Reservations is nil without the webhook, when nothing is counted.
	Reservations Reservations
	// Reports holds the results of the namespace reconciler.
	Reports *Reports

	// Moves is set if a webhook lets requests wait while parts of quotas are moved: see
	// internal/admission/webhook/quotatransfer.
	Moves bool
	// Now returns the time.
	Now func() time.Time

	// locations are the namespaces of parts of quotas, and pace decides when they may
	// change.
	locations quotaLocations
	pace      transferPace
	attempts  attempts
	conflicts backoff.Conflicts
}

// Reconcile reconciles one Tenant. It returns an error if it cannot read the cache or
// write an object or the status. It retries conflicts without an error.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	tenant := &v1alpha1.Tenant{}
	if err := r.Client.Get(ctx, request.NamespacedName, tenant); err != nil {
		if apierrors.IsNotFound(err) {
			r.locations.forget(request.Name)
			r.pace.forget(request.Name)
			r.attempts.forget(request.Name)
			r.conflicts.Forget(request)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, tenant)
	if apierrors.IsConflict(err) {
		// Another client changed the object first: reconcile with the next version.
		return ctrl.Result{RequeueAfter: r.conflicts.After(request)}, nil
	}
	r.conflicts.Forget(request)
	return result, err
}

// reconcile runs the steps in order. Each step adds its results to the reconcileState.
func (r *Reconciler) reconcile(ctx context.Context, tenant *v1alpha1.Tenant) (ctrl.Result, error) {
	if !tenant.DeletionTimestamp.IsZero() {
		return r.offboard(ctx, tenant)
	}
	if !slices.Contains(tenant.Finalizers, Finalizer) || tenant.Labels[v1alpha1.LabelTenant] != tenant.Name {
		return ctrl.Result{}, r.mark(ctx, tenant)
	}
	profile, err := r.Profiles.Profile(ctx)
	if err != nil && !errors.Is(err, tenancy.ErrInvalid) {
		return ctrl.Result{}, err
	}
	enforced, err := r.Rules.Enforced(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	f := &reconcileState{tenant: tenant}
	if !enforced {
		f.problem(ReasonRulesNotEnforced, "the API server does not enforce the rules for tenants yet: the manager creates nothing before; if this stays so, apply all manifests of the manager")
		f.lookAgain(requeueDelay)
		return r.finish(ctx, f)
	}
	if profile == nil {
		f.problem(ReasonNoProfile, "there is no valid TenancyProfile named %s: the manager keeps the tenant's objects and creates no new ones until there is one", v1alpha1.ProfileName)
		return r.finish(ctx, f)
	}
	f.profile = profile
	for _, step := range []func(context.Context, *reconcileState) error{r.namespaces, r.create, r.cluster, r.quotas, r.reported, r.syncs, r.hosts} {
		if err := step(ctx, f); err != nil {
			return ctrl.Result{}, errors.Join(err, r.unfinished(ctx, f, err))
		}
	}
	r.attempts.forget(tenant.Name)
	return r.finish(ctx, f)
}

// unfinished writes the error of a step, after which the reconciliation is tried again, into the
// status of a Tenant that has no result for its generation. Otherwise Ready could remain True, or
// missing, for as long as the error lasts. It writes at most every [soonInterval], since the change
// triggers the next reconciliation at once.
func (r *Reconciler) unfinished(ctx context.Context, f *reconcileState, cause error) error {
	before := apimeta.FindStatusCondition(f.tenant.Status.Conditions, ConditionProvisioned)
	if apierrors.IsConflict(cause) || before != nil && before.ObservedGeneration == f.tenant.Generation && before.Reason != ReasonProgressing {
		return nil
	}
	if !r.attempts.due(f.tenant.Name, r.Now()) {
		return nil
	}
	changed := f.tenant.DeepCopy()
	apimeta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type: ConditionProvisioned, ObservedGeneration: f.tenant.Generation,
		Status: metav1.ConditionUnknown, Reason: ReasonProgressing, Message: short("the manager tries again: " + cause.Error()),
	})
	apimeta.SetStatusCondition(&changed.Status.Conditions, ready(changed, changed.Status.Conditions))
	if equality.Semantic.DeepEqual(f.tenant.Status, changed.Status) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Status().Update(ctx, changed, client.FieldOwner(tenantnamespace.FieldManager)))
}

// attempts holds when the errors of Tenants were last written into their statuses. The zero value is
// ready to use. It is safe for concurrent use.
type attempts struct {
	mu    sync.Mutex
	wrote map[string]time.Time
}

// due reports whether an error may be written now, and records it.
func (a *attempts) due(tenant string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.wrote[tenant]; ok && now.Sub(last) < soonInterval {
		return false
	}
	if a.wrote == nil {
		a.wrote = map[string]time.Time{}
	}
	a.wrote[tenant] = now
	return true
}

func (a *attempts) forget(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wrote, tenant)
}

// namespaces reads the namespaces of the tenant.
func (r *Reconciler) namespaces(ctx context.Context, f *reconcileState) error {
	list, err := r.owned(ctx, f.tenant.Name)
	if err != nil {
		return err
	}
	for i := range list {
		f.add(&list[i])
	}
	return nil
}

func (r *Reconciler) owned(ctx context.Context, tenant string) ([]corev1.Namespace, error) {
	var list corev1.NamespaceList
	if err := r.Client.List(ctx, &list, client.MatchingFields{tenantnamespace.IndexTenant: tenant}); err != nil {
		return nil, fmt.Errorf("cannot read the namespaces of tenant %s: %w", tenant, err)
	}
	return list.Items, nil
}

// create creates the namespaces that the Tenant lists. It does not change an existing
// namespace without the tenant's label: only the platform assigns a namespace to a tenant, by
// the label.
func (r *Reconciler) create(ctx context.Context, f *reconcileState) error {
	labels, annotations, err := tenancy.Metadata(f.tenant)
	if err != nil {
		f.problem(ReasonInvalid, "%v", err)
	}
	labels[v1alpha1.LabelTenant] = f.tenant.Name
	for _, name := range f.tenant.Spec.Namespaces.Create {
		if tenancy.OfPlatform(name, f.profile) {
			f.problem(ReasonNamespaceTaken, "namespace %s of spec.namespaces.create is the platform's and cannot be a tenant's", name)
			continue
		}
		if f.has(name) {
			continue
		}
		existing := &corev1.Namespace{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, existing)
		if apierrors.IsNotFound(err) {
			made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
			if err = r.Client.Create(ctx, made, client.FieldOwner(tenantnamespace.FieldManager)); err == nil {
				f.add(made)
				continue
			}
			if apierrors.IsAlreadyExists(err) {
				err = r.APIReader.Get(ctx, client.ObjectKey{Name: name}, existing)
			}
		}
		switch {
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			f.problem(ReasonFailed, "namespace %s cannot be made: %v", name, err)
		case err != nil:
			return fmt.Errorf("cannot make namespace %s: %w", name, err)
		case existing.Labels[v1alpha1.LabelTenant] == f.tenant.Name:
			f.add(existing)
		case !existing.DeletionTimestamp.IsZero():
			f.problem(ReasonNamespaceTaken, "namespace %s of spec.namespaces.create exists, is %s and is being deleted%s; the manager creates it again when it is gone", name, whose(existing), remains(existing))
		default:
			f.problem(ReasonNamespaceTaken, "namespace %s of spec.namespaces.create exists and is %s: remove the RoleBindings and Secrets with tokens that others made in it and label it %s=%s to assign it to this tenant, or remove it from the list",
				name, whose(existing), v1alpha1.LabelTenant, f.tenant.Name)
		}
	}
	return nil
}

func whose(ns *corev1.Namespace) string {
	if tenant, ok := tenancy.TenantOf(ns.Labels); ok {
		return fmt.Sprintf("tenant %s's", tenant)
	}
	return "no tenant's"
}

// reported adds the report of the namespace reconciler on each namespace.
func (r *Reconciler) reported(_ context.Context, f *reconcileState) error {
	for _, ns := range f.list {
		switch {
		case !ns.DeletionTimestamp.IsZero():
			if slices.Contains(f.tenant.Spec.Namespaces.Create, ns.Name) {
				f.pending = append(f.pending, ns.Name+" (is being deleted"+remains(ns)+")")
			}
		case !r.Reports.about(ns.Name, f.tenant):
			f.pending = append(f.pending, ns.Name)
			if failure := r.Reports.failure(ns.Name, f.tenant); failure != "" && f.failure == "" {
				f.failure = "namespace " + ns.Name + " is tried again: " + failure
			}
		default:
			if problem := r.Reports.problem(ns.Name); problem != "" {
				f.problem(ReasonFailed, "namespace %s: %s", ns.Name, problem)
			}
		}
	}
	return nil
}

// mark puts the finalizer on a Tenant, and its name into a label, by which the proxy
// selects an owner's Tenants.
func (r *Reconciler) mark(ctx context.Context, tenant *v1alpha1.Tenant) error {
	changed := tenant.DeepCopy()
	controllerutil.AddFinalizer(changed, Finalizer)
	metav1.SetMetaDataLabel(&changed.ObjectMeta, v1alpha1.LabelTenant, tenant.Name)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(tenant, client.MergeFromWithOptimisticLock{}), client.FieldOwner(tenantnamespace.FieldManager))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot mark tenant %s: %w", tenant.Name, err)
	}
	return nil
}

// finalize sets the finalizers of the Tenant, at the version that was read.
func (r *Reconciler) finalize(ctx context.Context, tenant *v1alpha1.Tenant, finalizers []string) error {
	changed := tenant.DeepCopy()
	changed.Finalizers = finalizers
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(tenant, client.MergeFromWithOptimisticLock{}), client.FieldOwner(tenantnamespace.FieldManager))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot change the finalizers of tenant %s: %w", tenant.Name, err)
	}
	return nil
}

func named(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
