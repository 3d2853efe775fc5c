package ablation

import (
	"context"
	"errors"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// besideAnOwner returns the control with an additional account that owns the tenant while the control is
// removed. The platform has applied no objects to this account in the tenant's namespace.
func besideAnOwner(c Control) Control {
	remove := c.remove
	c.remove = func(ctx context.Context, t *target) (func(context.Context) error, error) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.account.Namespace, Name: sentinel + "-owner"}}
		gone := func(ctx context.Context) error {
			return errors.Join(t.owns(ctx, account, false), client.IgnoreNotFound(t.admin.Delete(ctx, account)))
		}
		if err := errors.Join(t.admin.Create(ctx, account), t.owns(ctx, account, true)); err != nil {
			return gone, err
		}
		restore, err := remove(ctx, t)
		return func(ctx context.Context) error { return errors.Join(restore(ctx), gone(ctx)) }, err
	}
	return c
}

// owns adds an account to the owners of the tenant, or removes it, and waits until the parameters of its
// namespace list it or no longer list it.
func (t *target) owns(ctx context.Context, account *corev1.ServiceAccount, want bool) error {
	tenant := ofTenure("Tenant", "", t.tenant.Name)
	if err := t.admin.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil {
		return err
	}
	before := tenant.DeepCopy()
	owners, _, _ := unstructured.NestedSlice(tenant.Object, "spec", "owners")
	owners = slices.DeleteFunc(owners, func(o any) bool {
		owner, _ := o.(map[string]any)
		return owner["namespace"] == account.Namespace && owner["name"] == account.Name
	})
	if want {
		owners = append(owners, map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": account.Namespace, "name": account.Name})
	}
	if err := unstructured.SetNestedSlice(tenant.Object, owners, "spec", "owners"); err != nil {
		return err
	}
	if err := t.admin.Patch(ctx, tenant, client.MergeFrom(before)); err != nil {
		return err
	}
	return poll(ctx, "the parameters to list the account, or not", func() (bool, error) {
		parameters := ofTenure("TenantParameters", account.Namespace, v1alpha1.ParametersName)
		err := t.admin.Get(ctx, client.ObjectKeyFromObject(parameters), parameters)
		listed, _, _ := unstructured.NestedStringSlice(parameters.Object, "spec", "ownerAccounts")
		return err == nil && slices.Contains(listed, account.Name) == want, err
	})
}

// ofTenure returns an object of one of Tenure's kinds, by name.
func ofTenure(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
