package tenantnamespace

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contents are the objects of a namespace of the kinds that the manager makes.
type contents struct {
	accounts   []*corev1.ServiceAccount
	bindings   []*rbacv1.RoleBinding
	quotas     []*corev1.ResourceQuota
	parameters *v1alpha1.TenantParameters
}

func (r *Reconciler) read(ctx context.Context, namespace string) (*contents, error) {
	var accounts corev1.ServiceAccountList
	var bindings rbacv1.RoleBindingList
	var quotas corev1.ResourceQuotaList
	var parameters v1alpha1.TenantParametersList
	for _, list := range []client.ObjectList{&accounts, &bindings, &quotas, &parameters} {
		if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("cannot read what is in namespace %s: %w", namespace, err)
		}
	}
	c := &contents{}
	for i := range accounts.Items {
		c.accounts = append(c.accounts, &accounts.Items[i])
	}
	for i := range bindings.Items {
		c.bindings = append(c.bindings, &bindings.Items[i])
	}
	for i := range quotas.Items {
		c.quotas = append(c.quotas, &quotas.Items[i])
	}
	for i := range parameters.Items {
		c.parameters = &parameters.Items[i] // its schema allows one name
	}
	return c, nil
}

// all returns the objects, of which none has a kind: lists leave it out.
func (c *contents) all() []client.Object {
	var all []client.Object
	for _, o := range c.accounts {
		all = append(all, o)
	}
	for _, o := range c.bindings {
		all = append(all, o)
	}
	if c.parameters != nil {
		all = append(all, c.parameters)
	}
	for _, o := range c.quotas {
		all = append(all, o)
	}
	return all
}

// ours returns what the manager made.
func (c *contents) ours() []client.Object {
	var ours []client.Object
	for _, o := range c.all() {
		if o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
			ours = append(ours, o)
		}
	}
	return ours
}

// find returns the object of the same kind and name, or nil.
func (c *contents) find(wanted client.Object) client.Object {
	for _, o := range c.all() {
		if keyOf(o) == keyOf(wanted) {
			return o
		}
	}
	return nil
}

func keyOf(o client.Object) key {
	return key{kind: fmt.Sprintf("%T", o), NamespacedName: client.ObjectKeyFromObject(o)}
}

// applyObject writes an object by server-side apply.
func (r *Reconciler) applyObject(ctx context.Context, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	// Not ours to say.
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	delete(u.Object, "status")
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
}

// prune removes those objects that are not kept. One that somebody else has
// applied as well is given up instead: it stays, without our label.
func (r *Reconciler) prune(ctx context.Context, ours, kept []client.Object) error {
	wanted := map[key]bool{}
	for _, object := range kept {
		wanted[keyOf(object)] = true
	}
	for _, object := range ours {
		if wanted[keyOf(object)] || !object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := r.remove(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot remove %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
		}
	}
	return nil
}

func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	if shared(object) {
		patch := mergePatch(object, map[string]any{
			"resourceVersion": object.GetResourceVersion(),
			"labels":          map[string]any{tenancy.LabelManaged: nil},
		})
		return r.Client.Patch(ctx, object.DeepCopyObject().(client.Object), patch, client.FieldOwner(FieldManager))
	}
	// Nothing that changed since it was looked at: it may have become
	// somebody else's.
	uid, version := object.GetUID(), object.GetResourceVersion()
	return r.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// shared says whether somebody else applies the object too.
func shared(object client.Object) bool {
	for _, m := range object.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Manager != FieldManager {
			return true
		}
	}
	return false
}

// mergePatch changes an object's metadata if it is still the same object.
func mergePatch(object client.Object, metadata map[string]any) client.Patch {
	metadata["uid"] = object.GetUID()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // only for types that JSON does not know
	}
	return client.RawPatch(types.MergePatchType, patch)
}
