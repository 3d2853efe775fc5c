package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// The kinds of Flux, by group.
var (
	kustomizations   = []string{"kustomizations"}
	helmReleases     = []string{"helmreleases"}
	sourceKinds      = []string{"gitrepositories", "helmrepositories", "helmcharts", "ocirepositories", "buckets"}
	notificationKind = []string{"alerts", "providers", "receivers"}
	operatorKinds    = []string{"resourcesets", "resourcesetinputproviders", "fluxinstances", "fluxreports"}
	imageKinds       = []string{"imagerepositories", "imagepolicies", "imageupdateautomations"}
)

const (
	groupKustomize    = "kustomize.toolkit.fluxcd.io"
	groupHelm         = "helm.toolkit.fluxcd.io"
	groupSource       = "source.toolkit.fluxcd.io"
	groupExtensions   = "source.extensions.fluxcd.io"
	groupNotification = "notification.toolkit.fluxcd.io"
	groupImage        = "image.toolkit.fluxcd.io"
	groupFlagger      = "flagger.app"
	groupOperator     = "fluxcd.controlplane.io"
	// groupResourceSet is the prefix of the labels of the objects that a ResourceSet created.
	groupResourceSet = "resourceset." + groupOperator
)

// The operations that a rule may match: writes change an object.
var (
	writes  = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	updates = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	creates = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	all     = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete}
)

// on returns a rule of the API server for resources of a group, in every version.
func on(operations []admissionregistrationv1.OperationType, group string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources,
		},
	}}
}

// fluxKinds returns all kinds of Flux.
func fluxKinds(operations []admissionregistrationv1.OperationType) []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{
		on(operations, groupKustomize, kustomizations...),
		on(operations, groupHelm, helmReleases...),
		on(operations, groupSource, sourceKinds...),
		on(operations, groupNotification, notificationKind...),
		on(operations, groupImage, imageKinds...),
	}
}

// specChanged is CEL that exempts updates which leave the spec unchanged: Flux's own updates of finalizers
// and annotations, and updates of objects that are older than the rule. Some kinds have their interval in
// an annotation, which counts as part of the spec.
//
// An update in an older version of a kind removes the fields that the version does not have, and neither
// object nor oldObject shows them. Of the fields that a rule demands, only decryption.serviceAccountName is
// missing in a version that a supported Flux serves: in v1beta2 of a Kustomization, until Flux 2.7.
const specChanged = "oldObject == null || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec" +
	" || request.resource.resource == 'kustomizations' && request.resource.version.contains('beta') && has(object.spec.decryption) && !has(object.spec.decryption.secretRef)" +
	" || request.resource.resource in ['artifactgenerators', 'resourcesets', 'resourcesetinputproviders'] && ['" + reconcileEvery + "', '" + operatorEvery + "', '" + operatorTimeout + "']" +
	".exists(a, object.metadata.?annotations[?a].hasValue() && object.metadata.?annotations[?a] != oldObject.metadata.?annotations[?a])"

// isAdmin is CEL that is true if the user may update the profile; such a user is exempt from
// the rules for tenants. It asks the authorizer, so that admins need no list of users. No
// RoleBinding can give this right, because the profile is cluster-scoped.
var isAdmin = fmt.Sprintf("authorizer.group('%s').resource('tenancyprofiles').check('update').allowed()", v1alpha1.GroupVersion.Group)

// isManager is CEL that is true if the manager sent the request. Rules that do not read the profile
// recognize the manager by its user name.
const isManager = "request.userInfo.username == '" + ManagerUser + "'"

// ManagerUser is the user name of the manager's account.
const ManagerUser = "system:serviceaccount:" + managerNamespace + ":" + tenancy.ManagerAccount

const managerNamespace = "flux-system"

// notAdmin are conditions that exempt the manager and platform admins from a rule that
// does not read the profile. The cheap condition comes first.
var notAdmin = []string{"!(" + isManager + ")", "!" + isAdmin}

// isListed is CEL that is true if the profile lists the user's account in platformAccounts. The namespace
// of an account proves nothing: an account there may apply a tenant's repository.
const isListed = "has(params.spec.platformAccounts) && params.spec.platformAccounts.exists(a, request.userInfo.username == 'system:serviceaccount:' + a.replace('/', ':'))"

// notThePlatform are conditions that exempt platform admins, the accounts that the profile lists, and
// Kubernetes' own controllers, which clean up deleted objects.
var notThePlatform = []string{
	notKubernetes,
	"!(" + isListed + ")",
	"!" + isAdmin,
}

const notKubernetes = "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && !(request.userInfo.username in ['system:apiserver', 'system:kube-controller-manager'])"

// objectName is CEL for the name of the object of a request. The request has no name if the API server
// chooses the name, or if it deletes a whole collection.
const objectName = "(has(request.name) && request.name != '' ? request.name : oldObject != null ? oldObject.metadata.name : has(object.metadata.name) ? object.metadata.name : '')"

// posture is CEL for the limits of tenants in the parameters.
const posture = "params.spec.tenants"

// path returns CEL that is true if a field is missing or an expression about it holds. The field is a path
// below the spec of the object, which must exist, such as sourceRef.namespace. A part of the path that ends
// in [] is a list: the expression must hold for each element. In the expression, %s stands for the field.
func path(field, expression string) string {
	return below("object.spec", strings.Split(strings.TrimPrefix(field, "spec."), "."), expression, 0)
}

func below(parent string, parts []string, expression string, depth int) string {
	name, list := strings.CutSuffix(parts[0], "[]")
	field := parent + "." + name
	inner := strings.ReplaceAll(expression, "%s", field)
	switch {
	case list:
		element := fmt.Sprintf("e%d", depth)
		inner = strings.ReplaceAll(expression, "%s", element)
		if len(parts) > 1 {
			inner = below(element, parts[1:], expression, depth+1)
		}
		inner = fmt.Sprintf("%s.all(%s, %s)", field, element, inner)
	case len(parts) > 1:
		inner = below(field, parts[1:], expression, depth)
	}
	return fmt.Sprintf("!has(%s) || (%s)", field, inner)
}

// quote returns a CEL string literal.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }

// cleanURL is the syntax that an address must have before a rule compares it with a pattern: a user name
// for SSH only, no percent-encoding and no query, so that all libraries parse the address in the same way.
// Another expression checks dots.
const cleanURL = `^(https?|ssh|oci)://([a-z0-9_-]+@)?[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`

// maxAddress is the maximum length of an address, in bytes. It keeps the comparison with the longest and
// the most patterns that a profile may have within the API server's limit on the cost of a policy.
const maxAddress = 256

// matchesAny returns CEL that is true if an address is clean and one of the patterns matches the whole
// address. The schema of the patterns allows no special characters of regular expressions but . and *.
func matchesAny(address, patterns string) string {
	regexp := "'^' + p.replace('.', '[.]').replace('/**', '/<>').replace('*', '[^/]*').replace('/<>', '/.+') + '/?$'"
	// The expression compares the text before the first star first, since the API server compiles a regular
	// expression made from a pattern for each request.
	return fmt.Sprintf("size(%[1]s) <= %[5]d && (%[1]s).matches(%[2]s) && !(%[1]s).contains('..') && has(%[3]s) && %[3]s.exists(p, (%[1]s).startsWith(p.split('*')[0]) && (%[1]s).matches(%[4]s))",
		address, quote(cleanURL), patterns, regexp, maxAddress)
}

// matchesHelm returns CEL that is true if a HelmRepository's address is clean and matches one of the
// patterns. An oci pattern matches as in [matchesAny]; an https pattern must be a host. An index can send
// source-controller to any address, so write access to one path of a host must not count as approval of the
// whole host.
func matchesHelm(address, patterns string) string {
	const host = `^https?://[^/*]+(/|/[*][*])?$`
	return fmt.Sprintf("((%[1]s).startsWith('oci://') ? (%[2]s) : size(%[1]s) <= %[5]d && (%[1]s).matches(%[3]s) && !(%[1]s).contains('..') && has(%[4]s)"+
		" && %[4]s.exists(p, p.matches('%[6]s') && (%[1]s + '/').startsWith(p.split('/')[0] + '//' + p.split('/')[2] + '/')))",
		address, matchesAny(address, patterns), quote(cleanURL), patterns, maxAddress, host)
}

// outside returns CEL that is true if one of the patterns matches an address. Without patterns
// it is true for an https address whose host is neither an IP address nor a cluster-internal
// name. The resolver of a Pod also finds Services by names that end in a namespace, so the
// last label must look like a public domain and must not be a namespace of the platform.
func outside(address, patterns string) string {
	const (
		world   = `^https://[a-z0-9][a-z0-9-]*([.][a-z0-9-]+)*[.]([a-z]{2,}|xn--[a-z0-9-]*[a-z0-9])(:[0-9]{1,5})?(/.*)?$`
		cluster = `^https://[^/]*[.](svc|pod|cluster|default|local|internal|localhost)(:[0-9]+)?(/|$)`
	)
	return fmt.Sprintf(`(has(%[2]s) && size(%[2]s) > 0 ? (%[3]s) : `+
		`size(%[1]s) <= %[4]d && %[1]s.matches('%[5]s') && !%[1]s.matches('%[6]s')`+
		` && !params.spec.platformNamespaces.exists(n, %[1]s.split('/')[2].split(':')[0].endsWith('.' + n)))`,
		address, patterns, matchesAny(address, patterns), 8*maxAddress, world, cluster)
}

// list returns CEL for the text of a list, or "none" if the list is empty or missing.
func list(field string) string {
	return fmt.Sprintf("(has(%[1]s) && size(%[1]s) > 0 ? %[2]s : 'none')", field, short(fmt.Sprintf("%s.map(p, string(p)).join(', ')", field)))
}

// short returns CEL for the first 512 characters of a text: the API server does not show a message that is
// longer than 5 KiB.
func short(text string) string { return shortened(text, 512) }

// shortened returns CEL for the first characters of a text.
func shortened(text string, characters int) string {
	return fmt.Sprintf("[%[1]s].map(t, size(t) > %[2]d ? t.substring(0, %[2]d) + '...' : t)[0]", text, characters)
}

// affordable divides conditions into groups, one for each expression, so that no expression exceeds the
// cost that the API server allows: 1,000,000, of which each RBAC check takes 350,000. The API server
// evaluates every expression, even after one is false, so each group repeats the leading conditions that
// need no RBAC check.
func affordable(conditions []string) [][]string {
	const questions = 2
	first := slices.IndexFunc(conditions, func(c string) bool { return authorizerChecks(c) > 0 })
	var groups [][]string
	asked := 0
	for _, condition := range conditions {
		n := authorizerChecks(condition)
		if len(groups) == 0 {
			groups = append(groups, nil)
		}
		if asked+n > questions {
			groups, asked = append(groups, slices.Clone(conditions[:first])), 0
		}
		last := len(groups) - 1
		groups[last], asked = append(groups[last], condition), asked+n
	}
	return groups
}

// authorizerChecks returns the number of RBAC checks in an expression.
func authorizerChecks(expression string) int { return strings.Count(expression, ".check(") }

// joinLists returns CEL that joins the elements of a list of lists of texts, with commas. The oldest
// supported API server has no function that flattens a list.
func joinLists(lists string) string {
	return lists + ".filter(l, l.size() > 0).map(l, l.join(', ')).join(', ')"
}

// allEmpty returns CEL that is true if all lists in a list are empty.
func allEmpty(lists string) string { return lists + ".all(l, l.size() == 0)" }

// firsts returns CEL for the first elements of the non-empty lists in a list.
func firsts(lists string) string { return lists + ".filter(l, l.size() > 0).map(l, l[0])" }

// join returns CEL that joins expressions by an operator. Evaluation stops at the first
// expression that decides the result.
func join(expressions []string, operator string) string {
	return "(" + strings.Join(expressions, ")"+strings.TrimRight(operator, " ")+"\n(") + ")"
}

// tenantName returns CEL for the name of a namespace's tenant, or the CEL none if the namespace belongs to
// no tenant. The namespace must have labels.
func tenantName(namespace, none string) string {
	expression := none
	for _, label := range slices.Backward(tenantLabels) {
		expression = fmt.Sprintf("'%[1]s' in %[3]s.metadata.labels ? %[3]s.metadata.labels['%[1]s'] : %[2]s", label, expression, namespace)
	}
	return expression
}
