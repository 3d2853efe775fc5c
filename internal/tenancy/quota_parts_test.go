package tenancy

import (
	"slices"
	"strings"
	"testing"
)

// TestQuotasOf checks which quotas apply to a namespace, by labels that it has and that its Tenant will
// give it.
func TestQuotasOf(t *testing.T) {
	t.Parallel()
	tenant := parseTenant(t, `{metadata: {name: oil}, spec: {
  namespaces: {labels: {team: oil}, selected: [{selector: {matchLabels: {env: prod}}, labels: {tier: gold}}]},
  quotas: [
    {name: all, hard: {pods: 1}},
    {name: prod, hard: {services: 1}, namespaceSelector: {matchLabels: {env: prod}}},
    {name: gold, hard: {secrets: 1}, namespaceSelector: {matchLabels: {tier: gold}}},
    {name: team, scope: Namespace, hard: {pods: 1}, namespaceSelector: {matchLabels: {team: oil}}},
    {name: others, hard: {pods: 1}, namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}},
    {name: wrong, hard: {pods: 1}, namespaceSelector: {matchExpressions: [{key: env, operator: Is}]}}]}}`)
	for want, have := range map[string]map[string]string{
		"all prod gold team wrong": {"env": "prod"},
		"all team others wrong":    {"env": "test", "team": "gas"},
	} {
		var got []string
		for _, q := range QuotasOf(tenant, "oil-a", have) {
			got = append(got, q.Name)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%v is bound by %q, want %q", have, got, want)
		}
	}
	if _, _, err := Metadata(tenant); err == nil || !strings.Contains(err.Error(), "spec.quotas[5].namespaceSelector is not valid, and the quota applies to all namespaces") {
		t.Errorf("the wrong selector is reported as %v", err)
	}
	var labels []string
	for key := range dividedLabels(QuotasOf(tenant, "oil-a", map[string]string{"env": "test"})) {
		labels = append(labels, strings.TrimPrefix(key, LabelDivided))
	}
	if want := []string{classPods}; !slices.Equal(labels, want) {
		t.Errorf("the webhook looks at %q in a namespace without the other quotas, want %q", labels, want)
	}
}
