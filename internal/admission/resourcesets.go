package admission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// resourceSets returns the rule about the kinds of flux-operator. For a ResourceSet without an account, the
// operator applies objects with its own rights, which are cluster-admin. It reads dependencies with its own
// rights in every namespace, and calls the addresses of input providers from its own network. For a
// ResourceSet with an account, the operator impersonates the account, so that RBAC limits the objects that
// it creates, reads and copies.
func resourceSets() Rule {
	of := func(resource, holds string) string {
		return "request.resource.resource != '" + resource + "' || " + holds
	}
	return Rule{
		Name: Prefix + "resource-sets", Rows: []string{"I26"},
		Title: "flux-operator applies tenants' objects as their accounts, and reads no objects and addresses of others for them",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupOperator, operatorKinds...),
		},
		scope: fluxObjects,
		validations: []validation{
			{"request.resource.resource in ['resourcesets', 'resourcesetinputproviders']",
				objectPhrase + " + 'is for the platform only: leave it out'"},
			{of("resourcesets", "has(object.spec.serviceAccountName) && object.spec.serviceAccountName in variables.reconcilers"),
				objectPhrase + " + 'needs spec.serviceAccountName, one of: ' + variables.reconcilers.join(', ')"},
			{of("resourcesets", path("spec.dependsOn[]", "has(%s.namespace) && %s.namespace == request.namespace")),
				objectPhrase + " + 'must depend on objects of its own namespace only: name ' + request.namespace + ' in spec.dependsOn'"},
			{of("resourcesetinputproviders", "object.spec.type == 'Static'"),
				objectPhrase + " + 'must have type Static: flux-operator would ask an address or read other objects for it'"},
		},
	}
}
