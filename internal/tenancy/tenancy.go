// Package tenancy computes the desired objects of a tenant. One pure function returns the objects
// of a namespace, from its labels, the TenancyProfile and, if there is one, the Tenant. Another
// one returns the cluster-scoped objects of a Tenant. All objects of the first function are in
// the namespace. Without a Tenant they give no rights beyond the role of tenants, and with a
// Tenant no rights beyond the Tenant's spec.
package tenancy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Role is the ClusterRole that a tenant's account has in its namespaces:
	// see config/rbac/roles.yaml.
	Role = "tenure-tenant"
	// BindingName is the name of the RoleBinding in a tenant's namespace. It differs from
	// [FluxBindingName], because the role of a binding cannot be changed: the API server would
	// refuse a fleet that brings its own binding in the same commit.
	BindingName = "tenure-reconciler"
	// QuotaName is the name of the ResourceQuota in a tenant's namespace.
	QuotaName = "tenure"
	// LabelManaged marks the objects that the manager created and may delete.
	LabelManaged = "tenure.dev/managed-by"
	// ManagedValue is the value of [LabelManaged].
	ManagedValue = "manager"
	// CapsuleValue is the value of [LabelManaged] on a Tenant that the layer for Capsule created for
	// one of Capsule's.
	CapsuleValue = "capsule"
	// ManagerAccount is the name of the manager's service account.
	ManagerAccount = "tenure-manager"
	// LabelCredentials marks the objects of the credentials of an account: see
	// internal/tenancy/credentials. It stays when a namespace changes hands, until those
	// are removed in order.
	LabelCredentials = "tenure.dev/credentials" //nolint:gosec // a name
	// AnnotationAccount names the account of these credentials, as NAMESPACE/NAME.
	AnnotationAccount = "tenure.dev/account"
	// AnnotationSecret on a RoleBinding names the Secret beside it that holds a
	// kubeconfig that the manager made.
	AnnotationSecret = "tenure.dev/secret" //nolint:gosec // a name
	// Finalizer keeps the TenantParameters for as long as the policies may read them: without it, a
	// namespace that is deleted would lose them first, and every later change in it would be
	// refused.
	Finalizer = "tenure.dev/parameters"
)

// labelFluxNamespace is the label with the namespace of the Kustomization that applied an object.
const labelFluxNamespace = "kustomize.toolkit.fluxcd.io/namespace"

// tenantLabels are the labels that name a namespace's tenant. The first existing one counts, as
// in the policies.
var tenantLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant}

// OfPlatform reports whether the namespace of this name belongs to the platform or to Kubernetes,
// so that it never belongs to a tenant.
func OfPlatform(namespace string, profile *v1alpha1.TenancyProfile) bool {
	return slices.Contains(profile.Spec.PlatformNamespaces, namespace) || strings.HasPrefix(namespace, "kube-")
}

// Namespace holds the properties of a tenant's namespace that the desired objects depend on.
type Namespace struct {
	// Name and Labels are the namespace's.
	Name   string
	Labels map[string]string
	// OwnAccount says that the namespace brings the account with the
	// tenant's name, and OwnBinding the RoleBinding of [FluxBindingName]: see
	// [Brought].
	OwnAccount, OwnBinding bool
	// OwnLevel is set if the manager wrote the Pod Security level in Labels, and so may
	// lower it.
	OwnLevel bool
	// Kinds are the kinds that are counted, each as RESOURCE.GROUP.
	Kinds []string
	// Tenant is the Tenant that the namespace belongs to, by [v1alpha1.LabelTenant];
	// nil if there is none of that name. Siblings are the names of all namespaces
	// that belong to it, this one included.
	Tenant   *v1alpha1.Tenant
	Siblings []string
	// Credentials are the credentials that the manager keeps in the namespace.
	Credentials Credentials
	// OwnerAccounts are the namespace's own accounts that own a tenant, sorted: see
	// [OwnerAccounts].
	OwnerAccounts []string
	// PlatformWorkloads are the workloads of the namespace that the platform applied, sorted:
	// see [PlatformWorkloads].
	PlatformWorkloads []string
	// PlatformSelectors are their selectors: see [PodSelector].
	PlatformSelectors []metav1.LabelSelector
	// Manager is the manager's subject, which deletes the namespace when its Tenant is
	// deleted, and impersonates its accounts to replicate objects.
	Manager *rbacv1.Subject
	// Layer says that the layer for Capsule runs: its kinds replicate objects too, and its ClusterRoles exist.
	Layer bool
}

// Objects are the desired objects of a namespace; nil fields are not desired.
type Objects struct {
	// Tenant is the name of the tenant.
	Tenant string
	// Account is the service account that Flux applies as, Binding gives it
	// and the user gotk:NAMESPACE:reconciler the role of tenants, as
	// `flux create tenant` does.
	Account *corev1.ServiceAccount
	Binding *rbacv1.RoleBinding
	// Parameters are the parameters of the policies in the namespace.
	Parameters *v1alpha1.TenantParameters
	// Quota bounds the number of Flux's objects.
	Quota *corev1.ResourceQuota
	// Isolation keeps the Pods of other tenants from connecting to the namespace's.
	Isolation *networkingv1.NetworkPolicy
	// Keys are the Secrets with the platform's public keys. [Objects.List] leaves them out.
	Keys []*corev1.Secret
	// Bounds, Bindings and Sync come from the Tenant: quotas of this namespace, limit ranges
	// and network policies; RoleBindings; sources and Kustomizations.
	Bounds, Bindings, Sync []client.Object
	// Later are the objects of Sync that the policies refuse while the profile applies to the
	// namespace instead of its own parameters: see [v1alpha1.LabelParameters].
	Later []client.Object
	// Labels and Annotations are those that a Tenant puts on the namespace itself.
	Labels, Annotations map[string]string
}

// ParametersLabel returns the value of [v1alpha1.LabelParameters] for a namespace with some labels.
func (o *Objects) ParametersLabel(labels map[string]string) string {
	if o.Parameters == nil {
		return ManagedValue
	}
	spec := &o.Parameters.Spec
	w, s := spec.Tenants.Workloads, spec.Tenants.Network.Services
	_, capsule := labels[v1alpha1.LabelCapsuleTenant] // claims get a selector for the volumes of the Tenant
	if capsule || o.Labels[v1alpha1.LabelCapsuleTenant] != "" || spec.DefaultClasses != nil || w.Metadata != nil || w.Nodes != nil || w.Images != nil && w.Images.PullPolicy != "" || s != nil && s.Metadata != nil {
		return ManagedValue
	}
	return v1alpha1.ParametersWithoutDefaults
}

// List returns the desired objects that are not nil, in the order in which they are applied: limits
// before the objects that give rights.
func (o *Objects) List() []client.Object {
	list := slices.Clone(o.Bounds)
	if o.Isolation != nil {
		list = append(list, o.Isolation)
	}
	if o.Quota != nil {
		list = append(list, o.Quota)
	}
	if o.Parameters != nil {
		list = append(list, o.Parameters)
	}
	if o.Account != nil {
		list = append(list, o.Account)
	}
	if o.Binding != nil {
		list = append(list, o.Binding)
	}
	return slices.Concat(list, o.Bindings, o.Sync)
}

// TenantOf returns the name of the tenant of a namespace with these labels, and whether it has
// one. The name may be invalid for an object.
func TenantOf(labels map[string]string) (string, bool) {
	name, label := LabelledTenant(labels)
	return name, label != ""
}

// LabelledTenant is like [TenantOf], and returns the label that names the tenant, or "".
func LabelledTenant(labels map[string]string) (name, label string) {
	for _, label := range tenantLabels {
		if tenant, ok := labels[label]; ok {
			return tenant, label
		}
	}
	return "", ""
}

// Cordoned reports whether a label of Capsule's cordons a namespace by itself.
func Cordoned(labels map[string]string) bool { return labels[v1alpha1.LabelCapsuleCordoned] == "true" }

// Desired returns the desired objects of a tenant's namespace. It returns an error if the namespace
// belongs to no tenant, to the platform or to Kubernetes, or if the tenant's name cannot be the
// name of an account.
func Desired(ns Namespace, profile *v1alpha1.TenancyProfile) (*Objects, error) {
	tenant, ok := TenantOf(ns.Labels)
	if !ok {
		return nil, fmt.Errorf("namespace %s is not a tenant's: it has none of the labels %s", ns.Name, strings.Join(tenantLabels, ", "))
	}
	if OfPlatform(ns.Name, profile) {
		return nil, fmt.Errorf("namespace %s is the platform's and cannot be a tenant's: take the label of tenant %q off", ns.Name, tenant)
	}
	if problems := validation.IsDNS1123Label(tenant); len(problems) > 0 {
		return nil, fmt.Errorf("tenant %q of namespace %s cannot have an account of that name: %s", tenant, ns.Name, strings.Join(problems, "; "))
	}
	objects := &Objects{
		Tenant: tenant,
		Parameters: &v1alpha1.TenantParameters{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TenantParameters"},
			ObjectMeta: meta(ns.Name, v1alpha1.ParametersName, tenant),
			Spec:       Parameters(tenant, ns.Tenant, profile),
		},
	}
	objects.Parameters.Finalizers = []string{Finalizer}
	objects.Parameters.Spec.Cordoned = objects.Parameters.Spec.Cordoned || Cordoned(ns.Labels)
	objects.Parameters.Spec.OwnerAccounts = ns.OwnerAccounts
	objects.Parameters.Spec.PlatformWorkloads, objects.Parameters.Spec.PlatformSelectors = ns.PlatformWorkloads, ns.PlatformSelectors
	objects.Parameters.Spec.Exemptions = Exemptions(ns.Name, profile)
	ns.Credentials.allow(&objects.Parameters.Spec)
	objects.Quota = quota(ns, tenant, objects.Parameters.Spec.Tenants.Bounds.MaxObjects)
	objects.Keys = keySecrets(ns, tenant, signatures(ns.Tenant, profile).Keys)
	objects.Isolation = isolation(ns.Name, tenant, objects.Parameters.Spec.Tenants.Network.Isolation)
	if ns.Tenant != nil {
		objects.addTenant(ns, profile)
	} else {
		objects.Labels = map[string]string{labelPodSecurity: defaultLevel, labelPodSecurityVersion: "latest"}
	}
	objects.keepLevel(ns, profile)
	if ns.OwnAccount {
		// The fleet brings the account, and so decides its rights.
		return objects, nil
	}
	objects.Account = &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: meta(ns.Name, tenant, tenant),
	}
	if !ns.OwnBinding {
		objects.Binding = binding(ns.Name, tenant)
	}
	return objects, nil
}

// FluxBindingName is the name of the RoleBinding that `flux create tenant`
// writes.
func FluxBindingName(tenant string) string { return tenant + "-reconciler" }

// binding returns the RoleBinding that `flux create tenant` writes, with the role of tenants.
func binding(namespace, tenant string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: meta(namespace, BindingName, tenant),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: Role},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "gotk:" + namespace + ":reconciler"},
			{Kind: rbacv1.ServiceAccountKind, Name: tenant, Namespace: namespace},
		},
	}
}

// quota returns a quota of the number of objects, or nil without a bound or without kinds.
func quota(ns Namespace, tenant string, count int32) *corev1.ResourceQuota {
	if count <= 0 || len(ns.Kinds) == 0 {
		return nil
	}
	hard := corev1.ResourceList{}
	for _, kind := range ns.Kinds {
		hard[corev1.ResourceName("count/"+kind)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	return &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: meta(ns.Name, QuotaName, tenant),
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}

func meta(namespace, name, tenant string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
		LabelManaged:             ManagedValue,
		v1alpha1.LabelFluxTenant: tenant,
	}}
}

// Brought reports whether an object in a tenant's namespace with the name of a managed object
// belongs to another client: the manager did not create it, or the platform's repository contains
// it now.
func Brought(object client.Object, platform []string) bool {
	labels := object.GetLabels()
	return labels[LabelManaged] != ManagedValue || slices.Contains(platform, labels[labelFluxNamespace])
}
