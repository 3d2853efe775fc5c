package admission

import (
	"bytes"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

//go:generate go run ../../hack/policies ../../config ../../docs/reference

// Manifests returns the policies and bindings of all rules as YAML documents. It returns an error
// if an object cannot be encoded.
func Manifests() ([]byte, error) {
	policies, bindings := Policies()
	return policyDocuments("# The rules for tenants. Generated from internal/admission; do not edit.\n", policies, bindings)
}

// WarnManifests returns [WarnPolicies] as YAML documents. It returns an error if an object cannot
// be encoded.
func WarnManifests() ([]byte, error) {
	policies, bindings := WarnPolicies()
	return policyDocuments("# The rules about objects that always deny, for a cluster in warn mode. Generated from\n# internal/admission; do not edit.\n", policies, bindings)
}

func policyDocuments(title string, policies []admissionregistrationv1.ValidatingAdmissionPolicy, bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) ([]byte, error) {
	var objects []any
	for i := range policies {
		objects = append(objects, &policies[i])
	}
	for i := range bindings {
		objects = append(objects, &bindings[i])
	}
	return documents(title, objects...)
}

// ShardManifests returns [ShardPolicy] as YAML documents. It returns an error if an object cannot
// be encoded.
func ShardManifests() ([]byte, error) {
	policy, bindings := ShardPolicy()
	objects := []any{policy}
	for i := range bindings {
		objects = append(objects, &bindings[i])
	}
	return documents("# Puts the objects of a tenant's namespace into the shard of the namespace. Needs\n# Kubernetes 1.36. Generated from internal/admission; do not edit.\n", objects...)
}

// DefaultsManifests returns [DefaultsPolicy] as YAML documents. It returns an error if an object
// cannot be encoded.
func DefaultsManifests() ([]byte, error) {
	policy, binding := DefaultsPolicy()
	return documents("# Gives objects in tenants' namespaces their default classes and metadata. Needs\n# Kubernetes 1.36. Generated from internal/admission; do not edit.\n", policy, binding)
}

// WebhookManifest returns [Webhook] and [QuotaWebhook] as YAML documents. It returns an error if
// an object cannot be encoded.
func WebhookManifest() ([]byte, error) {
	return documents("# The configurations of the webhooks. Generated from internal/admission; do not edit.\n# The manager fills in the path and the CA bundle.\n", Webhook(), QuotaWebhook())
}

func documents(title string, objects ...any) ([]byte, error) {
	out := bytes.NewBufferString(title)
	for _, object := range objects {
		// A map leaves out the fields that an object does not have.
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("cannot convert a policy: %w", err)
		}
		delete(content, "status")
		document, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("cannot write a policy: %w", err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", document); err != nil {
			return nil, fmt.Errorf("cannot write a policy: %w", err)
		}
	}
	return out.Bytes(), nil
}

// CapsuleManifests returns [CapsuleRules], [AuditWebhook] and [HostsWebhook] as YAML documents. It
// returns an error if an object cannot be encoded.
func CapsuleManifests() ([]byte, error) {
	policies, bindings := CapsuleRules()
	var objects []any
	for i := range policies {
		objects = append(objects, &policies[i], &bindings[i])
	}
	objects = append(objects, AuditWebhook(), HostsWebhook())
	return documents("# The rules of Capsule's Tenants in spec.rules, and the webhooks for these Tenants, in which the\n# manager fills in the path and the CA bundle. Generated from internal/admission; do not edit.\n", objects...)
}
