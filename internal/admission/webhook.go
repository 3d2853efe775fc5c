package admission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// WebhookName is the name of the configuration of the webhook for owners'
	// namespaces: see internal/webhook.
	WebhookName = Prefix + "namespaces"
	// WebhookService is the name of its Service, and of the Secret with its
	// certificate, in namespace flux-system.
	WebhookService = Prefix + "webhook"
	// WebhookPath is the path that is called.
	WebhookPath = "/namespaces"

	// NamespaceWebhook is what refusals of the webhook call it.
	NamespaceWebhook = "namespaces.tenure.dev"

	// webhookSeconds is how long an owner waits when the webhook does not answer.
	webhookSeconds = 5
)

// Webhook returns the configuration of the webhook. It is called for namespaces
// that owners of tenants make and for nothing else, so that nobody else waits for
// it or is refused when it is away.
func Webhook() *admissionregistrationv1.MutatingWebhookConfiguration {
	scope := admissionregistrationv1.ClusterScope
	rules := on(creates, "", "namespaces").RuleWithOperations
	rules.APIVersions, rules.Scope = []string{"v1"}, &scope
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: WebhookName, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "owners' namespaces are counted, and born with what their tenant's have",
		}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: NamespaceWebhook,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: managerNamespace, Name: WebhookService, Path: new(WebhookPath), Port: new(int32(443)),
			}},
			Rules:                   []admissionregistrationv1.RuleWithOperations{rules},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(webhookSeconds)),
			AdmissionReviewVersions: []string{"v1"},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "not-kubernetes", Expression: notKubernetes},
				{Name: "not-the-manager", Expression: notAdmin[0]},
				{Name: "not-platform", Expression: notAdmin[1]},
				{Name: "by-an-owner", Expression: isOwner},
			},
		}},
	}
}
