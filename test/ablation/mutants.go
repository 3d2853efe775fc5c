package ablation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mutant is a fleet with one control removed or weakened.
type Mutant struct {
	Control Control
	// Effect is the change.
	Effect Effect
}

// Effect describes the change of a mutant. One field or several related fields are set. No field is set for
// a mutant that must not change the result of any attack.
type Effect struct {
	// Controller is the controller that runs without Flag.
	Controller, Flag string
	// Policy is the policy that the mutant changes. If Validation is an index and not negative, this
	// validation becomes true; if Resource or Operation is not empty, the policy no longer matches it;
	// otherwise the policy refuses nothing.
	Policy              string
	Validation          int
	Resource, Operation string
	// Label is the label that is missing in the tenant's namespaces.
	Label string
	// Quota is the key that is missing in spec.hard.
	Quota string
	// Rules are the rights of the tenant's account in its namespaces, and Everywhere its rights in all
	// namespaces.
	Rules, Everywhere []rbacv1.PolicyRule
}

// Controls are the controls of a fleet, read from a running cluster.
type Controls struct {
	// Flags are the security flags of Flux's controllers, by controller.
	Flags map[string][]string
	// Policies are the ValidatingAdmissionPolicies. Bindings are their bindings, which have the same names.
	Policies []admissionv1.ValidatingAdmissionPolicy
	Bindings []admissionv1.ValidatingAdmissionPolicyBinding
	// Labels are the labels of the tenant's namespaces that affect admission, Quotas the keys of spec.hard
	// in these namespaces, and AccountLabels the labels of the tenant's account.
	Labels, Quotas, AccountLabels []string
	// Role is the name of the tenant's ClusterRole, and Rules are its rules.
	Role  string
	Rules []rbacv1.PolicyRule
	// Outside is set if the tenant's account and sync are in a namespace of the platform.
	Outside bool
	// Nameless is set if a Kustomization that applies the tenant's repository names no account.
	Nameless bool
}

// securityFlags are the flags of Flux's lockdown.
var securityFlags = []string{"--no-cross-namespace-refs", "--default-service-account", "--no-remote-bases"}

// Mutants returns the controls that apply to a tenant of a fleet, and the mutants of each control: without
// the control, and weakened in each way that its kind allows. It returns an error if it cannot read the
// controls.
func Mutants(ctx context.Context, opts Options) (Controls, []Mutant, error) {
	t, err := newTarget(ctx, opts)
	if err != nil {
		return Controls{}, nil, err
	}
	found, err := t.controls(ctx)
	if err != nil {
		return found, nil, fmt.Errorf("cannot read the controls of the fleet: %w", err)
	}
	var all []Mutant
	for controller, flags := range found.Flags {
		for _, name := range flags {
			effect := Effect{Controller: controller, Flag: name, Validation: -1}
			all = append(all, Mutant{flag(controller, name), effect}, Mutant{unset(controller, name), effect})
		}
	}
	for _, p := range found.Policies {
		all = append(all, policyMutants(p)...)
		all = append(all, bindingMutants(p)...)
	}
	for _, key := range found.Labels {
		all = append(all, Mutant{label(key, awaited[key]), Effect{Label: key, Validation: -1}})
	}
	for _, key := range found.Quotas {
		all = append(all, Mutant{withoutHard(key), Effect{Quota: key, Validation: -1}})
	}
	all = append(all, accountLabels(found)...)
	all = append(all, t.roleMutants(found)...)
	all = append(all, rightMutants()...)
	slices.SortStableFunc(all, func(a, b Mutant) int { return strings.Compare(a.Control.Name, b.Control.Name) })
	return found, all, nil
}

// stopsNothing reports whether a policy only shows that the API server enforces the other policies.
func stopsNothing(name string) bool {
	return strings.HasPrefix(name, sentinel) || name == "tenure-enforced"
}

// controls reads the controls.
func (t *target) controls(ctx context.Context) (Controls, error) {
	found := Controls{Flags: map[string][]string{}}
	var deployments appsv1.DeploymentList
	if err := t.admin.List(ctx, &deployments, client.InNamespace(t.opts.Attack.Platform)); err != nil {
		return found, err
	}
	for _, d := range deployments.Items {
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			if name, _, _ := strings.Cut(arg, "="); slices.Contains(securityFlags, name) {
				found.Flags[d.Name] = append(found.Flags[d.Name], name)
			}
		}
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	if err := t.admin.List(ctx, &policies); err != nil {
		return found, err
	}
	found.Policies = slices.DeleteFunc(policies.Items, func(p admissionv1.ValidatingAdmissionPolicy) bool { return stopsNothing(p.Name) })
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := t.admin.List(ctx, &bindings); err != nil {
		return found, err
	}
	found.Bindings = slices.DeleteFunc(bindings.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool { return stopsNothing(b.Name) })
	for _, name := range t.tenant.Namespaces {
		var ns corev1.Namespace
		var quotas corev1.ResourceQuotaList
		if err := errors.Join(t.admin.Get(ctx, client.ObjectKey{Name: name}, &ns), t.admin.List(ctx, &quotas, client.InNamespace(name))); err != nil {
			return found, err
		}
		for key := range awaited {
			if ns.Labels[key] != "" && !slices.Contains(found.Labels, key) && (key != v1alpha1.LabelFluxTenant || found.selected(key)) {
				found.Labels = append(found.Labels, key)
			}
		}
		for _, quota := range quotas.Items {
			for key := range quota.Spec.Hard {
				found.Quotas = append(found.Quotas, string(key))
			}
		}
	}
	for _, right := range t.tenant.Rights {
		name, ok := strings.CutPrefix(right.Role, "ClusterRole/")
		if !ok || right.Subject != "ServiceAccount "+t.account.String() {
			continue
		}
		var role rbacv1.ClusterRole
		if err := t.admin.Get(ctx, client.ObjectKey{Name: name}, &role); err != nil {
			return found, err
		}
		found.Role, found.Rules = name, role.Rules
	}
	account := &corev1.ServiceAccount{}
	if err := client.IgnoreNotFound(t.admin.Get(ctx, client.ObjectKey{Namespace: t.account.Namespace, Name: t.account.Name}, account)); err != nil {
		return found, err
	}
	found.AccountLabels = slices.DeleteFunc(slices.Collect(maps.Keys(account.Labels)), func(key string) bool { return key != v1alpha1.LabelFluxTenant })
	for _, r := range t.tenant.Repositories {
		sync := &unstructured.Unstructured{}
		sync.SetGroupVersionKind(flux.Kustomization.GroupVersionKind())
		if err := t.admin.Get(ctx, client.ObjectKey{Namespace: r.Kustomization.Namespace, Name: r.Kustomization.Name}, sync); err != nil {
			return found, err
		}
		if name, _, _ := unstructured.NestedString(sync.Object, "spec", "serviceAccountName"); name == "" {
			found.Nameless = true
		}
	}
	found.Outside = !slices.Contains(t.tenant.Namespaces, t.account.Namespace)
	slices.Sort(found.Quotas)
	return found, nil
}

// policyMutants returns the mutants of a policy: without its binding, with each validation
// true, and without each resource.
func policyMutants(p admissionv1.ValidatingAdmissionPolicy) []Mutant {
	all := []Mutant{{policy(p.Name), Effect{Policy: p.Name, Validation: -1}}}
	for i := range p.Spec.Validations {
		all = append(all, Mutant{
			rewritten(p.Name, fmt.Sprintf("validation %d of policy %s", i, p.Name), "its expression is true", func(spec *admissionv1.ValidatingAdmissionPolicySpec) {
				spec.Validations[i].Expression = "true"
			}),
			Effect{Policy: p.Name, Validation: i},
		})
	}
	for _, rule := range p.Spec.MatchConstraints.ResourceRules {
		for _, resource := range rule.Resources {
			all = append(all, Mutant{
				rewritten(p.Name, resource+" in policy "+p.Name, "the policy matches another resource in its place", func(spec *admissionv1.ValidatingAdmissionPolicySpec) {
					for j := range spec.MatchConstraints.ResourceRules {
						resources := spec.MatchConstraints.ResourceRules[j].Resources
						if at := slices.Index(resources, resource); at >= 0 {
							resources[at] = "none"
						}
					}
				}),
				Effect{Policy: p.Name, Validation: -1, Resource: resource},
			})
		}
	}
	return all
}

// rewritten returns the control that is removed by a change of a policy's spec.
func rewritten(policy, name, away string, change func(*admissionv1.ValidatingAdmissionPolicySpec)) Control {
	return Control{Name: name, Away: away, remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
		var before *admissionv1.ValidatingAdmissionPolicySpec
		set := func(ctx context.Context, change func(*admissionv1.ValidatingAdmissionPolicySpec)) error {
			return t.changePolicy(ctx, policy, func(p *admissionv1.ValidatingAdmissionPolicy) error {
				if before == nil {
					before = p.Spec.DeepCopy()
				}
				change(&p.Spec)
				return nil
			})
		}
		// The next attack waits for the removal and for the last restoration at the same time.
		restore := func(ctx context.Context) error {
			if before == nil {
				return nil
			}
			return set(ctx, func(spec *admissionv1.ValidatingAdmissionPolicySpec) { *spec = *before.DeepCopy() })
		}
		return restore, set(ctx, change)
	}}
}

// withoutHard returns the control that is a limit of the quotas in the tenant's namespaces.
func withoutHard(key string) Control {
	return Control{Name: "quota of " + key, Away: "it is removed from spec.hard", remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
		var changed []corev1.ResourceQuota
		restore := func(ctx context.Context) error {
			var errs []error
			for _, before := range changed {
				errs = append(errs, t.setHard(ctx, client.ObjectKeyFromObject(&before), before.Spec.Hard))
			}
			return errors.Join(errs...)
		}
		for _, name := range t.tenant.Namespaces {
			var list corev1.ResourceQuotaList
			if err := t.admin.List(ctx, &list, client.InNamespace(name)); err != nil {
				return restore, err
			}
			for _, quota := range list.Items {
				if _, ok := quota.Spec.Hard[corev1.ResourceName(key)]; !ok {
					continue
				}
				changed = append(changed, *quota.DeepCopy())
				delete(quota.Spec.Hard, corev1.ResourceName(key))
				if err := t.setHard(ctx, client.ObjectKeyFromObject(&quota), quota.Spec.Hard); err != nil {
					return restore, err
				}
			}
		}
		return restore, nil
	}}
}

// setHard writes the limits of a quota and waits until they are in its status, which the API
// server enforces.
func (t *target) setHard(ctx context.Context, key client.ObjectKey, hard corev1.ResourceList) error {
	quota := &corev1.ResourceQuota{}
	if err := t.change(ctx, key, quota, func() error {
		quota.Spec.Hard = hard
		return nil
	}); err != nil {
		return err
	}
	return poll(ctx, "the quota to be counted", func() (bool, error) {
		err := t.admin.Get(ctx, key, quota)
		return len(quota.Status.Hard) == len(hard), err
	})
}

// roleMutants returns the mutants of the tenant's role: with every resource of the groups of a rule instead
// of its resources, with every verb instead of its verbs, with the role bound in all namespaces, and with
// cluster-admin in addition.
func (t *target) roleMutants(found Controls) []Mutant {
	if found.Role == "" {
		return nil
	}
	all := []Mutant{{bound("in every namespace, by a ClusterRoleBinding", everywhere), Effect{Validation: -1, Everywhere: found.Rules}}}
	for _, rule := range found.Rules {
		groups := strings.Join(rule.APIGroups, ", ")
		if !slices.Contains(rule.Resources, "*") {
			wide := rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{"*"}, Verbs: rule.Verbs}
			// A right to an invented resource shows that the wider rule is in force.
			probe := rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{sentinel}, Verbs: rule.Verbs}
			name := fmt.Sprintf("list of resources of group %q with the verbs %v in ClusterRole %s", groups, rule.Verbs, found.Role)
			all = append(all, Mutant{beside(name, wide, probe), Effect{Validation: -1, Rules: []rbacv1.PolicyRule{wide}}})
		}
		if !slices.Contains(rule.Verbs, "*") {
			wide := rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: []string{"*"}}
			probe := rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: []string{sentinel}}
			name := fmt.Sprintf("list of verbs %v for %v of group %q in ClusterRole %s", rule.Verbs, rule.Resources, groups, found.Role)
			all = append(all, Mutant{beside(name, wide, probe), Effect{Validation: -1, Rules: []rbacv1.PolicyRule{wide}}})
		}
	}
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	probe := rbacv1.PolicyRule{APIGroups: []string{sentinel}, Resources: []string{sentinel}, Verbs: []string{"get"}}
	return append(all, Mutant{beside("role that is not cluster-admin", everything, probe), Effect{Validation: -1, Rules: []rbacv1.PolicyRule{everything}}})
}

// beside returns the control that is removed by an additional role with a rule in the tenant's namespaces.
// The removal has taken effect when the account has the right in probe.
func beside(name string, rule, probe rbacv1.PolicyRule) Control {
	return Control{Name: name, Away: "a role beside it has all of them", remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
		r := &rbacv1.ClusterRole{}
		r.Name, r.Rules = sentinel, []rbacv1.PolicyRule{rule}
		if err := t.admin.Create(ctx, r); err != nil {
			return func(context.Context) error { return nil }, err
		}
		unbind, err := t.bind(ctx, within, sentinel, probe)
		return func(ctx context.Context) error { return errors.Join(t.admin.Delete(ctx, r), unbind(ctx)) }, err
	}}
}
