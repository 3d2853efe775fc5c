// Package tenantnamespace reconciles the objects that [tenancy.Desired] returns for each
// namespace of a tenant. Once the parameters of the namespace exist, it labels the namespace,
// so that the policies read these parameters.
package tenantnamespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
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

// stamp is the precision of creation timestamps: the API server drops the fraction of a second, so
// an object may be newer than its timestamp says.
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
	// Retry records the error for which the reconciliation of a namespace is tried again.
	Retry(tenant *v1alpha1.Tenant, namespace string, err error)
	// Forget drops the report on a namespace that no longer belongs to a tenant.
	Forget(namespace string)
}

// Reconciler reconciles the namespaces of tenants.
type Reconciler struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
	// Secrets reads the Secrets with public keys from the API server, by their names.
	Secrets client.Reader
	// Workloads reads the platform's workloads from the API server, each once: the cache has their metadata only.
	Workloads client.Reader
	Profiles  Profiles
	Kinds     Kinds
	Classes   Classes
	Failures  Failures
	Reports   Reports
	Events    Events
	// Manager is the manager's own subject. When a Tenant is deleted, it gets the right to
	// delete each of the Tenant's namespaces.
	Manager rbacv1.Subject
	// ClassesChanged are the namespaces whose selected classes may have changed.
	ClassesChanged <-chan event.GenericEvent
	// Layer is set if the layer for Capsule runs.
	Layer bool
	// Now is the clock.
	Now func() time.Time

	unlabelled     times
	uncountedSince times
	refused        times
	selectors      selectors
	conflicts      backoff.Conflicts
}

// Reconcile reconciles one namespace. Without a valid profile it creates and deletes
// nothing. It returns an error if it cannot read the namespace or write an
// object. It retries conflicts without an error.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, request.NamespacedName, ns); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetNamespace(request.Name)
			r.conflicts.Forget(request)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("cannot read namespace %s: %w", request.Name, err)
	}
	result, problem, err := r.reconcile(ctx, ns)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || (apierrors.IsNotFound(err) && !ns.DeletionTimestamp.IsZero()) {
		// Another client changed the object first: reconcile with the next version.
		return ctrl.Result{RequeueAfter: r.conflicts.After(request)}, nil
	}
	r.conflicts.Forget(request)
	if err != nil {
		problem = err
	}
	r.Failures.Set(ns.Name, problem)
	return result, err
}

// selectClasses writes the classes that the limits select into the parameters. It returns a problem
// with a selector that only a platform admin can solve.
func (r *Reconciler) selectClasses(ctx context.Context, ns *corev1.Namespace, parameters *v1alpha1.TenantParametersSpec) (problem, err error) {
	selected, problem, err := r.Classes.Select(ctx, &parameters.Tenants)
	if err != nil {
		return nil, err
	}
	parameters.SelectedClasses = selected
	for _, field := range tenancy.EmptySelectors(&parameters.Tenants, selected) {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "SelectsNothing", "Reconcile",
			"the selector of %s selects no class of the cluster: label the classes that the tenant may use, or change the selector", field)
	}
	return problem, nil
}

func (r *Reconciler) forgetNamespace(namespace string) {
	r.Failures.Set(namespace, nil)
	r.Reports.Forget(namespace)
	r.unlabelled.forget(namespace)
	r.refused.forget(namespace)
	r.selectors.set(namespace, nil)
}

// reconcile reads the state of a namespace (state.go), computes its desired objects
// ([tenancy.Desired]) and applies them (apply.go). It removes them from a namespace that leaves its
// tenant (release.go). It returns an error that is retried, and a problem that only a platform
// admin can solve.
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
			"there is no TenancyProfile named %s: the manager keeps the objects of tenants, and creates no new ones until there is one", v1alpha1.ProfileName)
		return ctrl.Result{}, nil, nil
	}
	have, err := r.read(ctx, ns.Name)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if !ns.DeletionTimestamp.IsZero() {
		// The report must not be taken for one about a later namespace of the same name.
		r.Reports.Forget(ns.Name)
		result, err = r.release(ctx, ns, have)
		return result, nil, err
	}
	if _, tenants := tenancy.TenantOf(ns.Labels); !tenants {
		r.Reports.Forget(ns.Name)
		result, err = r.tearDown(ctx, ns, have)
		return result, nil, err
	}
	in, later, err := r.input(ctx, ns, profile, have)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	desired, problem := tenancy.Desired(in, profile)
	if problem != nil {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "NotATenant", "Reconcile", "%v", problem)
		r.report(in.Tenant, ns, problem)
		result, err = r.tearDown(ctx, ns, have)
		return result, problem, err
	}
	unselected, err := r.selectClasses(ctx, ns, &desired.Parameters.Spec)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	leaving := in.Tenant != nil && !in.Tenant.DeletionTimestamp.IsZero()
	if leaving {
		if err := r.prepareDeletion(ctx, desired, have); err != nil {
			return ctrl.Result{}, nil, err
		}
	}
	result, problem, err = r.apply(ctx, ns, in.Tenant, desired, have)
	problem = cmp.Or(problem, unselected, tenancy.UnallowedDefault(in.Tenant, profile), tenancy.UnsetSelected(in.Tenant, ns.Name, ns.Labels))
	switch {
	case err == nil:
		r.report(in.Tenant, ns, problem)
	case leaving:
		// The Tenant is ready without the other objects of the namespace.
		r.report(in.Tenant, ns, err)
	case in.Tenant != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
		r.Reports.Retry(in.Tenant, ns.Name, err)
	}
	if later > 0 && (result.RequeueAfter == 0 || later < result.RequeueAfter) {
		result.RequeueAfter = later
	}
	return result, problem, err
}

func (r *Reconciler) report(tenant *v1alpha1.Tenant, ns *corev1.Namespace, problem error) {
	if tenant == nil {
		r.Reports.Forget(ns.Name)
		return
	}
	r.Reports.Report(tenant, ns.Name, problem)
}
