// Package capsule creates a Tenant of Tenure for every Tenant of Capsule, and writes its state
// to the status of Capsule's. It also migrates the objects of Capsule's own controller: it
// labels the namespaces for Tenure and deletes Capsule's objects in them once Tenure's
// replacements exist.
//
// Package internal/capsule translates the specs.
package capsule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/manager/backoff"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	// FieldManager is the field manager of these controllers.
	FieldManager = "tenure-capsule"
	// ManagedValue is the value of the label tenure.dev/managed-by on a Tenant that this package
	// created for one of Capsule's.
	ManagedValue = tenancy.CapsuleValue
	// Finalizer is Capsule's own finalizer, so that either controller can remove it.
	Finalizer = "controller.projectcapsule.dev/finalize"
)

// Profiles reads the TenancyProfile of the cluster. It returns nil without an error if there
// is none, and an error that wraps [tenancy.ErrInvalid] for an invalid profile.
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// TenantReconciler reconciles Tenants of Capsule, called theirs here, with Tenants of Tenure,
// called ours.
type TenantReconciler struct {
	// Client reads from a cache and writes to the API server; APIReader reads from the API server.
	Client    client.Client
	APIReader client.Reader
	Profiles  Profiles

	conflicts backoff.Conflicts
}

// Reconcile reconciles one Tenant of Capsule. It returns an error if it cannot read an object,
// or cannot write a Tenant or the status; the condition Ready then has the error. It retries conflicts without an error.
func (r *TenantReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	theirs := &v1beta2.Tenant{}
	if err := r.Client.Get(ctx, request.NamespacedName, theirs); err != nil {
		if apierrors.IsNotFound(err) {
			r.conflicts.Forget(request)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := &state{theirs: theirs}
	if err := s.read(ctx, r.Client); err != nil {
		return ctrl.Result{}, err
	}
	err := r.reconcile(ctx, s)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// Another client wrote first: read the cache again later.
		return ctrl.Result{RequeueAfter: r.conflicts.After(request)}, nil
	}
	r.conflicts.Forget(request)
	if err == nil {
		err = client.IgnoreNotFound(r.write(ctx, s))
	}
	if err != nil {
		return ctrl.Result{}, errors.Join(err, r.unfinished(ctx, request, err))
	}
	return ctrl.Result{RequeueAfter: s.again}, nil
}

// unfinished writes the error of a reconcile, which is tried again, into the status of a Tenant that has no result for
// its generation. Otherwise Ready could remain True, or missing, for as long as the error lasts.
func (r *TenantReconciler) unfinished(ctx context.Context, request ctrl.Request, cause error) error {
	// The reconcile may have changed its copy.
	theirs := &v1beta2.Tenant{}
	if err := r.Client.Get(ctx, request.NamespacedName, theirs); err != nil {
		return client.IgnoreNotFound(err)
	}
	ready := apimeta.FindStatusCondition(theirs.Status.Conditions, conditionReady)
	if ready != nil && ready.ObservedGeneration == theirs.Generation && ready.Reason != reasonProgressing {
		return nil
	}
	before := theirs.DeepCopy()
	theirs.Status.State = cmp.Or(theirs.Status.State, v1beta2.StateActive)
	apimeta.SetStatusCondition(&theirs.Status.Conditions, metav1.Condition{
		Type: conditionReady, ObservedGeneration: theirs.Generation,
		Status: metav1.ConditionUnknown, Reason: reasonProgressing, Message: shorten("the manager tries again: " + cause.Error()),
	})
	if equality.Semantic.DeepEqual(before.Status, theirs.Status) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, theirs, client.MergeFrom(before), client.FieldOwner(FieldManager)))
}

// state is the state of one reconcile.
type state struct {
	theirs *v1beta2.Tenant
	// ours is the Tenant of Tenure with the same name; nil if there is none. If own is set, the
	// reconciler may write it.
	ours *v1alpha1.Tenant
	own  bool
	// profile is the TenancyProfile; nil if there is none, and before it is read.
	profile *v1alpha1.TenancyProfile
	// configuration is the CapsuleConfiguration; nil if there is none.
	configuration *v1beta2.CapsuleConfiguration
	// promoted are the service accounts that owners made owners, and entitled are those to which
	// rules give roles.
	promoted, entitled []capsule.Account
	// named is set if the objects of ours have the names that Capsule gives them.
	named bool
	// result is the translation of theirs.
	result capsule.Result
	// translated is set once there is a result.
	translated bool
	// refused says why nothing was changed, and reason is the reason of the condition.
	refused, reason string
	// moved names the remaining objects of Capsule; nil if there are none to migrate.
	moved *metav1.Condition
	// again is the requeue delay; 0 waits for an event.
	again timeout
}

func (s *state) read(ctx context.Context, from client.Reader) error {
	ours := &v1alpha1.Tenant{}
	err := from.Get(ctx, client.ObjectKeyFromObject(s.theirs), ours)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot read Tenant %s: %w", s.theirs.Name, err)
	}
	s.ours, s.own = nil, true
	if err == nil {
		s.ours, s.own = ours, ours.Labels[tenancy.LabelManaged] == ManagedValue
	}
	return nil
}

func (r *TenantReconciler) reconcile(ctx context.Context, s *state) error {
	if !s.theirs.DeletionTimestamp.IsZero() {
		return r.finalize(ctx, s)
	}
	if !s.own {
		s.refuse(reasonTaken, "there is a Tenant "+s.ours.Name+" of tenure.dev that a person wrote, and only that Tenant has an effect: delete this Tenant of Capsule, which keeps the namespaces, or give the other one the label "+tenancy.LabelManaged+"="+ManagedValue)
		return r.handOver(ctx, s)
	}
	profile, err := r.Profiles.Profile(ctx)
	if err != nil && !errors.Is(err, tenancy.ErrInvalid) {
		return err
	}
	if profile == nil {
		s.refuse(reasonNoProfile, "there is no valid TenancyProfile named "+v1alpha1.ProfileName)
		return nil
	}
	s.profile = profile
	configuration := &v1beta2.CapsuleConfiguration{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: v1beta2.ConfigurationName}, configuration); apierrors.IsNotFound(err) {
		configuration = nil
	} else if err != nil {
		return fmt.Errorf("cannot read the CapsuleConfiguration: %w", err)
	}
	s.configuration = configuration
	owners, err := tenantOwners(ctx, r.Client)
	if err != nil {
		return err
	}
	if err := r.promoted(ctx, s); err != nil {
		return err
	}
	s.result, s.translated = capsule.Translate(capsule.Input{
		Tenant: s.theirs, Configuration: configuration, Owners: owners, Promoted: s.promoted, Entitled: s.entitled,
		Hosts: profile.Spec.Tenants.Network.Hosts,
	}), true
	if in := &s.result.Spec.Namespaces; in.Quota == nil {
		// The schema sets the same, without which ours would differ, and be written, in each reconcile.
		in.Quota = new(int32(min(in.Limit(), 1<<30)))
	}
	if refusals := s.result.Refusals(); len(refusals) > 0 {
		s.refuse(reasonRefused, join(refusals))
		return r.cordon(ctx, s)
	}
	if err := r.hold(ctx, s.theirs); err != nil {
		return err
	}
	problem, err := r.rules(ctx, s, false)
	if err != nil {
		return err
	}
	s.named = profile.Spec.Capsule.Names == v1alpha1.NamesCapsule && s.ours != nil && !apimeta.IsStatusConditionFalse(s.theirs.Status.Conditions, conditionMoved)
	if err := r.apply(ctx, s); err != nil || s.refused != "" {
		return err
	}
	if problem != nil {
		s.refuse(reasonRefused, "a rule of spec.rules cannot be put in force: "+problem.Error())
		return nil
	}
	if err := r.countCustomResources(ctx, s); err != nil {
		return err
	}
	left, err := r.refer(ctx, s)
	if err != nil {
		return err
	}
	return r.move(ctx, s, left, profile.Spec.PlatformNamespaces)
}

func (s *state) refuse(reason, message string) { s.reason, s.refused = reason, message }

// hold adds the finalizer to a Tenant of Capsule, so that ours is deleted first, and the label
// with its name, by which selectors select it.
func (r *TenantReconciler) hold(ctx context.Context, theirs *v1beta2.Tenant) error {
	before := theirs.DeepCopy()
	if !controllerutil.AddFinalizer(theirs, Finalizer) && theirs.Labels[corev1.LabelMetadataName] == theirs.Name {
		return nil
	}
	metav1.SetMetaDataLabel(&theirs.ObjectMeta, corev1.LabelMetadataName, theirs.Name)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, theirs, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot put a finalizer on Tenant %s: %w", theirs.Name, err)
	}
	return nil
}

// finalize deletes ours, which deletes the namespaces in order, and then removes the finalizer
// from theirs. Without the finalizer, the garbage collector would delete all namespaces that
// Capsule created at once.
//
// finalize reads ours from the API server before it removes the finalizer: the cache may lack
// a Tenant that was just created, and no later reconcile would delete it.
func (r *TenantReconciler) finalize(ctx context.Context, s *state) error {
	if s.ours == nil || !s.own {
		if err := s.read(ctx, r.APIReader); err != nil {
			return err
		}
	}
	if s.ours != nil && s.own {
		s.refuse(reasonTerminating, "it is deleted after all objects of the tenant")
		// Without a RuleStatus in a namespace, the API server refuses requests that the deletion
		// of the namespace needs.
		if _, err := r.rules(ctx, s, true); err != nil {
			return err
		}
		if s.ours.DeletionTimestamp.IsZero() {
			uid := s.ours.UID
			if err := r.Client.Delete(ctx, s.ours, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("cannot delete Tenant %s: %w", s.ours.Name, err)
			}
		}
		return nil
	}
	if s.ours != nil {
		return r.handOver(ctx, s)
	}
	return r.letGo(ctx, s)
}

// handOver leaves the namespaces of theirs to a Tenant of Tenure that a person wrote: it removes
// theirs from their owners, so that Kubernetes does not delete the namespaces together with theirs.
// It adds the finalizer before it removes the first reference, so that theirs cannot disappear in
// between, and removes the finalizer when theirs owns no namespace.
func (r *TenantReconciler) handOver(ctx context.Context, s *state) error {
	owned, err := r.owned(ctx, s.theirs)
	if err != nil {
		return err
	}
	if len(owned) > 0 && s.theirs.DeletionTimestamp.IsZero() {
		if err := r.hold(ctx, s.theirs); err != nil {
			return err
		}
	}
	left, err := r.disown(ctx, s.theirs, owned)
	if err != nil || left {
		return err
	}
	return r.letGo(ctx, s)
}

// letGo removes the finalizer from theirs.
func (r *TenantReconciler) letGo(ctx context.Context, s *state) error {
	before := s.theirs.DeepCopy()
	if !controllerutil.RemoveFinalizer(s.theirs, Finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, s.theirs, patch, client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot remove the finalizer of Tenant %s: %w", s.theirs.Name, err)
	}
	return nil
}

// apply creates or updates ours if it differs. The objects of ours get Capsule's names only in an
// update, once Capsule's own objects, which have the same names, no longer exist.
func (r *TenantReconciler) apply(ctx context.Context, s *state) error {
	if s.ours != nil && equality.Semantic.DeepEqual(s.ours.Spec, s.result.Spec) && tenancy.CapsuleNames(s.ours) == s.named {
		return nil
	}
	wanted := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: s.theirs.Name, Labels: map[string]string{tenancy.LabelManaged: ManagedValue}},
		Spec:       s.result.Spec,
	}
	if s.ours == nil {
		// Create fails if another client has just created the Tenant; an apply would overwrite it.
		return r.written(s, wanted, r.Client.Create(ctx, wanted, client.FieldOwner(FieldManager)))
	}
	// Other fields of ours, such as finalizers, belong to other clients.
	wanted = s.ours.DeepCopy()
	wanted.Spec = s.result.Spec
	delete(wanted.Annotations, tenancy.AnnotationNames)
	if s.named {
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, tenancy.AnnotationNames, v1alpha1.NamesCapsule)
	}
	return r.written(s, wanted, r.Client.Update(ctx, wanted, client.FieldOwner(FieldManager)))
}

// written handles the result of a write. It reports an invalid Tenant in the condition, since
// a retry would not help.
func (r *TenantReconciler) written(s *state, wanted *v1alpha1.Tenant, err error) error {
	switch {
	case apierrors.IsInvalid(err):
		s.refuse(reasonRefused, err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("cannot write Tenant %s: %w", s.theirs.Name, err)
	}
	s.ours = wanted
	return nil
}

// cordon cordons ours if theirs is cordoned, even when the spec is refused for other reasons.
func (r *TenantReconciler) cordon(ctx context.Context, s *state) error {
	if s.ours == nil || s.ours.Spec.Cordoned || !s.result.Spec.Cordoned {
		return nil
	}
	before := s.ours.DeepCopy()
	s.ours.Spec.Cordoned = true
	if err := r.Client.Patch(ctx, s.ours, client.MergeFrom(before), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot cordon Tenant %s: %w", s.ours.Name, err)
	}
	return nil
}

// write writes the status of theirs if it differs.
func (r *TenantReconciler) write(ctx context.Context, s *state) error {
	before := s.theirs.DeepCopy()
	status := &s.theirs.Status
	status.ObservedGeneration = s.theirs.Generation
	status.State, status.Size, status.Namespaces = v1beta2.StateActive, 0, nil
	classes, err := r.classes(ctx, s)
	if err != nil {
		return err
	}
	status.Classes = classes
	status.Spaces = nil
	if s.ours != nil && s.own {
		spaces, err := r.spaces(ctx, s, before.Status.Spaces)
		if err != nil {
			return err
		}
		status.Spaces = spaces
		for _, space := range spaces {
			status.Namespaces = append(status.Namespaces, space.Name)
		}
		status.Size = int32(min(len(spaces), 1<<30))
		if s.translated {
			status.Owners = owners(s.ours.Spec.Owners, s.result.Administrators)
			promotions, err := r.promotions(ctx, s)
			if err != nil {
				return err
			}
			status.Promotions = promotions
		}
		if s.cordoned().Status == metav1.ConditionTrue {
			status.State = v1beta2.StateCordoned
		}
	}
	if !s.theirs.DeletionTimestamp.IsZero() {
		status.State = v1beta2.StateTerminating
	}
	for _, c := range s.conditions() {
		apimeta.SetStatusCondition(&status.Conditions, c)
	}
	if s.moved == nil {
		apimeta.RemoveStatusCondition(&status.Conditions, conditionMoved)
	}
	if equality.Semantic.DeepEqual(before.Status, s.theirs.Status) && before.Status.State != "" {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, s.theirs, client.MergeFrom(before), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot write the status of Tenant %s: %w", s.theirs.Name, err)
	}
	return nil
}

// maxStatusOwners is the maximum number of owners in the status. The spec has them too, and etcd stores both in one
// object, of two megabytes at most.
const maxStatusOwners = 5000

// owners returns the owners of ours in the format of Capsule's status, without the administrators. It returns none if
// there are more than [maxStatusOwners].
func owners(ours, administrators []v1alpha1.Owner) []v1beta2.StatusOwner {
	var all []v1beta2.StatusOwner
	for _, o := range ours {
		if slices.ContainsFunc(administrators, func(a v1alpha1.Owner) bool { return capsule.SameOwner(a, o) }) {
			continue
		}
		name := o.Name
		if o.Namespace != "" {
			name = "system:serviceaccount:" + o.Namespace + ":" + o.Name
		}
		if len(all) == maxStatusOwners {
			return nil
		}
		all = append(all, v1beta2.StatusOwner{Identity: v1beta2.Identity{Kind: o.Kind, Name: name}, ClusterRoles: o.Roles})
	}
	return all
}
