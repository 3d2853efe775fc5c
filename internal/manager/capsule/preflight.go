package capsule

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrRuns is wrapped by the error that reports that Capsule itself runs.
var ErrRuns = errors.New("Capsule itself is in this cluster") //nolint:staticcheck // a name

// deploymentName is the name of the Deployment of Capsule's controller.
const deploymentName = "capsule-controller-manager"

// Preflight returns an error that wraps [ErrRuns] if Capsule itself runs in the cluster. It
// also returns an error if it cannot check this or if Capsule's CRDs are missing. Two
// controllers would undo each other's work, and Capsule's webhooks refuse Tenure's objects.
// The reader must not need a started cache.
func Preflight(ctx context.Context, reader client.Reader) error {
	if err := conversion(ctx, reader); err != nil {
		return err
	}
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

// conversion returns an error if the API server still calls Capsule's webhook to convert its
// kinds between versions: without Capsule, the API server could then neither read nor write
// the objects. Applying other CRDs does not remove the webhook.
func conversion(ctx context.Context, reader client.Reader) error {
	for _, name := range []string{"tenants", "capsuleconfigurations"} {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		name += "." + v1beta2.GroupVersion.Group
		err := reader.Get(ctx, client.ObjectKey{Name: name}, crd)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot find CustomResourceDefinition %s: apply config/capsule", name)
		}
		if err != nil {
			return fmt.Errorf("cannot read the definition of Capsule's kinds: %w", err)
		}
		if strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); strategy == "Webhook" {
			return fmt.Errorf("%w: CustomResourceDefinition %s is converted by its webhook; set spec.conversion to strategy None", ErrRuns, name)
		}
	}
	return nil
}
