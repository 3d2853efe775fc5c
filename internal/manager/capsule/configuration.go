package capsule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConfigurationReconciler writes the status of the CapsuleConfiguration, and the rights of its
// administrators.
type ConfigurationReconciler struct {
	// Client reads from a cache and writes to the API server.
	Client   client.Client
	Profiles Profiles
}

// Reconcile writes the status of one CapsuleConfiguration and the rights of its administrators, if they
// differ. It returns an error if it cannot read an object or write one.
func (r *ConfigurationReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	c := &v1beta2.CapsuleConfiguration{}
	err := r.Client.Get(ctx, request.NamespacedName, c)
	if apierrors.IsNotFound(err) && request.Name == v1beta2.ConfigurationName {
		return ctrl.Result{}, r.administrators(ctx, nil, nil)
	}
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := c.DeepCopy()
	profile, err := r.Profiles.Profile(ctx)
	if err != nil && !errors.Is(err, tenancy.ErrInvalid) {
		return ctrl.Result{}, err
	}
	if c.Name == v1beta2.ConfigurationName {
		if err := r.administrators(ctx, c, profile); err != nil {
			return ctrl.Result{}, err
		}
	}
	conditions, err := r.conditions(ctx, c, profile)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, condition := range conditions {
		condition.ObservedGeneration = c.Generation
		condition.Message = shorten(condition.Message)
		apimeta.SetStatusCondition(&c.Status.Conditions, condition)
	}
	c.Status.ObservedGeneration = c.Generation
	if equality.Semantic.DeepEqual(before.Status, c.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, c, client.MergeFrom(before), client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("cannot write the status of CapsuleConfiguration %s: %w", c.Name, err)
	}
	return ctrl.Result{}, nil
}

// Refuses returns a function that returns the reason why a policy of Capsule's kinds refuses a new
// namespace of a user, or "". The reason is that the user is in a group that [Ignored] names, or
// that a rule of the Tenant about metadata refuses the namespace.
func Refuses(c client.Reader) func(context.Context, string, []string, *corev1.Namespace) (string, error) {
	ignored := Ignored(c)
	return func(ctx context.Context, user string, groups []string, born *corev1.Namespace) (string, error) {
		if why, err := ignored(ctx, groups); err != nil || why != "" {
			return why, err
		}
		name, _ := tenancy.TenantOf(born.Labels)
		tenant := &v1beta2.Tenant{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, tenant)
		if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("cannot read Capsule's Tenant %s: %w", name, err)
		}
		return capsule.NamespaceRefusal(tenant, born, user, groups), nil
	}
}

// Ignored returns a function that returns the reason why members of the groups may not create
// namespaces, or "": the CapsuleConfiguration lists one of the groups in spec.ignoreUserWithGroups.
// The policy tenure-capsule-ignored refuses their namespaces with the same text.
func Ignored(c client.Reader) func(context.Context, []string) (string, error) {
	return func(ctx context.Context, groups []string) (string, error) {
		configuration := &v1beta2.CapsuleConfiguration{}
		err := c.Get(ctx, client.ObjectKey{Name: v1beta2.ConfigurationName}, configuration)
		if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("cannot read the CapsuleConfiguration: %w", err)
		}
		var ignored []string
		for _, group := range configuration.Spec.IgnoreUserWithGroups {
			if slices.Contains(groups, group) {
				ignored = append(ignored, group)
			}
		}
		if len(ignored) == 0 {
			return "", nil
		}
		return "you are in a group of spec.ignoreUserWithGroups of the CapsuleConfiguration (" + strings.Join(ignored, ", ") + "), whose members make no namespaces: ask the platform team", nil
	}
}

// conditions returns the conditions of a CapsuleConfiguration. It also sets the list of
// tenants in the status.
func (r *ConfigurationReconciler) conditions(ctx context.Context, c *v1beta2.CapsuleConfiguration, profile *v1alpha1.TenancyProfile) ([]metav1.Condition, error) {
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse}
	if c.Name != v1beta2.ConfigurationName {
		ready.Reason, ready.Message = reasonIgnored, "only the CapsuleConfiguration named "+v1beta2.ConfigurationName+" counts"
		return []metav1.Condition{ready}, nil
	}
	var tenants v1beta2.TenantList
	if err := r.Client.List(ctx, &tenants); err != nil {
		return nil, fmt.Errorf("cannot list Capsule's Tenants: %w", err)
	}
	c.Status.Tenants = nil
	for _, t := range tenants.Items {
		c.Status.Tenants = append(c.Status.Tenants, t.Name)
	}
	slices.Sort(c.Status.Tenants)
	owners, err := tenantOwners(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	c.Status.Users = capsule.Users(c, owners)
	if profile == nil {
		ready.Reason, ready.Message = reasonNoProfile, "there is no valid TenancyProfile named "+v1alpha1.ProfileName
		return []metav1.Condition{ready}, nil
	}
	notes := capsule.Check(c)
	refusals := capsule.Result{Notes: notes}.Refusals()
	ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, reasonSucceeded, "it is in force for Capsule's Tenants"
	if len(refusals) > 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonRefused, "no Tenant of Capsule is changed until this is solved: "+join(refusals)
	}
	return []metav1.Condition{ready, honoured(notes)}, nil
}
