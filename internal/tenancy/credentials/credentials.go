// Package credentials computes the credentials of an account that owns a Tenant: a kubeconfig in
// a Secret, with a short-lived token that is replaced before it expires. The package is pure:
// package manager/credentials writes the objects.
//
// In other namespaces of its tenants the Secret of the same name is not the account's.
// It is that of an account of the same name there, which is made for it and has the
// tenant's role in that namespace alone. Flux impersonates the account of a
// Kustomization's own namespace in any case, and so nobody who reads the Secret gets a
// right beyond the namespace.
//
// Who wants them says so with an annotation on the ServiceAccount, ours or that of
// Capsule's addon for Flux (capsule.addon.fluxcd). An account that owns no Tenant
// gets nothing.
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
	// Annotation on a ServiceAccount asks for a kubeconfig: "true" in its own
	// namespace, "tenant" in all namespaces of its Tenants as well.
	Annotation = "tenure.dev/kubeconfig"
	// AddonAnnotation is [Annotation] as Capsule's addon for Flux has it, with
	// "true".
	AddonAnnotation = "capsule.addon.fluxcd/enabled"
	// AddonGlobalAnnotation with "true", beside [AddonAnnotation], is what "tenant"
	// is here.
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
	// CopyRole is the one in other namespaces.
	CopyRole = "tenure-credentials-copy"

	// Key is the key of the kubeconfig in a Secret.
	Key = "kubeconfig"
	// secretSuffix ends the names of Secrets, as the addon has it.
	secretSuffix = "-kubeconfig" //nolint:gosec // a name
	// recordPrefix begins the names of the manager's own RoleBindings.
	recordPrefix = "tenure:credentials:"
	// maxName is how long the name of an object may be, in bytes.
	maxName = 253
)

// The reasons why an account that asks for credentials gets none, or not all.
var (
	// ErrNotOwner says that the account owns no Tenant.
	ErrNotOwner = errors.New("the account owns no Tenant: add it to spec.owners of one, with kind ServiceAccount")
	// ErrPlatform says that the account is in a namespace of the platform.
	ErrPlatform = errors.New("the account is in a namespace of the platform, where tenants get no credentials: make one in a namespace of the tenant's")
	// ErrUngoverned means that no rule for tenants holds in the account's namespace.
	ErrUngoverned = errors.New("the account's namespace has no label of a tenant, so that no rule for tenants holds there: label it " + v1alpha1.LabelFluxTenant + " with the tenant's name")
	// ErrName says that names made of the account's would be too long.
	ErrName = errors.New("the account's name is too long to make others of it")
	// ErrForeign says that in another namespace an account of the name is somebody
	// else's. What rights it has is not known, so nobody there gets a token of it.
	ErrForeign = errors.New("there is a ServiceAccount of the name that is not the platform's: remove it, or give the owner's account another name")
	// ErrQuota says that a quota of the namespace has no room for them.
	ErrQuota = errors.New("a quota of the namespace is used up: raise it, or remove something")
)

// Mode is how far credentials are given.
type Mode int

// None is no credentials, Own those in the account's namespace, Tenant those in all
// namespaces of its Tenants.
const (
	None Mode = iota
	Own
	Tenant
)

// Asked returns what the annotations of a ServiceAccount ask for. Where ours is
// given, the addon's do not count. A value that nobody knows asks for nothing.
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

// State is what is known of an account.
type State struct {
	// Account is the ServiceAccount; nil if there is none.
	Account *corev1.ServiceAccount
	// Home is the account's namespace.
	Home *corev1.Namespace
	// Tenants are those that the account owns, and Namespaces theirs.
	Tenants    []v1alpha1.Tenant
	Namespaces []corev1.Namespace
	// Profile is the posture of the cluster.
	Profile *v1alpha1.TenancyProfile
}

// Plan is where the credentials of an account are.
type Plan struct {
	// Account is whose they are, and UID tells it from one that came after it.
	Account types.NamespacedName
	UID     types.UID
	// Secret is the name of the Secret in each namespace.
	Secret string
	// Bound says that the account needs rights in its own namespace: see [bound].
	Bound bool
	// Copies are the namespaces beside the account's own, in order. Each has an
	// account of the same name: see [Plan.In].
	Copies []string
}

// In is whose token is in the Secret in a namespace of the plan.
func (p *Plan) In(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: p.Account.Name}
}

// Plans returns the plan for an account; nil if it is to have nothing, with an error
// if it asks for something.
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

// governed reports whether the rules for tenants hold in a namespace with these labels.
func governed(labels map[string]string) bool {
	_, labelled := tenancy.TenantOf(labels)
	return labelled
}

// bound says whether an account needs rights in its own namespace, which has labels,
// since nobody else gives it any. A namespace with our label is one of a Tenant, which
// says who has what there. With Flux's or Capsule's label alone, as the home of an owner
// has it in fleets written for Capsule, the namespace has a tenant's rules, but no
// Tenant gives its owners a role there: as Capsule's addon does, this does, unless
// the tenant is another one than the account's, or the account is that which package
// tenancy makes with the tenant's name.
func bound(labels map[string]string, account string, owned []v1alpha1.Tenant) bool {
	if _, ours := labels[v1alpha1.LabelTenant]; ours {
		return false
	}
	tenant, _ := tenancy.TenantOf(labels)
	return account != tenant && slices.ContainsFunc(owned, func(t v1alpha1.Tenant) bool { return t.Name == tenant })
}

// Owns says whether a ServiceAccount is an owner of a Tenant by its own name. Groups
// do not count: who may make accounts in a namespace would own what the namespace's
// group owns.
func Owns(t *v1alpha1.Tenant, namespace, name string) bool {
	return slices.ContainsFunc(t.Spec.Owners, func(o v1alpha1.Owner) bool {
		return o.Kind == "ServiceAccount" && o.Namespace == namespace && o.Name == name
	})
}

// SecretName is the name of the Secret with an account's kubeconfig.
func SecretName(account string) string { return account + secretSuffix }

// ImpersonatorName is the name of the Role and the RoleBinding with which an account,
// and those of its name in other namespaces, may impersonate itself.
func ImpersonatorName(account types.NamespacedName) string {
	return account.Namespace + "-" + account.Name + "-impersonator"
}

// RecordName is the name of the RoleBinding that gives the manager its rights in a
// namespace, and records what it has put there.
func RecordName(account types.NamespacedName) string {
	return recordPrefix + account.Namespace + ":" + account.Name
}

// AccountOf is the account that an object's annotation names.
func AccountOf(annotations map[string]string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(annotations[tenancy.AnnotationAccount], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && namespace != "" && name != ""
}

// reasons are for events: one word each.
var reasons = map[error]string{ErrNotOwner: "NotAnOwner", ErrPlatform: "PlatformNamespace", ErrUngoverned: "UngovernedNamespace", ErrName: "NameTooLong", ErrForeign: "ForeignAccount", ErrQuota: "QuotaExceeded"}

// Reason is one word for an error of this package, or Failed.
func Reason(err error) string {
	for known, reason := range reasons {
		if errors.Is(err, known) {
			return reason
		}
	}
	return "Failed"
}

// key is the account as an annotation has it.
func key(account types.NamespacedName) string {
	return fmt.Sprintf("%s/%s", account.Namespace, account.Name)
}
