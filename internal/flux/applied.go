package flux

import "strings"

// LabelResourceSetNamespace is the label in which flux-operator writes the namespace of the
// ResourceSet from which it applied an object.
const LabelResourceSetNamespace = resourceSetLabels + "namespace"

// resourceSetLabels begins the labels that flux-operator writes on the objects of a ResourceSet.
const resourceSetLabels = "resourceset.fluxcd.controlplane.io/"

// applierLabels begin the labels that name the object that applied another one, by its kind.
var applierLabels = []struct {
	kind   Kind
	labels string
}{{Kustomization, "kustomize.toolkit.fluxcd.io/"}, {HelmRelease, "helm.toolkit.fluxcd.io/"}, {ResourceSet, resourceSetLabels}}

// IsAppliedLabel reports whether a label is one of those from which [AppliedBy] reads.
func IsAppliedLabel(key string) bool {
	for _, by := range applierLabels {
		if strings.HasPrefix(key, by.labels) {
			return true
		}
	}
	return false
}

// AppliedBy returns the Kustomization, HelmRelease or ResourceSet that applied an object with
// these labels, or a Ref without a kind.
func AppliedBy(labels map[string]string) Ref {
	for _, by := range applierLabels {
		if namespace := labels[by.labels+"namespace"]; namespace != "" {
			return Ref{by.kind, namespace, labels[by.labels+"name"]}
		}
	}
	return Ref{}
}

// AppliedFrom returns the namespace of the Kustomization, HelmRelease or ResourceSet that
// applied an object with these labels, or "".
func AppliedFrom(labels map[string]string) string { return AppliedBy(labels).Namespace }
