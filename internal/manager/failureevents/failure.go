package failureevents

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds that apply what a tenant delivers. They are read without Flux's types:
// a few fields are enough.
var (
	Kustomization = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	HelmRelease   = schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}
)

// reasonDependency is the reason of an object that waits for another one: nothing
// has failed.
const reasonDependency = "DependencyNotReady"

// The conditions of Flux's objects. Ready of a HelmRelease that was rolled back, or
// uninstalled, after a failure is what Remediated is, and says how that went; what
// failed is in one of the other two.
const (
	conditionReady      = "Ready"
	conditionRemediated = "Remediated"
	conditionReleased   = "Released"
	conditionTested     = "TestSuccess"
)

// failureOf returns what an object says about why it is not ready.
func failureOf(u *unstructured.Unstructured) (Failure, bool) {
	c := Condition(u, conditionReady)
	if c["status"] != "False" || c["reason"] == reasonDependency {
		return Failure{}, false
	}
	if Condition(u, conditionRemediated)["reason"] == c["reason"] {
		for _, name := range []string{conditionTested, conditionReleased} {
			if cause := Condition(u, name); cause["status"] == "False" && cause["reason"] != "" {
				c = cause
			}
		}
	}
	revision, _, _ := unstructured.NestedString(u.Object, "status", "lastAttemptedRevision")
	f := Failure{
		Kind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()),
		Reason: c["reason"], Message: c["message"], Revision: revision,
	}
	return f, f.Reason != ""
}

func ready(u *unstructured.Unstructured) bool {
	return Condition(u, conditionReady)["status"] == "True"
}

// Condition returns the fields of an object's condition that are text, by their names;
// nil without the condition.
func Condition(u *unstructured.Unstructured, name string) map[string]string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if !ok || condition["type"] != name {
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

// Trim leaves of a Kustomization or HelmRelease what this package reads, so that a
// cache of all of them stays small: the inventory of what was applied, and values,
// can be long. It leaves all else alone.
func Trim(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || !slices.Contains([]schema.GroupVersionKind{Kustomization, HelmRelease}, u.GroupVersionKind()) {
		return object, nil
	}
	kept := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}
	for _, path := range [][]string{
		{"metadata", "namespace"},
		{"metadata", "name"},
		{"metadata", "uid"},
		{"metadata", "resourceVersion"},
		{"metadata", "generation"},
		{"spec", "kubeConfig"},
		{"spec", "serviceAccountName"},
		{"spec", "targetNamespace"},
		{"spec", "storageNamespace"},
		{"status", "conditions"},
		{"status", "lastAttemptedRevision"},
	} {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...)
		if err != nil || !found {
			continue
		}
		if err := unstructured.SetNestedField(kept, value, path...); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: kept}, nil
}
