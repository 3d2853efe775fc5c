package lockdown

import (
	"context"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// defaultsFile is the file in a fleet with the policy that fills in defaults.
	defaultsFile = Infrastructure + "/defaults.yaml"
	// defaultsName is the name of the policy, and of its row in the check.
	defaultsName = "tenure-defaults"
)

// mutatingPolicy is the kind of the policy, which Kubernetes serves from 1.36.
var mutatingPolicy = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}

// writeDefaults adds the policy tenure-defaults to the tree, or removes it.
func (t *tree) writeDefaults(c *component, wanted *bool) {
	_, c.Defaults = t.before[defaultsFile]
	if wanted != nil {
		c.Defaults = *wanted
	}
	delete(t.now, defaultsFile)
	if c.Defaults {
		t.now[defaultsFile] = string(config.Defaults())
	}
}

// defaults checks that the policy tenure-defaults is installed if a tenant has defaults to fill
// in. [Cluster.installed] compares the content of an installed policy.
func (c Cluster) defaults(ctx context.Context) ([]Result, error) {
	parameters, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("TenantParameters"))
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	namespace := withDefaults(parameters)
	if namespace == "" {
		return nil, nil
	}
	policies, err := c.list(ctx, mutatingPolicy)
	if meta.IsNoMatchError(err) {
		return []Result{failed(defaultsName, "namespace "+namespace+" has defaults, which nothing fills in: they need Kubernetes 1.36, which serves MutatingAdmissionPolicies")}, nil
	}
	if err != nil || hasName(policies, defaultsName) {
		return nil, err
	}
	return []Result{failed(defaultsName, "namespace "+namespace+" has defaults, which nothing fills in").advise(c.rulesAdvice("--defaults", "defaults.enabled: true"))}, nil
}

// withDefaults returns the first namespace whose parameters have a default class, or metadata for
// all objects; "" if none has.
func withDefaults(parameters []*unstructured.Unstructured) string {
	for _, p := range parameters {
		for _, field := range [][]string{
			{"spec", "defaultClasses"},
			{"spec", "tenants", "workloads", "metadata"},
			{"spec", "tenants", "network", "services", "metadata"},
		} {
			if values, _, _ := unstructured.NestedMap(p.Object, field...); len(values) > 0 {
				return p.GetNamespace()
			}
		}
	}
	return ""
}

func hasName(objects []*unstructured.Unstructured, name string) bool {
	for _, o := range objects {
		if o.GetName() == name {
			return true
		}
	}
	return false
}
