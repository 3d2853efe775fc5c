package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

// ownsTenant returns CEL that is true if an account in the request's namespace owns a tenant. It checks the
// authorizer once. An owner's rights reach beyond the namespace: a client with the account's identity can
// create namespaces. A text that cannot be the name of an account owns no tenant.
func ownsTenant(account string) string {
	return fmt.Sprintf("(%[1]s.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$') && authorizer.serviceAccount(request.namespace, %[1]s).group('%[2]s').resource('%[3]s').check('create').allowed())",
		account, v1alpha1.GroupVersion.Group, v1alpha1.OwnersResource)
}

// templated are the kinds from whose templates Kubernetes' controllers create Pods.
var templated = []admissionregistrationv1.NamedRuleWithOperations{
	on(writes, "", "podtemplates", "replicationcontrollers"),
	on(writes, "apps", "daemonsets", "deployments", "replicasets", "statefulsets"),
	on(writes, "batch", "cronjobs", "jobs"),
}

// isSync is CEL that is true for the Flux objects that Flux applies as an account.
const isSync = "request.resource.resource in ['kustomizations', 'helmreleases']"

// podAccount returns CEL for the account of a Pod or of a sync, or of the Pods that a controller
// creates from an object's template.
func podAccount(object string) string {
	const account = ".?serviceAccountName"
	return fmt.Sprintf("(request.resource.resource == 'pods' || "+isSync+" ? %[1]s.?spec%[2]s : %[1]s.?spec.?template.?spec%[2]s.or(%[1]s.?spec.?jobTemplate.?spec.?template.?spec%[2]s).or(%[1]s.?template.?spec%[2]s)).orValue('default')",
		object, account)
}

// runsPods is CEL that is true if the request creates a Pod, or if a template names another account than
// before. The rule also denies a workload with such a template, so that the user sees the error. For
// Kubernetes' own controllers, only the Pod decides.
var runsPods = "request.resource.resource == 'pods' || (" + notKubernetes + ") && (oldObject == null || " + podAccount("object") + " != " + podAccount("oldObject") + ")"

// mustNotRun is CEL for the start of a message about a Pod or a template.
const mustNotRun = "(request.resource.resource == 'pods' ? 'a Pod must not run as ' : object.kind + ' ' + variables.name + (" + isSync + " ? ' must not be applied as ' : ' must not run Pods as ')) + variables.podAccount + "

// pods returns the rule that no Pod runs as an account as which Flux applies a tenant.
func pods() Rule {
	return Rule{
		Name: Prefix + "pods", Rows: []string{"I9"},
		Title:       "Pods do not run as a reconciler's account",
		resources:   append([]admissionregistrationv1.NamedRuleWithOperations{on(creates, "", "pods")}, templated...),
		scope:       tenantObjects,
		compensates: true,
		early:       true,
		conditions:  []string{runsPods},
		variables:   []admissionregistrationv1.Variable{reconcilers, {Name: "podAccount", Expression: podAccount("object")}},
		together:    "variables.podAccount != variables.tenant && (!has(" + posture + ".accounts) || !has(" + posture + ".accounts.reconcilers) || !(variables.podAccount in " + posture + ".accounts.reconcilers))",
		validations: []validation{{"!(variables.podAccount in variables.reconcilers)", mustNotRun + "', which Flux applies as: make another account for it'"}},
	}
}

// ownerPods returns the rule that no Pod runs, and Flux applies nothing, as an account that owns
// a tenant, unless Flux may apply the tenant as this account. The rule tenure-accounts refuses such
// syncs too, but only warns in warn mode. The parameters of a namespace list these accounts, so
// that Pods there need no RBAC check; without parameters the rule asks RBAC.
func ownerPods() Rule {
	const listed = "has(params.spec.tenant)"
	return Rule{
		Name: Prefix + "owner-pods", Rows: []string{"I24"},
		Title: "Pods do not run as an account that owns a tenant, and Flux applies as such an account only if it is the tenant's reconciler",
		resources: append([]admissionregistrationv1.NamedRuleWithOperations{
			on(creates, "", "pods"), on(writes, groupKustomize, kustomizations...), on(writes, groupHelm, helmReleases...),
		}, templated...),
		scope:       tenantObjects,
		compensates: true,
		conditions: []string{
			runsPods,
			"!" + listed + " || has(params.spec.ownerAccounts) && " + podAccount("object") + " in params.spec.ownerAccounts",
			listed + " || " + ownsTenant(podAccount("object")),
		},
		variables:   []admissionregistrationv1.Variable{reconcilers, {Name: "podAccount", Expression: podAccount("object")}},
		validations: []validation{{isSync + " && variables.podAccount in variables.reconcilers", mustNotRun + "', which owns a tenant: make another account for it'"}},
	}
}

// CEL about requests for tokens of accounts: TokenRequests, and Secrets of the token type.
const (
	asksToken    = "has(request.subResource) && request.subResource == 'token'" //nolint:gosec // CEL
	keepsToken   = "request.resource.resource == 'secrets'"
	tokenAccount = "(" + asksToken + " ? request.name : object.?metadata.?annotations[?'" + corev1.ServiceAccountNameKey + "'].orValue(''))"
)

// tokens returns the rule that only the platform gets tokens of an account as which Flux applies a tenant.
// A node gets the tokens of the Pods that it runs, which Kubernetes checks.
func tokens() Rule {
	return Rule{
		Name: Prefix + "tokens", Rows: []string{"I8"},
		Title: "only the platform gets tokens of a reconciler's account",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(creates, "", "serviceaccounts/token"), on(writes, "", "secrets"),
		},
		scope:       tenantObjects,
		compensates: true,
		conditions:  append([]string{asksToken + " || object.type == '" + string(corev1.SecretTypeServiceAccountToken) + "'", notANode}, notThePlatform...),
		variables:   []admissionregistrationv1.Variable{reconcilers, {Name: "tokenAccount", Expression: tokenAccount}},
		validations: []validation{{"!(variables.tokenAccount in variables.reconcilers)", "'a token of ' + variables.tokenAccount + ', which Flux applies as, can be made by the platform only'"}},
	}
}

// ownerAccounts returns the rule that protects the service account of an owner. Annotations on
// the account create credentials for it, in the cluster and in clouds. The rule refuses such
// annotations and all tokens of the account.
func ownerAccounts() Rule {
	const account = "(" + asksToken + " || " + keepsToken + " ? " + tokenAccount + " : " + objectName + ")"
	different := []string{changed("labels"), changed("annotations"), changed("finalizers"), changed("ownerReferences"), ownersChanged("fieldsV1", "f:metadata", "f:annotations")}
	for _, field := range []string{"secrets", "imagePullSecrets"} {
		different = append(different, fmt.Sprintf("object.?%[1]s.orValue([]) != oldObject.?%[1]s.orValue([])", field))
	}
	different = append(different, "object.?automountServiceAccountToken.orValue(true) != oldObject.?automountServiceAccountToken.orValue(true)")
	return Rule{
		Name: Prefix + "owner-accounts", Rows: []string{"I24"},
		Title: "only the platform and the account itself change an account that owns a tenant, and only the platform gets its tokens",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, "", "serviceaccounts"), on(creates, "", "serviceaccounts/token"), on(writes, "", "secrets"),
		},
		scope:       tenantObjects,
		compensates: true,
		conditions: append([]string{
			"!(" + keepsToken + ") || object.type == '" + string(corev1.SecretTypeServiceAccountToken) + "'",
			asksToken + " || " + keepsToken + " || request.userInfo.username != 'system:serviceaccount:' + request.namespace + ':' + " + objectName,
			notANode,
			ownsTenant(account),
			asksToken + " || " + keepsToken + " || " + notEverywhere,
		}, notThePlatform...),
		late: []string{keepsToken + " || " + asksToken + " || request.operation != 'UPDATE' || " + strings.Join(different, " || ")},
		validations: []validation{
			{"!(" + asksToken + " || " + keepsToken + ")", "'a token of ' + " + tokenAccount + " + ', which owns a tenant, can be made by the platform only'"},
			{"false", "'ServiceAccount ' + variables.name + ' owns a tenant, and is made, changed and deleted by the platform and by itself only: ask the platform team, or use another account'"},
		},
	}
}

// bindings returns the rule that a tenant gives rights only to users, groups and accounts
// that it can name, and not to broad groups, which include other tenants and users
// outside of the cluster.
func bindings() Rule {
	const (
		// broad is true for subjects with Kubernetes' own names, which stand for many users or for parts of
		// Kubernetes. The user name of a service account stands for one account.
		broad = "(s.kind == 'Group' && s.name.startsWith('system:') && s.name != 'system:serviceaccounts:' + request.namespace" +
			" || s.kind == 'User' && s.name.startsWith('system:') && !s.name.startsWith('system:serviceaccount:'))"
		given = "has(object.subjects) ? object.subjects.filter(s, " + broad + " && !(oldObject != null && has(oldObject.subjects) && s in oldObject.subjects)) : []"
	)
	return Rule{
		Name: Prefix + "bindings", Rows: []string{"I4"},
		Title:       "RoleBindings of tenants bind no group that includes all users",
		scope:       tenantObjects,
		compensates: true,
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(writes, "rbac.authorization.k8s.io", "rolebindings")},
		conditions:  append([]string{"size(" + given + ") > 0", notEverywhere}, notThePlatform...),
		variables:   []admissionregistrationv1.Variable{{Name: "given", Expression: given}},
		validations: []validation{{"false", "'RoleBinding ' + variables.name + ' must not give rights to ' + " + short("variables.given.map(s, s.kind + ' ' + s.name).join(', ')") +
			" + ': name people, groups of yours and service accounts (of your own namespace, system:serviceaccounts:' + request.namespace + ' is all)'"}},
	}
}
