package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// everywhere is CEL for a check of the user's right to the same request in all namespaces. Only the
// platform gives such a right, by a ClusterRoleBinding: to nodes, to the scheduler, and to the platform's
// controllers.
const everywhere = "authorizer.group(request.resource.group).resource(request.resource.resource)" +
	".subresource(has(request.subResource) ? request.subResource : '')"

// notANode is a condition that exempts nodes from a rule: Kubernetes limits a node to the Pods that it
// runs.
const notANode = "!has(request.userInfo.groups) || !('system:nodes' in request.userInfo.groups)"

// notEverywhere is a condition that exempts users who may send the same request in every namespace.
const notEverywhere = "!" + everywhere + ".check(request.operation == 'DELETE' ? 'delete' : request.operation == 'UPDATE' ? 'update' : 'create').allowed()" +
	" && !(request.operation == 'UPDATE' && " + everywhere + ".check('patch').allowed())"

// CEL of [contents] and [cordon].
const (
	isCordoned = "has(params.spec.cordoned) && params.spec.cordoned"
	// The admission plugin StorageObjectInUseProtection adds claimProtection to each new claim, on behalf
	// of the user who creates the claim; PodGroupProtection adds groupProtection to each new PodGroup.
	// Controllers add all other finalizers of Kubernetes, Flux and drivers.
	claimProtection = "kubernetes.io/pvc-protection"
	groupProtection = "scheduling.k8s.io/podgroup-protection"
	// kubernetesFinalizers are the finalizers that Kubernetes handles for every kind, and those that it
	// handles for the kind of the request.
	kubernetesFinalizers = "['" + metav1.FinalizerOrphanDependents + "', '" + metav1.FinalizerDeleteDependents + "'] + (" +
		"request.resource.group == '' && request.resource.resource == 'persistentvolumeclaims' ? ['" + claimProtection + "']" +
		" : request.resource.group == 'scheduling.k8s.io' && request.resource.resource == 'podgroups' ? ['" + groupProtection + "'] : [])"
	// allowedFinalizers are the finalizers of Kubernetes, and those that the platform lists.
	allowedFinalizers = kubernetesFinalizers + " + (has(" + posture + ") && has(" + posture + ".bounds) && has(" + posture + ".bounds.finalizers) ? " + posture + ".bounds.finalizers : [])"
)

// holdsUp returns CEL that is true if an object gets a finalizer that is not allowed and that it did not
// have.
func holdsUp(allowed string) string {
	return "(request.operation in ['CREATE', 'UPDATE'] && has(object.metadata) && has(object.metadata.finalizers) && object.metadata.finalizers.exists(f," +
		" !(f in " + allowed + ") && !(oldObject != null && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers)))"
}

// templatesHoldUp returns CEL that is true if a template gets such a finalizer. Kubernetes' controllers, which
// are exempt, copy the finalizers of a template to each Pod and volume claim that they create. The
// condition covers Kubernetes' own kinds only: in other kinds, fields with the same names may have another
// meaning.
func templatesHoldUp(allowed string) string {
	return "(request.operation in ['CREATE', 'UPDATE'] && request.resource.group in ['', 'apps', 'batch'] && request.resource.resource in" +
		" ['controllerrevisions', 'cronjobs', 'daemonsets', 'deployments', 'jobs', 'podtemplates', 'replicasets', 'replicationcontrollers', 'statefulsets']" +
		" && " + templateFinalizers("object") + ".exists(l, l.exists(f, !(f in " + allowed + ") && !(oldObject != null && " + templateFinalizers("oldObject") + ".exists(o, f in o)))))"
}

// templateFinalizers returns CEL for lists of the finalizers of all templates of an object,
// without the finalizers that its kind always has. A StatefulSet rolls back to the
// template of a ControllerRevision.
func templateFinalizers(object string) string {
	var templates []string
	for _, template := range []string{"spec.?template", "spec.?jobTemplate", "spec.?jobTemplate.?spec.?template", "template", "data.?spec.?template"} {
		templates = append(templates, object+".?"+template+".?metadata.?finalizers.orValue([])")
	}
	all := "[" + strings.Join(templates, ", ") + "]"
	for _, claims := range []string{"spec.?volumeClaimTemplates", "data.?spec.?volumeClaimTemplates"} {
		all += " + " + object + ".?" + claims + ".orValue([]).map(c, c.?metadata.?finalizers.orValue([]).filter(f, f != '" + claimProtection + "'))"
	}
	return "(" + all + ")"
}

// maxGrace is the maximum termination grace period of a tenant's Pod, in seconds: a day. A Pod with a
// process that ignores the signal stays for this time, and so does its namespace.
const maxGrace = 24 * 60 * 60

// CEL of [contents] about Pods.
var (
	// lingers is true if a Pod, or the Pods of a template, get a longer termination grace period than
	// [maxGrace].
	//
	// Pods are the most frequent objects, and have a single field for the period.
	lingers = fmt.Sprintf("(request.operation in ['CREATE', 'UPDATE'] && (request.resource.resource == 'pods' ? has(object.spec) && has(object.spec.%[4]s) && object.spec.%[4]s > %[2]d && !(oldObject != null && has(oldObject.spec) && has(oldObject.spec.%[4]s) && oldObject.spec.%[4]s == object.spec.%[4]s)"+
		" : request.resource.resource in ['controllerrevisions', 'cronjobs', 'daemonsets', 'deployments', 'jobs', 'podtemplates', 'replicasets', 'replicationcontrollers', 'statefulsets']"+
		" && %[1]s.exists(s, s > %[2]d && !(oldObject != null && s in %[3]s))))",
		graces("object"), maxGrace, graces("oldObject"), "terminationGracePeriodSeconds")
	// deletesSlowly is true if a request to delete or evict a Pod sets a longer grace period than
	// [maxGrace]. A later request without a period does not shorten it.
	deletesSlowly = fmt.Sprintf("(request.resource.resource == 'pods' && (request.operation == 'DELETE' ? request.?options.?gracePeriodSeconds.orValue(0) > %[1]d"+
		" : has(request.subResource) && request.subResource == 'eviction' && object.?deleteOptions.?gracePeriodSeconds.orValue(0) > %[1]d))", maxGrace)
	// leavesJob is true if a Pod gets other owners while it has the finalizer of the Job controller, which
	// removes the finalizer only from the Pods of Jobs.
	leavesJob = "(request.operation == 'UPDATE' && request.resource.resource == 'pods' && object.metadata.?finalizers.orValue([]).exists(f, f == 'batch.kubernetes.io/job-tracking') && " + changed("ownerReferences") + ")"
)

// graces returns CEL for the termination grace periods of the Pods of an object, in seconds.
func graces(object string) string {
	return fmt.Sprintf("[%s, %s.?data.?spec.?template.?spec.orValue({})].map(s, s.?terminationGracePeriodSeconds.orValue(0))", podSpec(object), object)
}

// contents returns the rule that refuses finalizers that block the deletion of a tenant's objects, and Pods
// with a long termination grace period. Users with rights beyond the tenant are exempt: the platform's
// controllers set finalizers on tenants' objects. In a namespace without parameters, the rule
// [newNamespaces] refuses the same.
func contents() Rule {
	return Rule{
		Name: Prefix + "contents", Rows: []string{"A4"},
		Title: "objects of tenants have only allowed finalizers, and Pods end within a day",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			writtenObject, on(updates, "", "namespaces", "namespaces/*"), on([]admissionregistrationv1.OperationType{admissionregistrationv1.Delete}, "", "pods"),
		},
		conditions:    append([]string{heldUp(allowedFinalizers), notANode, notEverywhere}, notThePlatform...),
		scope:         tenantObjects,
		ownParameters: true,
		validations:   endsInTime(allowedFinalizers, ""),
	}
}

// heldUp returns CEL that is true if a request breaks one of the validations of [endsInTime].
func heldUp(allowed string) string {
	return join([]string{holdsUp(allowed), templatesHoldUp(allowed), lingers, deletesSlowly, leavesJob}, " || ")
}

// endsInTime returns the validations that nothing in a request blocks the deletion of the namespace: allowed is
// CEL for the list of allowed finalizers, and hint is a text for the messages about other finalizers.
func endsInTime(allowed, hint string) []validation {
	advice := " + " + quote(hint+" (allowed: ") + " + " + short("("+allowed+").join(', ')") + " + ')'"
	return []validation{
		{"!" + holdsUp(allowed), "object.kind + ' ' + variables.name + ' must not have finalizers that are not allowed: leave out metadata.finalizers'" + advice},
		{"!" + templatesHoldUp(allowed), "object.kind + ' ' + variables.name + ' must not have finalizers in its templates that are not allowed: leave out metadata.finalizers there'" + advice},
		{"!" + lingers, fmt.Sprintf("object.kind + ' ' + variables.name + ' must not give Pods more than %d seconds to end: set a shorter spec.terminationGracePeriodSeconds'", maxGrace)},
		{"!" + deletesSlowly, fmt.Sprintf("'Pod ' + variables.name + ' must not get more than %d seconds to end: leave out gracePeriodSeconds'", maxGrace)},
		{"!" + leavesJob, "'Pod ' + variables.name + ' must not leave its Job, since only the Job controller removes its finalizer: keep metadata.ownerReferences'"},
	}
}

// onlyCordons is CEL that is true if an owner with the right to cordon changes only the label of a
// namespace that cordons it.
var onlyCordons = "request.resource.resource == 'namespaces' && request.operation == 'UPDATE' && !(has(request.subResource) && request.subResource != '')" +
	" && object.spec == oldObject.spec && !(" + changed("annotations") + " || " + changed("finalizers") + " || " + changed("ownerReferences") + ")" +
	" && " + changedEntries("labels") + ".all(k, k == '" + v1alpha1.LabelCapsuleCordoned + "') && " + mayCordon

// cordon returns the rule that refuses all changes in the namespaces of a cordoned tenant. Owners with the
// right to cordon may still remove the label that cordons a namespace. Running workloads continue: the rule
// exempts leases and events. It denies in warn mode too: an admin has cordoned the tenant to stop all
// changes.
func cordon() Rule {
	return Rule{
		Name:      Prefix + "cordon",
		Title:     "only the platform changes objects in the namespaces of a cordoned tenant",
		resources: []admissionregistrationv1.NamedRuleWithOperations{everyObject, on([]admissionregistrationv1.OperationType{admissionregistrationv1.Update, admissionregistrationv1.Delete}, "", "namespaces", "namespaces/*")},
		conditions: append([]string{
			isCordoned + " && !(request.resource.resource in ['events', 'leases'])",
			"!(" + onlyCordons + ")",
			notANode,
			notEverywhere,
		}, notThePlatform...),
		scope:         tenantObjects,
		ownParameters: true,
		compensates:   true,
		validations: []validation{
			{"false", "'is cordoned, and only the platform may change ' + request.resource.resource + ' in namespace ' + request.namespace + ': ask the platform team'"},
		},
	}
}

// protected returns the rule that refuses the deletion of a protected Tenant, for all users. Users with the
// right to change the Tenant can remove the protection first.
func protected() Rule {
	return Rule{
		Name:  Prefix + "protected",
		Title: "a protected Tenant is not deleted",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on([]admissionregistrationv1.OperationType{admissionregistrationv1.Delete}, v1alpha1.GroupVersion.Group, "tenants"),
		},
		conditions: []string{
			"has(oldObject.spec) && has(oldObject.spec.protected) && oldObject.spec.protected",
		},
		scope:       allNamespaces,
		validations: []validation{{"false", "'Tenant ' + variables.name + ' is protected, and with it all that the tenant has: set spec.protected to false first'"}},
	}
}
