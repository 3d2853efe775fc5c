package v1alpha1

// How RBAC says that somebody owns a tenant, which is what the API server's rules
// ask: the manager gives it to the owners of a Tenant, with the ClusterRole
// tenure:owners:TENANT.
const (
	// VerbOwn on resource tenants of this group, with a tenant's name, makes
	// somebody an owner of that tenant.
	VerbOwn = "own"
	// OwnersResource is a resource of this group that no object has. Who may
	// create it owns a tenant, whichever: RBAC cannot be asked for any name, and
	// owners are held to their tenants where others are not.
	OwnersResource = "tenantnamespaces"
	// VerbName on a tenant lets its owners give namespaces names without the tenant's
	// prefix: see TenantNamespaces.
	VerbName = "name"
	// VerbLabel on a tenant means that its Tenant lists labels or annotations of its own.
	// The webhook, and not the profile's list, then decides which of them its owners may
	// choose.
	VerbLabel = "label"
)
