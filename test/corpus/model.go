package corpus

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/ablation"
	rbacv1 "k8s.io/api/rbac/v1"
)

// state holds the controls of a fleet that apply to a tenant. The model computes the attacks that get
// through from the controls alone, and shares no code with the attacks.
type state struct {
	flags    map[string]bool // CONTROLLER FLAG
	policies map[string]bool // POLICY/VALIDATION/RESOURCE/OPERATION
	labels   map[string]bool
	quotas   map[string]bool
	rules    []rbacv1.PolicyRule
	// everywhere are the rules that apply in other namespaces too.
	everywhere []rbacv1.PolicyRule
	// outside is set if the account, the source and the sync are in a namespace of the platform. The
	// tenant's own Flux objects name accounts of their own namespace, so they do not have the rights of
	// that account.
	outside bool
	// nameless is set if the sync names no account.
	nameless bool
}

func stateOf(c ablation.Controls) state {
	s := state{flags: map[string]bool{}, policies: map[string]bool{}, labels: map[string]bool{}, quotas: map[string]bool{}, rules: c.Rules, outside: c.Outside, nameless: c.Nameless}
	for controller, flags := range c.Flags {
		for _, flag := range flags {
			s.flags[controller+" "+flag] = true
		}
	}
	for _, p := range c.Policies {
		for i := range p.Spec.Validations {
			for _, rule := range p.Spec.MatchConstraints.ResourceRules {
				for _, resource := range rule.Resources {
					for _, operation := range rule.Operations {
						s.policies[policyKey(p.Name, i, resource, string(operation))] = true
					}
				}
			}
		}
	}
	for _, label := range c.Labels {
		s.labels[label] = true
	}
	for _, quota := range c.Quotas {
		s.quotas[quota] = true
	}
	return s
}

func policyKey(policy string, validation int, resource, operation string) string {
	return strings.Join([]string{policy, strconv.Itoa(validation), resource, operation}, "/")
}

// with returns the state of a mutant.
func (s state) with(e ablation.Effect) state {
	without := func(from map[string]bool, drop func(string) bool) map[string]bool {
		kept := map[string]bool{}
		for key := range from {
			kept[key] = !drop(key)
		}
		return kept
	}
	s.flags = without(s.flags, func(key string) bool { return key == e.Controller+" "+e.Flag })
	s.labels = without(s.labels, func(key string) bool { return key == e.Label })
	s.quotas = without(s.quotas, func(key string) bool { return key == e.Quota })
	s.policies = without(s.policies, func(key string) bool {
		if e.Label == v1alpha1.LabelFluxTenant {
			return true // the bindings of the corpus select namespaces by this label
		}
		parts := strings.Split(key, "/")
		return e.Policy == parts[0] && (e.Validation < 0 || parts[1] == strconv.Itoa(e.Validation)) &&
			(e.Resource == "" || e.Resource == parts[2]) && (e.Operation == "" || e.Operation == parts[3])
	})
	s.rules = slices.Concat(s.rules, e.Rules, e.Everywhere)
	s.everywhere = slices.Concat(s.everywhere, e.Everywhere)
	return s
}

// may reports whether rules allow a verb on a resource, as RBAC does.
func may(rules []rbacv1.PolicyRule, verb, group, resource string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		has := func(list []string, item string) bool {
			return slices.Contains(list, "*") || slices.Contains(list, item)
		}
		return has(r.Verbs, verb) && has(r.APIGroups, group) && has(r.Resources, resource)
	})
}

const (
	kustomizeGroup    = "kustomize.toolkit.fluxcd.io"
	helmGroup         = "helm.toolkit.fluxcd.io"
	sourceGroup       = "source.toolkit.fluxcd.io"
	notificationGroup = "notification.toolkit.fluxcd.io"
)

// countedResources are the kinds of Flux that the clusters of the corpus serve.
var countedResources = map[string][]string{
	kustomizeGroup:    {"kustomizations"},
	helmGroup:         {"helmreleases"},
	sourceGroup:       {"gitrepositories", "helmrepositories", "helmcharts", "ocirepositories", "buckets"},
	notificationGroup: {"alerts", "providers", "receivers"},
}

// open returns, for all attacks that mutants of the corpus can turn, whether no control stops the attack.
// The policies are the policies of the fleet company; the author of the table of the attacks that a
// validation stops read the validations.
func (s state) open() map[string]bool {
	in := func(verb, group, resource string) bool { return may(s.rules, verb, group, resource) }
	out := func(verb, group, resource string) bool { return may(s.everywhere, verb, group, resource) }
	flag := func(controller, name string) bool { return s.flags[controller+" "+name] }
	syncs, releases := in("create", kustomizeGroup, "kustomizations"), in("create", helmGroup, "helmreleases")
	// A tenant that creates objects may also change them.
	held := func(policy string, validation int, resource string) bool {
		return s.policies[policyKey(policy, validation, resource, "CREATE")] && s.policies[policyKey(policy, validation, resource, "UPDATE")]
	}
	source := func(resource string) bool {
		return in("create", sourceGroup, resource) && !held("sources", 0, resource)
	}
	alerts := in("create", notificationGroup, "alerts") && in("create", notificationGroup, "providers")
	receivers := in("create", notificationGroup, "receivers")
	writes := func(group, resource string) bool {
		return in("patch", group, resource) || in("deletecollection", group, resource)
	}
	namespace := in("patch", "", "namespaces")
	flagged := "--no-cross-namespace-refs"
	runs, runsEverywhere, applied := false, false, false
	// Flux uses server-side apply: a patch, which creates a missing object.
	applies := func(group, resource string) bool {
		return in("create", group, resource) && in("patch", group, resource)
	}
	for _, w := range [][2]string{
		{"", "pods"}, {"", "replicationcontrollers"}, {"apps", "deployments"}, {"apps", "replicasets"}, {"apps", "statefulsets"}, {"apps", "daemonsets"}, {"batch", "jobs"}, {"batch", "cronjobs"},
	} {
		runs, applied = runs || in("create", w[0], w[1]), applied || applies(w[0], w[1])
		// A change of a workload runs the tenant's program as the account of its Pods.
		runsEverywhere = runsEverywhere || out("create", w[0], w[1]) || out("update", w[0], w[1]) || out("patch", w[0], w[1])
	}
	accounts := in("patch", "", "serviceaccounts")
	charts := in("create", sourceGroup, "helmcharts")
	anySource := in("create", sourceGroup, "gitrepositories") || in("create", sourceGroup, "helmrepositories") ||
		in("create", sourceGroup, "ocirepositories") || in("create", sourceGroup, "buckets")
	namespaces := out("create", "", "namespaces") && out("patch", "", "namespaces")
	binds := out("create", rbacv1.GroupName, "clusterrolebindings") && out("bind", rbacv1.GroupName, "clusterroles")
	// If neither the sync nor a flag names an account, Flux applies as the controller.
	delivers := s.nameless && !flag("kustomize-controller", "--default-service-account")
	installs := s.nameless && releases && !flag("helm-controller", "--default-service-account")
	// A right to the platform's Flux objects is a right to name another account or source.
	syncsElsewhere := false
	for _, k := range [][2]string{
		{kustomizeGroup, "kustomizations"}, {helmGroup, "helmreleases"}, {sourceGroup, "gitrepositories"}, {sourceGroup, "ocirepositories"}, {sourceGroup, "helmrepositories"}, {sourceGroup, "buckets"},
	} {
		syncsElsewhere = syncsElsewhere || out("patch", k[0], k[1]) || out("update", k[0], k[1])
	}
	mutates := out("create", "admissionregistration.k8s.io", "mutatingadmissionpolicies") || out("create", "admissionregistration.k8s.io", "mutatingadmissionpolicybindings")
	policies := slices.Contains(slices.Collect(maps.Values(s.policies)), true)
	// In its own namespace a tenant may give itself all rights, unless it has them anyway.
	escalates := (in("create", rbacv1.GroupName, "roles") || in("patch", rbacv1.GroupName, "roles")) && in("escalate", rbacv1.GroupName, "roles") ||
		in("create", rbacv1.GroupName, "rolebindings") && in("bind", rbacv1.GroupName, "clusterroles")
	everything := in("*", "*", "*")
	status := false
	for _, k := range [][2]string{
		{sourceGroup, "gitrepositories"}, {sourceGroup, "helmrepositories"}, {sourceGroup, "ocirepositories"}, {sourceGroup, "buckets"}, {sourceGroup, "helmcharts"},
		{kustomizeGroup, "kustomizations"}, {helmGroup, "helmreleases"}, {notificationGroup, "receivers"},
	} {
		status = status || in("patch", k[0], k[1]+"/status")
	}
	return map[string]bool{
		"I1-api":             syncs && !flag("kustomize-controller", "--default-service-account") && !held("accounts", 0, "kustomizations"),
		"I1-api-HelmRelease": releases && !flag("helm-controller", "--default-service-account") && !held("accounts", 0, "helmreleases"),
		"S1-api":             syncs && !flag("kustomize-controller", flagged),
		"S1-api-HelmRelease": releases && !flag("helm-controller", flagged),
		"N1-api":             alerts && !flag("notification-controller", flagged),
		"N2-api":             receivers && !flag("notification-controller", flagged),
		"S7-git":             !flag("kustomize-controller", "--no-remote-bases"),
		"S15-git":            true, // none of the mutated fleets limits the hosts that kustomize-controller reaches
		"S16-git":            true, // or what it fetches there

		"I13-api":            syncs && !held("accounts", 1, "kustomizations") || releases && !held("accounts", 1, "helmreleases"),
		"S5-api":             syncs && !held("dependencies", 0, "kustomizations"),
		"S5-api-HelmRelease": releases && !held("dependencies", 0, "helmreleases"),
		"S9-api":             source("gitrepositories") || source("helmrepositories") || source("ocirepositories") || source("buckets"),
		"N3-api":             receivers && !held("receivers", 0, "receivers"),

		"W3-api":  runs && !s.labels["pod-security.kubernetes.io/enforce"],
		"W4-api":  in("create", "", "services"),
		"W5-api":  in("create", "networking.k8s.io", "ingresses"),
		"W13-api": in("create", "networking.k8s.io", "ingresses") || in("create", "", "services"),
		"W6-api":  in("create", "", "persistentvolumeclaims") || runs,
		"W7-api":  runs,
		"W8-api":  true, // no fleet of the corpus has a NetworkPolicy
		"W9-api":  in("create", "discovery.k8s.io", "endpointslices") || in("create", "", "endpoints") || in("patch", "", "pods/status") || in("update", "", "pods/status"),
		"W10-api": runs,
		"W14-api": runs,
		"W11-api": runs && !s.labels["pod-security.kubernetes.io/enforce"],
		"W3-git":  (applied || delivers) && !s.labels["pod-security.kubernetes.io/enforce"],
		"W4-git":  applies("", "services") || delivers,
		"W5-git":  applies("networking.k8s.io", "ingresses") || delivers,
		"W13-git": applies("networking.k8s.io", "ingresses") || delivers,
		"W6-git":  applies("", "persistentvolumeclaims") || delivers,
		"W7-git":  applied || delivers,
		"W9-git":  applies("discovery.k8s.io", "endpointslices") || delivers,
		"W10-git": applied || delivers,
		"W14-git": applied || delivers,
		"W16-api": in("create", "", "configmaps") || in("create", "", "secrets"),
		"W16-git": applies("", "configmaps") || delivers,
		"W11-git": (applied || delivers) && !s.labels["pod-security.kubernetes.io/enforce"],
		"A2-api":  s.uncounted() || namespaces,

		"A1-api":                syncs || releases || anySource || charts,
		"A3-api":                syncs || releases || anySource,
		"A4-api":                in("create", "", "configmaps") || in("create", "", "pods"),
		"I9-api":                runs && !s.outside,
		"I10-api":               (in("patch", kustomizeGroup, "kustomizations") || in("patch", sourceGroup, "gitrepositories")) && !s.outside || syncsElsewhere,
		"I19-api":               in("create", sourceGroup, "gitrepositories") || source("helmrepositories") || source("ocirepositories") || source("buckets"),
		"I19-api-Kustomization": syncs,
		"N7-api":                in("create", "", "events"),
		"N4-api":                in("create", notificationGroup, "providers"),
		"N5-api":                in("create", "", "secrets"),
		"S13-api":               releases || charts,

		"A5-api":                writes("", "resourcequotas") && len(s.quotas) > 0 || writes(rbacv1.GroupName, "rolebindings"),
		"W1-api":                writes("", "resourcequotas") && len(s.quotas) > 0,
		"A5-api-ServiceAccount": accounts && !s.outside || out("patch", "", "serviceaccounts"),
		"I23-api":               accounts && !s.outside,
		"I8-api": in("create", "", "serviceaccounts/token") || in("impersonate", "", "serviceaccounts") || out("impersonate", "", "groups") || runsEverywhere ||
			out("create", "", "pods/exec") || out("patch", "", "pods/ephemeralcontainers") || out("update", "", "pods/ephemeralcontainers"),
		"I8-api-Secret":      in("create", "", "secrets") && !s.outside,
		"I6-api":             namespace || in("patch", "", "namespaces/status") || in("update", "", "namespaces/finalize"),
		"I18-api":            namespace,
		"S3-api":             in("create", sourceGroup, "externalartifacts"),
		"S4-api":             status,
		"I4-api-RoleBinding": in("create", rbacv1.GroupName, "rolebindings"),

		"I1-git":                      out("create", "", "configmaps") || delivers,
		"I3-api":                      s.writesElsewhere(),
		"I3-git":                      out("create", kustomizeGroup, "kustomizations") && out("patch", kustomizeGroup, "kustomizations") || delivers,
		"I11-api":                     out("create", "", "configmaps") && syncs && !s.outside,
		"I11-git":                     out("create", "", "configmaps") || delivers,
		"I11-api-HelmRelease":         out("create", "", "configmaps") && releases && !s.outside,
		"I11-api-HelmRelease-storage": out("create", "", "secrets") && releases && !s.outside,
		"W2-api": out("list", "", "configmaps") || out("list", "", "secrets") || out("create", "", "pods/exec") || out("get", "", "pods/log") ||
			out("patch", "", "pods/ephemeralcontainers") || out("update", "", "pods/ephemeralcontainers") || out("create", "", "nodes/proxy") || out("list", "", "pods"),

		"I4-api": binds || out("patch", rbacv1.GroupName, "clusterrolebindings") && out("bind", rbacv1.GroupName, "clusterroles") ||
			(out("create", rbacv1.GroupName, "clusterroles") || out("patch", rbacv1.GroupName, "clusterroles")) && out("escalate", rbacv1.GroupName, "clusterroles") || escalates && !everything,
		"I4-git":             binds || delivers,
		"I4-git-HelmRelease": binds && releases || installs,
		"I5-api": namespaces || out("create", "apiextensions.k8s.io", "customresourcedefinitions") ||
			out("patch", "apiextensions.k8s.io", "customresourcedefinitions") || out("create", "apiregistration.k8s.io", "apiservices") || out("patch", "apiregistration.k8s.io", "apiservices") ||
			mutates || out("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations") || out("patch", "", "nodes") || out("patch", "", "nodes/status") || out("patch", "", "persistentvolumes"),
		"I5-git":             namespaces || delivers,
		"I5-git-HelmRelease": namespaces && releases || installs,
		"I7-api":             namespaces,
		"I16-api":            namespaces,
		"I20-api":            namespaces,
		"I21-api-labels":     namespaces,
		"I17-api":            policies && out("patch", "admissionregistration.k8s.io", "validatingadmissionpolicybindings") || out("create", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
	}
}

// notOfNamespaces are resources of the cluster, and those that change no object of a namespace.
var notOfNamespaces = []string{
	"namespaces", "namespaces/status", "namespaces/finalize", "nodes", "nodes/status", "persistentvolumes", "clusterroles", "clusterrolebindings", "customresourcedefinitions", "apiservices",
	"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "leases", "events",
}

// writesElsewhere reports whether the tenant may write objects in all namespaces.
func (s state) writesElsewhere() bool {
	writes := []string{"*", "create", "update", "patch", "delete", "deletecollection"}
	return slices.ContainsFunc(s.everywhere, func(r rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(r.Verbs, func(verb string) bool { return slices.Contains(writes, verb) }) &&
			slices.ContainsFunc(r.Resources, func(resource string) bool { return !slices.Contains(notOfNamespaces, resource) })
	})
}

// uncounted reports whether the tenant may create objects of a kind of Flux that no quota
// counts.
func (s state) uncounted() bool {
	for group, resources := range countedResources {
		for _, resource := range resources {
			if may(s.rules, "create", group, resource) && !s.quotas["count/"+resource+"."+group] {
				return true
			}
		}
	}
	return false
}

// Turned returns the attacks that a mutant must turn from stopped to got through, sorted.
func Turned(c ablation.Controls, e ablation.Effect) []string {
	base := stateOf(c)
	before, after := base.open(), base.with(e).open()
	turned := []string{}
	for row, open := range after {
		if open && !before[row] {
			turned = append(turned, row)
		}
	}
	slices.Sort(turned)
	return turned
}

// hasRights reports whether a mutant adds only rights that the tenant already has.
func hasRights(c ablation.Controls, e ablation.Effect) bool {
	for _, rule := range e.Rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					if !may(c.Rules, verb, group, resource) {
						return false
					}
				}
			}
		}
	}
	return len(e.Rules) > 0
}
