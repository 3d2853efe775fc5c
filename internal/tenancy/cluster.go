package tenancy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnersCordon reports whether the owners of a Tenant cordon its namespaces.
func OwnersCordon(t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile) bool {
	return t.Labels[LabelManaged] == CapsuleValue && profile.Spec.Capsule.Cordon == v1alpha1.CordonOwners
}

// Cluster returns the cluster-scoped objects of a Tenant with these namespaces: the owners'
// right to create namespaces, and the ClusterRoles of the owners and the tenant's accounts. A
// Tenant that is cordoned or being deleted gives no right to create namespaces.
func Cluster(t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile, namespaces []string) []client.Object {
	if len(validation.IsDNS1123Label(t.Name)) > 0 {
		return nil
	}
	var owners, accounts []rbacv1.Subject
	for _, o := range t.Spec.Owners {
		owners = append(owners, subject(o.Kind, o.Namespace, o.Name))
		if o.Kind == rbacv1.ServiceAccountKind {
			accounts = append(accounts, subject(o.Kind, o.Namespace, o.Name))
		}
	}
	owners, accounts = unique(owners), unique(accounts)
	creates := !t.Spec.Cordoned && t.DeletionTimestamp.IsZero()
	var objects []client.Object
	if len(owners) > 0 {
		name := OwnersPrefix + t.Name
		objects = append(objects, ownersClusterRole(t, profile, name, creates), clusterBinding(t, name, name, owners))
	}
	if len(accounts) > 0 && creates {
		name := OwnersPrefix + t.Name + ":apply"
		objects = append(objects, applyClusterRole(t, name), clusterBinding(t, name, name, accounts))
	}
	if !t.DeletionTimestamp.IsZero() {
		return objects
	}
	holders := slices.Clone(owners)
	for _, namespace := range namespaces {
		holders = append(holders, subject(rbacv1.ServiceAccountKind, namespace, t.Name))
	}
	holders = unique(holders)
	for _, role := range t.Spec.ClusterRoles {
		if len(holders) > 0 {
			objects = append(objects, clusterBinding(t, joined(clusterRole+":"+t.Name, role), role, holders))
		}
	}
	return objects
}

// ListsMetadata reports whether a Tenant lists labels or annotations of its own for its
// namespaces: ones that its owners may choose, must set, or get.
func ListsMetadata(t *v1alpha1.Tenant) bool {
	in := &t.Spec.Namespaces
	return len(in.Labels)+len(in.Annotations)+len(in.Selected)+len(in.Allowed.Labels)+len(in.Allowed.Annotations)+
		len(in.Required.Labels)+len(in.Required.Annotations)+len(in.Required.LabelExpressions)+len(in.Required.AnnotationExpressions) > 0
}

func ownersClusterRole(t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile, name string, creates bool) *rbacv1.ClusterRole {
	onTenant := []string{"get", v1alpha1.VerbOwn}
	if in := &t.Spec.Namespaces; !in.Prefixed() {
		onTenant = append(onTenant, v1alpha1.VerbName)
	}
	if ListsMetadata(t) {
		onTenant = append(onTenant, v1alpha1.VerbLabel)
	}
	if OwnersCordon(t, profile) {
		onTenant = append(onTenant, v1alpha1.VerbCordon)
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tenants"}, ResourceNames: []string{t.Name}, Verbs: onTenant},
		createsTenantNamespaces,
	}
	if creates {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}})
	}
	return clusterRoleOf(t, name, rules...)
}

// createsTenantNamespaces is the right that marks owners.
var createsTenantNamespaces = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.OwnersResource}, Verbs: []string{"create"}}

// applyClusterRole returns the right to patch namespaces, which Flux needs in order to apply a namespace as a
// service account that is an owner. An admission policy limits it to namespaces of the owner's tenants, but a
// patch that fails before admission can reveal a namespace. So users and groups do not get this right.
func applyClusterRole(t *v1alpha1.Tenant, name string) *rbacv1.ClusterRole {
	return clusterRoleOf(t, name, createsTenantNamespaces, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}})
}

func clusterRoleOf(t *v1alpha1.Tenant, name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: clusterMeta(t, name),
		Rules:      rules,
	}
}

func clusterBinding(t *v1alpha1.Tenant, name, role string, subjects []rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: clusterMeta(t, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func clusterMeta(t *v1alpha1.Tenant, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelManaged: ManagedValue, v1alpha1.LabelTenant: t.Name}}
}
