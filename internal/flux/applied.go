package flux

// LabelResourceSetNamespace is the label in which flux-operator writes the namespace of the
// ResourceSet from which it applied an object.
const LabelResourceSetNamespace = "resourceset.fluxcd.controlplane.io/namespace"

// AppliedFrom returns the namespace of the Kustomization, HelmRelease or ResourceSet that
// applied an object with these labels, or "".
func AppliedFrom(labels map[string]string) string {
	for _, label := range []string{"kustomize.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/namespace", LabelResourceSetNamespace} {
		if namespace := labels[label]; namespace != "" {
			return namespace
		}
	}
	return ""
}
