package capsule

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrRuns is wrapped by the error that says that Capsule itself runs.
var ErrRuns = errors.New("Capsule itself is in this cluster") //nolint:staticcheck // a name

// deploymentName is that of Capsule's controller.
const deploymentName = "capsule-controller-manager"

// Preflight fails when Capsule itself runs in the cluster, with an error that
// wraps [ErrRuns], and when it cannot tell or lacks Capsule's kinds: two
// controllers would undo each other's work, and Capsule's webhooks refuse what
// Tenure makes. The reader must not need a cache that runs.
func Preflight(ctx context.Context, reader client.Reader) error {
	overrides := v1beta2.Overrides{
		MutatingWebhookConfigurationName:   "capsule-mutating-webhook-configuration",
		ValidatingWebhookConfigurationName: "capsule-validating-webhook-configuration",
	}
	configuration := &v1beta2.CapsuleConfiguration{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: v1beta2.ConfigurationName}, configuration); {
	case err == nil:
		given := configuration.Spec.Overrides
		overrides.MutatingWebhookConfigurationName = cmp.Or(given.MutatingWebhookConfigurationName, overrides.MutatingWebhookConfigurationName)
		overrides.ValidatingWebhookConfigurationName = cmp.Or(given.ValidatingWebhookConfigurationName, overrides.ValidatingWebhookConfigurationName)
	case apimeta.IsNoMatchError(err):
		return fmt.Errorf("cannot find Capsule's kinds: apply config/capsule: %w", err)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("cannot read the CapsuleConfiguration: %w", err)
	}
	for kind, name := range map[string]string{
		"MutatingWebhookConfiguration":   overrides.MutatingWebhookConfigurationName,
		"ValidatingWebhookConfiguration": overrides.ValidatingWebhookConfigurationName,
	} {
		webhooks := &metav1.PartialObjectMetadata{}
		webhooks.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		err := reader.Get(ctx, client.ObjectKey{Name: name}, webhooks)
		if err == nil {
			return fmt.Errorf("%w: there is its %s %s; remove Capsule first, but keep its CRDs", ErrRuns, kind, name)
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot tell whether Capsule runs: %w", err)
		}
	}
	deployments := &unstructured.UnstructuredList{}
	deployments.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DeploymentList"})
	if err := reader.List(ctx, deployments, client.MatchingFields{"metadata.name": deploymentName}); err != nil {
		return fmt.Errorf("cannot tell whether Capsule runs: %w", err)
	}
	for _, d := range deployments.Items {
		return fmt.Errorf("%w: there is its Deployment %s/%s; remove Capsule first, but keep its CRDs", ErrRuns, d.GetNamespace(), d.GetName())
	}
	return nil
}
