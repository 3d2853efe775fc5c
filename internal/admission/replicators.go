package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// replicators returns the rule that the manager gives itself the right to impersonate a namespace's
// accounts only in the namespaces of tenants, which RBAC cannot express. For every user, the rule refuses a
// binding of this right in all namespaces at once.
func replicators() Rule {
	var ofTenant []string
	for _, label := range tenantLabels {
		ofTenant = append(ofTenant, fmt.Sprintf("'%s' in namespaceObject.metadata.labels", label))
	}
	return Rule{
		Name:  Prefix + "replicators",
		Title: "the manager impersonates only accounts of tenants' namespaces",
		Rows:  []string{"I15"},
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, "rbac.authorization.k8s.io", "rolebindings", "clusterrolebindings"),
		},
		conditions: []string{
			fmt.Sprintf("object.roleRef.kind == 'ClusterRole' && object.roleRef.name == '%s'", tenancy.ReplicatorRole),
		},
		scope: allNamespaces,
		validations: []validation{
			{"request.resource.resource == 'rolebindings'",
				"'ClusterRole " + tenancy.ReplicatorRole + " must not be given in all namespaces at once: use a RoleBinding'"},
			{"!(request.userInfo.username.startsWith('system:serviceaccount:') && request.userInfo.username.endsWith(':tenure-manager'))" +
				" || namespaceObject != null && has(namespaceObject.metadata.labels) && (" + strings.Join(ofTenant, " || ") + ")" +
				" && !request.namespace.startsWith('kube-') && !(request.namespace in ['" + strings.Join(reservedNamespaces, "', '") + "'])" +
				" && object.subjects.all(s, s.kind == 'ServiceAccount' && s.name == 'tenure-manager')",
				"'the manager may give ClusterRole " + tenancy.ReplicatorRole + " to itself alone, and in namespaces of tenants: a platform admin allows more with a RoleBinding of their own'"},
		},
	}
}
