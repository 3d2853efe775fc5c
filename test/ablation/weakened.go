package ablation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podSecurity returns the control that the tenant's namespaces have a Pod Security level.
func podSecurity() Control {
	const key = "pod-security.kubernetes.io/enforce"
	return label(key, awaited[key])
}

// selected reports whether a binding selects namespaces by a label.
func (c Controls) selected(key string) bool {
	for _, b := range c.Bindings {
		if b.Spec.MatchResources == nil || b.Spec.MatchResources.NamespaceSelector == nil {
			continue
		}
		if _, ok := b.Spec.MatchResources.NamespaceSelector.MatchLabels[key]; ok {
			return true
		}
		for _, e := range b.Spec.MatchResources.NamespaceSelector.MatchExpressions {
			if e.Key == key {
				return true
			}
		}
	}
	return false
}

// selectedBy waits until bindings that select namespaces by a label select the tenant's namespace, or no
// longer select it.
func (t *target) selectedBy(ctx context.Context, key string, want bool) error {
	const name = sentinel + "-selected"
	configMaps := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{configMaps}},
		Validations:      []admissionv1.Validation{{Expression: "object.metadata.name != '" + name + "'"}},
	}}
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}},
		}},
	}}
	err := errors.Join(t.admin.Create(ctx, p), t.admin.Create(ctx, b), t.policiesInForce(ctx))
	if err == nil {
		err = poll(ctx, "policies to follow the label "+key, func() (bool, error) {
			err := t.admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: t.home(), Name: name}}, client.DryRunAll)
			if err == nil || apierrors.IsInvalid(err) {
				return want == (err != nil), nil
			}
			return false, err
		})
	}
	done := context.WithoutCancel(ctx)
	return errors.Join(err, client.IgnoreNotFound(t.admin.Delete(done, b)), client.IgnoreNotFound(t.admin.Delete(done, p)))
}

// bindingMutants returns the mutants of the parts of a policy other than its expressions: operations, match
// conditions and failure policy, and the actions, namespaces and parameters of its binding.
func bindingMutants(p admissionv1.ValidatingAdmissionPolicy) []Mutant {
	off, none := Effect{Policy: p.Name, Validation: -1}, Effect{Validation: -1}
	all := []Mutant{
		{rebound(p.Name, "action Deny of policy "+p.Name+", which becomes Audit", func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}), off},
		{rebound(p.Name, "action Deny of policy "+p.Name+", which becomes Warn", func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}), off},
		{rebound(p.Name, "tenant's namespaces in the binding of policy "+p.Name, func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{sentinel: "none"}}}
		}), off},
		{rebound(p.Name, "selector of namespaces of policy "+p.Name, func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			spec.MatchResources = nil
		}), none},
		{rewritten(p.Name, "match conditions of policy "+p.Name+" that are true", "a condition is false", func(spec *admissionv1.ValidatingAdmissionPolicySpec) {
			spec.MatchConditions = append(spec.MatchConditions, admissionv1.MatchCondition{Name: sentinel, Expression: "false"})
		}), off},
		{rewritten(p.Name, "failure policy Fail of policy "+p.Name, "it is Ignore", ignoreFailures), none},
	}
	// Without CREATE, a policy still prevents Flux from adding its finalizer to a refused object, so some
	// attacks would wait for Flux.
	all = append(all, Mutant{
		rewritten(p.Name, "operation UPDATE in policy "+p.Name, "the policy matches CONNECT in its place", func(spec *admissionv1.ValidatingAdmissionPolicySpec) {
			for i := range spec.MatchConstraints.ResourceRules {
				operations := spec.MatchConstraints.ResourceRules[i].Operations
				if at := slices.Index(operations, admissionv1.Update); at >= 0 {
					operations[at] = admissionv1.Connect
				}
			}
		}),
		Effect{Policy: p.Name, Validation: -1, Operation: string(admissionv1.Update)},
	})
	if p.Spec.ParamKind == nil {
		return all
	}
	// If a policy that fails closed has no parameter, it refuses everything, which is not weaker.
	withoutParameter := func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) { spec.ParamRef = nil }
	return append(all,
		Mutant{rebound(p.Name, "action Deny of policy "+p.Name+" without its parameter", func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			allow := admissionv1.AllowAction
			spec.ParamRef.Name, spec.ParamRef.ParameterNotFoundAction = sentinel+"-none", &allow
		}), off},
		Mutant{together("failure policy Fail of policy "+p.Name+" without its parameter",
			rebound(p.Name, "", withoutParameter), rewritten(p.Name, "", "", ignoreFailures)), off},
	)
}

func ignoreFailures(spec *admissionv1.ValidatingAdmissionPolicySpec) {
	ignore := admissionv1.Ignore
	spec.FailurePolicy = &ignore
}

// together returns a control that removes two controls at once.
func together(name string, first, second Control) Control {
	return Control{Name: name, Away: "both are gone", remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
		one, err := first.remove(ctx, t)
		if err != nil {
			return one, err
		}
		two, err := second.remove(ctx, t)
		return func(ctx context.Context) error { return errors.Join(two(ctx), one(ctx)) }, err
	}}
}

// rebound returns the control that is removed by a change of the spec of a policy's binding.
func rebound(policy, name string, change func(*admissionv1.ValidatingAdmissionPolicyBindingSpec)) Control {
	return Control{Name: name, Away: "the binding is changed", remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
		key := client.ObjectKey{Name: policy}
		var before *admissionv1.ValidatingAdmissionPolicyBindingSpec
		set := func(ctx context.Context, change func(*admissionv1.ValidatingAdmissionPolicyBindingSpec)) error {
			t.unsettled = true
			b := &admissionv1.ValidatingAdmissionPolicyBinding{}
			return t.change(ctx, key, b, func() error {
				if before == nil {
					before = b.Spec.DeepCopy()
				}
				change(&b.Spec)
				return nil
			})
		}
		restore := func(ctx context.Context) error {
			if before == nil {
				return nil
			}
			return set(ctx, func(spec *admissionv1.ValidatingAdmissionPolicyBindingSpec) { *spec = *before.DeepCopy() })
		}
		return restore, set(ctx, change)
	}}
}

// accountLabels returns the mutants in which the tenant's account lacks a label: discovery reads the label,
// and no attack depends on it.
func accountLabels(found Controls) []Mutant {
	var all []Mutant
	for _, key := range found.AccountLabels {
		all = append(all, Mutant{Control{
			Name: "label " + key + " of the account",
			Away: "the label is removed from the tenant's account",
			remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
				set := func(ctx context.Context, value string) error {
					account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.account.Namespace, Name: t.account.Name}}
					return t.admin.Patch(ctx, account, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+key+`":`+value+`}}}`)))
				}
				return func(ctx context.Context) error { return set(ctx, `"`+t.tenant.Name+`"`) }, set(ctx, "null")
			},
		}, Effect{Validation: -1}})
	}
	return all
}

// rights are rights that no tenant should have. Each is a mutant in which the tenant has the right.
var rights = []struct {
	where scope
	rule  rbacv1.PolicyRule
}{
	{within, allow([]string{"create"}, rbacv1.GroupName, "rolebindings")},
	{within, allow([]string{"patch", "update"}, rbacv1.GroupName, "rolebindings")},
	{within, allow([]string{"deletecollection"}, rbacv1.GroupName, "rolebindings")},
	{within, allow([]string{"impersonate"}, "", "serviceaccounts")},
	{within, allow([]string{"create"}, "", "serviceaccounts/token")},
	{within, allow([]string{"patch", "update"}, "", "serviceaccounts")},
	{within, allow([]string{"patch", "update"}, "", "namespaces")},
	{within, allow([]string{"patch", "update"}, "", "namespaces/status")},
	{within, allow([]string{"update"}, "", "namespaces/finalize")},
	{within, allow([]string{"patch", "update"}, "", "resourcequotas")},
	{within, allow([]string{"deletecollection"}, "", "resourcequotas")},
	{within, allow([]string{"create"}, "", "endpoints")},
	{within, allow([]string{"create"}, "discovery.k8s.io", "endpointslices")},
	{within, allow([]string{"create"}, "", "services")},
	{within, allow([]string{"create"}, "networking.k8s.io", "ingresses")},
	{within, allow([]string{"create"}, "", "persistentvolumeclaims")},
	{within, allow([]string{"create"}, "", "pods")},
	{within, allow([]string{"create"}, "", "replicationcontrollers")},
	{within, allow([]string{"create"}, "apps", "replicasets")},
	{within, allow([]string{"create"}, "apps", "statefulsets")},
	{within, allow([]string{"create"}, "apps", "daemonsets")},
	{within, allow([]string{"create"}, "batch", "jobs")},
	{within, allow([]string{"create"}, "batch", "cronjobs")},
	{within, allow([]string{"create"}, "source.toolkit.fluxcd.io", "helmcharts")},
	{within, allow([]string{"create"}, "source.toolkit.fluxcd.io", "externalartifacts")},
	{within, allow([]string{"patch", "update"}, "source.toolkit.fluxcd.io", "gitrepositories/status")},
	{everywhere, allow([]string{"list"}, "", "configmaps")},
	{everywhere, allow([]string{"list"}, "", "secrets")},
	{everywhere, allow([]string{"create"}, "", "pods/exec")},
	{everywhere, allow([]string{"get"}, "", "pods/log")},
	{everywhere, allow([]string{"create"}, "kustomize.toolkit.fluxcd.io", "kustomizations")},
	{everywhere, allow([]string{"create"}, "helm.toolkit.fluxcd.io", "helmreleases")},
	{everywhere, allow([]string{"patch"}, "source.toolkit.fluxcd.io", "gitrepositories")},
	{everywhere, allow([]string{"create"}, "apiextensions.k8s.io", "customresourcedefinitions")},
	{everywhere, allow([]string{"patch"}, "admissionregistration.k8s.io", "validatingadmissionpolicybindings")},
}

// rightMutants returns a mutant for each right that no tenant should have.
func rightMutants() []Mutant {
	var all []Mutant
	for _, r := range rights {
		name := fmt.Sprintf("%s %s of group %q", strings.Join(r.rule.Verbs, " and "), r.rule.Resources[0], r.rule.APIGroups[0])
		effect := Effect{Validation: -1, Rules: []rbacv1.PolicyRule{r.rule}}
		if r.where == everywhere {
			name += " in every namespace"
			effect = Effect{Validation: -1, Everywhere: []rbacv1.PolicyRule{r.rule}}
		}
		all = append(all, Mutant{role(name, r.where, r.rule), effect})
	}
	return all
}

// home returns the namespace in which the tenant's account has its rights.
func (t *target) home() string {
	if namespaces := t.tenant.Namespaces; len(namespaces) > 0 && !slices.Contains(namespaces, t.account.Namespace) {
		return namespaces[0]
	}
	return t.account.Namespace
}
