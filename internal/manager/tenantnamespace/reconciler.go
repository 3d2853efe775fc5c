// Package tenantnamespace reconciles the objects that [tenancy.Desired] returns for each
// namespace of a tenant. Once the parameters of the namespace exist, it labels the namespace,
// so that the policies read these parameters.
package tenantnamespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// FieldManager is the field manager of the objects.
const FieldManager = "tenure-manager"

// propagationDelay is the time between the creation of parameters and the label that puts
// them in force, and between the removal of the label and their deletion: the API server
// learns of both through separate watches, one of which may be late.
const propagationDelay = 2 * time.Second

// stamp is how much later than its time of creation says an object may have been made:
// the API server writes whole seconds.
const stamp = time.Second

// Events records events; an EventRecorder of Kubernetes implements it.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Profiles reads the TenancyProfile. It returns nil without an error if there is no profile,
// and an error that wraps [tenancy.ErrInvalid] for an invalid profile.
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Kinds returns which of Flux's kinds the cluster serves, as RESOURCE.GROUP.
type Kinds interface {
	Served(ctx context.Context) ([]string, error)
}

// Classes selects classes by their labels. It returns nil if the limits have no selectors, and a
// problem with a selector that only a platform admin can solve.
type Classes interface {
	Select(ctx context.Context, limits *v1alpha1.Posture) (selected *v1alpha1.SelectedClasses, problem, err error)
}

// Failures stores for which namespaces the profile could not be applied; a nil error clears
// the entry.
type Failures interface {
	Set(namespace string, err error)
}

// Reports collects the state of the namespaces of Tenants, for their status.
type Reports interface {
	// Report records that a namespace matches a version of its Tenant, or the problem that
	// prevents it.
	Report(tenant *v1alpha1.Tenant, namespace string, problem error)
	// Forget drops the report on a namespace that no longer belongs to a tenant.
	Forget(namespace string)
}

// Reconciler reconciles the namespaces of tenants.
type Reconciler struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
	// Secrets reads the Secrets with public keys from the API server, by their names.
	Secrets  client.Reader
	Profiles Profiles
	Kinds    Kinds
	Classes  Classes
	Failures Failures
	Reports  Reports
	Events   Events
	// Manager is the manager's own subject. When a Tenant is deleted, it gets the right to
	// delete each of the Tenant's namespaces.
	Manager rbacv1.Subject
	// ClassesChanged are the namespaces whose selected classes may have changed.
	ClassesChanged <-chan event.GenericEvent
	// Replicates is set if Capsule's kinds replicate objects too.
	Replicates bool
	// Now is the clock.
	Now func() time.Time

	unlabelled times
	unkept     times
	refused    times
}

// Reconcile reconciles one namespace. Without a valid profile it creates and deletes
// nothing. It returns an error if it cannot read the namespace or write an
// object. It retries conflicts without an error.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, request.NamespacedName, ns); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetNamespace(request.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("cannot read namespace %s: %w", request.Name, err)
	}
	if tenant, ok := tenancy.TenantOf(ns.Labels); ok {
		ctx = LogTenant(ctx, tenant)
	}
	result, problem, err := r.reconcile(ctx, ns)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || (apierrors.IsNotFound(err) && !ns.DeletionTimestamp.IsZero()) {
		// Another client changed the object first: reconcile with the next version.
		return ctrl.Result{RequeueAfter: propagationDelay / 10}, nil
	}
	if err != nil {
		problem = err
	}
	r.Failures.Set(ns.Name, problem)
	return result, err
}

// LogTenant returns a context whose logger names a tenant under the key tenant, in the log lines of
// all reconcilers.
func LogTenant(ctx context.Context, tenant string) context.Context {
	return ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("tenant", tenant))
}

func (r *Reconciler) forgetNamespace(namespace string) {
	r.Failures.Set(namespace, nil)
	r.Reports.Forget(namespace)
	r.unlabelled.forget(namespace)
	r.refused.forget(namespace)
}

// reconcile returns an error that is retried, and a problem that only a platform admin can
// solve.
func (r *Reconciler) reconcile(ctx context.Context, ns *corev1.Namespace) (result ctrl.Result, problem, err error) {
	profile, err := r.Profiles.Profile(ctx)
	if errors.Is(err, tenancy.ErrInvalid) {
		// The status of the profile has the error.
		return ctrl.Result{}, nil, nil
	}
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if profile == nil {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "NoProfile", "Reconcile",
			"there is no TenancyProfile named %s: what tenants have stays; until there is one, nothing is made for new ones", v1alpha1.ProfileName)
		return ctrl.Result{}, nil, nil
	}
	have, err := r.read(ctx, ns.Name)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if !ns.DeletionTimestamp.IsZero() {
		result, err = r.release(ctx, ns, have)
		return result, nil, err
	}
	if _, tenants := tenancy.TenantOf(ns.Labels); !tenants {
		r.Reports.Forget(ns.Name)
		result, err = r.tearDown(ctx, ns, have)
		return result, nil, err
	}
	tenant, siblings, err := r.tenant(ctx, ns)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	kinds, later, err := r.countObjects(ctx, have)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	in := describe(ns, profile, have, kinds)
	in.Tenant, in.Siblings, in.Manager, in.Replicates = tenant, siblings, &r.Manager, r.Replicates
	if in.OwnerAccounts, err = r.ownerAccounts(ctx, ns.Name); err != nil {
		return ctrl.Result{}, nil, err
	}
	if in.PlatformWorkloads, err = r.platformWorkloads(ctx, ns, &profile.Spec); err != nil {
		return ctrl.Result{}, nil, err
	}
	desired, problem := tenancy.Desired(in, profile)
	if problem != nil {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "NotATenant", "Reconcile", "%v", problem)
		r.report(tenant, ns, problem)
		result, err = r.tearDown(ctx, ns, have)
		return result, problem, err
	}
	parameters := &desired.Parameters.Spec
	selected, unselected, err := r.Classes.Select(ctx, &parameters.Tenants)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	parameters.SelectedClasses = selected
	for _, field := range tenancy.EmptySelectors(&parameters.Tenants, selected) {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "SelectsNothing", "Reconcile",
			"the selector of %s selects no class of the cluster: label the classes that the tenant may use, or change the selector", field)
	}
	leaving := tenant != nil && !tenant.DeletionTimestamp.IsZero()
	if leaving {
		if err := r.leave(ctx, desired, have); err != nil {
			return ctrl.Result{}, nil, err
		}
	}
	result, problem, err = r.apply(ctx, ns, tenant, desired, have)
	problem = cmp.Or(problem, unselected)
	switch {
	case err == nil:
		r.report(tenant, ns, problem)
	case leaving:
		// The Tenant is ready without the other objects of the namespace.
		r.report(tenant, ns, err)
	}
	if later > 0 && (result.RequeueAfter == 0 || later < result.RequeueAfter) {
		result.RequeueAfter = later
	}
	return result, problem, err
}

// describe returns the input of the function that computes the desired objects.
func describe(ns *corev1.Namespace, profile *v1alpha1.TenancyProfile, have *contents, kinds []string) tenancy.Namespace {
	tenant, _ := tenancy.TenantOf(ns.Labels)
	platform := profile.Spec.PlatformNamespaces
	in := tenancy.Namespace{Name: ns.Name, Labels: ns.Labels, Kinds: kinds, Credentials: tenancy.CredentialsIn(ns.Name, have.bindings)}
	in.OwnLevel = owned(ns, "f:labels")[podSecurityLabel]
	for _, a := range have.accounts {
		in.OwnAccount = in.OwnAccount || (a.Name == tenant && tenancy.Brought(a, platform))
	}
	for _, b := range have.bindings {
		in.OwnBinding = in.OwnBinding || (b.Name == tenancy.FluxBindingName(tenant) && tenancy.Brought(b, platform))
	}
	return in
}

// apply writes missing and different objects, deletes obsolete objects, and sets the label
// that marks the parameters as in force.
func (r *Reconciler) apply(ctx context.Context, ns *corev1.Namespace, tenant *v1alpha1.Tenant, desired *tenancy.Objects, have *contents) (result ctrl.Result, problem, err error) {
	if have.parameters != nil && !have.parameters.DeletionTimestamp.IsZero() {
		// Another client deleted the parameters: release the objects in order, and then
		// create them again.
		result, err = r.release(ctx, ns, have)
		return result, nil, err
	}
	if err := r.releaseShares(ctx, ns, tenant, have); err != nil {
		return ctrl.Result{}, nil, err
	}
	if tenant != nil {
		err = r.applyMetadata(ctx, ns, desired)
	} else {
		err = r.applyLevel(ctx, ns, desired)
	}
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if err := r.applyKeys(ctx, ns.Name, desired.Keys, have); err != nil {
		return ctrl.Result{}, nil, err
	}
	// Objects that the rules certainly refuse are applied once the label marks the parameters
	// as in force, since the change of the label triggers another reconciliation.
	wanted := slices.DeleteFunc(desired.List(), func(o client.Object) bool { return slices.Contains(desired.Later, o) })
	complete, ours := tenant == nil || hasShares(tenant, have), have.ours(tenant)
	if !complete {
		// The manager adds no rights before the quotas are in force, but it removes
		// obsolete rights and keeps the limits. The creation of the quotas triggers the
		// next reconciliation.
		wanted = r.narrowed(wanted, have)
		ours = slices.DeleteFunc(ours, func(o client.Object) bool { return !r.givesRights(o) })
	}
	result, problem, err = r.applyAll(ctx, ns, wanted, have)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if err := r.prune(ctx, ours, desired.List()); err != nil {
		return ctrl.Result{}, nil, err
	}
	if !complete {
		return result, cmp.Or(problem, errWaiting), nil
	}
	wait, err := r.awaitPropagation(ctx, ns, have)
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, problem, err
}

// awaitPropagation sets the label that marks the parameters as in force once they have existed
// for [propagationDelay]. It returns the remaining time.
func (r *Reconciler) awaitPropagation(ctx context.Context, ns *corev1.Namespace, have *contents) (time.Duration, error) {
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled {
		r.unlabelled.forget(ns.Name)
		return 0, nil
	}
	if have.parameters == nil {
		return propagationDelay, nil
	}
	if wait := have.parameters.CreationTimestamp.Add(stamp + propagationDelay).Sub(r.Now()); wait > 0 {
		return wait, nil
	}
	return 0, r.label(ctx, ns, new(tenancy.ManagedValue))
}

// tearDown deletes the manager's objects in a namespace that no longer belongs to a tenant.
func (r *Reconciler) tearDown(ctx context.Context, ns *corev1.Namespace, have *contents) (ctrl.Result, error) {
	var rest []client.Object
	for _, object := range have.ours(nil) {
		if object != client.Object(have.parameters) {
			rest = append(rest, object)
		}
	}
	if err := r.prune(ctx, rest, nil); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.removeKeys(ctx, ns.Name, nil, have); err != nil {
		return ctrl.Result{}, err
	}
	if have.parameters == nil {
		return ctrl.Result{}, r.label(ctx, ns, nil)
	}
	if have.parameters.DeletionTimestamp.IsZero() {
		if err := r.prune(ctx, []client.Object{have.parameters}, nil); err != nil {
			return ctrl.Result{}, err
		}
	}
	return r.release(ctx, ns, have)
}

// release removes the label from the namespace and, once the API server has noticed that,
// removes the finalizer of parameters that are being deleted. In a namespace that is
// being deleted it does so even before their deletion: Kubernetes deletes the contents of
// a namespace five seconds after the namespace, and retries eight seconds later if a
// finalizer is left.
func (r *Reconciler) release(ctx context.Context, ns *corev1.Namespace, have *contents) (ctrl.Result, error) {
	if err := r.releaseShares(ctx, ns, nil, have); err != nil {
		return ctrl.Result{}, err
	}
	if have.parameters == nil {
		return ctrl.Result{}, nil
	}
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled {
		r.unlabelled.forget(ns.Name)
		return ctrl.Result{}, r.label(ctx, ns, nil)
	}
	if wait := r.unlabelled.first(ns.Name, r.Now()).Add(propagationDelay).Sub(r.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if ns.DeletionTimestamp.IsZero() && have.parameters.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.unfinalize(ctx, have.parameters)
}

// label sets the label that names the parameters in force or, for nil, removes it. It does not
// change a new namespace of the same name.
func (r *Reconciler) label(ctx context.Context, ns *corev1.Namespace, value *string) error {
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled == (value != nil) {
		return nil
	}
	patch := mergePatch(ns, map[string]any{"labels": map[string]any{v1alpha1.LabelParameters: value}})
	if err := r.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot change label %s of namespace %s: %w", v1alpha1.LabelParameters, ns.Name, err)
	}
	return nil
}

// unfinalize removes the manager's finalizer from parameters.
func (r *Reconciler) unfinalize(ctx context.Context, parameters *v1alpha1.TenantParameters) error {
	if !slices.Contains(parameters.Finalizers, tenancy.Finalizer) {
		return nil
	}
	var kept []string
	for _, f := range parameters.Finalizers {
		if f != tenancy.Finalizer {
			kept = append(kept, f)
		}
	}
	patch := mergePatch(parameters, map[string]any{"resourceVersion": parameters.ResourceVersion, "finalizers": kept})
	err := r.Client.Patch(ctx, &v1alpha1.TenantParameters{ObjectMeta: metav1.ObjectMeta{Namespace: parameters.Namespace, Name: parameters.Name}}, patch, client.FieldOwner(FieldManager))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot let the parameters of namespace %s go: %w", parameters.Namespace, err)
	}
	return nil
}

// key is an object's kind and name.
type key struct {
	kind string
	types.NamespacedName
}
