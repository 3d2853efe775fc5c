package failureevents

import (
	"slices"

	"github.com/tenure-dev/tenure/internal/manager/trim"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds that apply the manifests of a tenant. The package reads a few of their fields,
// and does not need Flux's types.
var (
	Kustomization = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	HelmRelease   = schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}
)

// reasonDependency is the reason of an object that waits for another object. It is not a
// failure.
const reasonDependency = "DependencyNotReady"

// The conditions of Flux's objects. When Flux rolls back or uninstalls a failed HelmRelease,
// Ready is a copy of Remediated and describes the rollback; the cause of the failure is in
// Released or TestSuccess.
const (
	conditionReady      = "Ready"
	conditionRemediated = "Remediated"
	conditionReleased   = "Released"
	conditionTested     = "TestSuccess"
)

// failureOf returns the failure of an object, and false if the object has not failed.
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

// Condition returns the text fields of an object's condition by their names, or nil if the
// object does not have the condition.
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

// Trim reduces a Kustomization or HelmRelease to the fields that this package and
// reconcileretry read. The
// cache holds all of them, and their inventories and values can be long. Trim returns objects
// of other kinds unchanged. It returns an error if a field cannot be set in the new object.
func Trim(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || !slices.Contains([]schema.GroupVersionKind{Kustomization, HelmRelease}, u.GroupVersionKind()) {
		return object, nil
	}
	return trim.Keep(u,
		"metadata.namespace",
		"metadata.name",
		"metadata.uid",
		"metadata.resourceVersion",
		"metadata.generation",
		"metadata.creationTimestamp",
		"spec.kubeConfig",
		"spec.serviceAccountName",
		"spec.targetNamespace",
		"spec.storageNamespace",
		"status.conditions",
		"status.lastAttemptedRevision",
	)
}
