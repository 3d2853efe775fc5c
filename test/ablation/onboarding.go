package ablation

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhookDelay is the time after which the API server has read a change of a webhook configuration. The
// webhook for quotas changes no object, so no response shows whether the API server has read the change.
const webhookDelay = 2 * time.Second

// quotaWebhook returns the control that is the webhook for divided quotas.
func quotaWebhook() Control {
	return Control{
		Name: "webhook " + admission.QuotaWebhookSuffix,
		Away: "its ValidatingWebhookConfiguration is deleted",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			nothing := func(context.Context) error { return nil }
			c := &admissionv1.ValidatingWebhookConfiguration{}
			if err := t.admin.Get(ctx, client.ObjectKey{Name: admission.QuotaWebhookName}, c); err != nil {
				return nothing, err
			}
			if err := t.admin.Delete(ctx, c); err != nil {
				return nothing, err
			}
			restore := func(ctx context.Context) error {
				return errors.Join(t.admin.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
					ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: c.Labels, Annotations: c.Annotations}, Webhooks: c.Webhooks,
				}), wait(ctx, webhookDelay))
			}
			return restore, wait(ctx, webhookDelay)
		},
	}
}

// wait waits for a duration, and returns an error if the context ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// appliedAlone returns the control that no delivery applies another Tenant together with the tenant's.
func appliedAlone() Control {
	return Control{
		Name: "a Kustomization for each Tenant",
		Away: "the labels of another Tenant name the Kustomization that applied the tenant's",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			nothing := func(context.Context) error { return nil }
			tenants := &unstructured.UnstructuredList{}
			tenants.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenantList"))
			if err := t.admin.List(ctx, tenants); err != nil {
				return nothing, err
			}
			var own, other *unstructured.Unstructured
			for i := range tenants.Items {
				if tenants.Items[i].GetName() == t.tenant.Name {
					own = &tenants.Items[i]
				} else {
					other = &tenants.Items[i]
				}
			}
			if own == nil || other == nil || flux.AppliedBy(own.GetLabels()).Kind == "" {
				return nothing, errors.New("the fleet has no two Tenants that Flux applied")
			}
			label := func(ctx context.Context, labels map[string]string) error {
				before := other.DeepCopy()
				other.SetLabels(labels)
				return t.admin.Patch(ctx, other, client.MergeFrom(before))
			}
			labels := other.GetLabels()
			return func(ctx context.Context) error { return label(ctx, labels) }, label(ctx, own.GetLabels())
		},
	}
}
