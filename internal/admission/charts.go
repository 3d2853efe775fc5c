package admission

import (
	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// charts returns the rule that limits the sources of charts. source-controller builds a chart from a
// GitRepository or a Bucket together with the chart's dependencies, which it fetches from addresses that
// the chart names, not from approved ones. It fetches a chart from a HelmRepository unchanged.
func charts() Rule {
	const own = posture + ".sources"
	r := Rule{
		Name: Prefix + "charts", Rows: []string{"S13"},
		Title: "charts come from HelmRepositories and OCIRepositories; other sources of charts need a shard and the platform's permission",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupHelm, helmReleases...), on(writes, groupSource, "helmcharts"),
		},
		scope: fluxObjects,
	}
	for _, c := range []struct{ kind, has, source string }{
		{"HelmRelease", "has(object.spec.chart)", "object.spec.chart.spec.sourceRef"},
		{"HelmChart", "true", "object.spec.sourceRef"},
	} {
		built := "object.kind != '" + c.kind + "' || !" + c.has + " || has(" + c.source + ".kind) && " + c.source + ".kind == 'HelmRepository'"
		r.validations = append(r.validations,
			validation{
				built + " || has(" + own + ") && has(" + own + ".anyChartDependencies) && " + own + ".anyChartDependencies",
				objectPhrase + " + 'must not take a chart out of a ' + " + short("(has("+c.source+".kind) ? "+c.source+".kind : 'source without a kind')") +
					" + ', whose dependencies come from addresses that are not approved: publish the chart and use a HelmRepository or an OCIRepository," +
					" or ask the platform team for sources.anyChartDependencies'",
			},
			// The rule tenure-shards makes sure that this label is the namespace's.
			validation{
				built + " || " + shardOf("object") + " != ''",
				objectPhrase + " + 'may take a chart out of a ' + " + c.source + ".kind + ' in a shard only: ask the platform team to give the namespace the label " + v1alpha1.LabelShard + "'",
			})
	}
	return r
}
