package tenancy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// LabelQuotaScope marks a ResourceQuota that is one namespace's part of what
	// the whole tenant may use: see [DistributeQuota].
	LabelQuotaScope = "tenure.dev/quota-scope"
	// QuotaScopeTenant is the value of [LabelQuotaScope], and of scope in a Tenant's
	// quotas.
	QuotaScopeTenant = "Tenant"
	// QuotaFinalizer keeps a namespace's part of a Tenant's quota for as long as it
	// is used: a namespace that is being deleted still uses it.
	QuotaFinalizer = "tenure.dev/quota"
	// DeleterRole is the ClusterRole with the right to delete the namespace in which it is
	// bound.
	DeleterRole = "tenure-namespace-deleter"
	// layerDeleterRole and layerProvisionerRole are ClusterRoles of the layer for Capsule: see [boundRoles].
	layerDeleterRole     = "capsule-namespace-deleter"
	layerProvisionerRole = "capsule-namespace-provisioner"
	// ReplicatorRole is the ClusterRole with which the manager acts as the accounts
	// of the namespace that it is bound in.
	ReplicatorRole = "tenure-replicator"
)

// labels of a namespace that the API server's Pod Security admission reads.
const (
	labelPodSecurity        = "pod-security.kubernetes.io/enforce"
	labelPodSecurityVersion = "pod-security.kubernetes.io/enforce-version"
)

// addTenant adds the Tenant's objects to the objects of every tenant's namespace.
func (o *Objects) addTenant(ns Namespace, profile *v1alpha1.TenancyProfile) {
	o.Labels, o.Annotations = NamespaceMetadata(ns.Tenant, ns.Name, ns.Labels)
	maps.Copy(o.Labels, dividedLabels(QuotasOf(ns.Tenant, ns.Name, ns.Labels)))
	o.Bounds = bounds(ns)
	o.Bindings = bindings(ns)
	if ns.Manager != nil && (ns.Layer || len(ns.Tenant.Spec.Objects)+len(ns.Tenant.Status.Objects) > 0) {
		// The manager may act as no accounts of other namespaces.
		o.Bindings = append(o.Bindings, roleBinding(ns, replicator, ReplicatorRole, []rbacv1.Subject{*ns.Manager}))
	}
	if len(ns.Credentials.Stands) > 0 {
		var accounts []rbacv1.Subject
		for _, name := range ns.Credentials.Stands {
			accounts = append(accounts, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns.Name, Name: name})
		}
		o.Bindings = append(o.Bindings, roleBinding(ns, stands, Role, accounts))
	}
	if ns.Tenant.DeletionTimestamp.IsZero() {
		o.Sync = syncs(ns, o.Parameters.Spec.Tenants)
		if _, own := ns.Labels[v1alpha1.LabelParameters]; !own {
			o.Later = refused(o.Sync, profile.Spec.Tenants)
		}
		return
	}
	if ns.Manager != nil && Leaves(ns.Labels, profile) {
		// The manager may delete no other namespaces.
		o.Bindings = append(o.Bindings, roleBinding(ns, OffboardingBinding, DeleterRole, []rbacv1.Subject{*ns.Manager}))
	}
}

// Metadata returns the labels and annotations that the Tenant gives all of its namespaces, with its
// Pod Security level. The label that names the tenant and those of spec.namespaces.selected are not
// among them: see [NamespaceMetadata]. Metadata omits entries that no namespace can have. The error
// names these entries, also those of spec.namespaces.selected and of spec.roleBindings, the invalid selectors of
// spec.roleBindings and spec.quotas, and the amounts of spec.quotas that are rounded down.
func Metadata(t *v1alpha1.Tenant) (labels, annotations map[string]string, err error) {
	var problems []error
	in := t.Spec.Namespaces
	labels = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(in.Labels)) {
		wrong := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(in.Labels[name])...)
		if strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") || name == labelPodSecurity || name == labelPodSecurityVersion || name == corev1.LabelMetadataName {
			wrong = append(wrong, "it assigns the namespace to a tenant or controls it")
		}
		if len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("label %s of spec.namespaces.labels cannot be set: %s", name, strings.Join(wrong, "; ")))
			continue
		}
		labels[name] = in.Labels[name]
	}
	labels[labelPodSecurity] = cmp.Or(in.PodSecurity, defaultLevel)
	labels[labelPodSecurityVersion] = "latest"
	annotations = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(in.Annotations)) {
		if wrong := validation.IsQualifiedName(strings.ToLower(name)); len(wrong) > 0 || strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
			problems = append(problems, fmt.Errorf("annotation %s of spec.namespaces.annotations cannot be set: %s", name, strings.Join(append(wrong, "it has to be a name that is not tenure.dev's"), "; ")))
			continue
		}
		annotations[name] = in.Annotations[name]
	}
	if err := checkSelected(t); err != nil {
		problems = append(problems, err)
	}
	for i := range t.Spec.RoleBindings {
		if _, err := metav1.LabelSelectorAsSelector(t.Spec.RoleBindings[i].NamespaceSelector); err != nil {
			problems = append(problems, fmt.Errorf("spec.roleBindings[%d].namespaceSelector selects no namespace: %w", i, err))
		}
		problems = append(problems, checkDescription(i, &t.Spec.RoleBindings[i])...)
	}
	for i := range t.Spec.Quotas {
		if _, err := metav1.LabelSelectorAsSelector(t.Spec.Quotas[i].NamespaceSelector); err != nil {
			problems = append(problems, fmt.Errorf("spec.quotas[%d].namespaceSelector is not valid, and the quota applies to all namespaces: %w", i, err))
		}
		problems = append(problems, checkWhole(i, &t.Spec.Quotas[i])...)
	}
	return labels, annotations, errors.Join(problems...)
}

// bounds returns the quotas, limit ranges and network policies of a namespace.
func bounds(ns Namespace) []client.Object {
	tenant, spec := ns.Tenant.Name, ns.Tenant.Spec
	var objects []client.Object
	for _, q := range QuotasOf(ns.Tenant, ns.Name, ns.Labels) {
		if q.Scope != "Namespace" {
			continue
		}
		objects = append(objects, &corev1.ResourceQuota{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
			ObjectMeta: meta(ns.Name, QuotaObjectName(ns.Tenant, q.Name), tenant),
			Spec:       q.ResourceQuotaSpec(),
		})
	}
	for i := range spec.LimitRanges {
		l := &corev1.LimitRange{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "LimitRange"},
			ObjectMeta: meta(ns.Name, boundName(ns.Tenant, i), tenant),
			Spec:       spec.LimitRanges[i].LimitRangeSpec(),
		}
		defaultLimits(&l.Spec)
		objects = append(objects, l)
	}
	for i := range spec.NetworkPolicies {
		p := &networkingv1.NetworkPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
			ObjectMeta: meta(ns.Name, boundName(ns.Tenant, i), tenant),
			Spec:       *spec.NetworkPolicies[i].DeepCopy(),
		}
		defaultNetworkPolicy(&p.Spec)
		objects = append(objects, p)
	}
	return objects
}

// FieldOf returns the field of the Tenant for a limit range, a network policy or a quota with scope Namespace in a
// namespace, such as spec.limitRanges[0]. It returns "" for another object, and if there is no Tenant.
func FieldOf(t *v1alpha1.Tenant, object client.Object) string {
	if t == nil {
		return ""
	}
	named := func(field string, count int, name func(int) string) string {
		for i := range count {
			if name(i) == object.GetName() {
				return fmt.Sprintf("spec.%s[%d]", field, i)
			}
		}
		return ""
	}
	byIndex := func(i int) string { return boundName(t, i) }
	switch object.(type) {
	case *corev1.LimitRange:
		return named("limitRanges", len(t.Spec.LimitRanges), byIndex)
	case *networkingv1.NetworkPolicy:
		return named("networkPolicies", len(t.Spec.NetworkPolicies), byIndex)
	case *corev1.ResourceQuota:
		return named("quotas", len(t.Spec.Quotas), func(i int) string { return QuotaObjectName(t, t.Spec.Quotas[i].Name) })
	}
	return ""
}

// bindings returns the RoleBindings of owners, of the accounts with which Flux applies objects, and
// of other subjects: one for each role or, with Capsule's names, one for each role of an owner.
func bindings(ns Namespace) []client.Object {
	merged := map[string]*rbacv1.RoleBinding{}
	for _, o := range ns.Tenant.Spec.Owners {
		for _, role := range boundRoles(ns, o.Roles...) {
			owner := subject(o.Kind, o.Namespace, o.Name)
			name := joined(ownersRole, role)
			if CapsuleNames(ns.Tenant) {
				name = capsuleBindingName(role, owner)
			}
			if merged[name] == nil {
				merged[name] = roleBinding(ns, name, role, nil)
			}
			merged[name].Subjects = append(merged[name].Subjects, owner)
		}
	}
	ofOwners := slices.Sorted(maps.Keys(merged))
	others(ns, merged)
	var objects []client.Object
	for _, name := range ofOwners {
		objects = append(objects, merged[name])
	}
	if accounts := syncAccounts(ns); len(accounts) > 0 {
		objects = append(objects, roleBinding(ns, syncBinding, Role, accounts))
	}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		merged[name].Subjects = unique(merged[name].Subjects)
		if !slices.Contains(ofOwners, name) {
			objects = append(objects, merged[name])
		}
	}
	return objects
}

// boundRoles returns the ClusterRoles to bind for roles that a Tenant names. Tenants that the layer for Capsule wrote, or
// that were migrated from Capsule's, name the layer's roles, also after the layer was removed. Then Tenure's own role
// takes the place of the one that lets owners delete their namespaces; the other one has no rights.
func boundRoles(ns Namespace, roles ...string) []string {
	if ns.Layer {
		return roles
	}
	var bound []string
	for _, role := range roles {
		switch role {
		case layerProvisionerRole:
			continue
		case layerDeleterRole:
			role = DeleterRole
		}
		bound = append(bound, role)
	}
	return bound
}

// others adds the RoleBindings of spec.roleBindings that select the namespace. Entries with the same role, labels and
// annotations share a RoleBinding or, with Capsule's names, entries with the same role and subjects.
func others(ns Namespace, merged map[string]*rbacv1.RoleBinding) {
	for _, b := range ns.Tenant.Spec.RoleBindings {
		roles := boundRoles(ns, b.Role)
		if !selects(b.NamespaceSelector, ns.Labels) || len(roles) == 0 {
			continue
		}
		b.Role = roles[0]
		var given, subjects []rbacv1.Subject
		for _, s := range b.Subjects {
			given = append(given, subject(s.Kind, s.Namespace, s.Name))
			if s.Kind == rbacv1.ServiceAccountKind {
				s.Namespace = cmp.Or(s.Namespace, ns.Name)
			}
			subjects = append(subjects, subject(s.Kind, s.Namespace, s.Name))
		}
		name := joined(othersRole, b.Role)
		switch {
		case CapsuleNames(ns.Tenant):
			name = capsuleBindingName(b.Role, given...)
		case len(b.Labels)+len(b.Annotations) > 0:
			// Maps are printed in the order of their keys.
			name = othersRole + "-" + hash(fmt.Sprintf("%q %q %q", b.Role, b.Labels, b.Annotations))
		}
		if merged[name] == nil {
			merged[name] = roleBinding(ns, name, b.Role, nil)
		}
		describe(merged[name], b.Labels, b.Annotations)
		merged[name].Subjects = append(merged[name].Subjects, subjects...)
	}
}

// describe adds the labels and annotations of an entry of spec.roleBindings that an object can have.
func describe(b *rbacv1.RoleBinding, labels, annotations map[string]string) {
	for k, v := range labels {
		if _, ours := b.Labels[k]; !ours && wrongBindingLabel(k, v) == "" {
			b.Labels[k] = v
		}
	}
	for k, v := range annotations {
		if wrongBindingAnnotation(k) == "" {
			b.Annotations = added(b.Annotations, k, v)
		}
	}
}

// checkDescription returns the mistakes in the labels and annotations of the entry of
// spec.roleBindings at an index: [describe] leaves them out.
func checkDescription(index int, b *v1alpha1.TenantRoleBinding) (problems []error) {
	for _, k := range slices.Sorted(maps.Keys(b.Labels)) {
		if wrong := wrongBindingLabel(k, b.Labels[k]); wrong != "" {
			problems = append(problems, fmt.Errorf("label %s of spec.roleBindings[%d].labels cannot be set: %s", k, index, wrong))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(b.Annotations)) {
		if wrong := wrongBindingAnnotation(k); wrong != "" {
			problems = append(problems, fmt.Errorf("annotation %s of spec.roleBindings[%d].annotations cannot be set: %s", k, index, wrong))
		}
	}
	return problems
}

func wrongBindingLabel(key, value string) string {
	wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	if strings.Contains(key, ".toolkit.fluxcd.io/") {
		wrong = append(wrong, "Flux would take the RoleBinding for one that it applied")
	}
	return strings.Join(wrong, "; ")
}

func wrongBindingAnnotation(key string) string {
	return strings.Join(validation.IsQualifiedName(strings.ToLower(key)), "; ")
}

func added(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

func roleBinding(ns Namespace, name, role string, subjects []rbacv1.Subject) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: meta(ns.Name, name, ns.Tenant.Name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   unique(subjects),
	}
	if CapsuleNames(ns.Tenant) {
		maps.Copy(b.Labels, map[string]string{"projectcapsule.dev/tenant": ns.Tenant.Name, "projectcapsule.dev/managed-by": "controller"})
	}
	return b
}

func subject(kind, namespace, name string) rbacv1.Subject {
	if kind == rbacv1.ServiceAccountKind {
		return rbacv1.Subject{Kind: kind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// unique returns the subjects, each of them once, in the order in which they came.
func unique(subjects []rbacv1.Subject) []rbacv1.Subject {
	seen := make(map[rbacv1.Subject]bool, len(subjects))
	return slices.DeleteFunc(subjects, func(s rbacv1.Subject) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}

// ShareQuota returns the ResourceQuota for a namespace's part of a quota of the whole tenant.
func ShareQuota(tenant *v1alpha1.Tenant, namespace string, q v1alpha1.TenantQuota, hard corev1.ResourceList) *corev1.ResourceQuota {
	o := &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: meta(namespace, QuotaObjectName(tenant, q.Name), tenant.Name),
		Spec:       q.ResourceQuotaSpec(),
	}
	o.Labels[LabelQuotaScope] = QuotaScopeTenant
	o.Finalizers = []string{QuotaFinalizer}
	o.Spec.Hard = hard
	return o
}

// Leaves reports whether a namespace is deleted with its Tenant. A namespace from the platform's
// repository is not deleted, because Flux would create it again.
func Leaves(labels map[string]string, profile *v1alpha1.TenancyProfile) bool {
	return !slices.Contains(profile.Spec.PlatformNamespaces, labels[labelFluxNamespace])
}
