package capsule

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// administratorRole is the ClusterRole of administrators who assign namespaces: see
	// config/capsule/rbac.yaml.
	administratorRole = "tenure-capsule-administrator"
	// administratorBinding is the ClusterRoleBinding that grants this role to the administrators.
	administratorBinding = tenancy.RBACPrefix + "capsule:administrators"
)

// Administers returns a function that reports whether the user with these owner keys, see
// [webhook.OwnerKeys], is an administrator of the CapsuleConfiguration.
func Administers(c client.Reader) func(context.Context, []string) (bool, error) {
	return func(ctx context.Context, owner []string) (bool, error) {
		configuration := &v1beta2.CapsuleConfiguration{}
		err := c.Get(ctx, client.ObjectKey{Name: v1beta2.ConfigurationName}, configuration)
		if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("cannot read the CapsuleConfiguration: %w", err)
		}
		keys := webhook.Keys(capsule.Administrators(configuration))
		return slices.ContainsFunc(owner, func(key string) bool { return slices.Contains(keys, key) }), nil
	}
}

// administrators grants the administrators of a CapsuleConfiguration the right to assign namespaces
// if the TenancyProfile says so, and otherwise removes the right. The configuration may be nil.
func (r *ConfigurationReconciler) administrators(ctx context.Context, c *v1beta2.CapsuleConfiguration, profile *v1alpha1.TenancyProfile) error {
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: administratorBinding, Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: administratorRole},
	}
	if c != nil && profile != nil && profile.Spec.Capsule.Administrators == v1alpha1.AdministratorsNamespaces {
		for _, o := range capsule.Administrators(c) {
			s := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: o.Kind, Name: o.Name}
			if o.Kind == rbacv1.ServiceAccountKind {
				s.APIGroup, s.Namespace = "", o.Namespace
			}
			binding.Subjects = append(binding.Subjects, s)
		}
	}
	have := &rbacv1.ClusterRoleBinding{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(binding), have)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("cannot read ClusterRoleBinding %s: %w", binding.Name, err)
	case len(binding.Subjects) == 0 && err == nil:
		err = r.Client.Delete(ctx, have)
	case len(binding.Subjects) > 0 && (err != nil || !tenancy.UpToDate(have, binding)):
		err = tenantnamespace.Apply(ctx, r.Client, binding)
	default:
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write ClusterRoleBinding %s: %w", binding.Name, err)
	}
	return nil
}
