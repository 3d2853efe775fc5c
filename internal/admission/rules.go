package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// what names the object of a request in a message.
const what = "object.kind + ' ' + variables.name + ' '"

// reconcilers is CEL for the accounts that a tenant is applied as.
var reconcilers = admissionregistrationv1.Variable{
	Name: "reconcilers",
	Expression: fmt.Sprintf("[variables.tenant] + (has(%[1]s.accounts) && has(%[1]s.accounts.reconcilers) ? %[1]s.accounts.reconcilers : [])",
		posture),
}

// accounts: a tenant is applied as an account that was made for it, on this
// cluster.
func accounts() Rule {
	return Rule{
		Name: Prefix + "accounts", Rows: []string{"I1", "I2", "I13", "I19"},
		Title: "Kustomizations and HelmReleases name an account that was made for applying, and no other cluster",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupKustomize, kustomizations...), on(writes, groupHelm, helmReleases...),
		},
		shared: true,
		validations: []validation{
			{"has(object.spec.serviceAccountName) && object.spec.serviceAccountName in variables.reconcilers",
				what + " + 'needs spec.serviceAccountName, one of: ' + variables.reconcilers.join(', ')"},
			{path("spec.kubeConfig", fmt.Sprintf("has(%%s.secretRef) && has(%[1]s.kubeConfigs) && %%s.secretRef.name in %[1]s.kubeConfigs", posture)),
				what + " + 'must not choose another cluster in spec.kubeConfig (allowed Secrets: ' + " + list(posture+".kubeConfigs") + " + ')'"},
			{path("spec.decryption.serviceAccountName", "%s in variables.reconcilers"),
				what + " + 'must not decrypt as another account (allowed: ' + variables.reconcilers.join(', ') + ')'"},
			// Without either, Flux asks a cloud's key service as itself.
			{path("spec.decryption", "has(%s.secretRef) || has(%s.serviceAccountName)"),
				what + " + 'needs a key of its own in spec.decryption.secretRef, or an account in spec.decryption.serviceAccountName'"},
		},
	}
}

// references: nothing of another namespace is used, also where no flag of a
// controller says so.
func references() Rule {
	r := Rule{
		Name: Prefix + "references", Rows: []string{"S1", "S2", "S5", "S12", "N1", "N2"},
		Title:     "Flux objects refer to objects of their own namespace only",
		resources: append(fluxKinds(writes), on(writes, groupExtensions, "artifactgenerators"), on(writes, groupFlagger, "canaries")),
		shared:    true,
	}
	for _, field := range []string{
		"spec.sourceRef.namespace", "spec.chartRef.namespace", "spec.chart.spec.sourceRef.namespace",
		"spec.imageRepositoryRef.namespace", "spec.dependsOn[].namespace", "spec.eventSources[].namespace",
		"spec.resources[].namespace", "spec.sources[].namespace",
		"spec.analysis.metrics[].templateRef.namespace", "spec.analysis.alerts[].providerRef.namespace",
		// The name that older Canaries have for the same.
		"spec.canaryAnalysis.metrics[].templateRef.namespace", "spec.canaryAnalysis.alerts[].providerRef.namespace",
	} {
		r.validations = append(r.validations, validation{
			path(field, "%s in ['', request.namespace]"),
			what + " + " + quote("must not refer to another namespace in "+field+": leave it out, or name ") + " + request.namespace",
		})
	}
	return r
}

// sources: what is fetched comes from addresses that somebody approved, and with
// the tenant's own credentials.
func sources() Rule {
	allowed := posture + ".sources"
	r := Rule{
		Name: Prefix + "sources", Rows: []string{"S9", "I19"},
		Title: "sources are fetched from approved addresses, without an identity of the platform's",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupSource, sourceKinds...), on(writes, groupImage, "imagerepositories"),
		},
		shared: true,
	}
	for _, s := range []struct{ kind, address, patterns string }{
		{"GitRepository", "object.spec.url", "git"},
		{"HelmRepository", "object.spec.url", "helm"},
		{"OCIRepository", "object.spec.url", "oci"},
		{"ImageRepository", "'oci://' + object.spec.image", "oci"},
	} {
		r.validations = append(r.validations, validation{
			fmt.Sprintf("object.kind != '%s' || (has(%s) && %s)", s.kind, allowed, matchesAny(s.address, allowed+"."+s.patterns)),
			what + " + 'must not fetch from ' + " + short("string("+s.address+")") + " + ' (allowed: ' + (has(" + allowed + ") ? " + list(allowed+"."+s.patterns) + " : 'none') + ')'",
		})
	}
	r.validations = append(r.validations,
		validation{
			fmt.Sprintf("object.kind != 'Bucket' || (has(%[1]s) && has(%[1]s.buckets) && %[1]s.buckets.exists(b, b.endpoint == object.spec.endpoint"+
				" && (!has(b.bucketName) || object.spec.bucketName.matches('^' + b.bucketName.replace('.', '[.]').replace('*', '.*') + '$'))"+
				" && (!has(b.region) || (has(object.spec.region) && b.region == object.spec.region))))", allowed),
			what + " + 'must not fetch from ' + " + short("object.spec.endpoint + '/' + object.spec.bucketName") + " + ' (ask the platform team to allow the bucket)'",
		},
		validation{
			path("spec.provider", fmt.Sprintf("%%s in (has(%[1]s) && has(%[1]s.providers) ? %[1]s.providers : ['generic'])", allowed)),
			what + " + 'must not have provider ' + object.spec.provider + ' (allowed: ' + (has(" + allowed + ") && has(" + allowed + ".providers) ? " + allowed + ".providers.join(', ') : 'generic') + ')'",
		},
		validation{
			path("spec.insecure", "!%s"),
			what + " + 'must not set spec.insecure: use an address with TLS'",
		},
		// What an address says is true only on the way that leads to it: a proxy
		// of the tenant's own, with a certificate authority of its own, answers
		// for every approved host.
		validation{
			path("spec.proxySecretRef", "false"),
			what + " + 'must not fetch through a proxy of its own in spec.proxySecretRef: leave it out'",
		},
		validation{
			path("spec.sts", "false"),
			what + " + 'must not get credentials from an address of its own in spec.sts: name a Secret in spec.secretRef'",
		},
		validation{
			path("spec.recurseSubmodules", "!%s"),
			what + " + 'must not set spec.recurseSubmodules: submodules come from addresses that nobody approved, use spec.include'",
		},
	)
	return r
}

// bounds: no tenant takes Flux's time from the others.
func bounds() Rule {
	limits := posture + ".bounds"
	r := Rule{
		Name: Prefix + "bounds", Rows: []string{"A1", "A3"},
		Title:     "intervals and timeouts have bounds",
		resources: fluxKinds(writes),
		shared:    true,
	}
	for _, field := range []string{
		"spec.interval", "spec.retryInterval", "spec.chart.spec.interval",
		"spec.install.strategy.retryInterval", "spec.upgrade.strategy.retryInterval",
	} {
		r.validations = append(r.validations, validation{
			path(field, "duration(%s) >= duration("+limits+".minInterval)"),
			what + " + " + quote("needs a longer "+field+": at least ") + " + " + limits + ".minInterval + ', not ' + " + short("object."+field),
		})
	}
	for _, field := range []string{"spec.timeout", "spec.install.timeout", "spec.upgrade.timeout", "spec.test.timeout", "spec.rollback.timeout", "spec.uninstall.timeout"} {
		r.validations = append(r.validations, validation{
			path(field, "duration(%s) <= duration("+limits+".maxTimeout)"),
			what + " + " + quote("needs a shorter "+field+": at most ") + " + " + limits + ".maxTimeout + ', not ' + " + short("object."+field),
		})
	}
	// The timeout that a Kustomization does not name is its interval.
	r.validations = append(r.validations, validation{
		"object.kind != 'Kustomization' || has(object.spec.timeout) || duration(object.spec.interval) <= duration(" + limits + ".maxTimeout) ||" +
			" !(has(object.spec.wait) && object.spec.wait || has(object.spec.healthChecks) && size(object.spec.healthChecks) > 0" +
			" || has(object.spec.deletionPolicy) && object.spec.deletionPolicy == 'WaitForTermination')",
		what + " + 'needs spec.timeout, at most ' + " + limits + ".maxTimeout + ': without it, it waits for as long as spec.interval'",
	}, validation{
		// What helm-controller makes of a timeout that nobody names.
		"object.kind != 'HelmRelease' || has(object.spec.timeout) || duration('5m') <= duration(" + limits + ".maxTimeout)",
		what + " + 'needs spec.timeout, at most ' + " + limits + ".maxTimeout + ': without it, it waits for 5m'",
	})
	return r
}

// notifications: what comes in is authenticated, what goes out leaves the
// cluster.
func notifications() Rule {
	allowed := posture + ".notifications"
	addresses := "(has(" + allowed + ".addresses) && size(" + allowed + ".addresses) > 0 ? " + list(allowed+".addresses") + " : 'https addresses outside of the cluster')"
	r := Rule{
		Name: Prefix + "notifications", Rows: []string{"N3", "N4", "I19"},
		Title: "Receivers authenticate who calls, and Providers post to addresses outside, as themselves",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupNotification, "receivers", "providers"), on(writes, groupFlagger, "alertproviders"),
		},
		shared: true,
		validations: []validation{
			{"object.kind != 'Receiver' || object.spec.type in " + allowed + ".receiverTypes",
				what + " + 'must not have type ' + " + short("object.spec.type") + " + ' (allowed: ' + " + list(allowed+".receiverTypes") + " + ')'"},
			{path("spec.address", outside("%s", allowed+".addresses")),
				what + " + 'must not post to ' + " + short("object.spec.address") + " + ' (allowed: ' + " + addresses + " + ')'"},
			{path("spec.oidcProviders[].issuerURL", outside("%s", allowed+".addresses")),
				what + " + 'must not ask an issuer within the cluster in spec.oidcProviders (allowed: ' + " + addresses + " + ')'"},
		},
	}
	for _, field := range []string{"spec.proxy", "spec.proxySecretRef"} {
		r.validations = append(r.validations, validation{
			path(field, "false"), what + " + " + quote("must not post through a proxy of its own in "+field+": leave it out"),
		})
	}
	// Types of Providers that fall back to the cloud identity of the controller, also
	// where the Secret that they name has no token, which no policy can see.
	for _, cloud := range []struct{ types, provider string }{{"['googlepubsub']", "gcp"}, {"['azureeventhub', 'azuredevops']", "azure"}} {
		providers := posture + ".sources.providers"
		r.validations = append(r.validations, validation{
			fmt.Sprintf("object.kind != 'Provider' || !(object.spec.type in %s) || (has(%s.sources) && has(%s) && '%s' in %s)",
				cloud.types, posture, providers, cloud.provider, providers),
			what + " + 'must not have type ' + object.spec.type + ', which falls back to an identity of the platform\\'s: spec.tenants.sources.providers of the profile has no " + cloud.provider + "'",
		})
	}
	return r
}
