package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// adoption returns the rule that no workload of a tenant takes over an object that the platform applied. A
// controller of Kubernetes adopts each object that fits and has no controller: a ReplicaSet adopts Pods
// with its labels, a Deployment adopts such ReplicaSets, and a StatefulSet adopts the claims with the names
// that it would give them. The controller then deletes the object with the tenant's workload, or as a
// surplus replica. Kubernetes' own accounts send these requests, so the rule is about them. Workloads of
// the platform that the parameters list may take over any object.
func adoption() Rule {
	const owners = "%s.metadata.?ownerReferences.orValue([])"
	taken := fmt.Sprintf(owners, "object") + ".filter(r, r.?controller.orValue(false) && !" + fmt.Sprintf(owners, "oldObject") + ".exists(o, o.uid == r.uid && o.?controller.orValue(false))" +
		" && !((r.kind + '/' + r.name) in params.spec.?platformWorkloads.orValue([])))"
	return Rule{
		Name: Prefix + "adoption", Rows: []string{"A5"},
		Title: "workloads of tenants take over no Pods, ReplicaSets and claims that the platform applied",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(updates, "", "pods", "persistentvolumeclaims"), on(updates, "apps", "replicasets"),
		},
		scope:       tenantObjects,
		compensates: true,
		conditions: []string{
			"oldObject != null && !has(request.subResource) && (" + platformApplied("oldObject") + ")",
			"!(" + notKubernetes + ")",
			taken + ".size() > 0",
		},
		validations: []validation{{
			"false",
			objectPhrase + " + 'belongs to the platform, and must not be taken over by ' + " + taken + ".map(r, r.kind + ' ' + r.name).join(', ') + ': give it another selector or another name'",
		}},
	}
}

// platformApplied returns CEL that is true if the labels of an object say that a sync of the platform
// applied the object, unless the platform delegated this sync to a tenant, or that the manager created it.
func platformApplied(object string) string {
	return fmt.Sprintf("has(%[1]s.metadata.labels) && (%[2]s)", object, platformLabels(object+".metadata.labels"))
}

// platformLabels returns CEL that is true if a map of labels says so: see [platformApplied].
func platformLabels(labels string) string {
	groups := []string{groupKustomize, groupHelm, groupResourceSet}
	return fmt.Sprintf("['%[2]s'].exists(g, (g + '/namespace') in %[1]s && %[1]s[g + '/namespace'] in params.spec.platformNamespaces"+
		" && !params.spec.?delegatedSyncs.orValue([]).exists(d, d.namespace == %[1]s[g + '/namespace'] && d.name == %[1]s[?(g + '/name')].orValue('')))"+
		" || %[1]s[?'%[3]s'].orValue('') == '%[4]s'",
		labels, strings.Join(groups, "', '"), tenancy.LabelManaged, tenancy.ManagedValue)
}
