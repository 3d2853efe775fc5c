package webhook

import (
	"bytes"
	"context"
	"fmt"

	rules "github.com/tenure-dev/tenure/internal/admission"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trust tells the API server which authorities to trust.
func trust(c client.Client) func(context.Context, []byte) error {
	return func(ctx context.Context, trusted []byte) error {
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		for {
			if err := c.Get(ctx, client.ObjectKey{Name: rules.WebhookName}, configuration); err != nil {
				return fmt.Errorf("cannot read the webhook's configuration %s, which is part of config/webhook: %w", rules.WebhookName, err)
			}
			changed := false
			for i := range configuration.Webhooks {
				if c := &configuration.Webhooks[i].ClientConfig; !bytes.Equal(c.CABundle, trusted) {
					c.CABundle, changed = trusted, true
				}
			}
			if !changed {
				return nil
			}
			err := c.Update(ctx, configuration)
			if err == nil {
				return nil
			}
			if !apierrors.IsConflict(err) {
				return fmt.Errorf("cannot tell the API server whom to trust in %s: %w", rules.WebhookName, err)
			}
		}
	}
}
