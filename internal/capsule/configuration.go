package capsule

import (
	"fmt"
	"regexp"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
)

// configurationKind is the prefix of the paths of fields of a CapsuleConfiguration.
const configurationKind = "CapsuleConfiguration "

// Check returns notes about a CapsuleConfiguration. [Translate] reads its forceTenantPrefix and
// its protectedNamespaceRegex. A refusal refuses every Tenant, since the CapsuleConfiguration
// applies to all.
func Check(c *v1beta2.CapsuleConfiguration) []Note {
	if c == nil {
		return nil
	}
	t := translation{}
	spec := &c.Spec
	field := func(name string) string { return configurationKind + "spec." + name }
	t.expression(field("protectedNamespaceRegex"), spec.ProtectedNamespaceRegex)
	t.checkAdministrators(spec.Administrators)
	if n := spec.NodeMetadata; n != nil {
		for name, list := range map[string]*v1beta2.ForbiddenList{"forbiddenLabels": n.ForbiddenLabels, "forbiddenAnnotations": n.ForbiddenAnnotations} {
			if list == nil {
				continue
			}
			if err := compiles(list.DeniedRegex); err != nil {
				t.note(Refused, field("nodeMetadata."+name+".deniedRegex"), "%v", err)
			}
		}
	}
	t.added(field("rbac.deleter"), "the role is not made: make it, or name "+RoleDeleter+" in the Tenants", spec.RBAC.Deleter != "" && spec.RBAC.Deleter != RoleDeleter)
	t.accept(c.Annotations, configurationKind)
	return t.notes
}

// compiles returns an error that wraps [ErrNotRegex] if Go, and so Capsule, cannot compile the
// expression.
func compiles(expression string) error {
	if _, err := regexp.Compile(expression); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRegex, err)
	}
	return nil
}
