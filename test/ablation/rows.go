package ablation

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// Rows returns the controls of the example fleet in the order of their removal. For each new attack that
// one of them stops, add the attack's key to the row of the control, or add a row.
func Rows() []Row {
	return []Row{
		singleControl(flag("kustomize-controller", "--no-cross-namespace-refs"), "S1-api"),
		{
			Controls: []Control{
				layer(flag("kustomize-controller", "--default-service-account"), "flag --default-service-account of kustomize-controller"),
				layer(policy("service-account-names"), "policy that demands spec.serviceAccountName"),
			},
			Attacks: []string{"I1-api"}, Also: []string{"I13-api"},
		},
		singleControl(flag("kustomize-controller", "--no-remote-bases"), "S7-git"),
		singleControl(flag("helm-controller", "--no-cross-namespace-refs"), "S1-api-HelmRelease"),
		{
			Controls: []Control{
				layer(flag("helm-controller", "--default-service-account"), "flag --default-service-account of helm-controller"),
				layer(policy("service-account-names"), "policy that demands spec.serviceAccountName"),
			},
			Attacks: []string{"I1-api-HelmRelease"}, Also: []string{"I13-api"},
		},
		singleControl(flag("notification-controller", "--no-cross-namespace-refs"), "N1-api", "N2-api"),
		singleControl(policy("service-account-names"), "I13-api"),
		singleControl(policy("git-sources"), "S9-api"),
		singleControl(policy("other-sources"), "S9-api"),
		singleControl(quotas(), "A2-api"),
		singleControl(networkPolicies(), "W8-api"),
		singleControl(podSecurity(), "W3-api", "W3-git", "W11-api", "W11-git"),

		singleControl(role("bind", everywhere,
			allow([]string{"get", "create", "patch", "delete"}, rbacv1.GroupName, "clusterrolebindings"),
			allow([]string{"bind"}, rbacv1.GroupName, "clusterroles")), "I4-api", "I4-git", "I4-git-HelmRelease"),
		singleControl(role("escalate", everywhere, allow([]string{"create", "escalate"}, rbacv1.GroupName, "roles")), "I3-api", "I4-api"),
		singleControl(role("create rolebindings", within, allow([]string{"create"}, rbacv1.GroupName, "rolebindings")), "I4-api-RoleBinding"),
		singleControl(role("impersonate", within, allow([]string{"impersonate"}, "", "serviceaccounts")), "I8-api"),
		singleControl(role("create serviceaccounts/token", within, allow([]string{"create"}, "", "serviceaccounts/token")), "I8-api"),
		singleControl(role("patch its namespaces", within, allow([]string{"update", "patch"}, "", "namespaces")), "I6-api", "I18-api"),
		singleControl(role("patch namespaces/status", within, allow([]string{"update", "patch"}, "", "namespaces/status")), "I6-api"),
		singleControl(role("update namespaces/finalize", within, allow([]string{"update"}, "", "namespaces/finalize")), "I6-api"),
		singleControl(role("patch quotas", within, allow([]string{"update", "patch"}, "", "resourcequotas")), "A5-api", "W1-api"),
		singleControl(role("patch the status of Flux objects", within, allow([]string{"update", "patch"}, "source.toolkit.fluxcd.io", "gitrepositories/status")), "S4-api"),
		singleControl(role("create endpointslices", within, allow([]string{"create", "get", "patch", "delete"}, "discovery.k8s.io", "endpointslices")), "W9-api", "W9-git"),
		singleControl(role("create events", within, allow([]string{"create"}, "", "events")), "N7-api"),
		singleControl(role("create externalartifacts", within, allow([]string{"create"}, "source.toolkit.fluxcd.io", "externalartifacts")), "S3-api"),
		singleControl(role("create and patch namespaces of any name", everywhere, allow([]string{"get", "create", "patch", "delete"}, "", "namespaces")), "I5-api", "A2-api", "I5-git", "I5-git-HelmRelease", "I6-api", "I7-api", "I16-api", "I18-api", "I20-api", "I21-api-labels"),
		singleControl(changeBindings(), "I17-api"),
		singleControl(role("create customresourcedefinitions", everywhere, allow([]string{"create"}, "apiextensions.k8s.io", "customresourcedefinitions")), "I5-api"),

		singleControl(bound("in every namespace, by a ClusterRoleBinding", everywhere), "I1-git", "I3-api", "I3-git", "I8-api", "I11-api", "I11-api-HelmRelease", "I11-api-HelmRelease-storage", "I11-git", "W2-api"),
		singleControl(bound("in the platform's namespace", platform), "I3-api", "I8-api", "W2-api"),
		singleControl(bound("in another tenant's namespace", neighbour), "I12-api"),
		singleControl(privileged(), "I2-api"),
	}
}

// Excluded returns the attacks without a row, by key, with the reasons. An attack without a row that is not
// in the list of exclusions gets through on plain Flux if a rule of Tenure names it.
func Excluded() map[string]Exclusion {
	excluded, inRow := listedExclusions(), map[string]bool{}
	for _, row := range Rows() {
		for _, key := range row.Attacks {
			inRow[key] = true
		}
	}
	for _, r := range admission.Rules() {
		for _, key := range attacksOf(r) {
			if _, listed := excluded[key]; !listed && !inRow[key] {
				excluded[key] = Exclusion{Reason: "no control on plain Flux", Through: true}
			}
		}
	}
	return excluded
}

// attacksOf returns the keys of the attacks that a rule names, without those through the proxy.
func attacksOf(r admission.Rule) []string {
	var keys []string
	for _, a := range catalog.Catalogue() {
		if slices.Contains(r.Rows, a.ID) && a.Via != catalog.Proxy {
			keys = append(keys, a.Key())
		}
	}
	return keys
}

// listedExclusions returns the exclusions with reasons of their own.
func listedExclusions() map[string]Exclusion {
	// The local cluster never sets these flags for a process on this machine.
	never := Exclusion{Reason: "local processes do not get the flag; a unit test sets it"}
	fixed := Exclusion{Reason: "Flux or Kubernetes has fixed the bug: the attack shows that it stays fixed"}
	absent := Exclusion{Reason: "the example lacks the target of the attack"}
	keys := Exclusion{Reason: "a key is a file of the fleet; TestVerifyExample shares one"}
	images := Exclusion{Reason: "no image automation in the example; TestVerifyImageAutomation removes its controls"}
	proxy := Exclusion{Reason: "the example has no proxy"}
	return map[string]Exclusion{
		"A3-api-shard":                 {Reason: "the example has no shards"},
		"A5-api-workloads":             absent,
		"A6-api":                       fixed,
		"A7-api":                       absent,
		"A8-proxy":                     proxy,
		"A9-api":                       absent,
		"A9-api-Tenant":                absent,
		"S2-api":                       absent,
		"W15-api":                      absent,
		"S8-git":                       fixed,
		"S8-git-loop":                  fixed,
		"S10-git":                      keys,
		"S10-git-shared":               keys,
		"S11-api":                      absent,
		"S15-git":                      {Reason: "no control on plain Flux", Through: true},
		"S16-git":                      {Reason: "no control on plain Flux", Through: true},
		"S14-api":                      {Reason: "the example demands no signatures"},
		"S12-api":                      absent,
		"I8-proxy":                     proxy,
		"I24-api":                      absent,
		"I15-api":                      absent,
		"I15-api-TenantResource":       absent,
		"I15-api-manager":              absent,
		"I25-api":                      absent,
		"I22-api":                      {Reason: "the example has none of Tenure's rules, which could warn"},
		"I12-proxy":                    proxy,
		"I13-proxy":                    proxy,
		"I14-proxy":                    proxy,
		"W2-proxy":                     proxy,
		"I13-api-TLS":                  never,
		"I13-api-exec":                 never,
		"N6-api":                       absent,
		"I26-api":                      absent,
		"I26-api-copyFrom":             absent,
		"I26-api-dependsOn":            absent,
		"W12-api":                      absent,
		"W12-git":                      absent,
		"S1-api-ImagePolicy":           images,
		"S1-api-ImageUpdateAutomation": images,
	}
}

// changeBindings returns the control that the tenant's role lacks a right on admission
// policies.
func changeBindings() Control {
	return role("patch bindings of admission policies", everywhere,
		allow([]string{"patch"}, "admissionregistration.k8s.io", "validatingadmissionpolicybindings"))
}

func singleControl(c Control, attacks ...string) Row {
	return Row{Controls: []Control{c}, Attacks: attacks}
}

func layer(c Control, name string) Control {
	c.Layer = name
	return c
}

func allow(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}
