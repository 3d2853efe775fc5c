package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// credentialRights returns the rule that the manager may give itself the rights to write the credentials of
// an account only in the account's own namespace and in its tenant's namespaces. The rule refuses these
// rights for all other users and namespaces. RBAC can limit the roles that a user may bind, but not the
// namespaces.
func credentialRights() Rule {
	owner := "authorizer.serviceAccount(variables.account[0], variables.account[1]).group('" + v1alpha1.GroupVersion.Group + "')"
	only := func(expression string) string { return "!variables.known || (" + expression + ")" }
	const subject = "'the rights to keep credentials '"
	return Rule{
		Name:  Prefix + "credentials",
		Title: "only the manager binds the roles for credentials, and only in the namespaces of owners' accounts and of their tenants",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, "rbac.authorization.k8s.io", "rolebindings", "clusterrolebindings"),
		},
		conditions: []string{fmt.Sprintf("object.roleRef.kind == 'ClusterRole' && object.roleRef.name in ['%s', '%s']", credentials.HomeRole, credentials.CopyRole)},
		variables: []admissionregistrationv1.Variable{
			{Name: "account", Expression: fmt.Sprintf("has(object.metadata.annotations) && '%[1]s' in object.metadata.annotations ? object.metadata.annotations['%[1]s'].split('/') : []", tenancy.AnnotationAccount)},
			{Name: "known", Expression: "request.resource.resource == 'rolebindings' && variables.account.size() == 2"},
			{Name: "home", Expression: fmt.Sprintf("object.roleRef.name == '%s'", credentials.HomeRole)},
			{Name: "tenant", Expression: tenantOf("namespaceObject")},
		},
		scope: allNamespaces, asksRBAC: true,
		validations: []validation{
			{"variables.known",
				subject + " + 'need a RoleBinding whose annotation " + tenancy.AnnotationAccount + " names the account'"},
			{"has(object.subjects) && object.subjects.all(s, s.kind == 'ServiceAccount' && request.userInfo.username == 'system:serviceaccount:' + s.namespace + ':' + s.name)",
				subject + " + 'must be bound to the account that sends the request only'"},
			{only("!request.namespace.startsWith('kube-') && !(request.namespace in ['" + strings.Join(reservedNamespaces, "', '") + "'])" +
				" && object.subjects.all(s, s.namespace != request.namespace)"),
				subject + " + 'are not for namespaces of the platform'"},
			{only("!variables.home || variables.tenant != '' && variables.account[0] == request.namespace && " + owner + ".resource('" + v1alpha1.OwnersResource + "').check('create').allowed()"),
				subject + " + 'are for the namespace of an account that owns a tenant, with the label of a tenant'"},
			{only("variables.home || variables.tenant != '' && " + owner + ".resource('tenants').name(variables.tenant).check('" + v1alpha1.VerbOwn + "').allowed()"),
				subject + " + 'are for namespaces of a tenant that the account owns'"},
		},
	}
}

// credentialSecrets returns the rule that only the platform writes the Secrets with kubeconfigs of
// accounts. It also applies in the account's own namespace, which may belong to no tenant.
func credentialSecrets() Rule {
	return Rule{
		Name: Prefix + "credential-secrets", Rows: []string{"I13"},
		Title:       "only the platform writes the kubeconfigs that the manager renews",
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(all, "", "secrets"), on(all, "rbac.authorization.k8s.io", "roles", "rolebindings")},
		conditions:  append([]string{notKubernetes}, notAdmin...),
		scope:       allNamespaces,
		marked:      credentials.Label,
		validations: []validation{{"false", "request.kind.kind + ' ' + variables.name + ' belongs to credentials that the platform keeps: leave it and its label " + credentials.Label + " alone'"}},
	}
}
