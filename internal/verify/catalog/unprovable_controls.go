package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unprovableControls returns the parts of the fleet that may contain controls but that this cluster only
// simulates: objects that it assumes to be ready without applying them, and policies that a simulated Pod enforces.
// Objects that a tenant applies to its own namespaces contain no control. For webhooks see [simulatedWebhooks].
func unprovableControls(ctx context.Context, admin client.Reader, tenants []discovery.Tenant) ([]string, error) {
	confined, err := confinedAccounts(ctx, admin, tenants)
	if err != nil {
		return nil, err
	}
	var doubts []string
	for _, kind := range deliverers {
		objects, err := listOf(ctx, admin, kind)
		if err != nil {
			return nil, err
		}
		for _, u := range objects {
			account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName")
			if a, _ := readyCondition(&u); a.message == flux.AssumedMessage && !confined[discovery.Account{Namespace: u.GetNamespace(), Name: account}] {
				doubts = append(doubts, refOf(&u).String()+" (assumed)")
			}
		}
	}
	processes, err := findProcesses(ctx, admin)
	if err != nil {
		return nil, err
	}
	policies, err := enginePolicies(ctx, admin, policyEngines, processes)
	if err != nil {
		return nil, err
	}
	return append(doubts, describeUnenforced(policies)...), nil
}

// confinedAccounts returns the accounts of tenants without a ClusterRoleBinding: they can create no policy
// and no webhook.
func confinedAccounts(ctx context.Context, admin client.Reader, tenants []discovery.Tenant) (map[discovery.Account]bool, error) {
	confined := map[discovery.Account]bool{}
	for _, t := range tenants {
		for _, a := range t.Accounts {
			confined[a] = true
		}
	}
	var bindings rbacv1.ClusterRoleBindingList
	if err := admin.List(ctx, &bindings); err != nil {
		return nil, fmt.Errorf("cannot read the ClusterRoleBindings: %w", err)
	}
	for _, b := range bindings.Items {
		for _, subject := range b.Subjects {
			delete(confined, discovery.Account{Namespace: subject.Namespace, Name: subject.Name})
		}
	}
	return confined, nil
}

// webhookDoubt is a webhook that may stop attacks and that the API server skips here.
type webhookDoubt struct {
	// name is the name of the webhook with the reason why it does not run here.
	name  string
	rules []admissionv1.RuleWithOperations
	// namespaces select the namespaces of its requests, if all of them select one; nil selects every namespace.
	namespaces []*metav1.LabelSelector
	// objects selects the objects of its requests; nil selects every object.
	objects *metav1.LabelSelector
	// conditions are expressions that are all true for its requests.
	conditions []string
}

// concerns reports whether the API server asks the webhook about an object of a kind that the attack tries. Rules name
// resources and attacks name kinds, so that API groups do not count.
func (w webhookDoubt) concerns(a Attack) bool {
	kinds := a.Kinds
	if a.Via == Git {
		kinds = slices.Concat(kinds, everySync)
	}
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool {
		resource, subresource, _ := strings.Cut(resourceOf(kind), "/")
		return slices.ContainsFunc(w.rules, func(r admissionv1.RuleWithOperations) bool {
			return slices.ContainsFunc(r.Resources, func(of string) bool {
				ruled, sub, _ := strings.Cut(of, "/")
				return resource == "*" || (ruled == "*" || ruled == resource) && (sub == "*" || sub == subresource)
			})
		})
	})
}

// clusterScoped are the kinds without a namespace that attacks try: the selectors of namespaces do not apply to their objects,
// except for a Namespace's own labels.
var clusterScoped = []string{
	"*", "APIService", "AdminNetworkPolicy", "ClusterNetworkPolicy", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
	"MutatingWebhookConfiguration", "Namespace", "PersistentVolume", "Tenant", "TenancyProfile", "ValidatingWebhookConfiguration",
}

// inReachOf reports whether the selectors select a namespace in which the attack may have objects: each of the tenant, of
// the platform and of the victim. It returns true if the attack tries a kind without a namespace, or any kind.
func (w webhookDoubt) inReachOf(a Attack, e *Scenario) bool {
	if len(w.namespaces) == 0 || len(a.Kinds) == 0 || slices.ContainsFunc(a.Kinds, func(kind string) bool {
		kind, _, _ = strings.Cut(kind, "/")
		return slices.Contains(clusterScoped, kind)
	}) {
		return true
	}
	return slices.ContainsFunc(e.namespaces, func(ns corev1.Namespace) bool {
		ofOther := slices.ContainsFunc(e.tenants, func(t discovery.Tenant) bool {
			return t.Name != e.Tenant.Name && slices.Contains(t.Namespaces, ns.Name)
		})
		return !ofOther && !slices.ContainsFunc(w.namespaces, func(s *metav1.LabelSelector) bool { return s != nil && !selects(s, ns.Labels) })
	})
}

// dryRunPolicies returns the policies in force that look at whether a request is a dry run. Their answer to an attack in a
// dry run may differ from their answer to a real one.
func dryRunPolicies(ctx context.Context, admin client.Reader) ([]webhookDoubt, error) {
	read, err := readPolicies(ctx, admin)
	if err != nil {
		return nil, err
	}
	var all []webhookDoubt
	add := func(name string, spec any, conditions []admissionv1.MatchCondition, match, of *admissionv1.MatchResources) {
		text, err := json.Marshal(spec)
		if err != nil || !aboutDryRun.Match(text) {
			return
		}
		w := webhookDoubt{name: "policy " + name}
		for _, m := range []*admissionv1.MatchResources{match, of} {
			if m != nil && m.NamespaceSelector != nil {
				w.namespaces = append(w.namespaces, m.NamespaceSelector)
			}
		}
		for _, c := range conditions {
			w.conditions = append(w.conditions, c.Expression)
		}
		if match != nil {
			w.objects = match.ObjectSelector
			for _, r := range match.ResourceRules {
				w.rules = append(w.rules, r.RuleWithOperations)
			}
		}
		all = append(all, w)
	}
	for _, b := range read.bindings.Items {
		for _, p := range read.policies.Items {
			if p.Name == b.Spec.PolicyName && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				add(p.Name, p.Spec, p.Spec.MatchConditions, p.Spec.MatchConstraints, b.Spec.MatchResources)
			}
		}
	}
	for _, b := range read.mutationBindings.Items {
		for _, p := range read.mutations.Items {
			if p.Name == b.Spec.PolicyName {
				add(p.Name, p.Spec, p.Spec.MatchConditions, p.Spec.MatchConstraints, b.Spec.MatchResources)
			}
		}
	}
	everything := []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: []string{"*/*"}}}}
	for _, kind := range slices.Concat(kyvernoPolicies, kyvernoExpressed) {
		of, err := listOfKyverno(ctx, admin, kind)
		if err != nil {
			return nil, err
		}
		for _, policy := range of {
			if text, err := json.Marshal(policy.Object["spec"]); err == nil && aboutDryRun.Match(text) && refuses(policy) {
				all = append(all, webhookDoubt{name: kyvernoPolicy + policy.GetName(), rules: everything})
			}
		}
	}
	return all, nil
}

// aboutDryRun matches an expression that looks at whether a request is a dry run.
var aboutDryRun = regexp.MustCompile(`\brequest\s*\.\s*\??dryRun\b`)

// simulatedWebhooks returns the webhooks with failurePolicy Ignore that the API server skips here, because no process of the
// local cluster serves them. The webhooks of Tenure's quotas are not controls: they move quota, and the quota decides.
func simulatedWebhooks(ctx context.Context, admin client.Reader) ([]webhookDoubt, error) {
	var validating admissionv1.ValidatingWebhookConfigurationList
	var mutating admissionv1.MutatingWebhookConfigurationList
	for _, list := range []client.ObjectList{&validating, &mutating} {
		if err := admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot see the webhooks: %w", err)
		}
	}
	processes, err := findProcesses(ctx, admin)
	if err != nil {
		return nil, err
	}
	services, err := processes.services(ctx, admin)
	if err != nil {
		return nil, err
	}
	var doubts []webhookDoubt
	add := func(name string, config admissionv1.WebhookClientConfig, policy *admissionv1.FailurePolicyType, of webhookDoubt, conditions []admissionv1.MatchCondition) {
		reason := "its controller is simulated"
		switch {
		case config.URL != nil:
			reason = "its address is outside of the cluster"
		case config.Service == nil, services[client.ObjectKey{Namespace: config.Service.Namespace, Name: config.Service.Name}]:
			return
		}
		// These webhooks of Tenure refuse nothing on their own.
		if name == admission.RulesWebhook || strings.HasSuffix(name, "."+admission.QuotaWebhookSuffix) {
			return
		}
		if policy != nil && *policy == admissionv1.Ignore {
			of.name = fmt.Sprintf("webhook %s (%s)", name, reason)
			for _, c := range conditions {
				of.conditions = append(of.conditions, c.Expression)
			}
			doubts = append(doubts, of)
		}
	}
	for _, configuration := range validating.Items {
		for _, hook := range configuration.Webhooks {
			add(hook.Name, hook.ClientConfig, hook.FailurePolicy, webhookDoubt{rules: hook.Rules, namespaces: []*metav1.LabelSelector{hook.NamespaceSelector}, objects: hook.ObjectSelector}, hook.MatchConditions)
		}
	}
	for _, configuration := range mutating.Items {
		for _, hook := range configuration.Webhooks {
			add(hook.Name, hook.ClientConfig, hook.FailurePolicy, webhookDoubt{rules: hook.Rules, namespaces: []*metav1.LabelSelector{hook.NamespaceSelector}, objects: hook.ObjectSelector}, hook.MatchConditions)
		}
	}
	return doubts, nil
}

// kyverno is the only policy engine that the local cluster can run.
const kyverno = "Kyverno"

// policyEngines maps the API groups of policies to the policy engines that enforce them in Pods.
var policyEngines = map[string]string{
	"kyverno.io": kyverno, "policies.kyverno.io": kyverno,
	"constraints.gatekeeper.sh": "Gatekeeper", "mutations.gatekeeper.sh": "Gatekeeper",
	"policies.kubewarden.io": "Kubewarden",
}

// namedPolicies is the maximum number of policies of an engine that a text names.
const namedPolicies = 3

// networkPlugins maps the API groups of policies to the network plugins that enforce them.
var networkPlugins = map[string]string{
	"cilium.io": "Cilium", "crd.projectcalico.org": "Calico", "projectcalico.org": "Calico", "crd.antrea.io": "Antrea",
	tenancy.ClusterPolicyGroup: "the network plugin",
}

// unenforced is a policy that its engine does not enforce here, and why.
type unenforced struct {
	policy unstructured.Unstructured
	reason string
}

// enginePolicies returns the policies that engines would enforce but do not enforce here.
// engines maps API groups of policies to engines.
func enginePolicies(ctx context.Context, admin client.Reader, engines map[string]string, processes processes) ([]unenforced, error) {
	crds := &unstructured.UnstructuredList{}
	crds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := admin.List(ctx, crds); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cannot see the kinds of policies: %w", err)
	}
	var all []unenforced
	for _, crd := range crds.Items {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		engine, ok := engines[group]
		if !ok {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: servedVersion(crd), Kind: kindOf(crd)})
		if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("cannot see the policies of %s: %w", engine, err)
		}
		for _, policy := range list.Items {
			if !refuses(policy) {
				continue
			}
			if reason := notEnforced(engine, policy, processes); reason != "" {
				all = append(all, unenforced{policy, reason})
			}
		}
	}
	return all, nil
}

// describeUnenforced returns a text for each reason, with the policies.
func describeUnenforced(all []unenforced) []string {
	byReason := map[string][]string{}
	for _, u := range all {
		byReason[u.reason] = append(byReason[u.reason], u.policy.GetKind()+" "+strings.TrimPrefix(u.policy.GetNamespace()+"/"+u.policy.GetName(), "/"))
	}
	var doubts []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		doubts = append(doubts, someOf(byReason[reason])+" ("+reason+")")
	}
	return doubts
}

// networkDoubtsOf describes the policies of network plugins that may isolate Pods of a namespace: those in it, and
// those of the cluster.
func (e *Scenario) networkDoubtsOf(namespace string) []string {
	return describeUnenforced(slices.DeleteFunc(slices.Clone(e.networkDoubts), func(u unenforced) bool {
		return u.policy.GetNamespace() != "" && u.policy.GetNamespace() != namespace
	}))
}

// someOf returns the names of the first policies, sorted, and the number of the others.
func someOf(policies []string) string {
	slices.Sort(policies)
	more := ""
	if len(policies) > namedPolicies {
		more = fmt.Sprintf(" and %d more", len(policies)-namedPolicies)
		policies = policies[:namedPolicies]
	}
	return strings.Join(policies, ", ") + more
}

// notEnforced returns the reason why an engine does not enforce a policy here, or "".
func notEnforced(engine string, policy unstructured.Unstructured, processes processes) string {
	switch {
	case engine == kyverno && processes.run("kyverno") && verifiesImages(policy):
		return "it asks registries, which are not here"
	case engine == kyverno && processes.run("kyverno"):
		return ""
	case engine == kyverno:
		return "Kyverno does not run here; if `make kyverno` has built it, its release is not ready"
	}
	return engine + " does not run here"
}

// verifiesImages reports whether a policy of Kyverno verifies signatures of images.
func verifiesImages(policy unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "rules")
	return strings.HasSuffix(policy.GetKind(), "ImageValidatingPolicy") || slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		return fields["verifyImages"] != nil
	})
}

func kindOf(crd unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return kind
}

// servedVersion returns a version of a kind that the API server serves.
func servedVersion(crd unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		fields, _ := version.(map[string]any)
		if served, _, _ := unstructured.NestedBool(fields, "served"); served {
			name, _, _ := unstructured.NestedString(fields, "name")
			return name
		}
	}
	return ""
}

// refuses reports whether an engine may refuse or change a request by a policy, and does not only report
// it. The fields are those of Kyverno's ClusterPolicy and Policy, which audit unless a field says Enforce,
// and of Gatekeeper's constraints, which deny unless a field says otherwise. For other kinds it returns
// true.
func refuses(policy unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(policy.Object, "spec")
	text := func(fields map[string]any, at ...string) string {
		value, _, _ := unstructured.NestedString(fields, at...)
		return strings.ToLower(value)
	}
	switch group, kind := policy.GroupVersionKind().Group, policy.GetKind(); {
	case group == "constraints.gatekeeper.sh":
		action := text(spec, "enforcementAction")
		return action != "dryrun" && action != "warn"
	case group == "kyverno.io" && (kind == "ClusterPolicy" || kind == "Policy"):
		enforces := text(spec, "validationFailureAction") == "enforce"
		overrides, _, _ := unstructured.NestedSlice(spec, "validationFailureActionOverrides")
		rules, _, _ := unstructured.NestedSlice(spec, "rules")
		return enforces || len(overrides) > 0 || slices.ContainsFunc(rules, func(rule any) bool {
			fields, _ := rule.(map[string]any)
			return text(fields, "validate", "failureAction") == "enforce" || fields["mutate"] != nil || fields["generate"] != nil
		})
	case group == "kyverno.io", group == "policies.kyverno.io" && (kind == "PolicyException" || strings.HasSuffix(kind, "DeletingPolicy")):
		// Reports, exceptions and scheduled deletions refuse nothing.
		return false
	case group == "policies.kyverno.io" && strings.HasSuffix(kind, "ValidatingPolicy"):
		actions, found, _ := unstructured.NestedStringSlice(spec, "validationActions")
		return !found || slices.Contains(actions, "Deny")
	case group == tenancy.ClusterPolicyGroup:
		// W8 and W12 judge the other policies.
		return kind == "BaselineAdminNetworkPolicy" || text(spec, "tier") == "baseline"
	case networkPlugins[group] != "":
		// These plugins also have other kinds, such as address pools.
		return strings.HasSuffix(kind, "NetworkPolicy")
	}
	return true
}

// admission reports whether an admission policy may stop the attack. It returns false if only the tenant's
// rights, Flux's flags or the proxy can stop the attack.
func (a Attack) admission() bool {
	return a.Via != Proxy && slices.ContainsFunc(a.Controls, func(control string) bool {
		return !strings.HasPrefix(control, "RBAC") && !strings.HasPrefix(control, "flag ")
	})
}
