package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
)

// untried are the kinds that a rule covers and that no attack of the rule's rows tries, each
// with the reason.
var untried = []struct{ rule, resources, reason string }{
	{"allocations", "resourceclaims/status", "Kubernetes 1.36 asks for a right to all namespaces; the rule's own tests give it to the tenant"},
	{"claims", "resourceclaimtemplates", "W11 tries the claims themselves; the rule's own tests try templates"},
	{"copies", "serviceaccounts roles rolebindings", "W16 tries a Secret and a ConfigMap; the rule has one condition for all kinds"},
	{"credential-secrets", "roles rolebindings", "the attack needs a replication of the fleet, and the rule's own tests try it"},
	{"external-artifacts", "externalartifacts/status", "without an ExternalArtifact of its own, which S3 tries to make, a tenant has no status to write"},
	{"hosts", "services", "a Service has hosts in the annotations of one DNS controller only"},
	{"hosts", "listenersets xlistenersets tcproutes udproutes", "a set of listeners belongs to a Gateway, and the routes name no host"},
	{"ingress-annotations", "gateways", "W13 tries a Service itself; the rule's own tests try the annotations that a Gateway gives to its Service"},
	{"ingress-annotations", "canaries", "W13 tries a Service itself; the rule's own tests try the annotations that a Canary gives to its Services"},
	{"hosts", "canaries", "N6 tries the hosts of a Canary; the rule's own tests try the annotations that a Canary gives to its Services"},
	{"services", "canaries", "W4 tries a Service itself; the rule's own tests try the annotations that a Canary gives to its Services"},
	{"managed", "helmcharts alerts providers receivers imagerepositories imagepolicies imageupdateautomations", "I10 edits what delivers; the rule has one condition for all kinds"},
	{"managed", "secrets configmaps", "A5 and W1 overwrite what limits a namespace; the rule has one condition for all kinds"},
	{"manager", "serviceaccounts resourcequotas limitranges secrets networkpolicies clusternetworkpolicies roles tenants tenantparameters helmreleases gitrepositories ocirepositories externalartifacts externalartifacts/status mutatingwebhookconfigurations validatingwebhookconfigurations persistentvolumes", "I25 tries the first step of each way to cluster-admin; the rule lists what the manager may write"},
	{"manager-parameters", "tenantparameters", "I25 tries the ways to cluster-admin, and parameters give no right"},
	{"nodes", "pods/binding bindings", "a Pod can be bound only until a scheduler has done so; the rule's own tests try it"},
	{"notifications", "alertproviders", "N6 tries its address"},
	{"owner-pods", "podtemplates", "no controller makes Pods of a PodTemplate"},
	{"pod-annotations", "podtemplates", "no controller makes Pods of a PodTemplate"},
	{"pods", "podtemplates", "no controller makes Pods of a PodTemplate"},
	{"workloads", "podtemplates", "no controller makes Pods of a PodTemplate"},
	{"workloads", "pods/ephemeralcontainers", "a container that is added has no priority, node or toleration of its own"},
	{"resource-sets", "resourcesetinputproviders", "S9 tries its address"},
	{"resource-sets", "fluxinstances fluxreports", "they configure the platform's Flux, and no role for tenants has them"},
	{"signatures", "helmrepositories", "a HelmRepository has no signature; HelmCharts and HelmReleases have"},
	{"replicators", "clusterrolebindings", "I15 tries the right in one namespace; the rule has one condition for both kinds"},
}

// TestAttacksTryWhatRulesCover checks that an attack of the rule's rows tries every kind that a rule
// covers, or that a reason says why not. It also finds reasons for kinds that an attack tries.
func TestAttacksTryWhatRulesCover(t *testing.T) {
	t.Parallel()
	tried := map[string][]string{}
	for _, a := range Catalogue() {
		for _, kind := range a.Kinds {
			tried[a.ID] = append(tried[a.ID], resourceOf(kind))
		}
	}
	rows := map[string][]string{}
	for _, r := range admission.Rules() {
		rows[r.Name] = r.Rows
	}
	used := map[string]bool{}
	var seen []string
	for _, r := range admission.Requests() {
		resource, _, _ := strings.Cut(r.Resource, ".")
		if key := r.Rule + " " + resource; admission.Unrefused(r) != "" || len(rows[r.Rule]) == 0 || slices.Contains(seen, key) {
			continue
		}
		seen = append(seen, r.Rule+" "+resource)
		rule := strings.TrimPrefix(r.Rule, admission.Prefix)
		excused := false
		for _, u := range untried {
			if u.rule == rule && slices.Contains(strings.Fields(u.resources), resource) {
				excused, used[rule+" "+resource] = true, true
			}
		}
		covered := slices.ContainsFunc(rows[r.Rule], func(id string) bool { return slices.Contains(tried[id], resource) })
		switch {
		case !covered && !excused:
			t.Errorf("rule %s covers %s, which no attack of %q tries: try it, or write a reason", rule, r.Resource, rows[r.Rule])
		case covered && excused:
			t.Errorf("rule %s covers %s, which an attack of %q tries: take the reason out", rule, r.Resource, rows[r.Rule])
		}
	}
	for _, u := range untried {
		for _, resource := range strings.Fields(u.resources) {
			if !used[u.rule+" "+resource] {
				t.Errorf("there is a reason why no attack tries %s of rule %s, which covers no such thing", resource, u.rule)
			}
		}
	}
}

// TestAttackKinds checks that each attack lists the kinds that it tries.
func TestAttackKinds(t *testing.T) {
	t.Parallel()
	for _, a := range Catalogue() {
		if a.Kinds == nil {
			t.Errorf("%s lists no kinds", a.Key())
		}
	}
}
