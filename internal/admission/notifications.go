package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// notifications returns the rule that a Receiver authenticates its callers, and that a
// Provider sends only to addresses outside of the cluster.
func notifications() Rule {
	allowed := posture + ".notifications"
	addresses := "(has(" + allowed + ".addresses) && size(" + allowed + ".addresses) > 0 ? " + list(allowed+".addresses") + " : 'https addresses outside of the cluster')"
	r := Rule{
		Name: Prefix + "notifications", Rows: []string{"N3", "N4", "I19"},
		Title: "Receivers authenticate their callers, and Providers post only to addresses outside of the cluster, without an identity of the platform",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupNotification, "receivers", "providers"), on(writes, groupFlagger, "alertproviders"),
		},
		scope: fluxObjects,
		validations: []validation{
			{"object.kind != 'Receiver' || object.spec.type in " + allowed + ".receiverTypes",
				objectPhrase + " + 'must not have type ' + " + short("object.spec.type") + " + ' (allowed: ' + " + list(allowed+".receiverTypes") + " + ')'"},
			{path("spec.address", outside("%s", allowed+".addresses")),
				objectPhrase + " + 'must not post to ' + " + short("object.spec.address") + " + ' (allowed: ' + " + addresses + " + ')'"},
			{path("spec.oidcProviders[].issuerURL", outside("%s", allowed+".addresses")),
				objectPhrase + " + 'must not ask an issuer within the cluster in spec.oidcProviders (allowed: ' + " + addresses + " + ')'"},
		},
	}
	for _, field := range []string{"spec.proxy", "spec.proxySecretRef"} {
		r.validations = append(r.validations, validation{
			path(field, "false"), objectPhrase + " + " + quote("must not post through a proxy of its own in "+field+": leave it out"),
		})
	}
	// Providers of these types fall back to the cloud identity of the controller, even if
	// the Secret that they name has no token, which no policy can see.
	for _, cloud := range []struct{ types, provider string }{{"['googlepubsub']", "gcp"}, {"['azureeventhub', 'azuredevops']", "azure"}} {
		providers := posture + ".sources.providers"
		r.validations = append(r.validations, validation{
			fmt.Sprintf("object.kind != 'Provider' || !(object.spec.type in %s) || (has(%s.sources) && has(%s) && '%s' in %s)",
				cloud.types, posture, providers, cloud.provider, providers),
			objectPhrase + " + 'must not have type ' + object.spec.type + ', which falls back to an identity of the platform\\'s: spec.tenants.sources.providers of the profile has no " + cloud.provider + "'",
		})
	}
	return r
}
