package v1alpha1

// The rights that mark an owner of a tenant. Admission policies check them with the API
// server's authorizer. The manager gives them to the owners of a Tenant with the
// ClusterRole tenure:owners:TENANT.
const (
	// VerbOwn on resource tenants of this group, with a tenant's name, makes a user
	// an owner of that tenant.
	VerbOwn = "own"
	// OwnersResource is a resource of this group without objects. The right to create it
	// marks the owners of at least one tenant. RBAC cannot be asked for "any name", and
	// policies apply some rules to owners only.
	OwnersResource = "tenantnamespaces"
	// VerbName on a tenant lets its owners give namespaces names without the tenant's
	// prefix: see TenantNamespaces.
	VerbName = "name"
	// VerbLabel on a tenant means that its Tenant lists labels or annotations of its own.
	// The webhook, and not the profile's list, then decides which of them its owners may
	// choose.
	VerbLabel = "label"
	// VerbCordon on a tenant lets its owners set and remove the label [LabelCapsuleCordoned] of
	// the namespaces that they made.
	VerbCordon = "cordon"
	// VerbAssign on resource tenants, without a name, marks the administrators of Capsule's
	// Tenants who assign namespaces to the tenants that they own, and create namespaces without a
	// tenant.
	VerbAssign = "assign"
)
