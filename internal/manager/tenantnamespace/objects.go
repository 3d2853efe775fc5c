package tenantnamespace

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contents are the objects of a namespace of the kinds that the manager creates. Their field
// kind is empty, since lists leave it out.
type contents struct {
	all        []client.Object
	accounts   []*corev1.ServiceAccount
	bindings   []*rbacv1.RoleBinding
	quotas     []*corev1.ResourceQuota
	parameters *v1alpha1.TenantParameters
	syncs      []*unstructured.Unstructured
}

func (r *Reconciler) read(ctx context.Context, namespace string) (*contents, error) {
	lists := []client.ObjectList{
		&corev1.ServiceAccountList{}, &rbacv1.RoleBindingList{}, &v1alpha1.TenantParametersList{}, &corev1.ResourceQuotaList{},
		&corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{},
	}
	for _, kind := range syncKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		lists = append(lists, list)
	}
	c := &contents{}
	for _, list := range lists {
		err := r.Client.List(ctx, list, client.InNamespace(namespace))
		if apimeta.IsNoMatchError(err) {
			continue // Flux is not there yet, and nothing of its kinds
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read what is in namespace %s: %w", namespace, err)
		}
		if err := apimeta.EachListItem(list, c.add); err != nil {
			return nil, fmt.Errorf("cannot read what is in namespace %s: %w", namespace, err)
		}
	}
	return c, nil
}

func (c *contents) add(item runtime.Object) error {
	object, ok := item.(client.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", item)
	}
	c.all = append(c.all, object)
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		c.accounts = append(c.accounts, o)
	case *rbacv1.RoleBinding:
		c.bindings = append(c.bindings, o)
	case *corev1.ResourceQuota:
		c.quotas = append(c.quotas, o)
	case *v1alpha1.TenantParameters:
		c.parameters = o // its schema allows one name
	case *unstructured.Unstructured:
		c.syncs = append(c.syncs, o)
	}
	return nil
}

// ours returns the objects that this reconciler owns. As long as the Tenant exists, its
// reconciler owns the parts of its quotas; ours returns the parts of a Tenant that had the
// namespace before. The credentials reconciler removes credentials, for which it needs their
// RoleBindings.
func (c *contents) ours(tenant *v1alpha1.Tenant) []client.Object {
	var ours []client.Object
	for _, o := range c.all {
		if o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue && o.GetLabels()[tenancy.LabelCredentials] == "" && (tenant == nil || !isShareOf(o, tenant)) {
			ours = append(ours, o)
		}
	}
	return ours
}

// isShare reports whether an object is a namespace's part of a quota of a Tenant.
func isShare(o client.Object) bool {
	_, quota := o.(*corev1.ResourceQuota)
	return quota && o.GetLabels()[tenancy.LabelQuotaScope] == tenancy.QuotaScopeTenant
}

// isShareOf reports whether an object is a namespace's part of a quota of this Tenant.
func isShareOf(o client.Object, tenant *v1alpha1.Tenant) bool {
	return isShare(o) && o.GetLabels()[v1alpha1.LabelFluxTenant] == tenant.Name
}

// find returns the object of the same kind and name, or nil.
func (c *contents) find(wanted client.Object) client.Object {
	for _, o := range c.all {
		if keyOf(o) == keyOf(wanted) {
			return o
		}
	}
	return nil
}

func keyOf(o client.Object) key {
	kind := fmt.Sprintf("%T", o)
	if u, ok := o.(*unstructured.Unstructured); ok {
		kind = u.GetKind()
	}
	return key{kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
}

// applyObject writes an object by server-side apply. It creates, rather than applies, a
// service account that the cache does not show: the fleet may just have created an account
// with this name, and an apply would make it the manager's.
func (r *Reconciler) applyObject(ctx context.Context, existing, object client.Object) error {
	if account, ok := object.(*corev1.ServiceAccount); ok && existing == nil {
		return r.Client.Create(ctx, account.DeepCopy(), client.FieldOwner(FieldManager))
	}
	err := Apply(ctx, r.Client, object)
	wanted, ok := object.(*v1alpha1.TenantParameters)
	had, exists := existing.(*v1alpha1.TenantParameters)
	if !ok || !exists || !apierrors.IsInvalid(err) {
		return err
	}
	// An apply that takes the last field out of an object within a custom resource makes this
	// object null, which the schema refuses. Limits that allow nothing are such an object.
	return replaceSpec(ctx, r.Client, had, wanted)
}

// replaceSpec writes the spec of parameters as a whole, if nobody changed them since they were
// read.
func replaceSpec(ctx context.Context, c client.Client, had, wanted *v1alpha1.TenantParameters) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": had.ResourceVersion},
		{"op": "replace", "path": "/spec", "value": wanted.Spec},
	})
	if err != nil {
		return err
	}
	return c.Patch(ctx, had.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldManager))
}

// Apply writes an object of the manager's by server-side apply. It returns an error if the
// object cannot be encoded, or the API server's error.
func Apply(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	// The manager does not set these fields.
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	delete(u.Object, "status")
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
}

// prune deletes the objects that are not kept. It does not delete an object that another
// field manager applies too, but removes the manager's label from it.
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
	if isShare(object) {
		return ReleaseQuota(ctx, r.Client, object, true)
	}
	if shared(object) {
		patch := mergePatch(object, map[string]any{
			"resourceVersion": object.GetResourceVersion(),
			"labels":          map[string]any{tenancy.LabelManaged: nil},
		})
		return r.Client.Patch(ctx, object.DeepCopyObject().(client.Object), patch, client.FieldOwner(FieldManager))
	}
	// The preconditions protect an object that changed since it was read: it may
	// have another owner now.
	uid, version := object.GetUID(), object.GetResourceVersion()
	return r.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// shared reports whether another field manager also applies the object.
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
