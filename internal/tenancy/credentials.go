package tenancy

import (
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// maxKubeConfigs and maxReconcilers are the maximum numbers of names in the parameters, by their
// schema.
const maxKubeConfigs, maxReconcilers = 16, 16

// Credentials are the manager's objects in a namespace that belong to the credentials of accounts,
// with which Flux applies objects.
type Credentials struct {
	// KubeConfigs are the names of the Secrets, in order.
	KubeConfigs []string
	// Accounts are the namespace's own accounts that have credentials, in order. Flux applies
	// objects as them, as it does with the tenant's account, so Pods may not run as them.
	Accounts []string
	// Stands are the sorted accounts that the manager created for the credentials of an
	// account with the same name in another namespace. They have the role of tenants.
	Stands []string
}

// CredentialsIn returns the credentials that the RoleBindings of a namespace record.
func CredentialsIn(namespace string, bindings []*rbacv1.RoleBinding) Credentials {
	var c Credentials
	for _, b := range bindings {
		secret := b.Annotations[AnnotationSecret]
		if b.Namespace != namespace || b.Labels[LabelManaged] != ManagedValue || b.Labels[LabelCredentials] == "" || secret == "" {
			continue
		}
		c.KubeConfigs = append(c.KubeConfigs, secret)
		home, account, ok := strings.Cut(b.Annotations[AnnotationAccount], "/")
		if !ok {
			continue
		}
		c.Accounts = append(c.Accounts, account)
		if home != namespace {
			c.Stands = append(c.Stands, account)
		}
	}
	for _, names := range []*[]string{&c.KubeConfigs, &c.Accounts, &c.Stands} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return c
}

// Allow returns the parameters of a namespace with these credentials: a Kustomization may use
// them, and only the manager may write them.
func (c Credentials) Allow(spec v1alpha1.TenantParametersSpec) v1alpha1.TenantParametersSpec {
	spec = *spec.DeepCopy()
	c.allow(&spec)
	return spec
}

func (c Credentials) allow(spec *v1alpha1.TenantParametersSpec) {
	own := &spec.Tenants
	own.KubeConfigs = with(own.KubeConfigs, c.KubeConfigs, maxKubeConfigs)
	own.Accounts.Reconcilers = with(own.Accounts.Reconcilers, c.Accounts, maxReconcilers)
}

// with adds missing names, up to a maximum number of names.
func with(names, more []string, most int) []string {
	for _, name := range more {
		if len(names) < most && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
