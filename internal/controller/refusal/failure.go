package refusal

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kustomizationKind is read without Flux's types: a few fields are enough.
var kustomizationKind = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}

// reasonDependency is the reason of a Kustomization that waits for another one:
// nothing has failed.
const reasonDependency = "DependencyNotReady"

// failureOf returns what a Kustomization says about why it is not ready.
func failureOf(k *unstructured.Unstructured) (Failure, bool) {
	c := readyCondition(k)
	if c["status"] != "False" || c["reason"] == reasonDependency {
		return Failure{}, false
	}
	revision, _, _ := unstructured.NestedString(k.Object, "status", "lastAttemptedRevision")
	f := Failure{
		Namespace: k.GetNamespace(), Name: k.GetName(), UID: string(k.GetUID()),
		Reason: c["reason"], Message: c["message"], Revision: revision,
	}
	return f, f.Reason != ""
}

func ready(k *unstructured.Unstructured) bool { return readyCondition(k)["status"] == "True" }

// readyCondition returns the fields of the condition Ready, nil without it.
func readyCondition(k *unstructured.Unstructured) map[string]string {
	conditions, _, _ := unstructured.NestedSlice(k.Object, "status", "conditions")
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if !ok || condition["type"] != "Ready" {
			continue
		}
		fields := map[string]string{}
		for name, value := range condition {
			if text, ok := value.(string); ok {
				fields[name] = text
			}
		}
		return fields
	}
	return nil
}

// Trim leaves of a Kustomization what this package reads, so that a cache of all
// of them stays small: the inventory of what was applied can be long.
func Trim(object any) (any, error) {
	k, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := map[string]any{"apiVersion": k.GetAPIVersion(), "kind": k.GetKind()}
	for _, path := range [][]string{
		{"metadata", "namespace"},
		{"metadata", "name"},
		{"metadata", "uid"},
		{"metadata", "resourceVersion"},
		{"metadata", "generation"},
		{"spec", "kubeConfig"},
		{"spec", "serviceAccountName"},
		{"spec", "targetNamespace"},
		{"status", "conditions"},
		{"status", "lastAttemptedRevision"},
	} {
		value, found, err := unstructured.NestedFieldNoCopy(k.Object, path...)
		if err != nil || !found {
			continue
		}
		if err := unstructured.SetNestedField(kept, value, path...); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: kept}, nil
}
