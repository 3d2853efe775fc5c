package capsule

import (
	"fmt"
	"strings"
)

// Document returns the text of docs/reference/capsule.md.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Capsule's API, field by field

What becomes of objects of capsule.clastix.io that are written for Capsule v0.14 and
older. Generated from internal/capsule; do not edit.

| State | Meaning |
|---|---|
| ` + string(Honoured) + ` | does what it does in Capsule |
| ` + string(Different) + ` | has an effect, which is described |
| ` + string(Unused) + ` | configures a part of Capsule that Tenure does without |
| ` + string(Reported) + ` | has no effect, which loosens nothing; condition Honoured is False and names it |
| ` + string(Unenforced) + ` | holds tenants back, and Tenure does not enforce it: condition Ready is False, and what was in force before stays |

A value that cannot be kept, such as a regular expression that does not compile or a
name with the wrong form, is always refused. A platform admin who has something else
that enforces a field accepts it by name, for a Tenant or for the CapsuleConfiguration:

    metadata:
      annotations:
        ` + AcceptAnnotation + `: spec.containerRegistries, spec.ingressOptions

Then it is reported. A field that Tenure does not know is refused by ` + "`kubectl apply`" + `,
and dropped with a warning for clients that do not ask for strict validation.

Both versions of a kind, Tenant v1beta1 and v1beta2, CapsuleConfiguration v1alpha1 and
v1beta2, have the same fields here. These are read as well, as v1beta1 had them in the
place of fields: the annotations of ` + "`" + capsuleDomain + "`" + ` for forbidden labels and
annotations, protected, cordon and deny-wildcard, the annotations
` + "`" + rolesAnnotation + "/INDEX`" + `, and the label ` + "`" + cordon + `=enabled` + "`" + `. Other annotations of
this domain are refused unless accepted.

The annotations ` + "`" + quotaAnnotation + `/PLURAL.GROUP_VERSION` + "`" + ` bound the number of
custom resources in all namespaces of the Tenant, by a quota that counts the objects in every version of
the kind. The manager writes their number in ` + "`" + usedAnnotation + `/PLURAL.GROUP_VERSION` + "`" + `.

What Tenure makes has the labels ` + "`capsule.clastix.io/tenant` and `tenure.dev/tenant`" + `; the
names of RoleBindings, quotas, limit ranges and network policies are Tenure's own, or Capsule's
with ` + "`capsule: {names: Capsule}`" + ` in the TenancyProfile.

A PersistentVolume that a namespace of a Tenant claims gets the label
` + "`capsule.clastix.io/tenant`" + `, which it keeps without the claim. A new claim with a selector or
the name of a volume gets a selector for the label of its own Tenant, by the policy
tenure-defaults, which needs Kubernetes 1.36.
`)
	for _, kind := range []string{"Tenant", "CapsuleConfiguration", "TenantOwner", "TenantResource", "GlobalTenantResource", "ProxySetting", "GlobalProxySettings"} {
		fmt.Fprintf(&b, "\n## %s\n\n| Field | State | How |\n|---|---|---|\n", kind)
		for _, f := range Fields(kind) {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, f.State, strings.ReplaceAll(f.How, "|", `\|`))
		}
	}
	return b.String()
}
