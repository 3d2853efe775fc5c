package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// allocations returns the rule that a tenant does not write what the platform has allocated. The status of a claim says
// how large a volume is and which devices a claim has, so that a quota and the scheduler would count less than the
// tenant uses, or give it the devices of others. The scheduler reads the CSIStorageCapacities of all namespaces when it
// places the Pods of any tenant. Kubernetes 1.36 asks for a right to all namespaces before it changes the devices of a
// claim; earlier versions do not.
//
// The scheduler also reads how much of a node the status of a Pod takes. It reserves the resources in the status of a
// container even if the Pod requests less, and those of a waiting Pod on the node that its status nominates, whatever the
// taints of the node: other Pods of the same or a lower priority find no place there.
func allocations() Rule {
	const isPod = "request.resource.resource == 'pods'"
	containers := func(object string) string {
		return fmt.Sprintf("['containerStatuses', 'initContainerStatuses'].map(f, %s.?status[?f].orValue([]).map(c, [c.?allocatedResources, c.?resources]))", object)
	}
	return Rule{
		Name: Prefix + "allocations", Rows: []string{"W6", "W10", "W11"},
		Title: "only the platform writes the sizes of volumes, the devices of claims, the capacity of storage, and what Pods take of nodes",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(updates, "", "persistentvolumeclaims/status", "pods/status"), on(updates, groupResource, "resourceclaims/status"), on(writes, "storage.k8s.io", "csistoragecapacities"),
		},
		scope: tenantObjects,
		// A kubelet writes the size of a volume that has grown.
		conditions: append([]string{notANode}, notOperator...),
		validations: []validation{{
			isPod + " ? ['nominatedNodeName', 'allocatedResources', 'resources', 'resourceClaimStatuses', 'extendedResourceClaimStatus'].all(f, object.?status[?f] == oldObject.?status[?f])" +
				" && " + containers("object") + " == " + containers("oldObject") +
				" : has(request.subResource) && object.?status == oldObject.?status",
			"request.kind.kind + ' ' + variables.name + (" + isPod + " ? ' has a status that only the platform writes, since the scheduler reserves nodes by it: leave out nominatedNodeName, resources and allocatedResources'" +
				" : has(request.subResource) ? ' has a status that only the platform writes, since it says what is allocated to the claim: leave it out'" +
				" : ' must not be made by a tenant, since the scheduler places the Pods of all namespaces by it: leave it to the driver of the storage')",
		}},
	}
}

// ownLimits is a regular expression for the resources that a tenant's own ResourceQuota may limit: compute, storage, and
// the numbers of workloads, claims, Services and Ingresses.
const ownLimits = "^((count/)?(pods|persistentvolumeclaims|services|replicationcontrollers)|services[.](nodeports|loadbalancers)|count/[a-z]+[.](apps|batch|autoscaling|policy)|count/ingresses[.]networking[.]k8s[.]io" +
	"|cpu|memory|ephemeral-storage|(requests|limits)[.].+|hugepages-.+|.+[.]storageclass[.]storage[.]k8s[.]io/.+|.+[.]deviceclass[.]resource[.]k8s[.]io/devices)$"

// quotas returns the rule that a tenant's ResourceQuota does not keep out objects of the platform. Kubernetes counts the
// objects of all users: with a quota of no NetworkPolicies the tenant has none that the platform writes later.
func quotas() Rule {
	const counts = "%s.?spec.?hard.orValue({}).filter(k, !k.matches('" + ownLimits + "'))"
	wrong := fmt.Sprintf(counts, "object") + ".filter(k, oldObject == null || oldObject.?spec.?hard[?k] != object.spec.hard[?k])"
	return Rule{
		Name: Prefix + "quotas", Rows: []string{"A5"},
		Title:      "ResourceQuotas of tenants count no kinds that the platform writes into the namespace",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "resourcequotas")},
		scope:      tenantObjects,
		conditions: notOperator,
		validations: []validation{{
			wrong + ".size() == 0",
			objectPhrase + " + 'must not limit ' + " + short(wrong+".join(', ')") + " + ' in spec.hard, since Kubernetes would also count what the platform writes into the namespace: limit compute, storage, workloads, Services and Ingresses only'",
		}},
	}
}

// events returns the rule that the Events of a tenant are about objects of its namespace. The API server compares the
// namespaces only in an Event without a time of the newer form (eventTime). Whoever reads the Events of all namespaces, such
// as an exporter or kubectl describe node, would take an Event of the tenant for a report about a node or an object of
// others.
//
// Kubernetes itself writes Events of many objects, so the rule denies none of them where a namespace has no parameters.
func events() Rule {
	about := func(object string) string {
		return fmt.Sprintf("[?%[1]s.?involvedObject, ?%[1]s.?regarding, ?%[1]s.?related]", object)
	}
	const own = "r.?namespace.orValue('') == '' ? r.?kind.orValue('') == '' : r.namespace == request.namespace && !(r.?kind.orValue('') in ['Node', 'PersistentVolume'])"
	return Rule{
		Name: Prefix + "events", Rows: []string{"N7"},
		Title: "Events of tenants are about objects of the tenant's namespace",
		// The newer group keeps these fields of an existing Event.
		resources:     []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "events"), on(creates, "events.k8s.io", "events")},
		scope:         tenantObjects,
		early:         true,
		ownParameters: true,
		conditions:    append([]string{notANode}, notOperator...),
		validations: []validation{{
			about("object") + ".all(r, (" + own + ") || oldObject != null && r in " + about("oldObject") + ")",
			"'Event ' + variables.name + ' must be about objects of namespace ' + request.namespace + ', since others read Events of all namespaces: name no node, no volume and no object of another namespace in involvedObject, regarding and related'",
		}},
	}
}
