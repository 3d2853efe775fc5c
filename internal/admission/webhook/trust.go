package webhook

import (
	"bytes"
	"context"
	"fmt"
	"net/url"

	rules "github.com/tenure-dev/tenure/internal/admission"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trust returns a function that writes the certificate authorities into the webhook configurations, also
// those for Capsule if capsule is set.
func trust(c client.Client, capsule bool) func(context.Context, []byte) error {
	return func(ctx context.Context, trusted []byte) error {
		return configure(ctx, c, capsule, func(config *admissionregistrationv1.WebhookClientConfig, _ string) bool {
			changed := !bytes.Equal(config.CABundle, trusted)
			config.CABundle = trusted
			return changed
		})
	}
}

// publish returns a function that writes the secret at the end of the paths in the webhook configurations,
// also those for Capsule if capsule is set.
func publish(c client.Client, capsule bool) func(context.Context, string) error {
	return func(ctx context.Context, secret string) error {
		return configure(ctx, c, capsule, func(config *admissionregistrationv1.WebhookClientConfig, prefix string) bool {
			path := prefix + "/" + secret
			if config.Service != nil {
				changed := config.Service.Path == nil || *config.Service.Path != path
				config.Service.Path = &path
				return changed
			}
			if config.URL == nil {
				return false
			}
			u, err := url.Parse(*config.URL)
			if err != nil || u.Path == path {
				return false
			}
			u.Path = path
			config.URL = new(u.String())
			return true
		})
	}
}

// configure applies change to the clients of all webhook configurations. change reports whether it changed
// the client.
func configure(ctx context.Context, c client.Client, capsule bool, change func(config *admissionregistrationv1.WebhookClientConfig, prefix string) bool) error {
	owners := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := update(ctx, c, rules.WebhookName, owners, func() (changed bool) {
		for i := range owners.Webhooks {
			changed = change(&owners.Webhooks[i].ClientConfig, rules.WebhookPath) || changed
		}
		return changed
	}); err != nil {
		return err
	}
	quotas := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := update(ctx, c, rules.QuotaWebhookName, quotas, func() (changed bool) {
		for i := range quotas.Webhooks {
			changed = change(&quotas.Webhooks[i].ClientConfig, rules.QuotaWebhookPath) || changed
		}
		return changed
	})
	// A platform may leave out this configuration and those for Capsule.
	if err := client.IgnoreNotFound(err); err != nil || !capsule {
		return err
	}
	audit := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := update(ctx, c, rules.AuditWebhookName, audit, func() (changed bool) {
		for i := range audit.Webhooks {
			changed = change(&audit.Webhooks[i].ClientConfig, rules.AuditWebhookPath) || changed
		}
		return changed
	}); client.IgnoreNotFound(err) != nil {
		return err
	}
	hosts := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return client.IgnoreNotFound(update(ctx, c, rules.HostsWebhookName, hosts, func() (changed bool) {
		for i := range hosts.Webhooks {
			changed = change(&hosts.Webhooks[i].ClientConfig, rules.HostsWebhookPath) || changed
		}
		return changed
	}))
}

// update changes a configuration, and retries after a conflict with another writer.
func update(ctx context.Context, c client.Client, name string, configuration client.Object, change func() bool) error {
	for {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, configuration); err != nil {
			return fmt.Errorf("cannot read the webhook's configuration %s, which is part of config/webhook: %w", name, err)
		}
		if !change() {
			return nil
		}
		err := c.Update(ctx, configuration)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("cannot tell the API server how to call the webhook in %s: %w", name, err)
		}
	}
}
