package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

// ownsTenant is CEL: an account of the request's namespace owns a tenant, which RBAC
// knows at once. The rights of an owner reach beyond the namespace: whoever acts as its
// account makes namespaces. What cannot be the name of an account is none.
func ownsTenant(account string) string {
	return fmt.Sprintf("(%[1]s.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$') && authorizer.serviceAccount(request.namespace, %[1]s).group('%[2]s').resource('%[3]s').check('create').allowed())",
		account, v1alpha1.GroupVersion.Group, v1alpha1.OwnersResource)
}

// templated are the kinds of Kubernetes from whose templates its controllers make Pods.
var templated = []admissionregistrationv1.NamedRuleWithOperations{
	on(writes, "", "podtemplates", "replicationcontrollers"),
	on(writes, "apps", "daemonsets", "deployments", "replicasets", "statefulsets"),
	on(writes, "batch", "cronjobs", "jobs"),
}

// podAccount is CEL for the account of a Pod or of the Pods that are made of an
// object's template.
func podAccount(object string) string {
	const account = ".?serviceAccountName"
	return fmt.Sprintf("(request.resource.resource == 'pods' ? %[1]s.?spec%[2]s : %[1]s.?spec.?template.?spec%[2]s.or(%[1]s.?spec.?jobTemplate.?spec.?template.?spec%[2]s).or(%[1]s.?template.?spec%[2]s)).orValue('default')",
		object, account)
}

// runsPods is CEL that holds if a Pod is made, or a template names another account than
// before. What makes Pods is refused as well, where a person sees it; but for
// Kubernetes' own controllers, the Pod decides.
var runsPods = "request.resource.resource == 'pods' || (" + notKubernetes + ") && (oldObject == null || " + podAccount("object") + " != " + podAccount("oldObject") + ")"

// mustNotRun is CEL for the beginning of a message about a Pod or a template.
const mustNotRun = "(request.resource.resource == 'pods' ? 'a Pod must not run as ' : object.kind + ' ' + variables.name + ' must not run Pods as ') + variables.podAccount + "

// pods: nobody but Flux acts as the account that Flux applies as.
func pods() Rule {
	return Rule{
		Name: Prefix + "pods", Rows: []string{"I9"},
		Title:       "Pods do not run as an account that Flux applies as",
		resources:   append([]admissionregistrationv1.NamedRuleWithOperations{on(creates, "", "pods")}, templated...),
		objects:     true,
		early:       true,
		conditions:  []string{runsPods},
		variables:   []admissionregistrationv1.Variable{reconcilers, {Name: "podAccount", Expression: podAccount("object")}},
		validations: []validation{{"!(variables.podAccount in variables.reconcilers)", mustNotRun + "', which Flux applies as: make another account for it'"}},
	}
}

// ownerPods: nor does anybody as an account that owns a tenant. The parameters of a
// namespace list those, so that RBAC is asked about no Pod there; without them it is
// asked.
func ownerPods() Rule {
	const listed = "has(params.spec.tenant)"
	return Rule{
		Name: Prefix + "owner-pods", Rows: []string{"I24"},
		Title:     "Pods do not run as an account that owns a tenant",
		resources: append([]admissionregistrationv1.NamedRuleWithOperations{on(creates, "", "pods")}, templated...),
		objects:   true,
		conditions: []string{
			runsPods,
			"!" + listed + " || has(params.spec.ownerAccounts) && " + podAccount("object") + " in params.spec.ownerAccounts",
			listed + " || " + ownsTenant(podAccount("object")),
		},
		variables:   []admissionregistrationv1.Variable{{Name: "podAccount", Expression: podAccount("object")}},
		validations: []validation{{"false", mustNotRun + "', which owns a tenant: make another account for it'"}},
	}
}

// CEL about requests for tokens of accounts: by themselves, and in Secrets.
const (
	asksToken    = "has(request.subResource) && request.subResource == 'token'" //nolint:gosec // CEL
	keepsToken   = "request.resource.resource == 'secrets'"
	tokenAccount = "(" + asksToken + " ? request.name : object.?metadata.?annotations[?'" + corev1.ServiceAccountNameKey + "'].orValue(''))"
)

// tokens: nor does anybody get a token of one. A node gets those of the Pods that run on
// it, which Kubernetes sees to.
func tokens() Rule {
	return Rule{
		Name: Prefix + "tokens", Rows: []string{"I8"},
		Title: "nobody gets a token of an account that Flux applies as",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(creates, "", "serviceaccounts/token"), on(writes, "", "secrets"),
		},
		objects:     true,
		conditions:  append([]string{asksToken + " || object.type == '" + string(corev1.SecretTypeServiceAccountToken) + "'", notANode}, notThePlatform...),
		variables:   []admissionregistrationv1.Variable{reconcilers, {Name: "tokenAccount", Expression: tokenAccount}},
		validations: []validation{{"!(variables.tokenAccount in variables.reconcilers)", "'a token of ' + variables.tokenAccount + ', which Flux applies as, can be made by the platform only'"}},
	}
}

// ownerAccounts: what is written on an owner's account decides who may use it, since
// annotations make credentials for it, here and in clouds; and nobody gets a token of it.
func ownerAccounts() Rule {
	const account = "(" + asksToken + " || " + keepsToken + " ? " + tokenAccount + " : " + objectName + ")"
	different := []string{changed("labels"), changed("annotations"), changed("finalizers"), changed("ownerReferences")}
	for _, field := range []string{"secrets", "imagePullSecrets"} {
		different = append(different, fmt.Sprintf("object.?%[1]s.orValue([]) != oldObject.?%[1]s.orValue([])", field))
	}
	different = append(different, "object.?automountServiceAccountToken.orValue(true) != oldObject.?automountServiceAccountToken.orValue(true)")
	return Rule{
		Name: Prefix + "owner-accounts", Rows: []string{"I24"},
		Title: "an account that owns a tenant is made, changed and deleted by the platform and by itself, and nobody gets a token of it",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, "", "serviceaccounts"), on(creates, "", "serviceaccounts/token"), on(writes, "", "secrets"),
		},
		objects: true,
		conditions: append([]string{
			keepsToken + " ? object.type == '" + string(corev1.SecretTypeServiceAccountToken) + "' : " + asksToken + " || request.operation != 'UPDATE' || " + strings.Join(different, " || "),
			asksToken + " || " + keepsToken + " || request.userInfo.username != 'system:serviceaccount:' + request.namespace + ':' + " + objectName,
			notANode,
			ownsTenant(account),
			asksToken + " || " + keepsToken + " || " + notEverywhere,
		}, notThePlatform...),
		validations: []validation{
			{"!(" + asksToken + " || " + keepsToken + ")", "'a token of ' + " + tokenAccount + " + ', which owns a tenant, can be made by the platform only'"},
			{"false", "'ServiceAccount ' + variables.name + ' owns a tenant, and is made, changed and deleted by the platform and by itself only: ask the platform team, or use another account'"},
		},
	}
}

// bindings: a tenant gives rights to people, groups and accounts that it can name, and
// not to everybody, who would come from other tenants and from outside.
func bindings() Rule {
	const (
		// broad are subjects of Kubernetes' own names, which stand for many or for
		// its parts. An account by its user name is one account.
		broad = "(s.kind == 'Group' && s.name.startsWith('system:') && s.name != 'system:serviceaccounts:' + request.namespace" +
			" || s.kind == 'User' && s.name.startsWith('system:') && !s.name.startsWith('system:serviceaccount:'))"
		given = "has(object.subjects) ? object.subjects.filter(s, " + broad + " && !(oldObject != null && has(oldObject.subjects) && s in oldObject.subjects)) : []"
	)
	return Rule{
		Name: Prefix + "bindings", Rows: []string{"I4"},
		Title:      "tenants give no rights to everybody",
		objects:    true,
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "rbac.authorization.k8s.io", "rolebindings")},
		conditions: append([]string{"size(" + given + ") > 0", notEverywhere}, notThePlatform...),
		variables:  []admissionregistrationv1.Variable{{Name: "given", Expression: given}},
		validations: []validation{{"false", "'RoleBinding ' + variables.name + ' must not give rights to ' + " + short("variables.given.map(s, s.kind + ' ' + s.name).join(', ')") +
			" + ': name people, groups of yours and service accounts (of your own namespace, system:serviceaccounts:' + request.namespace + ' is all)'"}},
	}
}
