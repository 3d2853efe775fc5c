package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namespaceNames returns the rule about the names that owners may give namespaces, and the labels and
// annotations that they may choose and change. The webhook, which knows the Tenant, checks them first; this
// rule applies where the API server does not call the webhook. RBAC represents the permissions of a Tenant
// beyond the profile: the verbs [v1alpha1.VerbName] and [v1alpha1.VerbLabel] on the tenant.
func namespaceNames() Rule {
	const (
		tenant = "object.metadata.labels['" + v1alpha1.LabelTenant + "']"
		mine   = "'namespace ' + variables.name + ' '"
	)
	allows := func(verb string) string {
		return fmt.Sprintf("authorizer.group('%s').resource('tenants').name(%s).check('%s').allowed()", v1alpha1.GroupVersion.Group, tenant, verb)
	}
	named := func(expression string) string { return "request.operation != 'CREATE' || " + expression }
	unlisted := unlistedKeys("labels", append([]string{v1alpha1.LabelMadeBy, v1alpha1.LabelCapsuleCordoned, PodSecurityLabel, PodSecurityLabel + "-version", corev1.LabelMetadataName}, tenantLabels...)...) +
		" + " + unlistedKeys("annotations", AdmissionMark)
	var forged []string
	for _, key := range AppliedBy {
		forged = append(forged, fmt.Sprintf("'%[1]s' in object.metadata.labels && object.metadata.labels['%[1]s'] in params.spec.platformNamespaces"+
			" && !(oldObject != null && has(oldObject.metadata.labels) && '%[1]s' in oldObject.metadata.labels && oldObject.metadata.labels['%[1]s'] == object.metadata.labels['%[1]s'])", key))
	}
	return Rule{
		Name: Prefix + "namespace-names", Rows: []string{"I7", "I16", "I18", "I20", "I21"},
		Title:     "owners choose only names, labels and annotations of namespaces that the profile and their Tenant allow",
		resources: []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "namespaces")},
		conditions: append([]string{
			isOwner,
			"!(" + breaksGlass + ")",
		}, notThePlatform...),
		scope:    namespaceObjects,
		early:    true,
		asksRBAC: true,
		validations: []validation{
			{
				named("!(variables.name in params.spec.platformNamespaces) && (!has(params.spec.protectedNamespaces) || !params.spec.protectedNamespaces.exists(p, " + matchesName("p", "variables.name") + "))"),
				mine + " + 'must not have this name, which is the platform\\'s: choose another one'",
			},
			{
				named(fmt.Sprintf("!variables.name.startsWith('xn--') && (variables.name.startsWith(%s + '-') || (variables.name.contains('-') || params.spec.?domainNames.orValue('') == '%s') && %s)", tenant, v1alpha1.DomainNamesAllowed, allows(v1alpha1.VerbName))),
				mine + " + 'must have a name that begins with ' + " + tenant + " + '-'",
			},
			{
				fmt.Sprintf("(%s).size() == 0 || %s", unlisted, allows(v1alpha1.VerbLabel)),
				mine + " + 'must not have labels and annotations that are not among those which owners choose: leave out ' + " + short("("+unlisted+").join(', ')"),
			},
			{
				"!(" + strings.Join(forged, " || ") + ")",
				mine + " + 'must not say in its labels that a Kustomization, HelmRelease or ResourceSet of the platform applied it: leave them out'",
			},
		},
	}
}

// matchesName returns CEL that is true if a pattern, in which * matches any characters, matches a whole
// text. The expression compares the text before the first star first, since the API server compiles a
// regular expression made from a pattern for each request.
func matchesName(pattern, text string) string {
	return fmt.Sprintf("(%[1]s == %[2]s || %[1]s.contains('*') && %[2]s.startsWith(%[1]s.split('*')[0]) && %[2]s.matches('^' + %[1]s.replace('.', '[.]').replace('*', '.*') + '$'))", pattern, text)
}

// unlistedKeys returns CEL for the keys of the labels or annotations that a request changes and the profile
// does not let owners choose, without the keys that other expressions check.
func unlistedKeys(field string, elsewhere ...string) string {
	const listed = "params.spec.namespaceMetadata"
	return fmt.Sprintf("%[5]s.filter(k, !(k in ['%[2]s']) && !(has(%[3]s) && has(%[3]s.%[1]s) && %[3]s.%[1]s.exists(p, %[4]s)))",
		field, strings.Join(elsewhere, "', '"), listed, matchesName("p", "k"), changedEntries(field))
}

// takeover returns the rule that the platform applies nothing to a namespace that a tenant's owner created.
// The tenant's Pods could use the objects that the platform applied there: Pods run as any account of the
// namespace. The platform may use the namespace after a platform admin has adopted it, with another value
// of its label [v1alpha1.LabelMadeBy].
//
// Accounts of the platform still create the objects in tenants' namespaces that they create for tenants:
// objects of Flux's groups, events, leases and access reviews. The manager creates all of its objects.
func takeover() Rule {
	applied := func(object string) string {
		var any []string
		for _, key := range AppliedBy {
			any = append(any, fmt.Sprintf("'%[2]s' in %[1]s.metadata.labels && %[1]s.metadata.labels['%[2]s'] in params.spec.platformNamespaces", object, key))
		}
		return fmt.Sprintf("(%[1]s != null && has(%[1]s.metadata.labels) && (%[2]s))", object, strings.Join(any, " || "))
	}
	made := "request.operation == 'CREATE' && !(request.resource.resource in ['namespaces', 'events', 'leases', 'localsubjectaccessreviews'])" +
		" && !request.resource.group.endsWith('.fluxcd.io') && params.spec.platformNamespaces.exists(n, request.userInfo.username.startsWith('system:serviceaccount:' + n + ':'))"
	return Rule{
		Name: Prefix + "takeover", Rows: []string{"I20"},
		Title: "the platform applies nothing to a namespace that a tenant's owner made, unless it has adopted the namespace",
		resources: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: writes,
			// The namespaceSelector of a binding matches every cluster-scoped object, so the rule excludes
			// them.
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}}, on(writes, "", "namespaces")},
		conditions: []string{
			"request.userInfo.username.startsWith('system:serviceaccount:')",
			notKubernetes,
			fmt.Sprintf("!params.spec.platformNamespaces.exists(n, request.userInfo.username == 'system:serviceaccount:' + n + ':%s')", tenancy.ManagerAccount),
			applied("object") + " && !" + applied("oldObject") + " || " + made,
		},
		scope: ownerNamespaces,
		validations: []validation{{"false",
			"request.kind.kind + ' ' + variables.name + ' of the platform must not be applied to namespace ' + request.namespace + ', which an owner of the tenant made:" +
				" the tenant\\'s Pods can use what is in it, accounts included. Use another namespace, or adopt this one by its label " + v1alpha1.LabelMadeBy + ": platform'"}},
	}
}

// madeByOwners returns a selector for the namespaces that owners created.
func madeByOwners() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelMadeBy: v1alpha1.MadeByOwner}}
}
