package lockdown

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// setDefaults sets the fields that one of our manifests leaves out to the defaults of the
// API server: https://kubernetes.io/docs/reference/kubernetes-api/.
func setDefaults(o *unstructured.Unstructured) {
	spec := asMap(o.Object["spec"])
	switch o.GetKind() {
	case "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy":
		setDefault(spec, "failurePolicy", "Fail")
		setMatchDefaults(asMap(spec["matchConstraints"]))
	case "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding":
		setMatchDefaults(asMap(spec["matchResources"]))
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		for _, w := range asList(o.Object["webhooks"]) {
			webhook := asMap(w)
			setDefault(webhook, "failurePolicy", "Fail")
			setDefault(webhook, "matchPolicy", "Equivalent")
			setDefault(webhook, "timeoutSeconds", int64(10))
			if o.GetKind() == "MutatingWebhookConfiguration" {
				setDefault(webhook, "reinvocationPolicy", "Never")
			}
			setScopes(webhook["rules"])
			setDefault(asMap(asMap(webhook["clientConfig"])["service"]), "port", int64(443))
		}
	case "RoleBinding", "ClusterRoleBinding":
		for _, s := range asList(o.Object["subjects"]) {
			if subject := asMap(s); subject["kind"] != "ServiceAccount" {
				setDefault(subject, "apiGroup", "rbac.authorization.k8s.io")
			}
		}
	case kindCRD:
		names := asMap(spec["names"])
		kind, _ := names["kind"].(string)
		setDefault(names, "listKind", kind+"List")
		setDefault(names, "singular", strings.ToLower(kind))
		setDefault(spec, "conversion", map[string]any{"strategy": "None"})
	}
}

func setMatchDefaults(match map[string]any) {
	setDefault(match, "matchPolicy", "Equivalent")
	setScopes(match["resourceRules"])
	setScopes(match["excludeResourceRules"])
}

func setScopes(rules any) {
	for _, rule := range asList(rules) {
		setDefault(asMap(rule), "scope", "*")
	}
}

// setDefault sets a field of a map if the map exists and lacks the field.
func setDefault(m map[string]any, field string, value any) {
	if _, has := m[field]; m != nil && !has {
		m[field] = value
	}
}

// dropManaged removes the fields that other components keep up to date: the rules of
// aggregated roles, and the CA bundle and the path of a webhook, which the manager sets.
func dropManaged(want, is *unstructured.Unstructured) {
	if _, aggregated := want.Object["aggregationRule"]; aggregated {
		delete(want.Object, "rules")
		delete(is.Object, "rules")
	}
	for _, o := range []*unstructured.Unstructured{want, is} {
		for _, webhook := range asList(o.Object["webhooks"]) {
			config := asMap(asMap(webhook)["clientConfig"])
			delete(config, "caBundle")
			delete(asMap(config["service"]), "path")
		}
	}
}
