// Package credentials computes the credentials of an account that owns a Tenant: a kubeconfig in
// a Secret, with a short-lived token that is replaced before it expires. The package is pure:
// package manager/credentials writes the objects.
//
// In each other namespace of the Tenant, the manager creates a second account of the same
// name, which has the tenant's role in that namespace alone. The Secret there holds a token
// of the second account, so a reader of the Secret gets no rights outside the namespace.
// Flux does not need more: it impersonates the account in the Kustomization's namespace.
//
// An annotation on the ServiceAccount requests credentials: [Annotation], or the annotation
// of Capsule's addon for Flux, [AddonAnnotation]. An account that owns no Tenant gets none.
package credentials

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Annotation on a ServiceAccount requests a kubeconfig: "true" in the account's own
	// namespace, "tenant" in all namespaces of its Tenants as well.
	Annotation = "tenure.dev/kubeconfig"
	// AddonAnnotation is the annotation of Capsule's addon for Flux. Its value "true"
	// means the same as "true" of [Annotation].
	AddonAnnotation = "capsule.addon.fluxcd/enabled"
	// AddonGlobalAnnotation with the value "true", next to [AddonAnnotation], means the
	// same as "tenant" of [Annotation].
	AddonGlobalAnnotation = "capsule.addon.fluxcd/kubeconfig-global"

	// Label marks the objects of an account's credentials; its value is [Home] or
	// [Copy].
	Label = tenancy.LabelCredentials
	// Home is the value of [Label] in the account's own namespace.
	Home = "home"
	// Copy is the value of [Label] in other namespaces of the tenant.
	Copy = "copy"

	// HomeRole is the ClusterRole that the manager gives itself in the namespace of
	// an account: see config/rbac/roles.yaml.
	HomeRole = "tenure-credentials-home"
	// CopyRole is the ClusterRole that the manager gives itself in the tenant's other
	// namespaces.
	CopyRole = "tenure-credentials-copy"

	// Key is the key of the kubeconfig in a Secret.
	Key = "kubeconfig"
	// secretSuffix ends the names of Secrets. Capsule's addon uses the same suffix.
	secretSuffix = "-kubeconfig" //nolint:gosec // a name
	// recordPrefix begins the names of the manager's own RoleBindings.
	recordPrefix = "tenure:credentials:"
	// maxName is the maximum length of an object's name, in bytes.
	maxName = 253
)

// The reasons why an account that requests credentials gets none, or not all of them.
var (
	// ErrNotOwner means that the account owns no Tenant.
	ErrNotOwner = errors.New("the account owns no Tenant: add it to spec.owners of one, with kind ServiceAccount")
	// ErrPlatform means that the account is in a namespace of the platform.
	ErrPlatform = errors.New("the account is in a namespace of the platform, where tenants get no credentials: make one in a namespace of the tenant's")
	// ErrUngoverned means that the account's namespace has no label of a tenant, so the
	// admission rules for tenants do not apply there.
	ErrUngoverned = errors.New("the account's namespace has no label of a tenant, so that no rule for tenants holds there: label it " + v1alpha1.LabelFluxTenant + " with the tenant's name")
	// ErrName means that the names of the Role and RoleBindings, which contain the
	// account's name, would be longer than maxName.
	ErrName = errors.New("the account's name is too long for the names of the Role and RoleBindings that contain it")
	// ErrForeign means that another namespace has a ServiceAccount of the same name that
	// the manager did not create. The manager does not know its rights, so it writes no
	// token of it.
	ErrForeign = errors.New("a ServiceAccount with this name exists, and the manager did not create it: remove it, or give the owner's account another name")
	// ErrQuota means that a quota of the namespace allows no further Secrets,
	// ServiceAccounts or other objects of the credentials.
	ErrQuota = errors.New("a quota of the namespace is used up: raise it, or remove something")
)

// Mode selects the namespaces that get credentials.
type Mode int

// None selects no namespace, Own the account's namespace, Tenant all namespaces of the
// account's Tenants as well.
const (
	None Mode = iota
	Own
	Tenant
)

// Asked returns the mode that the annotations of a ServiceAccount request. If [Annotation]
// is set, Asked ignores the addon's annotations. An unknown value means None.
func Asked(annotations map[string]string) Mode {
	if value, ok := annotations[Annotation]; ok {
		switch value {
		case "true":
			return Own
		case "tenant":
			return Tenant
		}
		return None
	}
	switch {
	case annotations[AddonAnnotation] != "true":
		return None
	case annotations[AddonGlobalAnnotation] == "true":
		return Tenant
	}
	return Own
}

// State is the input of [Plans]: an account, its Tenants and the profile.
type State struct {
	// Account is the ServiceAccount; nil if it does not exist.
	Account *corev1.ServiceAccount
	// Home is the account's namespace.
	Home *corev1.Namespace
	// Tenants are the Tenants that the account owns, Namespaces the namespaces of these
	// Tenants.
	Tenants    []v1alpha1.Tenant
	Namespaces []corev1.Namespace
	// Profile is the cluster's TenancyProfile.
	Profile *v1alpha1.TenancyProfile
}

// Plan lists the namespaces that get credentials of an account.
type Plan struct {
	// Account is the account that requested credentials. UID distinguishes it from a later
	// account of the same name.
	Account types.NamespacedName
	UID     types.UID
	// Secret is the name of the Secret in each namespace.
	Secret string
	// Bound is true if the manager has to bind the tenant's role to the account in the
	// account's own namespace: see [bound].
	Bound bool
	// Copies are the other namespaces that get credentials, sorted by name. Each has an
	// account of the same name: see [Plan.In].
	Copies []string
}

// In returns the account whose token the Secret in a namespace of the plan holds.
func (p *Plan) In(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: p.Account.Name}
}

// Plans returns the plan for an account, or nil if the account gets no credentials. If the
// account requested credentials and gets none, Plans returns [ErrPlatform], [ErrNotOwner],
// [ErrUngoverned] or [ErrName].
func Plans(s State) (*Plan, error) {
	if s.Account == nil || !s.Account.DeletionTimestamp.IsZero() || s.Home == nil || !s.Home.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	mode := Asked(s.Account.Annotations)
	tenants := slices.DeleteFunc(slices.Clone(s.Tenants), func(t v1alpha1.Tenant) bool {
		return !t.DeletionTimestamp.IsZero() || !Owns(&t, s.Account.Namespace, s.Account.Name)
	})
	plan := &Plan{
		Account: types.NamespacedName{Namespace: s.Account.Namespace, Name: s.Account.Name},
		UID:     s.Account.UID, Secret: SecretName(s.Account.Name),
	}
	switch {
	case mode == None:
		return nil, nil
	case tenancy.OfPlatform(s.Home.Name, s.Profile) || s.Home.Name == corev1.NamespaceDefault:
		return nil, ErrPlatform
	case len(tenants) == 0:
		return nil, ErrNotOwner
	case !governed(s.Home.Labels):
		return nil, ErrUngoverned
	case len(ImpersonatorName(plan.Account)) > maxName || len(RecordName(plan.Account)) > maxName:
		return nil, ErrName
	}
	plan.Bound = bound(s.Home.Labels, s.Account.Name, tenants)
	if mode != Tenant {
		return plan, nil
	}
	for i := range s.Namespaces {
		ns := &s.Namespaces[i]
		owned := slices.ContainsFunc(tenants, func(t v1alpha1.Tenant) bool { return ns.Labels[v1alpha1.LabelTenant] == t.Name })
		if owned && ns.Name != s.Home.Name && ns.DeletionTimestamp.IsZero() && !tenancy.OfPlatform(ns.Name, s.Profile) {
			plan.Copies = append(plan.Copies, ns.Name)
		}
	}
	slices.Sort(plan.Copies)
	return plan, nil
}

// governed reports whether the admission rules for tenants apply in a namespace with these
// labels.
func governed(labels map[string]string) bool {
	_, labelled := tenancy.TenantOf(labels)
	return labelled
}

// bound reports whether the manager has to bind the tenant's role to an account in the
// account's own namespace, which has these labels.
//
// If the namespace has Tenure's label, its Tenant already binds the roles there. In fleets
// that were written for Capsule, the namespace of an owner account has only Flux's or
// Capsule's label: the admission rules apply, but no Tenant binds a role. There the manager
// binds the role, as Capsule's addon does, with two exceptions: the label names a tenant
// that the account does not own, or the account has the tenant's name and thus is the
// account that package tenancy creates.
func bound(labels map[string]string, account string, owned []v1alpha1.Tenant) bool {
	if _, ours := labels[v1alpha1.LabelTenant]; ours {
		return false
	}
	tenant, _ := tenancy.TenantOf(labels)
	return account != tenant && slices.ContainsFunc(owned, func(t v1alpha1.Tenant) bool { return t.Name == tenant })
}

// Owns reports whether the owners of a Tenant list a ServiceAccount by its name. Owns
// ignores groups: otherwise every user who may create accounts in a namespace could get
// credentials for the Tenants that the namespace's group owns.
func Owns(t *v1alpha1.Tenant, namespace, name string) bool {
	return slices.ContainsFunc(t.Spec.Owners, func(o v1alpha1.Owner) bool {
		return o.Kind == "ServiceAccount" && o.Namespace == namespace && o.Name == name
	})
}

// SecretName returns the name of the Secret with an account's kubeconfig.
func SecretName(account string) string { return account + secretSuffix }

// ImpersonatorName returns the name of the Role and the RoleBinding with which an account
// may impersonate itself. The accounts of its name in other namespaces have them, too.
func ImpersonatorName(account types.NamespacedName) string {
	return account.Namespace + "-" + account.Name + "-impersonator"
}

// RecordName returns the name of the RoleBinding that gives the manager its rights in a
// namespace. The binding also records which objects the manager created there.
func RecordName(account types.NamespacedName) string {
	return recordPrefix + account.Namespace + ":" + account.Name
}

// AccountOf returns the account that an object's annotation names. It returns false if the
// annotation is missing or is not NAMESPACE/NAME.
func AccountOf(annotations map[string]string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(annotations[tenancy.AnnotationAccount], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && namespace != "" && name != ""
}

// reasons are the reasons of events, one word for each error.
var reasons = map[error]string{ErrNotOwner: "NotAnOwner", ErrPlatform: "PlatformNamespace", ErrUngoverned: "UngovernedNamespace", ErrName: "NameTooLong", ErrForeign: "ForeignAccount", ErrQuota: "QuotaExceeded"}

// Reason returns the event reason of an error of this package, or Failed for other errors.
func Reason(err error) string {
	for known, reason := range reasons {
		if errors.Is(err, known) {
			return reason
		}
	}
	return "Failed"
}

// key returns the account as NAMESPACE/NAME, the form of the annotation.
func key(account types.NamespacedName) string {
	return fmt.Sprintf("%s/%s", account.Namespace, account.Name)
}
