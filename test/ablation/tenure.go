package ablation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TenureRows returns the controls of a fleet with Tenure's rules, its proxy, the manager, Tenure's role for
// tenants and Flux's lockdown. A rule that alone stops an attack has a row of its own; otherwise its row
// includes the flag or the role that stops the same attack. [Rows] has the other controls of such a fleet,
// which belong to Flux. A rule that is not in the list, and whose attacks no rule of the list stops alone,
// gets a row with all attacks that it names.
func TenureRows() []Row {
	rows := listedTenureRows()
	listed, stopped := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		for _, c := range r.Controls {
			listed[c.Name] = true
		}
		for _, key := range r.Attacks {
			stopped[key] = stopped[key] || len(r.Controls) == 1 && strings.HasPrefix(r.Controls[0].Name, "rule ")
		}
	}
	for _, r := range admission.Rules() {
		c, attacks := rule(strings.TrimPrefix(r.Name, admission.Prefix)), attacksOf(r)
		if !listed[c.Name] && len(attacks) > 0 && !slices.ContainsFunc(attacks, func(key string) bool { return stopped[key] }) {
			rows = append(rows, singleControl(c, attacks...))
		}
	}
	return rows
}

// listedTenureRows returns the rows of the rules that stop only some of the attacks that they name, or stop
// them only together with other controls, and the rows of other controls.
func listedTenureRows() []Row {
	both := func(other Control, name string, attacks ...string) Row {
		return Row{Controls: []Control{other, rule(name)}, Attacks: attacks}
	}
	crossing := func(controller string) Control {
		return layer(flag(controller, "--no-cross-namespace-refs"), "flag --no-cross-namespace-refs of "+controller)
	}
	return append([]Row{
		singleControl(rule("accounts"), "I13-api", "I19-api-Kustomization"),
		singleControl(rule("bounds"), "A1-api", "A3-api"),
		singleControl(rule("decryption-secrets"), "I19-api-Kustomization"),
		singleControl(besideAShard(rule("shards")), "A3-api-shard"),
		singleControl(rule("bindings"), "I4-api-RoleBinding"),
		singleControl(rule("managed"), onManagedObjects...),
		singleControl(rule("adoption"), "A5-api-workloads"),
		singleControl(aboutClaims(rule("adoption")), "A5-api-workloads"),
		singleControl(rule("manager"), "I25-api"),
		singleControl(rule("references"), "S5-api", "S5-api-HelmRelease", "S12-api"),
		singleControl(rule("flagger"), "N6-api"),
		singleControl(rule("notifications"), "I19-api", "N3-api", "N4-api"),
		singleControl(rule("tokens"), "I8-api-Secret"),
		singleControl(besideAnOwner(rule("owner-pods")), "I24-api"),
		{Controls: []Control{besideAnOwner(rule("owner-accounts"))}, Attacks: []string{"I24-api"}, Also: []string{"I8-api-Secret"}},
		{Controls: []Control{rule("replicators"), rule("manager")}, Attacks: []string{"I15-api-manager"}, Also: []string{"I25-api"}},
		singleControl(rule("sources"), "I19-api", "S9-api"),
		singleControl(rule("claims"), "W6-api", "W6-git"),
		singleControl(rule("workloads"), "W6-api", "W7-api", "W7-git", "W10-api", "W10-git"),
		singleControl(withoutManager(podSecurity()), "W3-api", "W3-git"),
		{Controls: []Control{withoutManager(podSecurity()), rule("workloads")}, Attacks: []string{"W11-api", "W11-git"}, Also: []string{"W3-api", "W3-git", "W6-api", "W7-api", "W7-git", "W10-api", "W10-git"}},
		singleControl(capsuleRule("pods"), "W15-api"),
		singleControl(capsuleRule("services"), "W15-api"),
		singleControl(capsuleRule("hosts"), "W15-api"),
		{Controls: []Control{isolation(), networkPolicies()}, Attacks: []string{"W8-api"}, Also: []string{"W12-api", "W12-git"}},
		singleControl(isolation(), "W12-api", "W12-git"),
		singleControl(role("create and change clusternetworkpolicies", everywhere,
			allow([]string{"get", "create", "patch", "delete"}, tenancy.ClusterPolicyGroup, tenancy.ClusterPolicyResource)), "W12-api", "W12-git"),

		withForeignMetrics(both(crossing("kustomize-controller"), "references", "S1-api")),
		withForeignMetrics(withOwnCharts(both(crossing("helm-controller"), "references", "S1-api-HelmRelease"))),
		withForeignMetrics(both(crossing("notification-controller"), "references", "N1-api", "N2-api")),
		onManaged(both(role("patch the status of Flux objects", within, allow([]string{"update", "patch"}, "source.toolkit.fluxcd.io", "gitrepositories/status")), "status", "S4-api")),
		both(role("create externalartifacts", within, allow([]string{"create"}, "source.toolkit.fluxcd.io", "externalartifacts")), "external-artifacts", "S3-api"),
		both(role("create resourcesets", within, allow([]string{"create"}, "fluxcd.controlplane.io", "resourcesets")), "resource-sets", "I26-api", "I26-api-copyFrom", "I26-api-dependsOn"),
		// The attack requests a token for any account of the namespace. The rule tokens refuses
		// only tokens for the accounts that Flux impersonates.
		singleControl(role("create serviceaccounts/token", within, allow([]string{"create"}, "", "serviceaccounts/token")), "I8-api"),
		// Owners' accounts have the right to patch namespaces: the rule limits the namespaces and the
		// changes, and so does the webhook.
		{Controls: []Control{rule("namespaces"), countingWebhook()}, Attacks: []string{"I6-api", "I7-api"}, Also: []string{"A2-api"}},
		{Controls: []Control{rule("namespaces"), countingWebhook(), rule("namespace-names")}, Attacks: []string{"I18-api"}, Also: []string{"A2-api", "I6-api", "I7-api", "I16-api", "I20-api", "I21-api-labels"}},
		{Controls: []Control{countingWebhook(), rule("namespace-names")}, Attacks: []string{"I16-api", "I20-api", "I21-api-labels"}, Also: []string{"A2-api"}},
		singleControl(rule("takeover"), "I20-api"),
		singleControl(countingWebhook(), "A2-api"),
		singleControl(secretPath(), "A7-api"),
		singleControl(quotaWebhook(), "A9-api"),
		singleControl(appliedAlone(), "A9-api-Tenant"),
		singleControl(warning("protected"), "I22-api"),
		{Controls: []Control{warnMode()}, Attacks: []string{"I22-api"}, Also: []string{"A4-api", "N5-api", "W4-api", "W4-git", "W5-api", "W5-git", "W6-api", "W6-git", "W7-api", "W7-git", "W10-api", "W10-git", "W13-api", "W13-git", "W14-api", "W14-git", "W16-api", "W16-git"}},
		singleControl(changeBindings(), "I17-api"),
		singleControl(role("patch tenants", everywhere, allow([]string{"patch"}, v1alpha1.GroupVersion.Group, "tenants")), "I17-api"),
		onManaged(both(role("patch tenantparameters", within, allow([]string{"patch"}, v1alpha1.GroupVersion.Group, "tenantparameters")), "parameters", "I17-api")),
		singleControl(bound("in another tenant's namespace", neighbour), "I12-api"),
		withAccounts("kustomize-controller", "I1-api"),
		withOwnCharts(withAccounts("helm-controller", "I1-api-HelmRelease")),
		singleControl(privileged(), "I2-api"),

		// A base is on another host, too.
		{Controls: []Control{flag("kustomize-controller", "--no-remote-bases"), noWayOut()}, Attacks: []string{"S7-git"}, Also: []string{"S15-git", "S16-git"}},
		singleControl(noWayOut(), "S15-git", "S16-git"),
		singleControl(gitProtocols(), "S15-git"),
		singleControl(artifactsWithoutProxy(), "S16-git"),
		singleControl(takenBack(), "S11-api", "I25-api"),
		singleControl(managedQuotas(), "A2-api"),
		withOwnCharts(singleControl(role("bind", everywhere,
			allow([]string{"get", "create", "patch", "delete"}, rbacv1.GroupName, "clusterrolebindings"),
			allow([]string{"bind"}, rbacv1.GroupName, "clusterroles")), "I4-api", "I4-git", "I4-git-HelmRelease")),
		singleControl(role("create customresourcedefinitions", everywhere, allow([]string{"create"}, "apiextensions.k8s.io", "customresourcedefinitions")), "I5-api"),
		{Controls: []Control{role("create gateways", within, allow([]string{"create", "get", "patch", "delete"}, "gateway.networking.k8s.io", "gateways")), aboutGateways("services")}, Attacks: []string{"W4-api"}},
		both(role("create endpointslices", within, allow([]string{"create", "get", "patch", "delete"}, "discovery.k8s.io", "endpointslices")), "endpoints", "W9-api", "W9-git"),
		both(role("create csistoragecapacities", within, allow([]string{"create"}, "storage.k8s.io", "csistoragecapacities")), "allocations", "W6-api"),
		both(role("patch the status of pods", within, allow([]string{"patch"}, "", "pods/status")), "allocations", "W10-api"),
		both(role("create events", within, allow([]string{"create"}, "", "events")), "events", "N7-api"),
		both(role("create resourcequotas", within, allow([]string{"create"}, "", "resourcequotas")), "quotas", "A5-api"),
		singleControl(role("impersonate", within, allow([]string{"impersonate"}, "", "serviceaccounts")), "I8-api"),
		// With rights to write in all namespaces, the account counts as an operator of the
		// platform.
		withOwnCharts(singleControl(bound("in every namespace, by a ClusterRoleBinding", everywhere), "A4-api", "A5-api", "A5-api-ServiceAccount", "A5-api-workloads", "I1-git", "I3-api", "I3-git", "I4-api-RoleBinding", "I8-api", "I15-api", "I24-api", "I10-api", "I11-api", "I11-api-HelmRelease", "I11-api-HelmRelease-storage", "I11-git", "W1-api", "W2-api", "W2-proxy", "W4-api", "W4-git", "W5-api", "W5-git", "W6-api", "W6-git", "W8-api", "W13-api", "W13-git", "W16-api", "W16-git")),
	}, proxyRows()...)
}

// onManagedObjects are the attacks on the platform's objects in the tenant's namespaces.
var onManagedObjects = []string{"A5-api", "A5-api-ServiceAccount", "A5-api-workloads", "I10-api", "I23-api", "W1-api", "W8-api"}

// onManaged returns the row of an attack on an object of the manager, which the rule about these objects
// also stops.
func onManaged(row Row) Row {
	row.Controls = append(row.Controls, rule("managed"))
	row.Also = append(row.Also, onManagedObjects...)
	return row
}

// withForeignMetrics returns a row that removes the rule about references, which alone stops
// Canaries with metrics of another namespace.
func withForeignMetrics(row Row) Row {
	row.Also = append(row.Also, "S12-api")
	return row
}

// withOwnCharts returns the row of attacks with charts from the tenant's own repository. The rule for
// charts stops these before the row's own control does, so the row removes that rule too.
func withOwnCharts(r Row) Row {
	charts := rule("charts")
	for i, c := range r.Controls {
		remove := c.remove
		r.Controls[i].remove = func(ctx context.Context, t *target) (func(context.Context) error, error) {
			again, err := charts.remove(ctx, t)
			if err != nil {
				return again, err
			}
			restore, err := remove(ctx, t)
			return func(ctx context.Context) error { return errors.Join(restore(ctx), again(ctx)) }, err
		}
		r.Controls[i].Away += ", and " + charts.Name + " is removed as well"
	}
	r.Also = append(r.Also, "S13-api")
	return r
}

// countingWebhook returns the control that is the webhook for owners' namespaces.
func countingWebhook() Control {
	return Control{
		Name: "webhook " + admission.NamespaceWebhook,
		Away: "its MutatingWebhookConfiguration is deleted",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			again, err := t.unhook(ctx)
			return func(ctx context.Context) error { return errors.Join(again(ctx), t.webhookCalled(ctx, true)) }, err
		},
	}
}

// unhook deletes the webhook's configuration. The returned function creates it again.
func (t *target) unhook(ctx context.Context) (func(context.Context) error, error) {
	c := &admissionv1.MutatingWebhookConfiguration{}
	nothing := func(context.Context) error { return nil }
	if err := t.admin.Get(ctx, client.ObjectKey{Name: admission.WebhookName}, c); err != nil {
		return nothing, err
	}
	if err := t.admin.Delete(ctx, c); err != nil {
		return nothing, err
	}
	again := func(ctx context.Context) error {
		return t.admin.Create(ctx, &admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: c.Labels, Annotations: c.Annotations}, Webhooks: c.Webhooks,
		})
	}
	return again, t.webhookCalled(ctx, false)
}

// webhookCalled waits until the API server calls the webhook for the namespaces of the tenant's first
// owner, or no longer calls it. The Pod Security level that the webhook adds to a namespace shows the call.
func (t *target) webhookCalled(ctx context.Context, want bool) error {
	if len(t.tenant.Owners) == 0 {
		return errors.New("the tenant has no owner whose namespaces the webhook is asked about")
	}
	owner := rest.CopyConfig(t.opts.Attack.Config)
	owner.Impersonate = rest.ImpersonationConfig{UserName: t.tenant.Owners[0].User(), Groups: t.tenant.Owners[0].Groups()}
	as, err := client.New(owner, client.Options{})
	if err != nil {
		return err
	}
	return poll(ctx, "the webhook to be called, or not", func() (bool, error) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.tenant.Name + "-" + sentinel, Labels: map[string]string{
			v1alpha1.LabelTenant: t.tenant.Name, v1alpha1.LabelMadeBy: v1alpha1.MadeByOwner,
		}}}
		if err := as.Create(ctx, ns, client.DryRunAll); err != nil {
			return false, err
		}
		_, called := ns.Labels[admission.PodSecurityLabel]
		return called == want, nil
	})
}

// managedQuotas returns the control of the quotas that the manager writes.
func managedQuotas() Control {
	c := withoutManager(quotas())
	c.Name = "quotas that the manager writes"
	return c
}

// withoutManager returns a control that consists of objects of the manager. The removal stops the manager,
// since it would write the objects again, and deletes its webhook, since owners could create no namespaces
// without the manager.
func withoutManager(plain Control) Control {
	return Control{
		Name: plain.Name,
		Away: "the manager is stopped, its webhook is deleted, and " + plain.Away,
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			scale := func(ctx context.Context, replicas string) error {
				manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: t.opts.Attack.Platform, Name: "tenure-manager"}}
				if err := t.admin.Patch(ctx, manager, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":`+replicas+`}}`))); err != nil {
					return err
				}
				return t.rolledOut(ctx, client.ObjectKeyFromObject(manager))
			}
			again, err := t.unhook(ctx)
			back := func(ctx context.Context) error {
				// The manager becomes ready only after its webhook exists.
				return errors.Join(again(ctx), scale(ctx, "1"), t.webhookCalled(ctx, true))
			}
			if err != nil {
				return back, err
			}
			if err := scale(ctx, "0"); err != nil {
				return back, err
			}
			restore, err := plain.remove(ctx, t)
			return func(ctx context.Context) error { return errors.Join(restore(ctx), back(ctx)) }, err
		},
	}
}

// TenureExcluded returns the attacks that are in neither [TenureRows] nor [Rows], by key, with the reasons.
// Tenure's rules stop the attacks that Flux does not stop.
func TenureExcluded() map[string]Exclusion {
	excluded := Excluded()
	maps.DeleteFunc(excluded, func(_ string, e Exclusion) bool { return e.Through })
	maps.DeleteFunc(excluded, func(key string, _ Exclusion) bool {
		return slices.Contains([]string{"I15-api", "I15-api-manager", "I22-api", "I24-api", "I25-api", "I26-api", "I26-api-copyFrom", "I26-api-dependsOn", "A3-api-shard", "A5-api-workloads", "A7-api", "A9-api", "A9-api-Tenant", "N6-api", "S11-api", "S12-api", "S14-api", "W12-api", "W12-git", "W15-api"}, key)
	})
	maps.DeleteFunc(excluded, func(key string, _ Exclusion) bool { return strings.HasSuffix(key, "-"+string(catalog.Proxy)) })
	excluded["I15-api-TenantResource"] = Exclusion{Reason: "the manager's own code refuses foreign objects, whatever account applies them: see TestVerify of internal/manager/replication"}
	return excluded
}

// withAccounts returns the row of the default account of a controller. The rule in the row also stops
// further attacks alone.
func withAccounts(controller, attack string) Row {
	const flagName = "--default-service-account"
	return Row{
		Controls: []Control{
			layer(flag(controller, flagName), "flag "+flagName+" of "+controller),
			layer(rule("accounts"), "policy that demands spec.serviceAccountName"),
		},
		Attacks: []string{attack},
		Also:    []string{"I13-api", "I19-api-Kustomization"},
	}
}

// rule returns the control that is a rule of Tenure, by its name without the prefix.
func rule(name string) Control {
	name = admission.Prefix + name
	rules := admission.Rules()
	i := slices.IndexFunc(rules, func(r admission.Rule) bool { return r.Name == name })
	if i >= 0 && rules[i].Shares() {
		return sharedRule(rules[i])
	}
	return Control{
		Name: "rule " + name,
		Away: "its ValidatingAdmissionPolicyBindings are deleted",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			return t.unbind(ctx, name)
		},
	}
}

// warning returns the control that a rule denies, and does not only warn.
func warning(name string) Control {
	name = admission.Prefix + name
	return Control{
		Name: "rule " + name + " denies",
		Away: "its ValidatingAdmissionPolicyBinding is set to warn",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			set := func(ctx context.Context, actions string) error {
				b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"validationActions":[`+actions+`]}}`))
				t.unsettled = true
				return t.admin.Patch(ctx, b, patch)
			}
			return func(ctx context.Context) error { return set(ctx, `"Deny"`) }, set(ctx, `"Warn","Audit"`)
		},
	}
}

// warnMode returns the control that the rules about objects deny. Without it, they are in warn mode: the
// rules that always deny still stop their attacks, through the policies of warn mode.
func warnMode() Control {
	return Control{
		Name: "rules about objects deny",
		Away: "the policies of warn mode are applied, and the bindings of " + admission.Objects + " warn",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			policies, bindings := admission.WarnPolicies()
			var further []client.Object
			for i := range policies {
				further = append(further, &policies[i])
			}
			for i := range bindings {
				further = append(further, &bindings[i])
			}
			set := func(ctx context.Context, actions ...admissionv1.ValidationAction) error {
				var all admissionv1.ValidatingAdmissionPolicyBindingList
				if err := t.admin.List(ctx, &all, client.MatchingLabels{admission.LabelComponent: admission.ComponentObjects}); err != nil {
					return err
				}
				if len(all.Items) == 0 {
					return errors.New("no binding of " + admission.Objects + " is there")
				}
				for _, b := range all.Items {
					b.Spec.ValidationActions = actions
					if err := t.admin.Update(ctx, &b); err != nil {
						return err
					}
				}
				t.unsettled = true
				return nil
			}
			restore := func(ctx context.Context) error {
				errs := []error{set(ctx, admissionv1.Deny)}
				for _, o := range further {
					errs = append(errs, client.IgnoreNotFound(t.admin.Delete(ctx, o)))
				}
				return errors.Join(errs...)
			}
			for _, o := range further {
				if err := t.admin.Create(ctx, o); err != nil {
					return restore, err
				}
			}
			return restore, set(ctx, admissionv1.Warn, admissionv1.Audit)
		},
	}
}

// besideAShard returns the control, with the namespace of another tenant in a shard while the control is
// removed. Without any shard, an attack would have no target.
func besideAShard(c Control) Control {
	remove := c.remove
	c.remove = func(ctx context.Context, t *target) (func(context.Context) error, error) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sentinel + "-shard", Labels: map[string]string{v1alpha1.LabelShard: sentinel}}}
		gone := func(ctx context.Context) error { return client.IgnoreNotFound(t.admin.Delete(ctx, ns)) }
		if err := t.admin.Create(ctx, ns); err != nil {
			return gone, err
		}
		restore, err := remove(ctx, t)
		return func(ctx context.Context) error { return errors.Join(restore(ctx), gone(ctx)) }, err
	}
	return c
}

// aboutClaims returns the control of adoption. While it is removed, the platform has no Pod without a
// controller in the tenant's namespaces, so that a workload can adopt only its claims.
func aboutClaims(c Control) Control {
	remove := c.remove
	c.Name += " about claims"
	c.Away += ", and the platform's Pods without a workload are deleted"
	c.remove = func(ctx context.Context, t *target) (func(context.Context) error, error) {
		var deleted []*corev1.Pod
		again := func(ctx context.Context) error {
			var errs []error
			for _, pod := range deleted {
				errs = append(errs, client.IgnoreAlreadyExists(t.admin.Create(ctx, pod)))
			}
			return errors.Join(errs...)
		}
		for _, namespace := range t.tenant.Namespaces {
			var pods corev1.PodList
			if err := t.admin.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
				return again, err
			}
			for _, pod := range pods.Items {
				if from := flux.AppliedFrom(pod.Labels); metav1.GetControllerOf(&pod) != nil || from == "" || slices.Contains(t.tenant.Namespaces, from) {
					continue
				}
				if err := client.IgnoreNotFound(t.admin.Delete(ctx, &pod, client.GracePeriodSeconds(0))); err != nil {
					return again, err
				}
				pod.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
				pod.Spec.NodeName = ""
				deleted = append(deleted, &pod)
			}
		}
		restore, err := remove(ctx, t)
		return func(ctx context.Context) error { return errors.Join(restore(ctx), again(ctx)) }, err
	}
	return c
}

// policiesOf returns the two policies of a rule. The second one reads the TenantParameters.
func policiesOf(policy string) []string { return []string{policy, policy + "-own"} }

// unbind deletes all bindings of a rule with its own policies. The returned function creates
// them again.
func (t *target) unbind(ctx context.Context, policy string) (func(context.Context) error, error) {
	var removed []admissionv1.ValidatingAdmissionPolicyBinding
	restore := func(ctx context.Context) error {
		var errs []error
		for _, b := range removed {
			errs = append(errs, t.admin.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: b.Name, Labels: b.Labels, Annotations: b.Annotations}, Spec: b.Spec,
			}))
		}
		t.unsettled = true
		return errors.Join(errs...)
	}
	var all admissionv1.ValidatingAdmissionPolicyBindingList
	if err := t.admin.List(ctx, &all, client.MatchingLabels{"app.kubernetes.io/name": "tenure"}); err != nil {
		return restore, err
	}
	for _, b := range all.Items {
		if !slices.Contains(policiesOf(policy), b.Spec.PolicyName) {
			continue
		}
		if err := t.admin.Delete(ctx, &b); err != nil {
			return restore, err
		}
		removed = append(removed, b)
	}
	if len(removed) == 0 {
		return restore, fmt.Errorf("no binding of %s is there", policy)
	}
	t.unsettled = true
	return restore, nil
}

// sharedRule returns the control that is a rule which shares its policies with others.
func sharedRule(r admission.Rule) Control {
	return weakenedRule(r, "", "its expression is removed from the policies "+strings.Join(r.Policies(), " and "), nil)
}

// aboutGateways returns the control that is the part of a rule about Gateways.
func aboutGateways(name string) Control {
	rules := admission.Rules()
	r := rules[slices.IndexFunc(rules, func(r admission.Rule) bool { return r.Name == admission.Prefix+name })]
	return weakenedRule(r, " about Gateways", "its expression in the policies "+strings.Join(r.Policies(), " and ")+" leaves them out", func(expression string) string {
		return "request.resource.resource == 'gateways' ? '' : (" + expression + ")"
	})
}

// weakenedRule returns the control that is a part of a rule. The function weaker returns the weaker
// expression without this part; if it is nil, the whole rule is removed.
func weakenedRule(r admission.Rule, part, away string, weaker func(string) string) Control {
	return Control{
		Name: "rule " + r.Name + part,
		Away: away,
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			before := map[string]admissionv1.ValidatingAdmissionPolicySpec{}
			restore := func(ctx context.Context) error {
				var errs []error
				for name, spec := range before {
					errs = append(errs, t.changePolicy(ctx, name, func(p *admissionv1.ValidatingAdmissionPolicy) error {
						p.Spec = spec
						return nil
					}))
				}
				return errors.Join(errs...)
			}
			for _, name := range r.Policies() {
				if err := t.changePolicy(ctx, name, func(p *admissionv1.ValidatingAdmissionPolicy) error {
					spec := *p.Spec.DeepCopy()
					if !r.Without(p) {
						return fmt.Errorf("policy %s does not have rule %s", name, r.Name)
					}
					before[name] = spec
					for i, v := range spec.Variables {
						if weaker != nil && v.Expression != p.Spec.Variables[i].Expression {
							p.Spec.Variables[i].Expression = weaker(v.Expression)
						}
					}
					return nil
				}); err != nil {
					return restore, err
				}
			}
			return restore, nil
		},
	}
}

// changePolicy changes a policy.
func (t *target) changePolicy(ctx context.Context, name string, change func(*admissionv1.ValidatingAdmissionPolicy) error) error {
	t.unsettled = true
	p := &admissionv1.ValidatingAdmissionPolicy{}
	return t.change(ctx, client.ObjectKey{Name: name}, p, func() error { return change(p) })
}

// change reads an object, changes it and writes it. It retries after a conflict with a controller, such as
// the controllers that write the status of policies, quotas and Deployments.
func (t *target) change(ctx context.Context, key client.ObjectKey, o client.Object, edit func() error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := t.admin.Get(ctx, key, o); err != nil {
			return err
		}
		if err := edit(); err != nil {
			return err
		}
		return t.admin.Update(ctx, o)
	})
}
