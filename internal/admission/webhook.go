package admission

import (
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// WebhookName is the name of the configuration of the webhook for owners' namespaces: see
	// internal/admission/webhook.
	WebhookName = Prefix + "namespaces"
	// WebhookService is the name of the Service of the webhooks, and of the Secret with their certificate,
	// in namespace flux-system.
	WebhookService = Prefix + "webhook"
	// WebhookPath is the start of the path that the API server calls. The manager appends
	// a secret: see internal/admission/webhook/caller. The manifest has no path, so that applying
	// it again does not remove the secret.
	WebhookPath = "/namespaces"

	// AuditWebhookName is the name of the configuration of the webhook that writes events for
	// rules of Capsule's Tenants.
	AuditWebhookName = Prefix + "capsule-audit"
	// AuditWebhookPath is the start of the path of the webhook in [AuditWebhookName].
	AuditWebhookPath = "/capsule-audit"
	// HostsWebhookName is the name of the configuration of the webhook for the hosts of Ingresses
	// of Capsule's Tenants.
	HostsWebhookName = Prefix + "capsule-hosts"
	// HostsWebhookPath is the start of the path of the webhook in [HostsWebhookName].
	HostsWebhookPath = "/capsule-hosts"
	// auditSeconds is the maximum time, in seconds, that a request waits for the webhook in
	// [AuditWebhookName].
	auditSeconds = 2

	// RulesWebhook is the name of the webhook in [AuditWebhookName].
	RulesWebhook = "audit.tenure.dev"

	// NamespaceWebhook is the name of the webhook in [WebhookName], which the API server shows in refusals.
	NamespaceWebhook = "namespaces.tenure.dev"

	// webhookSeconds is the maximum time, in seconds, that a request waits for the webhooks in
	// [WebhookName] and [HostsWebhookName].
	webhookSeconds = 5

	// QuotaWebhookName is the name of the configuration of the webhooks that move parts of tenants' quotas:
	// see internal/admission/webhook/quotatransfer.
	QuotaWebhookName = Prefix + "quotas"
	// QuotaWebhookPath is the start of the path of the webhooks in [QuotaWebhookName].
	QuotaWebhookPath = "/quotas"
	// QuotaWebhookSuffix is the end of the names of these webhooks, which the API server shows in refusals.
	QuotaWebhookSuffix = "quotas.tenure.dev"
	// QuotaWebhookSeconds is the maximum time, in seconds, that a request waits for a
	// part of a quota.
	QuotaWebhookSeconds = 10
)

// QuotaWebhook returns the configuration of the webhooks that move parts of tenants' quotas. The API server
// ignores their failures: its own quotas deny every request that the webhooks would deny, and each
// namespace keeps its part of a quota while the webhooks are down. The API server calls them only in
// namespaces with a divided quota, and only for the resources that the quota counts.
func QuotaWebhook() *admissionregistrationv1.ValidatingWebhookConfiguration {
	namespaced := admissionregistrationv1.NamespacedScope
	changed := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	rule := func(operations []admissionregistrationv1.OperationType, group, version string, resources ...string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources, Scope: &namespaced,
		}}
	}
	rules := map[string][]admissionregistrationv1.RuleWithOperations{
		"pods":                   {rule(creates, "", "v1", "pods"), rule(changed[1:], "", "v1", "pods/resize")},
		"persistentvolumeclaims": {rule(changed, "", "v1", "persistentvolumeclaims")},
		"services":               {rule(changed, "", "v1", "services")},
		"objects":                {rule(creates, "*", "*", "*")},
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: QuotaWebhookName, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "free parts of a tenant's quota move to the namespace that needs them",
		}},
	}
	for _, class := range tenancy.DividedClasses {
		webhook := admissionregistrationv1.ValidatingWebhook{
			Name:         class + "." + QuotaWebhookSuffix,
			ClientConfig: webhookClient(),
			Rules:        rules[class],
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				tenancy.LabelDivided + class: tenancy.DividedValue,
			}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(QuotaWebhookSeconds)),
			AdmissionReviewVersions: []string{"v1"},
		}
		if class == "objects" {
			// Excludes frequent requests that no quota counts, and resources with a webhook of their own.
			webhook.MatchConditions = []admissionregistrationv1.MatchCondition{{
				Name:       "counted",
				Expression: "!(request.resource.resource in ['events', 'leases', 'pods', 'persistentvolumeclaims', 'services', 'endpoints', 'endpointslices']) && !request.resource.group.endsWith('authorization.k8s.io')",
			}}
		}
		configuration.Webhooks = append(configuration.Webhooks, webhook)
	}
	return configuration
}

// HostsWebhook returns the configuration of the webhook that reserves each host and path for one Ingress,
// within the scope that a Capsule Tenant chooses. The API server calls it only in namespaces of such
// Tenants.
func HostsWebhook() *admissionregistrationv1.ValidatingWebhookConfiguration {
	namespaced := admissionregistrationv1.NamespacedScope
	rule := on(writes, groupNetworking, "ingresses").RuleWithOperations
	rule.APIVersions, rule.Scope = []string{"v1"}, &namespaced
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: HostsWebhookName, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "only one Ingress has a host and path, within the scope of its Capsule Tenant",
		}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "hosts.tenure.dev",
			ClientConfig:            webhookClient(),
			Rules:                   []admissionregistrationv1.RuleWithOperations{rule},
			NamespaceSelector:       where(metav1.LabelSelectorOpExists, v1beta2.LabelCollisionScope),
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(webhookSeconds)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// AuditWebhook returns the configuration of the webhook for rules of Capsule Tenants: it writes events for
// rules with the action audit, and sets the default and managed metadata and the resources of rules. It
// refuses no request, so the API server ignores its failures. The API server calls it only in namespaces
// with such rules, and before the policies, so that the webhook also receives requests that the policies
// refuse.
func AuditWebhook() *admissionregistrationv1.MutatingWebhookConfiguration {
	namespaced := admissionregistrationv1.NamespacedScope
	rule := on(writes, "*", "*").RuleWithOperations
	rule.APIVersions, rule.Scope = []string{"*"}, &namespaced
	ephemeral := on(writes, "", "pods/ephemeralcontainers").RuleWithOperations
	ephemeral.APIVersions, ephemeral.Scope = []string{"v1"}, &namespaced
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: AuditWebhookName, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "rules of Capsule Tenants write events and set default and managed metadata and resources",
		}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         RulesWebhook,
			ClientConfig: webhookClient(),
			Rules:        []admissionregistrationv1.RuleWithOperations{rule, ephemeral},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				v1beta2.LabelRules: v1beta2.RulesAudited,
			}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(auditSeconds)),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "not-kubernetes", Expression: "request.kind.kind == 'Pod' || " + notKubernetes},
				{Name: "not-the-manager", Expression: notAdmin[0]},
				// The manager may not read tenants' Secrets.
				{Name: "not-secret", Expression: "request.resource.resource != 'secrets'"},
				{Name: "not-frequent", Expression: "!(request.resource.resource in ['events', 'leases', 'endpoints', 'endpointslices', 'rulestatuses', 'tenantparameters'])"},
			},
		}},
	}
}

// webhookClient returns the Service of the webhooks for the API server. The manager sets the path.
func webhookClient() admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: "flux-system", Name: WebhookService, Port: new(int32(443)),
	}}
}

// Webhook returns the configuration of the webhook for namespaces. The API server calls it only when an
// owner of a tenant creates a namespace, or changes its labels, annotations or owner references. So other
// requests neither wait for the webhook nor fail while it is down.
func Webhook() *admissionregistrationv1.MutatingWebhookConfiguration {
	scope := admissionregistrationv1.ClusterScope
	rules := on(writes, "", "namespaces").RuleWithOperations
	rules.APIVersions, rules.Scope = []string{"v1"}, &scope
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: WebhookName, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "owners' namespaces are counted, and get the labels and annotations of their tenant",
		}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    NamespaceWebhook,
			ClientConfig:            webhookClient(),
			Rules:                   []admissionregistrationv1.RuleWithOperations{rules},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(webhookSeconds)),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "changes-metadata", Expression: "request.operation == 'CREATE' || " + changed("labels") + " || " + changed("annotations") + " || " + changed("ownerReferences")},
				{Name: "not-kubernetes", Expression: notKubernetes},
				{Name: "not-the-manager", Expression: notAdmin[0]},
				{Name: "not-platform", Expression: notAdmin[1]},
				{Name: "by-an-owner", Expression: isOwner},
			},
		}},
	}
}
