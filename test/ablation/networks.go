package ablation

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// networkPolicies returns the control that is the fleet's own NetworkPolicies. The removal does not affect
// the policies of the manager, because the manager would write them again.
func networkPolicies() Control {
	return Control{
		Name: "network policies of the tenant's namespaces",
		Away: "they are deleted",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			var gone []networkingv1.NetworkPolicy
			restore := func(ctx context.Context) error {
				var errs []error
				for _, p := range gone {
					errs = append(errs, t.admin.Create(ctx, &networkingv1.NetworkPolicy{
						ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec,
					}))
				}
				return errors.Join(errs...)
			}
			for _, name := range t.tenant.Namespaces {
				list := &networkingv1.NetworkPolicyList{}
				if err := t.admin.List(ctx, list, client.InNamespace(name)); err != nil {
					return restore, err
				}
				for _, p := range list.Items {
					if p.Labels[tenancy.LabelManaged] == tenancy.ManagedValue {
						continue
					}
					if err := t.admin.Delete(ctx, &p); err != nil {
						return restore, err
					}
					gone = append(gone, p)
				}
			}
			if len(gone) == 0 {
				return restore, errors.New("there are none")
			}
			return restore, nil
		},
	}
}

// isolation returns the control that is the policies that the manager writes: NetworkPolicies, and the
// ClusterNetworkPolicies that precede them.
func isolation() Control {
	return Control{
		Name: "network policies that the manager writes",
		Away: "the TenancyProfile sets network.isolation to None, and the manager removes them",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			set := func(ctx context.Context, mode string, isolated bool) error {
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"tenants":{"network":{"isolation":`+mode+`}}}}`))
				if err := t.admin.Patch(ctx, ofTenure("TenancyProfile", "", v1alpha1.ProfileName), patch); err != nil {
					return err
				}
				return t.isolated(ctx, isolated)
			}
			return func(ctx context.Context) error { return set(ctx, "null", true) }, set(ctx, `"`+v1alpha1.IsolationNone+`"`, false)
		},
	}
}

// isolated waits until each of the tenant's namespaces has the manager's NetworkPolicy and the tenant
// has a ClusterNetworkPolicy, or until there are none.
func (t *target) isolated(ctx context.Context, want bool) error {
	for _, name := range t.tenant.Namespaces {
		err := poll(ctx, fmt.Sprintf("NetworkPolicy %s/%s to exist, or not", name, tenancy.IsolationName), func() (bool, error) {
			err := t.admin.Get(ctx, client.ObjectKey{Namespace: name, Name: tenancy.IsolationName}, &networkingv1.NetworkPolicy{})
			return want == (err == nil), client.IgnoreNotFound(err)
		})
		if err != nil {
			return err
		}
	}
	return poll(ctx, "the ClusterNetworkPolicy of tenant "+t.tenant.Name+" to exist, or not", func() (bool, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(tenancy.ClusterPolicyKinds()[0])
		err := t.admin.List(ctx, list, client.MatchingLabels{v1alpha1.LabelTenant: t.tenant.Name})
		return want == (len(list.Items) > 0), err
	})
}
