package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// retryHint is a part of the messages of [newNamespaces] about what the parameters of the namespace may
// allow.
const retryHint = ", or try again in some seconds, when the manager has written the TenantParameters of the namespace"

// newNamespaces returns the rule about every kind in a tenant's namespace without parameters: in the first
// seconds of the namespace, and from its deletion on. There the policies [Objects] and [Shared] read the
// profile, and so cover a list of kinds only. The rule refuses what [contents] refuses, since it blocks the
// deletion of the namespace for ever. It also refuses new objects with the labels of the platform's objects,
// and changes of objects that have them, of kinds that [managed] does not list.
//
// The rule reads no parameters: until the API server has found the kind of a policy's parameters, it
// refuses every request that the policy matches, and this policy matches all requests of all namespaces
// without parameters. So the rule does not know bounds.finalizers, break-glass groups, platformAccounts and
// delegated syncs. What the parameters allow succeeds some seconds later.
func newNamespaces() Rule {
	return Rule{
		Name:  Prefix + "new-namespaces",
		Title: "before a namespace has its parameters, tenants do not change the platform's objects, and their own have only Kubernetes' finalizers and no labels of the platform's; Pods end within a day",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			every(all),
		},
		conditions: []string{
			heldUp(kubernetesFinalizers) + " || " + forgesPlatform + " || " + changesPlatforms,
			notKubernetes, notAdmin[0], notANode, notEverywhere, notAdmin[1],
		},
		scope: unparameterized,
		validations: append(endsInTime(kubernetesFinalizers, retryHint), validation{
			"!" + forgesPlatform,
			"request.kind.kind + ' ' + variables.name + ' must not say in its labels, or in those of its templates, that a Kustomization, HelmRelease or ResourceSet of the platform applied it: leave them out" + retryHint + "'",
		}, validation{
			// The deletion of the namespace deletes all objects in it, and controllers of the tenant remove
			// their finalizers.
			"!" + changesPlatforms + " || has(namespaceObject.metadata.deletionTimestamp)",
			"request.kind.kind + ' ' + variables.name + ' has the labels of an object of the platform: ask the platform team to change it in its repository" + retryHint + "'",
		}),
	}
}

// afterRBAC adds the variables of an unparameterized rule to its policy, and returns CEL that is true for an
// allowed request, for the message and for the refusal. The match condition of the policy has no RBAC checks,
// since they would divide it into two long expressions, and the API server compiles each of them.
func (r Rule) afterRBAC(p *admissionregistrationv1.ValidatingAdmissionPolicy) (holds, message, refusal string) {
	variable := func(name, expression string) {
		p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
	}
	holds = "variables.refusal == ''"
	for i, condition := range r.conditions {
		if authorizerChecks(condition) > 0 {
			name := fmt.Sprintf("rbac%d", i)
			variable(name, condition)
			holds += " || !variables." + name
		}
	}
	variable("tenant", tenantName("namespaceObject", "request.namespace"))
	parts, refusal := apart(r.variable(), r.validations)
	p.Spec.Variables = append(p.Spec.Variables, parts...)
	return holds, "variables.refusal == '' ? '' : 'tenant ' + variables.tenant + ': ' + variables.refusal", refusal
}

// managersNamespace is CEL for the namespace of the manager. If Flux's namespace has another name, the user
// name of the manager is replaced in the manifests.
const managersNamespace = "'" + ManagerUser + "'.split(':')[2]"

// platformMarks returns CEL that is true if an object has the labels of the platform's objects. Without
// parameters, the manager's namespace is the only one that is known as the platform's.
func platformMarks(object string) string {
	return fmt.Sprintf("[%s.?metadata.?labels.orValue({})].exists(l, %s)", object, marksPlatform("l"))
}

// marksPlatform returns CEL that is true if a map of labels has those of the platform's objects.
func marksPlatform(labels string) string {
	return fmt.Sprintf("(['%[2]s'].exists(g, (g + '/namespace') in %[1]s && %[1]s[g + '/namespace'] == %[3]s) || %[1]s[?'%[4]s'].orValue('') == '%[5]s')",
		labels, strings.Join([]string{groupKustomize, groupHelm, groupResourceSet}, "', '"), managersNamespace, tenancy.LabelManaged, tenancy.ManagedValue)
}

// marksBySync returns CEL that is true if an account of the manager's namespace sends the request, and the object
// does not have the manager's label. A sync may apply as this account, and Flux then sets the labels of the sync.
func marksBySync(object string) string {
	return "request.userInfo.username.startsWith('system:serviceaccount:' + " + managersNamespace + " + ':') && !('" + tenancy.LabelManaged + "' in " + object + ".metadata.labels)"
}

// listedByManaged is CEL that is true if the rule [managed] lists the kind of the request. That rule knows more,
// and decides about these kinds.
var listedByManaged = func() string {
	var listed []string
	for _, on := range managed().resources {
		for _, resource := range on.Resources {
			listed = append(listed, on.APIGroups[0]+"/"+resource)
		}
	}
	return isOneOf("(request.resource.group + '/' + request.resource.resource)", listed)
}()

// forgesPlatform is CEL that is true if an object or one of its templates gets the labels of the platform's
// objects.
var forgesPlatform = "(request.operation in ['CREATE', 'UPDATE'] && object != null && !(" + listedByManaged + ") && (" + platformMarks("object") + " && !(oldObject != null && " + platformMarks("oldObject") + ") && !(" + marksBySync("object") + ")" +
	" || " + forgesTemplate(marksPlatform) + "))"

// changesPlatforms is CEL that is true if a request deletes an object with the labels of the platform's objects,
// or changes more of it than its status, its finalizers and requests to reconcile. A controller of the tenant
// removes its finalizers. Syncs that the platform delegated to a tenant are not known, so the tenant changes
// their objects by Git.
var changesPlatforms = "(request.operation in ['UPDATE', 'DELETE'] && oldObject != null && !(" + listedByManaged + ") && " + platformMarks("oldObject") + " && !(" + marksBySync("oldObject") + ")" +
	" && (request.operation == 'DELETE' || !(has(request.subResource) && request.subResource == 'status') && (!has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec" +
	" || " + changed("labels") + " || " + changed("ownerReferences") + " || " + annotationsBeyond("object", "oldObject") + " || " + annotationsBeyond("oldObject", "object") + " || " + ownersChanged("fieldsV1", "f:spec") + ")))"
