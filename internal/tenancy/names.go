package tenancy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// maxName is the maximum length of an object's name, in bytes.
const maxName = 253

// Prefixes of the names of a Tenant's objects. RBAC objects have a colon in their names, so that
// they seldom collide with objects of others.
const (
	// OwnersPrefix, followed by the tenant's name, is the name of the ClusterRole and the
	// ClusterRoleBinding with which owners create namespaces.
	OwnersPrefix = "tenure:owners:"
	// RBACPrefix begins the names of all roles and bindings that the manager creates for a Tenant,
	// except [BindingName].
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

// joined returns the prefix and the name with a colon between them or, if this is too long, the
// prefix and a hash with a hyphen between them. The two forms never collide.
func joined(prefix, name string) string {
	if len(prefix)+1+len(name) <= maxName {
		return prefix + ":" + name
	}
	return prefix + "-" + hash(name)
}

// hash returns 160 bits of the SHA-256 sum, in hexadecimal digits.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:20])
}

const (
	// AnnotationNames on a Tenant says whose names its objects have. The layer for Capsule sets
	// it, if the TenancyProfile has capsule.names.
	AnnotationNames = "tenure.dev/object-names"
	// capsuleBinding begins the names of Capsule's RoleBindings.
	capsuleBinding = "capsule:managed:"
	capsulePrefix  = "capsule-"
)

// CapsuleNames reports whether the objects of a Tenant have the names that Capsule gives them.
func CapsuleNames(t *v1alpha1.Tenant) bool {
	return t.Annotations[AnnotationNames] == v1alpha1.NamesCapsule
}

// QuotaObjectName returns the name of the ResourceQuota for a quota of a Tenant.
func QuotaObjectName(t *v1alpha1.Tenant, quota string) string {
	if CapsuleNames(t) {
		// The layer for Capsule names the quotas capsule-INDEX.
		return capsulePrefix + t.Name + "-" + strings.TrimPrefix(quota, capsulePrefix)
	}
	return boundsPrefix + quota
}

// boundName returns the name of a limit range or network policy of a Tenant, by its index.
func boundName(t *v1alpha1.Tenant, index int) string {
	return QuotaObjectName(t, fmt.Sprint(index))
}

// MadeBinding reports whether the manager alone gives this name to RoleBindings of Tenants, so that
// it may replace a RoleBinding with this name and another role.
func MadeBinding(name string) bool {
	return strings.HasPrefix(name, RBACPrefix) || strings.HasPrefix(name, capsuleBinding)
}

// capsuleBindingName returns the name that Capsule v0.14 gives to the RoleBinding of a role to
// subjects: a hash of the role and the subjects, each text after its length.
func capsuleBindingName(role string, subjects ...rbacv1.Subject) string {
	sum := fnv.New64a()
	write := func(text string) {
		_ = binary.Write(sum, binary.LittleEndian, uint64(len(text)))
		_, _ = sum.Write([]byte(text))
	}
	write(role)
	for _, s := range subjects {
		for _, text := range []string{s.APIGroup, s.Kind, s.Namespace, s.Name} {
			write(text)
		}
	}
	return fmt.Sprintf("%s%x", capsuleBinding, sum.Sum64())
}
