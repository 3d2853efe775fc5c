package replication

import (
	"context"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wantedObject is an object, its list, and the account that applies it.
type wantedObject struct {
	object *unstructured.Unstructured
	// origin is the place of the object in its list.
	origin  string
	entry   *entry
	account replication.Account
	// tenant is the tenant whose namespace gets the object.
	tenant string
}

// outcome is the result of applying an object.
type outcome int

const (
	// unknown: the object may exist, in this version or an older one.
	unknown outcome = iota
	// inPlace: the object exists as planned.
	inPlace
	// notOurs: only other field managers apply the existing object.
	notOurs
)

// apply creates or updates an object. The API server writes nothing if nothing differs.
func (e *Engine) apply(ctx context.Context, manager string, w wantedObject, p *problems) outcome {
	c, err := e.Clients.As(w.account)
	if err != nil {
		return explain(p, w.object, w.account, err)
	}
	existing := like(w.object)
	err = c.Get(ctx, client.ObjectKeyFromObject(w.object), existing)
	mark, force := replication.Made, w.entry.force
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return explain(p, w.object, w.account, err)
	case !applied(existing, manager) && w.entry.Capsule && replicatedByOthers(existing):
		// As with Capsule, declarations share an object as long as no two set the same field.
	case !applied(existing, manager) && w.entry.Capsule && replicatedByCapsule(existing, w.tenant):
		// The declaration moves from Capsule, with the objects that Capsule created for it.
		force = true
	case !applied(existing, manager) && !w.entry.adopt:
		p.add(reasonConflict, "%s exists, and somebody else made it, so that it cannot be adopted unasked: remove it, or set adopt to take part in it", name(w.object))
		return notOurs
	case existing.GetLabels()[replication.LabelReplicated] != replication.Made || !applied(existing, manager):
		mark = replication.Adopted
	default:
		// No other field manager applies the object, so changes by others are drift.
		force = force || !othersApply(existing, manager)
	}
	labels := w.object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[replication.LabelReplicated] = mark
	if w.entry.Capsule {
		labels[labelManagedBy] = replications
		if mark == replication.Made {
			labels[labelCreatedBy] = replications
		}
	}
	w.object.SetLabels(labels)
	options := []client.ApplyOption{client.FieldOwner(manager)}
	if force {
		options = append(options, client.ForceOwnership)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(w.object), options...); err != nil {
		return explain(p, w.object, w.account, err)
	}
	return inPlace
}

// remove deletes an object that is no longer declared. If other field managers apply the
// object too, remove only gives up the fields of the declaration. It reports whether the removal is complete.
func (e *Engine) remove(ctx context.Context, manager string, held replication.Held, p *problems) bool {
	object := held.Object()
	c, err := e.Clients.As(held.Account)
	if err != nil {
		explain(p, object, held.Account, err)
		return false
	}
	existing := like(object)
	err = c.Get(ctx, client.ObjectKeyFromObject(object), existing)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return true
	case err != nil:
		explain(p, object, held.Account, err)
		return false
	case !applied(existing, manager) || !existing.GetDeletionTimestamp().IsZero():
		return true
	}
	if existing.GetLabels()[replication.LabelReplicated] == replication.Made && !othersApply(existing, manager) {
		uid, version := existing.GetUID(), existing.GetResourceVersion()
		err = c.Delete(ctx, existing, client.Preconditions{UID: &uid, ResourceVersion: &version})
	} else {
		// An empty apply gives up all fields of the field manager.
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager))
	}
	if client.IgnoreNotFound(err) != nil {
		explain(p, object, held.Account, err)
		return false
	}
	return true
}

// like returns an empty object of the same kind and name.
func like(o *unstructured.Unstructured) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.GroupVersionKind())
	return u
}

// applied reports whether the declaration's field manager applies fields of an object.
func applied(o *unstructured.Unstructured, manager string) bool {
	for _, m := range o.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Manager == manager {
			return true
		}
	}
	return false
}

// replicatedByOthers reports whether another declaration made an object.
func replicatedByOthers(o *unstructured.Unstructured) bool {
	return o.GetLabels()[replication.LabelReplicated] == replication.Made && slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Operation == metav1.ManagedFieldsOperationApply && strings.HasPrefix(m.Manager, managerPrefix)
	})
}

// replicatedByCapsule reports whether Capsule replicated an object for a tenant, before Tenure did.
func replicatedByCapsule(o *unstructured.Unstructured, tenant string) bool {
	labels := o.GetLabels()
	if _, ours := labels[replication.LabelReplicated]; ours {
		return false
	}
	_, older := labels[labelResources]
	return older && labels[v1alpha1.LabelCapsuleTenant] == tenant || labels[labelManagedBy] == replications
}

// othersApply reports whether another field manager applies the object.
func othersApply(o *unstructured.Unstructured, manager string) bool {
	for _, m := range o.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Manager != manager && m.Subresource == "" {
			return true
		}
	}
	return false
}

func name(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// explain adds the error of an object to the problems.
func explain(p *problems, o *unstructured.Unstructured, account replication.Account, err error) outcome {
	who := account.Namespace + "/" + account.Name
	switch {
	case cannotImpersonate(err):
		p.add(reasonWaiting, "the manager may not act as account %s yet: in a namespace that is no tenant's, a platform admin allows it with a RoleBinding of the manager to ClusterRole %s", who, tenancy.ReplicatorRole)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		p.add(reasonWaiting, "namespace %s is being deleted", o.GetNamespace())
	case apierrors.IsForbidden(err):
		p.add(reasonRefused, "%s is not what account %s may have: %v", name(o), who, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err):
		p.add(reasonRefused, "%s is refused: %v", name(o), err)
	case apierrors.IsConflict(err):
		p.add(reasonConflict, "%s has fields that somebody else has set: leave them out, or set force to take them over: %v", name(o), err)
	default:
		p.add(reasonFailed, "%s cannot be applied as account %s: %v", name(o), who, err)
	}
	return unknown
}

// cannotImpersonate reports whether the manager lacks the right to impersonate.
func cannotImpersonate(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate resource")
}
