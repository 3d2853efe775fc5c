package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// what names the object of a request in a message.
const what = "object.kind + ' ' + request.name + ' '"

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
		Name: Prefix + "accounts", Rows: []string{"I1", "I2", "I13"},
		Title: "Kustomizations and HelmReleases name an account that was made for applying, and no other cluster",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupKustomize, kustomizations...), on(writes, groupHelm, helmReleases...),
		},
		conditions: []admissionregistrationv1.MatchCondition{specChanged},
		variables:  []admissionregistrationv1.Variable{reconcilers},
		validations: []validation{
			{"has(object.spec.serviceAccountName) && object.spec.serviceAccountName in variables.reconcilers",
				what + " + 'needs spec.serviceAccountName, one of: ' + variables.reconcilers.join(', ')"},
			{path("spec.kubeConfig", fmt.Sprintf("has(%%s.secretRef) && has(%[1]s.kubeConfigs) && %%s.secretRef.name in %[1]s.kubeConfigs", posture)),
				what + " + 'must not choose another cluster in spec.kubeConfig (allowed Secrets: ' + " + list(posture+".kubeConfigs") + " + ')'"},
			{path("spec.decryption.serviceAccountName", "%s in variables.reconcilers"),
				what + " + 'must not decrypt as another account (allowed: ' + variables.reconcilers.join(', ') + ')'"},
		},
	}
}

// references: nothing of another namespace is used, also where no flag of a
// controller says so.
func references() Rule {
	r := Rule{
		Name: Prefix + "references", Rows: []string{"S1", "S2", "S5", "S12", "N1", "N2"},
		Title:      "Flux objects refer to objects of their own namespace only",
		resources:  append(fluxKinds(writes), on(writes, groupExtensions, "artifactgenerators"), on(writes, groupFlagger, "canaries")),
		conditions: []admissionregistrationv1.MatchCondition{specChanged},
	}
	for _, field := range []string{
		"spec.sourceRef.namespace", "spec.chartRef.namespace", "spec.chart.spec.sourceRef.namespace",
		"spec.imageRepositoryRef.namespace", "spec.dependsOn[].namespace", "spec.eventSources[].namespace",
		"spec.resources[].namespace", "spec.sources[].namespace",
		"spec.analysis.metrics[].templateRef.namespace", "spec.analysis.alerts[].providerRef.namespace",
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
		conditions: []admissionregistrationv1.MatchCondition{specChanged},
	}
	for _, s := range []struct{ kind, address, patterns string }{
		{"GitRepository", "object.spec.url", "git"},
		{"HelmRepository", "object.spec.url", "helm"},
		{"OCIRepository", "object.spec.url", "oci"},
		{"ImageRepository", "'oci://' + object.spec.image", "oci"},
	} {
		r.validations = append(r.validations, validation{
			fmt.Sprintf("object.kind != '%s' || (has(%s) && %s)", s.kind, allowed, matchesAny(s.address, allowed+"."+s.patterns)),
			what + " + 'must not fetch from ' + string(" + s.address + ") + ' (allowed: ' + (has(" + allowed + ") ? " + list(allowed+"."+s.patterns) + " : 'none') + ')'",
		})
	}
	r.validations = append(r.validations,
		validation{
			fmt.Sprintf("object.kind != 'Bucket' || (has(%[1]s) && has(%[1]s.buckets) && %[1]s.buckets.exists(b, b.endpoint == object.spec.endpoint"+
				" && (!has(b.bucketName) || object.spec.bucketName.matches('^' + b.bucketName.replace('.', '[.]').replace('*', '.*') + '$'))"+
				" && (!has(b.region) || (has(object.spec.region) && b.region == object.spec.region))))", allowed),
			what + " + 'must not fetch from ' + object.spec.endpoint + '/' + object.spec.bucketName + ' (ask the platform team to allow the bucket)'",
		},
		validation{
			path("spec.provider", fmt.Sprintf("%%s in (has(%[1]s) && has(%[1]s.providers) ? %[1]s.providers : ['generic'])", allowed)),
			what + " + 'must not have provider ' + object.spec.provider + ' (allowed: ' + (has(" + allowed + ") && has(" + allowed + ".providers) ? " + allowed + ".providers.join(', ') : 'generic') + ')'",
		},
		validation{
			path("spec.insecure", "!%s"),
			what + " + 'must not set spec.insecure'",
		},
	)
	return r
}

// bounds: no tenant takes Flux's time from the others.
func bounds() Rule {
	limits := posture + ".bounds"
	r := Rule{
		Name: Prefix + "bounds", Rows: []string{"A1", "A3"},
		Title:      "intervals and timeouts have bounds",
		resources:  fluxKinds(writes),
		conditions: []admissionregistrationv1.MatchCondition{specChanged},
	}
	for _, field := range []string{"spec.interval", "spec.retryInterval", "spec.chart.spec.interval"} {
		r.validations = append(r.validations, validation{
			path(field, "duration(%s) >= duration("+limits+".minInterval)"),
			what + " + " + quote("needs a longer "+field+": at least ") + " + " + limits + ".minInterval",
		})
	}
	for _, field := range []string{"spec.timeout", "spec.install.timeout", "spec.upgrade.timeout", "spec.test.timeout", "spec.rollback.timeout", "spec.uninstall.timeout"} {
		r.validations = append(r.validations, validation{
			path(field, "duration(%s) <= duration("+limits+".maxTimeout)"),
			what + " + " + quote("needs a shorter "+field+": at most ") + " + " + limits + ".maxTimeout",
		})
	}
	return r
}

// status: what Flux says about an object is said by Flux.
func status() Rule {
	r := Rule{
		Name: Prefix + "status", Rows: []string{"S4"},
		Title:       "the status of Flux objects is written by Flux",
		resources:   fluxKinds(updates),
		conditions:  notThePlatform,
		validations: []validation{{"false", what + " + 'has a status that only Flux writes'"}},
	}
	for i := range r.resources {
		for j, resource := range r.resources[i].Resources {
			if j == 0 {
				r.resources[i].Resources = slices.Clone(r.resources[i].Resources)
			}
			r.resources[i].Resources[j] = resource + "/status"
		}
	}
	return r
}

// externalArtifacts: an artifact that nobody fetched would go around the rules
// for sources.
func externalArtifacts() Rule {
	return Rule{
		Name: Prefix + "external-artifacts", Rows: []string{"S3"},
		Title: "ExternalArtifacts are made by the platform",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, groupSource, "externalartifacts", "externalartifacts/status"),
		},
		conditions:  notThePlatform,
		validations: []validation{{"false", "'ExternalArtifact ' + request.name + ' can be made and changed by the platform only: use a source of your own, or ask for a grant'"}},
	}
}

// notifications: what comes in is authenticated, what goes out leaves the
// cluster.
func notifications() Rule {
	allowed := posture + ".notifications"
	return Rule{
		Name: Prefix + "notifications", Rows: []string{"N3", "N4"},
		Title: "Receivers authenticate who calls, and Providers post to addresses outside",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupNotification, "receivers", "providers"),
		},
		conditions: []admissionregistrationv1.MatchCondition{specChanged},
		validations: []validation{
			{"object.kind != 'Receiver' || object.spec.type in " + allowed + ".receiverTypes",
				what + " + 'must not have type ' + object.spec.type + ' (allowed: ' + " + allowed + ".receiverTypes.join(', ') + ')'"},
			{"object.kind != 'Provider' || !has(object.spec.address) || (has(" + allowed + ".addresses) ? (" +
				matchesAny("object.spec.address", allowed+".addresses") + ") : " +
				`object.spec.address.matches('^https://[a-z0-9][a-z0-9-]*([.][a-z0-9-]+)*[.][a-z][a-z0-9-]+(:[0-9]{1,5})?(/.*)?$') && !object.spec.address.matches('^https://[^/]*([.]svc|[.]local|[.]internal|[.]localhost)(:[0-9]+)?(/|$)'))`,
				what + " + 'must not post to ' + object.spec.address + ' (allowed: ' + (has(" + allowed + ".addresses) ? " + allowed + ".addresses.map(p, string(p)).join(', ') : 'https addresses outside of the cluster') + ')'"},
		},
	}
}

// managed: what the platform has put into a tenant's namespace stays as it is.
func managed() Rule {
	const applied = "kustomize.toolkit.fluxcd.io/namespace"
	return Rule{
		Name: Prefix + "managed", Rows: []string{"I10", "A5", "W1"},
		Title: "what the platform applied to a tenant's namespace is changed by the platform",
		resources: append(fluxKinds(removals),
			on(removals, "", "serviceaccounts", "secrets", "configmaps", "resourcequotas", "limitranges"),
			on(removals, "rbac.authorization.k8s.io", "roles", "rolebindings"),
			on(removals, "networking.k8s.io", "networkpolicies"),
		),
		conditions: append([]admissionregistrationv1.MatchCondition{
			{Name: "applied-by-platform", Expression: fmt.Sprintf(
				"has(oldObject.metadata.labels) && (('%[1]s' in oldObject.metadata.labels && oldObject.metadata.labels['%[1]s'] in params.spec.platformNamespaces)"+
					" || ('%[2]s' in oldObject.metadata.labels && oldObject.metadata.labels['%[2]s'] == '%[3]s'))", applied, tenancy.LabelManaged, tenancy.ManagedValue)},
			// Annotations ask for a reconciliation; finalizers are Flux's.
			{Name: "more-than-metadata", Expression: "oldObject == null || object == null || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec" +
				" || !has(object.metadata.labels) || object.metadata.labels != oldObject.metadata.labels"},
		}, notThePlatform...),
		validations: []validation{{"false", "request.kind.kind + ' ' + request.name + ' belongs to the platform: ask the platform team to change it in its repository'"}},
	}
}

// parameters: what the rules of a namespace read is written by the manager.
func parameters() Rule {
	return Rule{
		Name: Prefix + "parameters", Rows: []string{"I17"},
		Title: "TenantParameters are the platform's",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, v1alpha1.GroupVersion.Group, "tenantparameters", "tenantparameters/status"),
		},
		conditions: []admissionregistrationv1.MatchCondition{
			notKubernetes,
			{Name: "not-platform", Expression: "!" + isPlatform},
		},
		unbound:     true,
		validations: []validation{{"false", "'the TenantParameters of namespace ' + request.namespace + ' say what holds in it, and are written by the manager: ask the platform team to change the TenancyProfile'"}},
	}
}

// pods: nobody but Flux acts as the account that Flux applies as.
func pods() Rule {
	return Rule{
		Name: Prefix + "pods", Rows: []string{"I9"},
		Title:       "Pods do not run as an account that Flux applies as",
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(creates, "", "pods")},
		variables:   []admissionregistrationv1.Variable{reconcilers},
		validations: []validation{{path("spec.serviceAccountName", "!(%s in variables.reconcilers)"), "'a Pod must not run as ' + object.spec.serviceAccountName + ', which Flux applies as: make another account for it'"}},
	}
}

// tokens: nor does anybody get a token of it.
func tokens() Rule {
	const (
		account     = "kubernetes.io/service-account.name"
		subresource = "has(request.subResource) && request.subResource == 'token'"
	)
	return Rule{
		Name: Prefix + "tokens", Rows: []string{"I8"},
		Title: "nobody gets a token of an account that Flux applies as",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(creates, "", "serviceaccounts/token"), on(writes, "", "secrets"),
		},
		conditions: append([]admissionregistrationv1.MatchCondition{
			{Name: "asks-for-a-token", Expression: subresource + " || object.type == 'kubernetes.io/service-account-token'"},
		}, notThePlatform...),
		variables: []admissionregistrationv1.Variable{reconcilers, {Name: "account", Expression: fmt.Sprintf(
			"%[2]s ? request.name : (has(object.metadata.annotations) && '%[1]s' in object.metadata.annotations ? object.metadata.annotations['%[1]s'] : '')", account, subresource)}},
		validations: []validation{{"!(variables.account in variables.reconcilers)", "'a token of ' + variables.account + ', which Flux applies as, can be made by the platform only'"}},
	}
}

// namespaces: the labels of a namespace say whose it is and what holds in it. The
// selector of a binding looks at the labels as they would become, so this rule
// is asked about every namespace, and reads no parameters.
func namespaces() Rule {
	tenant := func(object string) string {
		var any []string
		for _, label := range append(slices.Clone(tenantLabels), v1alpha1.LabelParameters) {
			any = append(any, fmt.Sprintf("'%s' in %s.metadata.labels", label, object))
		}
		return fmt.Sprintf("(%[1]s != null && has(%[1]s.metadata.labels) && (%[2]s))", object, strings.Join(any, " || "))
	}
	return Rule{
		Name: Prefix + "namespaces", Rows: []string{"I6", "I7", "I18"},
		Title: "labels and annotations of a tenant's namespace are the platform's",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, "", "namespaces", "namespaces/status", "namespaces/finalize"),
		},
		conditions: []admissionregistrationv1.MatchCondition{
			{Name: "of-a-tenant", Expression: tenant("object") + " || " + tenant("oldObject")},
			{Name: "metadata-changed", Expression: "oldObject == null || !has(object.metadata.labels) || !has(oldObject.metadata.labels) || object.metadata.labels != oldObject.metadata.labels" +
				" || has(object.metadata.annotations) != has(oldObject.metadata.annotations) || (has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations)" +
				" || has(object.metadata.ownerReferences) != has(oldObject.metadata.ownerReferences) || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences != oldObject.metadata.ownerReferences)" +
				" || object.spec != oldObject.spec"},
			notKubernetes,
			{Name: "not-platform", Expression: "!" + isPlatform},
		},
		unbound:     true,
		validations: []validation{{"false", "'labels, annotations and finalizers of the namespace ' + request.name + ' say whose it is and what holds in it: ask the platform team to change them'"}},
	}
}
