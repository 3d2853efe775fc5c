package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// Document writes the rules as a page of Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString(`# The rules for tenants

What the API server refuses in the namespaces of tenants, whoever asks, apart from
break-glass groups and exempt objects. Generated from internal/admission; do not
edit.

Each rule is two ValidatingAdmissionPolicies: the one of this name reads the
TenancyProfile, the one that ends in ` + "`" + fromParameters + "`" + ` the TenantParameters of a namespace
that has them. The rules that are marked with + are about the spec of Flux objects,
and share ` + "`" + Shared + "` and `" + Shared + fromParameters + "`" + `. The rules that are
marked with ‡ are about other objects, and share ` + "`" + Objects + "` and `" + Objects + fromParameters + "`" + `. Those that are
marked with * hold in every namespace, read neither, and have no exemptions. Those that
are marked with - have the second policy alone. What is marked with † holds back the
platform itself, in the namespaces that have the label ` + "`" + v1alpha1.LabelImages + "`" + `, and is
one policy. The rules that are marked with § hold back the manager alone; what reads the
TenancyProfile of them holds nobody back without one. The policy ` + "`" + managerRequests().inTenants().Name + "`" + ` is the part
of the first for frequent requests in the namespaces of Tenants. A rule that is marked with ∀ is about
all kinds where a namespace has parameters. Rules that are marked with ! make up for rights
that RBAC cannot narrow, and deny in
[warn mode](../how-to/exempt-warn-break-glass.md#warn-first) too: those that are also
marked with ‡ by the policies ` + "`" + ObjectsAlways + "` and `" + ObjectsAlways + fromParameters + "`" + `, which
only a cluster in warn mode has.

| Rule | What holds | Stops | Looks at |
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

The API server names the policy and its binding; behind that stands, in one line,
the tenant, the object, what is wrong and what is allowed:

` + "```" + `
ValidatingAdmissionPolicy 'tenure-flux-objects' with binding 'tenure-flux-objects-flux'
denied request: tenant dev-team: Kustomization web needs spec.serviceAccountName, one
of: dev-team (rule tenure-accounts)
` + "```" + `

An object whose text is too long to be shown is refused with what holds in general.
"no params found" says that the TenancyProfile, or the TenantParameters of the
namespace, are missing: then nothing that a rule is about can be changed.
`)
	return b.String()
}
