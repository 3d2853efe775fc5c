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
	var owners []rbacv1.Subject
	for _, o := range t.Spec.Owners {
		owners = append(owners, subject(o.Kind, o.Namespace, o.Name))
	}
	owners = unique(owners)
	var objects []client.Object
	if len(owners) > 0 {
		name := OwnersPrefix + t.Name
		objects = append(objects, ownersClusterRole(t, profile, name), clusterBinding(t, name, name, owners))
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

func ownersClusterRole(t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile, name string) *rbacv1.ClusterRole {
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
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: clusterMeta(t, name),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"tenants"}, ResourceNames: []string{t.Name}, Verbs: onTenant},
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.OwnersResource}, Verbs: []string{"create"}},
		},
	}
	if !t.Spec.Cordoned && t.DeletionTimestamp.IsZero() {
		verbs := []string{"create"}
		if slices.ContainsFunc(t.Spec.Owners, func(o v1alpha1.Owner) bool { return o.Kind == rbacv1.ServiceAccountKind }) {
			// Flux needs the right to patch in order to apply a namespace. An admission
			// policy limits it to the owner's tenants. But a refused patch can reveal an
			// object before admission, so users and groups do not get this right.
			verbs = append(verbs, "patch")
		}
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: verbs})
	}
	return role
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
