package admission

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// metricServers are the types of MetricTemplates for which Flagger asks only spec.provider.address,
// and authenticates with the tenant's Secret alone. For other types, Flagger uses its own
// identity: externalmetrics sends the token of its account to the address, cloudwatch,
// stackdriver and azuremonitor use its cloud identity, and keptn creates objects in a namespace
// that the query names.
var metricServers = []string{"prometheus", "influxdb", "datadog", "newrelic", "graphite", "dynatrace", "splunk", "signoz"}

// flagger returns the rule that a tenant uses Flagger's kinds only if the platform allows
// them, and only with the addresses, hosts and gateways that the platform approved.
// Flagger calls addresses and routes traffic with its own rights.
func flagger() Rule {
	allowed := posture + ".flagger"
	addresses := "(has(" + allowed + ".addresses) && size(" + allowed + ".addresses) > 0 ? " + list(allowed+".addresses") + " : 'https addresses outside of the cluster')"
	r := Rule{
		Name: Prefix + "flagger", Rows: []string{"N6", "S12"},
		Title:     "objects of Flagger need the platform's permission, use approved addresses, hosts and gateways, and use no identity of the platform",
		resources: []admissionregistrationv1.NamedRuleWithOperations{on(writes, groupFlagger, "canaries", "metrictemplates", "alertproviders")},
		scope:     fluxObjects,
		validations: []validation{{
			"has(" + allowed + ")", objectPhrase + " + 'needs that the platform allows Flagger for the tenant: ask the platform team for policy.flagger of the Tenant'",
		}},
	}
	for _, field := range []string{
		"spec.metricsServer", "spec.provider.address", "spec.analysis.webhooks[].url", "spec.canaryAnalysis.webhooks[].url",
	} {
		// In a Canary, spec.provider is a name and has no address.
		kind := "object.kind == 'Canary'"
		if field == "spec.provider.address" {
			kind = "object.kind == 'MetricTemplate'"
		}
		r.validations = append(r.validations, validation{
			fmt.Sprintf("!(%s) || %s", kind, path(field, outside("%s", allowed+".addresses"))),
			objectPhrase + " + " + quote("must not have Flagger call other addresses in "+field+" (allowed: ") + " + " + addresses + " + ')'",
		})
	}
	for _, field := range []string{"spec.analysis.metrics[].query", "spec.canaryAnalysis.metrics[].query"} {
		r.validations = append(r.validations, validation{
			path(field, "%s == ''"), objectPhrase + " + " + quote("must not query the platform's metrics in "+field+": name a MetricTemplate"),
		})
	}
	r.validations = append(r.validations, validation{
		"object.kind != 'MetricTemplate' || " + path("spec.provider.type", "%s in ['"+strings.Join(metricServers, "', '")+"']"),
		objectPhrase + " + 'must not have type ' + string(object.spec.provider.type) + ' in spec.provider, for which Flagger uses an identity of the platform\\'s (allowed: " + strings.Join(metricServers, ", ") + ")'",
	})
	in := func(list string) string { return "has(" + allowed + "." + list + ") && " + allowed + "." + list }
	r.validations = append(r.validations,
		validation{
			path("spec.service.hosts[]", "%s.matches('^([*][.])?[a-z0-9.-]+$') && (!%s.contains('.') || %s.endsWith('.' + request.namespace + '.svc') || %s.endsWith('.' + request.namespace + '.svc.cluster.local')"+
				" || "+in("hosts")+".exists(h, h == %s || h.startsWith('*.') && %s.endsWith(h.substring(1))))"),
			objectPhrase + " + 'must not take other hosts in spec.service.hosts (allowed: names of its own Services, and ' + " + list(allowed+".hosts") + " + ')'",
		},
		validation{
			path("spec.service.gateways[]", "%s == 'mesh' || !%s.contains('/') && !%s.contains('.') || %s.startsWith(request.namespace + '/') || "+in("gateways")+".exists(g, g == %s)"),
			objectPhrase + " + 'must not use other gateways in spec.service.gateways (allowed: those of its namespace, and ' + " + list(allowed+".gateways") + " + ')'",
		},
		validation{
			path("spec.service.gatewayRefs[]", "!has(%s.namespace) || %s.namespace in ['', request.namespace] || "+in("gateways")+".exists(g, g == %s.namespace + '/' + %s.name)"),
			objectPhrase + " + 'must not use other gateways in spec.service.gatewayRefs (allowed: those of its namespace, and ' + " + list(allowed+".gateways") + " + ')'",
		},
		validation{
			"object.kind != 'Canary' || !has(object.spec.service) || !has(object.spec.service.gatewayRefs) || size(object.spec.service.gatewayRefs) == 0" +
				" || has(object.spec.service.hosts) && size(object.spec.service.hosts) > 0",
			objectPhrase + " + 'needs spec.service.hosts: without them, a gateway sends it the requests for every host'",
		})
	return r
}
