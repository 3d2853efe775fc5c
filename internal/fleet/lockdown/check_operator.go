package lockdown

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// operatorName is the name of flux-operator's Deployment.
	operatorName = "flux-operator"
	// operatorFlag names the account as which flux-operator applies ResourceSets that name none, and
	// operatorVariable the variable with the same meaning.
	operatorFlag, operatorVariable = "--default-service-account", "DEFAULT_SERVICE_ACCOUNT"
	// fluxRules is the policy with the rule about ResourceSets.
	fluxRules = "tenure-flux-objects"
)

// operator checks that ResourceSets of tenants need an account: by flux-operator's own flag, which is no
// field of a FluxInstance, or by the rule about ResourceSets. It has no result if flux-operator does not
// run in Flux's namespace.
func (c Cluster) operator(ctx context.Context) ([]Result, error) {
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(deployments, func(d *unstructured.Unstructured) bool { return d.GetName() == operatorName })
	if i < 0 {
		return nil, nil
	}
	bindings, err := c.list(ctx, validatingBinding)
	if err != nil {
		return nil, err
	}
	return []Result{operatorAccount(deployments[i], slices.ContainsFunc(bindings, deniesFluxObjects))}, nil
}

// operatorAccount returns the result for flux-operator's Deployment. ruled reports whether the rule
// about ResourceSets denies.
func operatorAccount(d *unstructured.Unstructured, ruled bool) Result {
	const name = operatorName + " " + operatorFlag
	switch {
	case len(valuesOf(arguments(d), operatorFlag)) > 0 || hasVariable(d, operatorVariable):
		return good(name, "in force")
	case ruled:
		return good(name, "not set, and not needed in namespaces with a tenant's label: there the rule tenure-resource-sets demands an account of ResourceSets")
	}
	return failed(name, "missing, so that a ResourceSet of a tenant that names no account is applied as cluster-admin").
		advise("set multitenancy.enabled: true in the values of flux-operator's chart, or install the rules")
}

// hasVariable reports whether the first container of a Deployment has an environment variable with a
// value.
func hasVariable(d *unstructured.Unstructured, name string) bool {
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return false
	}
	return slices.ContainsFunc(asList(asMap(containers[0])["env"]), func(v any) bool {
		value, _ := asMap(v)["value"].(string)
		return asMap(v)["name"] == name && value != ""
	})
}

// deniesFluxObjects reports whether an object is a binding of the policy with the rule about
// ResourceSets, and denies.
func deniesFluxObjects(b *unstructured.Unstructured) bool {
	policy, _, _ := unstructured.NestedString(b.Object, "spec", "policyName")
	actions, _, _ := unstructured.NestedStringSlice(b.Object, "spec", "validationActions")
	return policy == fluxRules && slices.Contains(actions, "Deny")
}
