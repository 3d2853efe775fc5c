// Package credentials writes kubeconfigs for the accounts that own Tenants, as
// [credentials.Plans] computes them, and renews the tokens in them before they expire.
//
// The manager has the rights only in the namespaces that need them: it binds a fixed role to
// itself in each, which the rule tenure-credentials allows in no other namespace. It does not
// list Secrets, and reads only their metadata.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// requeueDelay is the requeue delay for a request that needs new rights: the API server
	// learns of them a moment later.
	requeueDelay = 500 * time.Millisecond
	// retryInterval is the retry interval for a problem that a person has to fix.
	retryInterval = time.Minute
)

// Events records events; an EventRecorder of Kubernetes implements it.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Profiles reads the TenancyProfile. It returns nil without an error if there is no profile,
// and an error that wraps [tenancy.ErrInvalid] for an invalid profile.
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Targets returns the server of kubeconfigs.
type Targets interface {
	Target(ctx context.Context) (credentials.Target, error)
}

// Reconciler reconciles the credentials of one account at a time.
type Reconciler struct {
	// Client reads from a cache and writes to the API server; APIReader reads
	// from the API server.
	Client    client.Client
	APIReader client.Reader
	Profiles  Profiles
	Targets   Targets
	Events    Events
	// Manager is the manager's own subject, which gets the rights.
	Manager rbacv1.Subject
	// Lifetime is the requested lifetime of a token: see [credentials.Lifetime].
	Lifetime time.Duration
	// Now is the clock.
	Now func() time.Time
}

// Reconcile reconciles the credentials of one account. Without a valid profile it creates and
// deletes nothing, but renews tokens. It returns an error if it cannot
// read the profile or an object, or cannot write an object. It retries conflicts, and requests
// that the API server forbids, without an error.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	profile, err := r.Profiles.Profile(ctx)
	if err != nil && !errors.Is(err, tenancy.ErrInvalid) {
		return ctrl.Result{}, err
	}
	result, err := r.reconcile(ctx, request.NamespacedName, profile)
	if apierrors.IsConflict(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// The API server learns of new rights, and of the ownership that the rule requires,
		// after a short delay.
		ctrl.LoggerFrom(ctx).V(1).Info("not yet", "reason", err.Error())
		return ctrl.Result{RequeueAfter: requeueDelay}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, account types.NamespacedName, profile *v1alpha1.TenancyProfile) (ctrl.Result, error) {
	state, err := r.read(ctx, account)
	if err != nil {
		return ctrl.Result{}, err
	}
	if profile == nil {
		return r.renew(ctx, account, state)
	}
	state.Profile = profile
	plan, problem := credentials.Plans(state)
	if problem != nil {
		r.warn(state.Account, problem)
	}
	if err := r.prune(ctx, account, plan); err != nil || plan == nil {
		return ctrl.Result{}, err
	}
	return r.carryOut(ctx, state, plan)
}

// carryOut writes the credentials of a plan that are due.
func (r *Reconciler) carryOut(ctx context.Context, state credentials.State, plan *credentials.Plan) (ctrl.Result, error) {
	target, err := r.Targets.Target(ctx)
	if err != nil {
		// Existing credentials stay valid as long as their tokens.
		r.warn(state.Account, err)
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	i := &issue{
		Reconciler: r, plan: plan, account: state.Account, target: target,
		lifetime: credentials.Lifetime(r.Lifetime, state.Profile.Spec.Tenants.Bounds.MaxTimeout.Duration),
		platform: state.Profile.Spec.PlatformNamespaces,
	}
	return i.all(ctx)
}

// renew renews tokens while there is no valid profile: the recorded tokens of an account to which
// the last valid profile still allows them.
func (r *Reconciler) renew(ctx context.Context, account types.NamespacedName, state credentials.State) (ctrl.Result, error) {
	if state.Account == nil {
		return ctrl.Result{}, nil
	}
	var err error
	if state.Profile, err = r.inForce(ctx, state); err != nil {
		return ctrl.Result{}, err
	}
	plan, _ := credentials.Plans(state) // problems are reported once there is a profile
	if plan == nil {
		return ctrl.Result{}, nil
	}
	bindings, err := r.bindings(ctx, account)
	if err != nil {
		return ctrl.Result{}, err
	}
	unknown := func(namespace string) bool {
		return !slices.ContainsFunc(bindings, func(b rbacv1.RoleBinding) bool {
			return b.Namespace == namespace && b.Name == credentials.RecordName(account)
		})
	}
	if unknown(account.Namespace) {
		return ctrl.Result{}, nil
	}
	plan.Copies = slices.DeleteFunc(plan.Copies, unknown)
	return r.carryOut(ctx, state, plan)
}

// inForce returns the profile that is in the parameters of the namespaces of an account's
// tenants, or an empty profile if they have no parameters.
func (r *Reconciler) inForce(ctx context.Context, state credentials.State) (*v1alpha1.TenancyProfile, error) {
	for i := range state.Namespaces {
		key := client.ObjectKey{Namespace: state.Namespaces[i].Name, Name: v1alpha1.ParametersName}
		parameters := &v1alpha1.TenantParameters{}
		err := r.Client.Get(ctx, key, parameters)
		if err == nil {
			return &v1alpha1.TenancyProfile{Spec: parameters.Spec.TenancyProfileSpec}, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("cannot read the parameters of namespace %s: %w", key.Namespace, err)
		}
	}
	return &v1alpha1.TenancyProfile{}, nil
}

// read returns the input of the plan.
func (r *Reconciler) read(ctx context.Context, account types.NamespacedName) (credentials.State, error) {
	state := credentials.State{Account: &corev1.ServiceAccount{}, Home: &corev1.Namespace{}}
	fail := func(err error) (credentials.State, error) {
		return state, fmt.Errorf("cannot read the objects of account %s: %w", account, err)
	}
	err := r.Client.Get(ctx, account, state.Account)
	if apierrors.IsNotFound(err) {
		return credentials.State{}, nil
	}
	if err != nil {
		return fail(err)
	}
	if credentials.Asked(state.Account.Annotations) == credentials.None {
		return credentials.State{}, nil
	}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: account.Namespace}, state.Home); err != nil {
		return fail(err)
	}
	var tenants v1alpha1.TenantList
	if err := r.Client.List(ctx, &tenants, client.MatchingFields{indexOwner: account.String()}); err != nil {
		return fail(err)
	}
	state.Tenants = tenants.Items
	for i := range tenants.Items {
		var namespaces corev1.NamespaceList
		if err := r.Client.List(ctx, &namespaces, client.MatchingFields{indexTenant: tenants.Items[i].Name}); err != nil {
			return fail(err)
		}
		state.Namespaces = append(state.Namespaces, namespaces.Items...)
	}
	return state, nil
}

// warn records an event on the account with the reason why it lacks credentials.
func (r *Reconciler) warn(account *corev1.ServiceAccount, problem error) {
	r.Events.Eventf(account, nil, corev1.EventTypeWarning, credentials.Reason(problem), "IssueKubeconfig", "%v", problem)
}

// prune deletes the account's objects that the plan, which may be nil, does not contain. In
// each namespace it deletes the record last, since the record gives the manager its rights
// there.
func (r *Reconciler) prune(ctx context.Context, account types.NamespacedName, plan *credentials.Plan) error {
	bindings, err := r.bindings(ctx, account)
	if err != nil {
		return err
	}
	var left []*rbacv1.RoleBinding
	for i := range bindings {
		b := &bindings[i]
		home := b.Namespace == account.Namespace
		stays := plan != nil && (home || slices.Contains(plan.Copies, b.Namespace))
		switch {
		case b.Name == credentials.RecordName(account):
			if !stays {
				left = append(left, b)
			}
			continue
		case stays && (b.Name == credentials.ImpersonatorName(account) || home && plan.Bound && b.Name == account.Name):
			continue
		}
		if err := r.remove(ctx, b); err != nil {
			return err
		}
	}
	for _, record := range left {
		if err := r.leave(ctx, account, record); err != nil {
			return err
		}
	}
	return nil
}

// bindings are the RoleBindings of an account's credentials.
func (r *Reconciler) bindings(ctx context.Context, account types.NamespacedName) ([]rbacv1.RoleBinding, error) {
	var list rbacv1.RoleBindingList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexAccount: account.String()}); err != nil {
		return nil, fmt.Errorf("cannot read where account %s has credentials: %w", account, err)
	}
	return list.Items, nil
}

// leave deletes the Secret beside a record (which ends its tokens), the Role, the account if
// the manager created it, and then the record. It reads the objects at the API server: once
// the record is gone, no reconciler finds objects that the cache did not show.
func (r *Reconciler) leave(ctx context.Context, account types.NamespacedName, record *rbacv1.RoleBinding) error {
	meta, err := r.secret(ctx, record.Namespace, credentials.SecretName(account.Name))
	if err != nil {
		return err
	}
	if meta != nil && credentials.Ours(meta, account) {
		if err := r.remove(ctx, meta); err != nil {
			return err
		}
	}
	role := &rbacv1.Role{}
	role.Namespace, role.Name = record.Namespace, credentials.ImpersonatorName(account)
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, role)); err != nil {
		return fmt.Errorf("cannot remove Role %s/%s: %w", role.Namespace, role.Name, err)
	}
	stand := &corev1.ServiceAccount{}
	err = r.APIReader.Get(ctx, client.ObjectKey{Namespace: record.Namespace, Name: account.Name}, stand)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot read account %s/%s: %w", record.Namespace, account.Name, err)
	}
	if err == nil && credentials.Ours(stand, account) {
		if err := r.remove(ctx, stand); err != nil {
			return err
		}
	}
	return r.remove(ctx, record)
}

func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, object, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("cannot remove %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return nil
}
