package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Types of conditions.
const (
	// ConditionReady is True if the conditions Provisioned, Synced and Replicated are, as
	// far as the Tenant needs them: see [ready].
	ConditionReady = "Ready"
	// ConditionProvisioned is True if the tenant has its namespaces, roles and quotas.
	ConditionProvisioned = "Provisioned"
	// ConditionWithinQuota reports, for a Tenant with quotas, whether its usage is within
	// them. Only usage from before a quota was set or lowered can exceed it.
	ConditionWithinQuota = "WithinQuota"
	// ConditionSynced is True if Flux has applied the repositories of a Tenant with a sync. A
	// failure is the tenant's to fix.
	ConditionSynced = "Synced"
	// ConditionHostsSeparate reports, for a Tenant that sets spec.network.hosts, whether no
	// other tenant may have the same hosts. It is Unknown if an expression cannot be compared.
	ConditionHostsSeparate = "HostsSeparate"
)

// Reasons of the conditions.
const (
	// ReasonInPlace: all objects are in place.
	ReasonInPlace = "InPlace"
	// ReasonProgressing: some objects are not in place yet.
	ReasonProgressing = "Progressing"
	// ReasonFailed: the API server refused an object; the message names it.
	ReasonFailed = "Failed"
	// ReasonInvalid: a field of the spec is invalid.
	ReasonInvalid = "Invalid"
	// ReasonNamespaceTaken: a listed namespace exists and belongs to another owner.
	ReasonNamespaceTaken = "NamespaceTaken"
	// ReasonNoProfile: there is no valid TenancyProfile.
	ReasonNoProfile = "NoProfile"
	// ReasonRulesNotEnforced: the API server does not enforce the rules yet, and the manager waits.
	ReasonRulesNotEnforced = "RulesNotEnforced"
	// ReasonDeleting: the tenant's objects are being deleted.
	ReasonDeleting = "Deleting"
	// ReasonProtected: the Tenant is to be deleted, and spec.protected is true.
	ReasonProtected = "Protected"
	// ReasonWithin: the usage is within the quotas.
	ReasonWithin = "Within"
	// ReasonDelivered: Flux has applied the tenant's repositories.
	ReasonDelivered = "Delivered"
	// ReasonExceeded: more is used than the quotas allow.
	ReasonExceeded = "Exceeded"
	// ReasonSeparate: the hosts are the tenant's alone.
	ReasonSeparate = "Separate"
	// ReasonOverlapping: another tenant may have the same host.
	ReasonOverlapping = "Overlapping"
	// ReasonNotComparable: the manager cannot compare an expression, so another tenant may have
	// the same host.
	ReasonNotComparable = "NotComparable"
)

const (
	// retryInterval is the retry interval for an operation that a person must allow first.
	retryInterval = time.Minute
	// soonInterval is the retry interval in the first minute of a refusal: an API server that has just
	// started, or has just got the rules, refuses requests until it has read all that it needs.
	soonInterval = 5 * time.Second
)

// reconcileState is the state that the steps of a reconciliation collect.
type reconcileState struct {
	tenant  *v1alpha1.Tenant
	profile *v1alpha1.TenancyProfile
	list    []*corev1.Namespace
	// pending are the namespaces that are not reconciled yet.
	pending []string
	// failure is the error of the first of them that failed.
	failure string
	// reason and message are those of the first problem. more is the number of other problems.
	reason, message string
	more            int
	// exceeded lists the resources whose usage exceeds a quota.
	exceeded []string
	// syncFailed are the failures that Flux reports for repositories, and syncAwaited the
	// repositories without a report yet.
	syncFailed, syncAwaited []string
	// ownHosts are the hosts that the Tenant sets; nil if the profile decides.
	ownHosts *v1alpha1.AllowedNames
	// shared are the hosts that other tenants may have, too.
	shared []sharedHosts
	// retryAfter is the time until the Tenant must be reconciled again without a change. Zero
	// is never.
	retryAfter time.Duration
}

// lookAgain requests a reconcile of the Tenant after at most this time.
func (f *reconcileState) lookAgain(after time.Duration) {
	if f.retryAfter == 0 || after < f.retryAfter {
		f.retryAfter = after
	}
}

func (f *reconcileState) add(ns *corev1.Namespace) { f.list = append(f.list, ns) }

func (f *reconcileState) has(name string) bool {
	return slices.ContainsFunc(f.list, func(ns *corev1.Namespace) bool { return ns.Name == name })
}

func (f *reconcileState) names() []string {
	names := []string{}
	for _, ns := range f.list {
		names = append(names, ns.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// problem adds a problem. The message of the condition has the first one.
func (f *reconcileState) problem(reason, format string, args ...any) {
	if f.reason != "" {
		f.more++
		return
	}
	f.reason, f.message = reason, fmt.Sprintf(format, args...)
}

// maxMessage is the maximum length of a condition's message, in bytes, with room for a suffix.
const maxMessage = 2048

// short cuts a message after [maxMessage] bytes.
func short(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

// provisioned returns the condition Provisioned, from the results of the steps.
func (f *reconcileState) provisioned() metav1.Condition {
	c := metav1.Condition{Type: ConditionProvisioned, ObservedGeneration: f.tenant.Generation}
	switch {
	case f.reason != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, f.reason, f.message
		c.Message = short(c.Message)
		if f.more > 0 {
			c.Message += fmt.Sprintf("; and %d more", f.more)
		}
	case len(f.pending) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, ReasonProgressing
		c.Message = short(fmt.Sprintf("%d of %d namespaces are in place, not yet %s", len(f.list)-len(f.pending), len(f.list), f.pending[0]))
		if len(f.list) == 1 {
			c.Message = short("namespace " + f.pending[0] + " is not in place yet")
		}
		if f.failure != "" {
			c.Message = short(c.Message + "; " + f.failure)
		}
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonInPlace, fmt.Sprintf("%d namespaces are in place", len(f.list))
		switch len(f.list) {
		case 0:
			c.Message = "the tenant has no namespace yet"
		case 1:
			c.Message = "1 namespace is in place"
		}
		if f.tenant.Spec.Cordoned {
			c.Message += "; cordoned"
		}
	}
	return c
}

// finish writes the status once, if it differs.
func (r *Reconciler) finish(ctx context.Context, f *reconcileState) (ctrl.Result, error) {
	changed := f.tenant.DeepCopy()
	status := &changed.Status
	provisioned := f.provisioned()
	if before := apimeta.FindStatusCondition(status.Conditions, ConditionProvisioned); provisioned.Reason != ReasonProgressing || !r.stands(f, before) {
		apimeta.SetStatusCondition(&status.Conditions, provisioned)
	}
	r.withinQuota(f, status)
	if len(f.tenant.Spec.Sync) == 0 {
		apimeta.RemoveStatusCondition(&status.Conditions, ConditionSynced)
	} else if f.profile != nil {
		apimeta.SetStatusCondition(&status.Conditions, f.synced())
	}
	if f.tenant.Spec.Network.Hosts == nil || f.profile != nil && f.ownHosts == nil {
		apimeta.RemoveStatusCondition(&status.Conditions, ConditionHostsSeparate)
	} else if f.profile != nil {
		apimeta.SetStatusCondition(&status.Conditions, f.hostsSeparate())
	}
	apimeta.SetStatusCondition(&status.Conditions, ready(f.tenant, status.Conditions))
	status.ObservedGeneration = f.tenant.Generation
	if f.profile != nil {
		status.Namespaces = f.names()
		status.Size = int32(min(len(status.Namespaces), 1<<30))
	}
	if f.reason != "" {
		f.lookAgain(r.retryAfter(status.Conditions))
	}
	result := ctrl.Result{RequeueAfter: f.retryAfter}
	if equality.Semantic.DeepEqual(f.tenant.Status, changed.Status) {
		return result, nil
	}
	// With the version that was read, so that a condition that package replication wrote
	// meanwhile is not lost.
	if err := r.Client.Status().Update(ctx, changed, client.FieldOwner(tenantnamespace.FieldManager)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("cannot write the status of tenant %s: %w", f.tenant.Name, err)
	}
	return result, nil
}

// retryAfter returns the time until a Tenant with a problem is reconciled again.
func (r *Reconciler) retryAfter(conditions []metav1.Condition) time.Duration {
	c := apimeta.FindStatusCondition(conditions, ConditionProvisioned)
	if c != nil && c.Reason == ReasonFailed && r.Now().Sub(c.LastTransitionTime.Time) < retryInterval {
		return soonInterval
	}
	return retryInterval
}

// stands reports whether an earlier condition still holds although not all namespaces have a
// report: the manager has just started, and the Tenant has not changed. A namespace that is being deleted never
// gets a report.
func (r *Reconciler) stands(f *reconcileState, before *metav1.Condition) bool {
	var staying []string
	for _, ns := range f.list {
		if ns.DeletionTimestamp.IsZero() {
			staying = append(staying, ns.Name)
		}
	}
	return before != nil && before.Status != metav1.ConditionUnknown && before.ObservedGeneration == f.tenant.Generation &&
		slices.Equal(f.names(), f.tenant.Status.Namespaces) && r.Reports.fresh(staying)
}

func (r *Reconciler) withinQuota(f *reconcileState, status *v1alpha1.TenantStatus) {
	c := metav1.Condition{
		Type: ConditionWithinQuota, ObservedGeneration: f.tenant.Generation,
		Status: metav1.ConditionTrue, Reason: ReasonWithin, Message: "the tenant uses no more than its quotas allow",
	}
	switch {
	case f.profile == nil:
		return
	case !slices.ContainsFunc(f.tenant.Spec.Quotas, tenancy.SharedByTenant):
		apimeta.RemoveStatusCondition(&status.Conditions, ConditionWithinQuota)
		return
	case len(f.exceeded) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonExceeded
		c.Message = short("the tenant uses more than its quotas allow, so the API server refuses new objects until it uses less: " + strings.Join(f.exceeded, ", "))
	}
	apimeta.SetStatusCondition(&status.Conditions, c)
}

// conditionReplicated is a condition that package replication sets on a Tenant with
// objects.
const conditionReplicated = "Replicated"

// ready returns the condition Ready of a Tenant with these conditions. It is True if
// every condition that the Tenant needs is True for its generation. Otherwise it has the
// reason and the message of the first False condition or, if there is none, of the first
// condition that is not yet True.
func ready(tenant *v1alpha1.Tenant, conditions []metav1.Condition) metav1.Condition {
	needed := []string{ConditionProvisioned}
	if len(tenant.Spec.Sync) > 0 {
		needed = append(needed, ConditionSynced)
	}
	if len(tenant.Spec.Objects) > 0 {
		needed = append(needed, conditionReplicated)
	}
	c := metav1.Condition{Type: ConditionReady, ObservedGeneration: tenant.Generation, Status: metav1.ConditionTrue}
	for _, kind := range needed {
		part := apimeta.FindStatusCondition(conditions, kind)
		if part == nil || part.ObservedGeneration != tenant.Generation {
			part = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: ReasonProgressing, Message: "waiting for condition " + kind}
		}
		if kind == ConditionProvisioned || part.Status == metav1.ConditionFalse || c.Status == metav1.ConditionTrue && part.Status != metav1.ConditionTrue {
			c.Status, c.Reason, c.Message = part.Status, part.Reason, part.Message
		}
		if c.Status == metav1.ConditionFalse {
			break
		}
	}
	return c
}
