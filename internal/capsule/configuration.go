package capsule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// configurationKind precedes the paths of fields of a CapsuleConfiguration.
const configurationKind = "CapsuleConfiguration "

// builtIn matches the names that no owner's namespace may have, whatever the TenancyProfile
// says.
const builtIn = v1alpha1.ValuePattern("kube-*")

// Check returns notes about a CapsuleConfiguration. [Translate] reads its forceTenantPrefix.
// Protected are the names that the TenancyProfile protects; Tenure protects names there, for
// the whole cluster. A refusal refuses every Tenant, since the CapsuleConfiguration applies to
// all.
func Check(c *v1beta2.CapsuleConfiguration, protected []v1alpha1.ValuePattern) []Note {
	if c == nil {
		return nil
	}
	t := translation{}
	spec := &c.Spec
	field := func(name string) string { return configurationKind + "spec." + name }
	t.protected(field("protectedNamespaceRegex"), spec.ProtectedNamespaceRegex, protected)
	t.added(field("administrators"), "they get no rights in the tenants' namespaces", len(spec.Administrators) > 0)
	t.added(field("allowServiceAccountPromotion"), "service accounts cannot be made owners by a label: name them in the Tenants", spec.AllowServiceAccountPromotion)
	t.added(field("ignoreUserWithGroups"), "their members are held back like every owner", len(spec.IgnoreUserWithGroups) > 0)
	if n := spec.NodeMetadata; n != nil && (restricts(n.ForbiddenLabels) || restricts(n.ForbiddenAnnotations)) {
		t.unenforced(field("nodeMetadata"), "whoever may change nodes may write every label and annotation on them")
	}
	t.added(field("rbac.deleter"), "the role is not made: make it, or name "+RoleDeleter+" in the Tenants", spec.RBAC.Deleter != "" && spec.RBAC.Deleter != RoleDeleter)
	t.accept(c.Annotations, configurationKind)
	return t.notes
}

func restricts(l *v1beta2.ForbiddenList) bool {
	return l != nil && (len(l.Denied) > 0 || l.DeniedRegex != "")
}

// protected checks that the TenancyProfile protects every name that the expression matches.
func (t *translation) protected(field, expression string, protected []v1alpha1.ValuePattern) {
	if expression == "" {
		return
	}
	patterns, err := Patterns(expression)
	if err != nil {
		t.note(regexState(err), field, "%v", err)
		return
	}
	protected = append(slices.Clone(protected), builtIn)
	var missing []string
	for _, p := range patterns {
		// Only a * of the profile's pattern can match a * of p.
		if !slices.ContainsFunc(protected, func(by v1alpha1.ValuePattern) bool { return Matches(by, string(p)) }) {
			missing = append(missing, string(p))
		}
	}
	if len(missing) > 0 {
		t.note(Unenforced, field, "names are protected by the TenancyProfile: add to its spec.protectedNamespaces %s", strings.Join(missing, ", "))
	}
}

// compiles returns an error that wraps [ErrNotRegex] if Go, and so Capsule, cannot compile the
// expression.
func compiles(expression string) error {
	if _, err := regexp.Compile(expression); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRegex, err)
	}
	return nil
}
