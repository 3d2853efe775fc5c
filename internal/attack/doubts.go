package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// doubtsOf returns the parts of the fleet that may contain controls but that this cluster
// only simulates: objects that it assumes to be ready without applying them, and webhooks
// with failurePolicy Ignore, whose controllers are simulated. The webhooks of Tenure's
// quotas are not controls: the manager moves quota in them, and the quota decides.
func doubtsOf(ctx context.Context, admin client.Reader) ([]string, error) {
	var doubts []string
	for _, kind := range []flux.Kind{flux.Kustomization, flux.HelmRelease} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersionKind())
		if err := admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot see what is assumed: %w", err)
		}
		for _, u := range list.Items {
			if a, _ := answerOf(&u); a.message == flux.AssumedMessage {
				doubts = append(doubts, flux.Ref{Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()}.String()+" (assumed)")
			}
		}
	}
	var hooks admissionv1.ValidatingWebhookConfigurationList
	if err := admin.List(ctx, &hooks); err != nil {
		return nil, fmt.Errorf("cannot see the webhooks: %w", err)
	}
	for _, configuration := range hooks.Items {
		for _, hook := range configuration.Webhooks {
			if strings.HasSuffix(hook.Name, "."+admission.QuotaWebhookSuffix) {
				continue
			}
			if hook.ClientConfig.Service != nil && hook.FailurePolicy != nil && *hook.FailurePolicy == admissionv1.Ignore {
				doubts = append(doubts, "webhook "+hook.Name+" (its controller is simulated)")
			}
		}
	}
	return doubts, nil
}

// admission says whether an admission policy may stop the attack: what only the
// tenant's rights, Flux's flags or a proxy stop, none does.
func (a Attack) admission() bool {
	return a.Via != Proxy && slices.ContainsFunc(a.Controls, func(control string) bool {
		return !strings.HasPrefix(control, "RBAC") && !strings.HasPrefix(control, "flag ")
	})
}
