// Package sourcegrant reconciles the ExternalArtifacts through which tenants use the
// sources that SourceGrants share with them, as [grants.Plan] computes them. It reads no
// credentials and fetches nothing: a copy has the address and the digest of the artifact
// that Flux has fetched for the owner.
package sourcegrant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/reconcileretry"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/grants"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the field manager of copies.
const FieldManager = "tenure-manager"

const (
	conditionReady = "Ready"
	// reasonEnded is the reason in a copy's condition and in the events about its
	// consumers when the grant has ended.
	reasonEnded = "GrantEnded"
	// reasonFailed is the reason of a grant with a copy that cannot be written.
	reasonFailed = "Failed"
	// writers is the maximum number of copies that are written at a time.
	writers = 16
	// told is the maximum number of failures in an error.
	told = 8
)

// errTaken is returned if another client created an object with the name of a copy.
var errTaken = errors.New("another client created it in the meantime")

// Events records events; an EventRecorder of Kubernetes implements it.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Reconciler reconciles the copies of the sources of one namespace at a time, since the
// consumers of a source are those of all its grants.
type Reconciler struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	Events    Events
	// Now is the clock.
	Now func() time.Time
}

// Reconcile updates the copies of the sources of a namespace. The request's name is the
// namespace. It returns an error if it cannot read the cache, or cannot write a copy or a
// status.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	owner := request.Name
	state, copies, err := r.read(ctx, owner)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(state.Grants) == 0 && len(copies) == 0 {
		return ctrl.Result{}, nil
	}
	plan := grants.Plan(state)
	failed := r.apply(ctx, owner, plan, copies)
	again, err := sortOut(failed)
	problems := []error{err}
	// Write the status of every grant even if some copies failed.
	for i := range state.Grants {
		if result, known := resultOf(&state.Grants[i], owner, plan, failed); known {
			problems = append(problems, r.writeStatus(ctx, &state.Grants[i], result))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return ctrl.Result{}, err
	}
	if again {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if plan.Next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(plan.Next.Sub(r.Now()), time.Second)}, nil
}

// read returns the input of the plan, and the existing copies by NAMESPACE/NAME.
func (r *Reconciler) read(ctx context.Context, owner string) (grants.State, map[string]*unstructured.Unstructured, error) {
	state := grants.State{Owner: owner, Now: r.Now(), Taken: map[string]bool{}}
	fail := func(what string, err error) (grants.State, map[string]*unstructured.Unstructured, error) {
		return state, nil, fmt.Errorf("cannot read %s: %w", what, err)
	}
	var all v1alpha1.SourceGrantList
	if err := r.Client.List(ctx, &all, client.InNamespace(owner)); err != nil {
		return fail("the grants of namespace "+owner, err)
	}
	for _, grant := range all.Items {
		if grant.DeletionTimestamp.IsZero() {
			state.Grants = append(state.Grants, grant)
		}
	}
	artifacts := list(artifactKind)
	if err := r.Client.List(ctx, artifacts); err != nil {
		return fail("ExternalArtifacts", err)
	}
	copies := map[string]*unstructured.Unstructured{}
	for i := range artifacts.Items {
		a := &artifacts.Items[i]
		key := a.GetNamespace() + "/" + a.GetName()
		if !copyFrom(a, owner) {
			state.Taken[key] = true
			continue
		}
		copies[key] = a
	}
	if len(state.Grants) == 0 {
		return state, copies, nil
	}
	for _, kind := range sourceKinds {
		sources := list(sourceGroup.WithKind(kind))
		if err := r.Client.List(ctx, sources, client.InNamespace(owner)); err != nil {
			return fail("the sources of namespace "+owner, err)
		}
		for i := range sources.Items {
			if sources.Items[i].GetDeletionTimestamp() == nil {
				state.Sources = append(state.Sources, sourceOf(&sources.Items[i]))
			}
		}
	}
	var namespaces corev1.NamespaceList
	if err := r.Client.List(ctx, &namespaces); err != nil {
		return fail("namespaces", err)
	}
	var tenants v1alpha1.TenantList
	if err := r.Client.List(ctx, &tenants); err != nil {
		return fail("tenants", err)
	}
	byName := map[string]*v1alpha1.Tenant{}
	for i := range tenants.Items {
		byName[tenants.Items[i].Name] = &tenants.Items[i]
	}
	for i := range namespaces.Items {
		if ns := &namespaces.Items[i]; ns.DeletionTimestamp.IsZero() {
			state.Namespaces = append(state.Namespaces, grants.Namespace{
				Name: ns.Name, Labels: ns.Labels, Trusted: tenancy.TrustedLabels(ns.Labels, byName[ns.Labels[v1alpha1.LabelTenant]]),
			})
		}
	}
	return state, copies, nil
}

// apply creates missing copies, updates different copies, and deletes the others. It returns
// the errors by NAMESPACE/NAME of the copy: an error of one consumer does not delay others.
func (r *Reconciler) apply(ctx context.Context, owner string, plan grants.Planned, copies map[string]*unstructured.Unstructured) map[string]error {
	var group errgroup.Group
	group.SetLimit(writers)
	var lock sync.Mutex
	failed := map[string]error{}
	run := func(key string, do func() error) {
		group.Go(func() error {
			if err := do(); err != nil {
				lock.Lock()
				defer lock.Unlock()
				failed[key] = err
			}
			return nil
		})
	}
	wanted := map[string]bool{}
	for _, c := range plan.Copies {
		key := c.Namespace + "/" + c.Name
		wanted[key] = true
		existing := copies[key]
		if c.Source.Artifact == nil || existing != nil && upToDate(existing, c) {
			continue
		}
		run(key, func() error { return r.write(ctx, owner, c, existing) })
	}
	for _, key := range slices.Sorted(maps.Keys(copies)) {
		if existing := copies[key]; !wanted[key] && existing.GetDeletionTimestamp() == nil {
			run(key, func() error { return r.end(ctx, existing) })
		}
	}
	_ = group.Wait() // the errors are collected
	return failed
}

// sortOut joins the errors, without conflicts with other clients. again reports that there
// were conflicts, which the next plan resolves.
func sortOut(failed map[string]error) (again bool, err error) {
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(failed)) {
		if apierrors.IsConflict(failed[key]) {
			again = true
			continue
		}
		problems = append(problems, failed[key])
	}
	if more := len(problems) - told; more > 0 {
		problems = append(problems[:told], fmt.Errorf("%d more of the same namespace's copies failed", more))
	}
	return again, errors.Join(problems...)
}

// resultOf returns the result of a grant: the plan's result, or the error of one of its
// copies. The result is not known while the cache is behind for a copy.
func resultOf(grant *v1alpha1.SourceGrant, owner string, plan grants.Planned, failed map[string]error) (result grants.Result, known bool) {
	result = plan.Results[grant.Name]
	if len(failed) == 0 || result.Reason != grants.ReasonGranted {
		return result, true
	}
	for _, to := range grant.Spec.To {
		for _, consumer := range result.Consumers {
			err := failed[consumer+"/"+grants.Name(owner, to.Name)]
			if apierrors.IsConflict(err) {
				return result, false
			}
			if err != nil && result.Reason == grants.ReasonGranted {
				result.Reason, result.Message = reasonFailed, err.Error()
			}
		}
	}
	return result, true
}

// write creates or updates a copy. Flux watches ExternalArtifacts and reconciles the
// consumers of a new revision.
func (r *Reconciler) write(ctx context.Context, owner string, c grants.Copy, existing *unstructured.Unstructured) error {
	if existing == nil {
		var err error
		if existing, err = r.create(ctx, owner, c); err != nil {
			return missingNamespace(err, fmt.Errorf("cannot make ExternalArtifact %s/%s: %w", c.Namespace, c.Name, err))
		}
	}
	status := client.ApplyConfigurationFromUnstructured(statusOf(owner, c, existing.GetUID(), r.Now()))
	if err := r.Client.Status().Apply(ctx, status, client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return missingNamespace(err, fmt.Errorf("cannot write the status of ExternalArtifact %s/%s: %w", c.Namespace, c.Name, err))
	}
	return nil
}

// create creates a copy, without its status, and returns it. It returns a conflict for an
// existing object that the cache does not show yet, which another client may have created;
// the next plan reports it.
func (r *Reconciler) create(ctx context.Context, owner string, c grants.Copy) (*unstructured.Unstructured, error) {
	made := copyOf(owner, c)
	err := r.Client.Create(ctx, made, client.FieldOwner(FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(made), made); err != nil {
		return nil, err
	}
	if !copyFrom(made, owner) {
		return nil, apierrors.NewConflict(sourceGroup.WithResource("externalartifacts").GroupResource(), c.Name, errTaken)
	}
	return made, nil
}

// missingNamespace returns nil if the cause is that a namespace does not exist or is being
// deleted, and otherwise the error err.
func missingNamespace(cause, err error) error {
	if apierrors.IsNotFound(cause) || apierrors.HasStatusCause(cause, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// end removes a copy in an order that a restarted manager can continue: it removes the
// artifact, then asks the consumers to reconcile, and then deletes the object.
func (r *Reconciler) end(ctx context.Context, existing *unstructured.Unstructured) error {
	name := existing.GetNamespace() + "/" + existing.GetName()
	status := client.ApplyConfigurationFromUnstructured(endedStatus(existing, r.Now()))
	if err := r.Client.Status().Apply(ctx, status, client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return missingNamespace(err, fmt.Errorf("cannot end ExternalArtifact %s: %w", name, err))
	}
	if err := r.ask(ctx, existing); err != nil {
		return err
	}
	uid := existing.GetUID()
	if err := r.Client.Delete(ctx, existing, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot remove ExternalArtifact %s: %w", name, err)
	}
	return nil
}

// ask requests a reconcile of the consumers of a copy, and records an event with the reason.
// It skips kinds that the cluster does not serve because a controller of Flux is missing.
func (r *Reconciler) ask(ctx context.Context, ended *unstructured.Unstructured) error {
	for _, consumer := range consumerKinds {
		users := list(consumer.kind)
		err := r.APIReader.List(ctx, users, client.InNamespace(ended.GetNamespace()))
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read who uses ExternalArtifact %s/%s: %w", ended.GetNamespace(), ended.GetName(), err)
		}
		for i := range users.Items {
			user := &users.Items[i]
			if !uses(user, consumer.field, ended.GetName()) {
				continue
			}
			if err := reconcileretry.Request(ctx, r.Client, user, r.Now()); err != nil {
				return err
			}
			r.Events.Eventf(user, nil, corev1.EventTypeWarning, reasonEnded, "Reconcile",
				"the grant of %s has ended, or the source is gone: what was applied stays, and nothing new comes. Ask the owner of the source, or use another one",
				ended.GetName())
		}
	}
	return nil
}

// writeStatus writes the status of a grant once if it differs.
func (r *Reconciler) writeStatus(ctx context.Context, grant *v1alpha1.SourceGrant, result grants.Result) error {
	before := grant.DeepCopy()
	status := metav1.ConditionTrue
	if result.Reason != grants.ReasonGranted {
		status = metav1.ConditionFalse
	}
	apimeta.SetStatusCondition(&grant.Status.Conditions, metav1.Condition{
		Type: conditionReady, Status: status, Reason: result.Reason, Message: result.Message, ObservedGeneration: grant.Generation,
	})
	grant.Status.ObservedGeneration = grant.Generation
	grant.Status.Consumers = result.Listed()
	grant.Status.ConsumerCount = int32(len(result.Consumers)) // bounded by the namespaces of a cluster
	if equality.Semantic.DeepEqual(before.Status, grant.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, grant, client.MergeFrom(before)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot write the status of SourceGrant %s/%s: %w", grant.Namespace, grant.Name, err)
	}
	return nil
}
