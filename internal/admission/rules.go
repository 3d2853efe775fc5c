package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// objectPhrase names the object of a request in a message.
const objectPhrase = "object.kind + ' ' + variables.name + ' '"

// reconcilers is CEL for the names of the accounts as which Flux may apply a tenant.
var reconcilers = admissionregistrationv1.Variable{
	Name: "reconcilers",
	Expression: fmt.Sprintf("[variables.tenant] + (has(%[1]s.accounts) && has(%[1]s.accounts.reconcilers) ? %[1]s.accounts.reconcilers : [])",
		posture),
}

// accounts returns the rule that Flux applies a tenant as one of the tenant's accounts, and on this
// cluster.
func accounts() Rule {
	return Rule{
		Name: Prefix + "accounts", Rows: []string{"I1", "I2", "I13", "I19"},
		Title: "Kustomizations and HelmReleases apply as a reconciler's account of the tenant, and to no other cluster",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupKustomize, kustomizations...), on(writes, groupHelm, helmReleases...),
		},
		scope: fluxObjects,
		validations: []validation{
			{"has(object.spec.serviceAccountName) && object.spec.serviceAccountName in variables.reconcilers",
				objectPhrase + " + 'needs spec.serviceAccountName, one of: ' + variables.reconcilers.join(', ')"},
			{path("spec.kubeConfig", fmt.Sprintf("has(%%s.secretRef) && has(%[1]s.kubeConfigs) && %%s.secretRef.name in %[1]s.kubeConfigs", posture)),
				objectPhrase + " + 'must not choose another cluster in spec.kubeConfig (allowed Secrets: ' + " + list(posture+".kubeConfigs") + " + ')'"},
			{path("spec.decryption.serviceAccountName", "%s in variables.reconcilers"),
				objectPhrase + " + 'must not decrypt as another account (allowed: ' + variables.reconcilers.join(', ') + ')'"},
			// With neither, Flux calls the key service of a cloud with its own identity. With a key, it
			// still does so for data that the key cannot decrypt: no rule keeps a tenant from an identity
			// that kustomize-controller itself has.
			{path("spec.decryption", "has(%s.secretRef) || has(%s.serviceAccountName)"),
				objectPhrase + " + 'needs a key of its own in spec.decryption.secretRef, or an account in spec.decryption.serviceAccountName'"},
		},
	}
}

// decryptionSecrets returns the rule about the keys of Secrets with cloud credentials for SOPS. Such
// credentials may name any identity, so only the platform writes them, after it has checked them.
func decryptionSecrets() Rule {
	const changed = "object.?data[?k].hasValue() && !(oldObject != null && oldObject.?data[?k] == object.?data[?k])"
	given := "['sops.azure-kv', 'sops.gcp-kms'].exists(k, " + changed + ")"
	return Rule{
		Name: Prefix + "decryption-secrets", Rows: []string{"I19"},
		Title:       "Secrets give Flux no credentials of clouds to decrypt with, which can stand for the platform's",
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "secrets")},
		scope:       tenantObjects,
		compensates: true,
		conditions:  append([]string{given}, notThePlatform...),
		validations: []validation{{"false", "'Secret ' + variables.name + ' must not have the keys sops.azure-kv and sops.gcp-kms, which can stand for an identity of the platform: use a key of age or OpenPGP, or an account in spec.decryption.serviceAccountName, or ask the platform team to write the Secret'"}},
	}
}

// references returns the rule that Flux objects refer to no object of another namespace. It also covers
// references that no flag of a controller forbids.
func references() Rule {
	r := Rule{
		Name: Prefix + "references", Rows: []string{"S1", "S2", "S5", "S12", "N1", "N2"},
		Title:     "Flux objects refer only to objects of their own namespace",
		resources: append(fluxKinds(writes), on(writes, groupExtensions, "artifactgenerators"), on(writes, groupFlagger, "canaries")),
		scope:     fluxObjects,
	}
	for _, field := range []string{
		"spec.sourceRef.namespace", "spec.chartRef.namespace", "spec.chart.spec.sourceRef.namespace",
		"spec.imageRepositoryRef.namespace", "spec.dependsOn[].namespace", "spec.eventSources[].namespace",
		"spec.resources[].namespace", "spec.sources[].namespace", "spec.artifacts[].namespace",
		"spec.analysis.metrics[].templateRef.namespace", "spec.analysis.alerts[].providerRef.namespace",
		// Older Canaries have these fields under this name.
		"spec.canaryAnalysis.metrics[].templateRef.namespace", "spec.canaryAnalysis.alerts[].providerRef.namespace",
		"spec.upstreamRef.namespace", "spec.service.mirror[].backendRef.namespace",
	} {
		r.validations = append(r.validations, validation{
			path(field, "%s in ['', request.namespace]"),
			objectPhrase + " + " + quote("must not refer to another namespace in "+field+": leave it out, or name ") + " + request.namespace",
		})
	}
	return r
}

// sources returns the rule that limits tenants' sources to approved addresses and the tenant's own
// credentials.
func sources() Rule {
	allowed := posture + ".sources"
	r := Rule{
		Name: Prefix + "sources", Rows: []string{"S9", "I19"},
		Title: "sources use approved addresses, and no identity of the platform",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupSource, sourceKinds...), on(writes, groupImage, "imagerepositories"),
		},
		scope: fluxObjects,
	}
	for _, s := range []struct {
		kind, address, patterns string
		matches                 func(address, patterns string) string
	}{
		{"GitRepository", "object.spec.url", "git", matchesAny},
		{"HelmRepository", "object.spec.url", "helm", matchesHelm},
		{"OCIRepository", "object.spec.url", "oci", matchesAny},
		{"ImageRepository", "'oci://' + object.spec.image", "oci", matchesAny},
	} {
		hint := ""
		if s.kind == "HelmRepository" {
			hint = "; a Helm host counts only as a whole, as in https://HOST/**"
		}
		r.validations = append(r.validations, validation{
			fmt.Sprintf("object.kind != '%s' || (has(%s) && %s)", s.kind, allowed, s.matches(s.address, allowed+"."+s.patterns)),
			objectPhrase + " + 'must not fetch from ' + " + short("string("+s.address+")") + " + ' (allowed: ' + (has(" + allowed + ") ? " + list(allowed+"."+s.patterns) + " : 'none') + " + quote(hint+")"),
		})
	}
	r.validations = append(r.validations,
		validation{
			fmt.Sprintf("object.kind != 'Bucket' || (has(%[1]s) && has(%[1]s.buckets) && %[1]s.buckets.exists(b, b.endpoint == object.spec.endpoint"+
				" && (!has(b.bucketName) || object.spec.bucketName.matches('^' + b.bucketName.replace('.', '[.]').replace('*', '.*') + '$'))"+
				" && (!has(b.region) || (has(object.spec.region) && b.region == object.spec.region))))", allowed),
			objectPhrase + " + 'must not fetch from ' + " + short("object.spec.endpoint + '/' + object.spec.bucketName") + " + ' (ask the platform team to allow the bucket)'",
		},
		validation{
			path("spec.provider", fmt.Sprintf("%%s in (has(%[1]s) && has(%[1]s.providers) ? %[1]s.providers : ['generic'])", allowed)),
			objectPhrase + " + 'must not have provider ' + object.spec.provider + ' (allowed: ' + (has(" + allowed + ") && has(" + allowed + ".providers) ? " + allowed + ".providers.join(', ') : 'generic') + ')'",
		},
		validation{
			path("spec.insecure", "!%s"),
			objectPhrase + " + 'must not set spec.insecure: use an address with TLS'",
		},
		// An address proves nothing if the connection can be redirected: a proxy of the tenant's own, with
		// a certificate authority of its own, answers for every approved host.
		validation{
			path("spec.proxySecretRef", "false"),
			objectPhrase + " + 'must not fetch through a proxy of its own in spec.proxySecretRef: leave it out'",
		},
		validation{
			path("spec.sts", "false"),
			objectPhrase + " + 'must not get credentials from an address of its own in spec.sts: name a Secret in spec.secretRef'",
		},
		validation{
			path("spec.recurseSubmodules", "!%s"),
			objectPhrase + " + 'must not set spec.recurseSubmodules: submodules come from addresses that are not approved, combine sources with an ArtifactGenerator'",
		},
	)
	return r
}
