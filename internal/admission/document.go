package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// Document returns the rules as a page of Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(`# The rules for tenants

The API server refuses requests that break these rules. The platform, the members of break-glass groups and
[exempt objects](../how-to/exempt-warn-break-glass.md) are not checked. The rules marked with + also check Flux objects that
the platform writes into a tenant's namespace. Generated from internal/admission; do not edit.

Most rules consist of two ValidatingAdmissionPolicies. The policy with the name of the rule reads the
TenancyProfile. The policy whose name ends in ` + "`" + fromParameters + "`" + ` reads the TenantParameters, in namespaces that
have them. The marks in the first column:

| Mark | Meaning |
|---|---|
| + | the rule checks the spec of Flux objects, in the shared policies ` + "`" + Shared + "` and `" + partOfFlux.policy(Objects) + "`" + ` |
| ‡ | the rule checks all objects, in the shared policies ` + "`" + Objects + "` and, in namespaces with TenantParameters, `" + partOfPods.policy(Objects) + "`, `" + partOfFlux.policy(Objects) + "` and `" + partOfOthers.policy(Objects) + "`" + ` |
| * | the rule applies in every namespace, reads neither the profile nor parameters, and has no exemptions |
| - | the rule has only the policy that reads TenantParameters |
| † | the rule also applies to the platform, in namespaces with the label ` + "`" + v1alpha1.LabelImages + "`" + `, and is one policy |
| § | the rule applies to the manager only; if it reads the TenancyProfile, it refuses nothing without one. ` + "`" + managerRequests().inTenants().Name + "`" + ` is the part of ` + "`" + managerRequests().Name + "`" + ` for frequent requests in the namespaces of Tenants |
| ○ | the rule applies in tenants' namespaces without TenantParameters: in their first seconds, and while they are being deleted. It reads neither the profile nor parameters, and has no exemptions |
| ∀ | the rule checks all kinds, in namespaces with parameters |
| ! | the rule limits rights that RBAC cannot limit, and denies in [warn mode](../how-to/exempt-warn-break-glass.md#warn-mode), too. Those with ‡ deny there by the policies ` + "`" + ObjectsAlways + "` and `" + ObjectsAlways + fromParameters + "-*`" + `, which only a cluster in warn mode has |

| Rule | What it ensures | Stops the attacks | Checked requests |
|---|---|---|---|
`)
	for _, r := range Rules() {
		var kinds []string
		for _, on := range r.resources {
			var operations []string
			for _, o := range on.Operations {
				operations = append(operations, strings.ToLower(string(o)))
			}
			kinds = append(kinds, fmt.Sprintf("%s of %s", strings.Join(operations, ", "), strings.Join(on.Resources, ", ")))
		}
		name := "`" + r.Name + "`"
		switch {
		case r.scope == allNamespaces && slices.Contains(r.conditions, isManager), r.scope == allNamespacesProfiled:
			name += " §"
		case r.scope == allNamespaces:
			name += " *"
		case r.scope == fluxObjects:
			name += " +"
		case r.scope == tenantObjects:
			name += " ‡"
		case r.scope == platformNamespaces:
			name += " †"
		case r.scope == unparameterized:
			name += " ○"
		}
		if r.ownParameters {
			name += " -"
		}
		if r.everyKind {
			name += " ∀"
		}
		if r.always() {
			name += " !"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, r.Title, strings.Join(r.Rows, ", "), strings.Join(kinds, "; "))
	}
	b.WriteString(`
## What a tenant reads

The API server names the policy and its binding. Then follow, in one line, the tenant, the object,
the reason, the allowed values and the rule:

` + "```" + `
ValidatingAdmissionPolicy 'tenure-flux-objects' with binding 'tenure-flux-objects-flux'
denied request: tenant dev-team: Kustomization web needs spec.serviceAccountName, one
of: dev-team (rule tenure-accounts)
` + "```" + `

If the text would be too long, the message is the text in the column "What it ensures".
"no params found" means that the TenancyProfile or the TenantParameters of the namespace are missing:
then the API server refuses all requests that the rule checks.
`)
	return b.String()
}
