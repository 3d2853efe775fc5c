package capsule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// configurationKind stands in front of the fields of a CapsuleConfiguration.
const configurationKind = "CapsuleConfiguration "

// builtIn are names that no owner can give a namespace in any case.
const builtIn = v1alpha1.ValuePattern("kube-*")

// Check says what becomes of a CapsuleConfiguration, beside forceTenantPrefix,
// which [Translate] reads. Protected are the names that the TenancyProfile
// protects: names are protected there, for the whole cluster. What it refuses
// refuses every Tenant, since it holds for all.
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

// protected checks that the TenancyProfile protects all that the expression does.
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
		// A * of one pattern can only be matched by a * of the other.
		if !slices.ContainsFunc(protected, func(by v1alpha1.ValuePattern) bool { return Matches(by, string(p)) }) {
			missing = append(missing, string(p))
		}
	}
	if len(missing) > 0 {
		t.note(Unenforced, field, "names are protected by the TenancyProfile: add to its spec.protectedNamespaces %s", strings.Join(missing, ", "))
	}
}

// compiles says whether Go, and so Capsule, understands a regular expression.
func compiles(expression string) error {
	if _, err := regexp.Compile(expression); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRegex, err)
	}
	return nil
}
