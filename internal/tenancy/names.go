package tenancy

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxName is how long the name of an object may be, in bytes.
const maxName = 253

// Prefixes of the names of a Tenant's objects. RBAC objects have a colon in their names, so that
// they seldom collide with objects of others.
const (
	// OwnersPrefix and the tenant's name is the ClusterRole, and the
	// ClusterRoleBinding, with which owners make namespaces.
	OwnersPrefix = "tenure:owners:"
	// RBACPrefix begins the names of all roles and bindings that are made for
	// a Tenant, apart from [BindingName].
	RBACPrefix = "tenure:"
	// OffboardingBinding is the RoleBinding with which the manager may delete a namespace
	// of a Tenant that is being deleted.
	OffboardingBinding = "tenure:offboarding"
	// boundsPrefix begins the names of quotas, limit ranges and network policies.
	boundsPrefix = "tenure-"

	ownersRole  = "tenure:owners"
	othersRole  = "tenure:others"
	clusterRole = "tenure:cluster"
	syncBinding = "tenure:sync"
	replicator  = "tenure:replicator"
	stands      = "tenure:credentials-accounts"
)

// joined is the prefix and the name behind a colon or, if that is too long, the
// prefix and a hash behind a hyphen: the two never meet.
func joined(prefix, name string) string {
	if len(prefix)+1+len(name) <= maxName {
		return prefix + ":" + name
	}
	return prefix + "-" + hash(name)
}

// hash is 160 bits of SHA-256, in hexadecimal digits.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:20])
}
