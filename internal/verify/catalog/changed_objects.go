package catalog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errByChange is the result of a dry run if a policy refuses to create an object but admits the change of
// an allowed object into it. [judge] counts it as an accepted request.
var errByChange = errors.New("an allowed object can be changed into it")

// tryWrite asks the API server whether the tenant could have an object: whether the tenant could create the
// object or, if a policy refuses or changes it, change an allowed object into it. Otherwise the attack would miss a
// policy that does not match UPDATE, or a mark that exempts the object. The allowed object may be nil, for an ordinary
// object of a kind of Flux. tryWrite returns nil, errByChange, a [markedError], or the refusal.
//
// Only the tenant that tries all attacks changes objects; see [Report.shareChanges].
func (e *Scenario) tryWrite(ctx context.Context, u, own *unstructured.Unstructured) error {
	refusal := e.tryIntact(ctx, u)
	if !e.inFull || !refusedByPolicy(refusal) {
		return refusal
	}
	refusal = e.exempt(ctx, u, refusal, e.tryIntact)
	var marked *markedError
	if errors.As(refusal, &marked) || u.GetNamespace() != e.Namespace {
		return refusal
	}
	if own == nil {
		if own = e.ordinary(ctx, u.GetKind()); own == nil {
			return refusal
		}
	}
	// Flux keeps a deleted object for a moment. With a unique name, no other attack waits for the deletion.
	own.SetName(name("own-" + rand.Text()[:8]))
	if err := e.create(ctx, own); err != nil {
		return unclearOr(err, refusal)
	}
	defer func() { _ = e.Admin.Delete(context.WithoutCancel(ctx), own) }()
	err := e.change(ctx, own, u, true)
	if err == nil {
		return errByChange
	}
	var altered *alteredError
	var refused *policyRefusal
	if errors.As(err, &altered) && errors.As(refusal, &refused) {
		refused.accepted = append(refused.accepted, acceptedAltered{altered, errByChange})
	}
	return unclearOr(err, refusal)
}

// createOrChange creates an object as the tenant. If a policy refuses the creation, it changes an ordinary
// object into the object instead, and if a policy changes the object, it changes it back. A policy may exempt objects by
// their names: then u gets another name. The caller must remove the object. The error is the refusal of the
// creation.
func (e *Scenario) createOrChange(ctx context.Context, u *unstructured.Unstructured) error {
	sent := u.DeepCopy()
	refusal := e.create(ctx, u)
	if refusal == nil {
		if err := e.altered(ctx, sent, u); err != nil {
			return e.undoChange(ctx, sent, u, err)
		}
		return nil
	}
	if !refusedByPolicy(refusal) {
		return refusal
	}
	refusal = aboutAttack(ctx, e.exempt(ctx, sent, refusal, e.tryIntact), e.tryOrdinary(u.GetKind()))
	var marked *markedError
	if errors.As(refusal, &marked) {
		marked.object.DeepCopyInto(u)
		return e.create(ctx, u)
	}
	own := e.ordinary(ctx, u.GetKind())
	if own == nil {
		return refusal
	}
	own.SetNamespace(u.GetNamespace())
	own.SetName(u.GetName())
	if err := e.create(ctx, own); err != nil {
		return unclearOr(err, refusal)
	}
	if err := aboutAttack(ctx, e.change(ctx, own, u, false), e.tryOrdinary(u.GetKind())); err != nil {
		e.remove(own)
		return unclearOr(err, refusal)
	}
	return nil
}

// tryOrdinary returns a request for an object of a kind of Flux as a tenant would write it, in a dry run; for another
// kind the request does nothing.
func (e *Scenario) tryOrdinary(kind string) func(context.Context) error {
	return func(ctx context.Context) error {
		if own := e.ordinary(ctx, kind); own != nil {
			return e.tryIntact(ctx, own)
		}
		return nil
	}
}

// undoChange has the object u, which a policy changed when the tenant created it, as the tenant sent it: by a change of
// the object, or by another object with marks that exempt it from the policy. If there is no such way,
// u remains as the policy changed it, unless the policy has more marks than are tried, which is an error.
func (e *Scenario) undoChange(ctx context.Context, sent, u *unstructured.Unstructured, altered error) error {
	own := e.tryOrdinary(u.GetKind())
	if aboutAttack(ctx, altered, own) == nil {
		return nil
	}
	if aboutAttack(ctx, e.change(ctx, u, sent, true), own) == nil {
		return aboutAttack(ctx, e.change(ctx, u, sent, false), own)
	}
	// A selector also looks at the object before a change, so that a mark counts from the beginning.
	err := aboutAttack(ctx, e.exempt(ctx, sent, altered, func(ctx context.Context, marked *unstructured.Unstructured) error {
		probe := marked.DeepCopy()
		if probe.GetName() == u.GetName() {
			probe.SetName(u.GetName() + "-dry-run")
		}
		return e.tryIntact(ctx, probe)
	}), own)
	var marked *markedError
	var refused *policyRefusal
	switch {
	case errors.As(err, &marked):
		e.remove(u)
		marked.object.DeepCopyInto(u)
		return e.create(ctx, u)
	case errors.As(err, &refused) && refused.untried != "":
		e.remove(u)
		return err
	}
	return nil
}

// change changes an existing object of the tenant into another one, with the verb patch, or without the
// right to patch with the verb update. Admission treats both as UPDATE. The error is the refusal, or an
// [alteredError].
func (e *Scenario) change(ctx context.Context, own, into *unstructured.Unstructured, dryRun bool) error {
	var patching []client.PatchOption
	var updating []client.UpdateOption
	if dryRun {
		patching, updating = append(patching, client.DryRunAll), append(updating, client.DryRunAll)
	}
	changed := withContent(own, into)
	err := e.As.Patch(ctx, changed, client.MergeFrom(own), patching...)
	if err == nil {
		return e.altered(ctx, withContent(own, into), changed)
	}
	if control, _ := controlOf(fmt.Sprint(err)); control != rbac {
		return err
	}
	return retryOnConflict(func() error {
		current := own.DeepCopy()
		if err := e.Admin.Get(ctx, keyOf(own), current); err != nil {
			return err
		}
		changed := withContent(current, into)
		if err := e.As.Update(ctx, changed, updating...); err != nil {
			return err
		}
		return e.altered(ctx, withContent(current, into), changed)
	})
}

// withContent returns an object with the content of another object and its own identity.
func withContent(own, other *unstructured.Unstructured) *unstructured.Unstructured {
	u := own.DeepCopy()
	for key := range own.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key) {
			delete(u.Object, key)
		}
	}
	for key, value := range other.DeepCopy().Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key) {
			u.Object[key] = value
		}
	}
	u.SetLabels(other.GetLabels())
	u.SetAnnotations(other.GetAnnotations())
	if len(other.GetFinalizers()) > 0 {
		u.SetFinalizers(other.GetFinalizers())
	}
	return u
}

// refusedByPolicy reports whether a policy or a webhook refused a request or changed the object. Only these controls may
// match some operations and not others.
func refusedByPolicy(err error) bool {
	var altered *alteredError
	if errors.As(err, &altered) {
		return true
	}
	control, _ := controlOf(fmt.Sprint(err))
	return err != nil && isPolicy(control)
}

// isPolicy reports whether a control is a policy or a webhook.
func isPolicy(control string) bool {
	return slices.ContainsFunc([]string{policyControl, "webhook ", kyvernoPolicy}, func(prefix string) bool { return strings.HasPrefix(control, prefix) })
}

// unclearOr returns the error of a second step if it is no refusal, so that the finding is not proven, and
// otherwise the refusal of the first step.
func unclearOr(err, refusal error) error {
	if judge(err, "").Outcome == Stopped || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return refusal
	}
	return err
}

// ordinary returns an object of a kind of Flux as a tenant would write it, or nil for another kind.
func (e *Scenario) ordinary(ctx context.Context, kind string) *unstructured.Unstructured {
	e.ordinaries.once.Do(func() { e.ordinaries.all = e.ordinaryObjects(ctx) })
	for _, u := range e.ordinaries.all {
		if u.GetKind() == kind {
			return u.DeepCopy()
		}
	}
	return nil
}

// ordinaries are objects that one function creates once, for a tenant and its owners.
type ordinaries struct {
	once sync.Once
	all  []*unstructured.Unstructured
}

func (e *Scenario) ordinaryObjects(ctx context.Context) []*unstructured.Unstructured {
	const id = "own"
	alert := object(notificationAPI, "Alert", e.Namespace, name(id), map[string]any{"spec": map[string]any{
		"suspend": true, "providerRef": map[string]any{"name": "any"},
		"eventSources": []any{map[string]any{"kind": "GitRepository", "name": "any"}},
	}})
	return append(e.ofEveryKind(ctx, id), alert)
}
