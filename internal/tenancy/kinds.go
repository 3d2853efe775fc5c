package tenancy

import "slices"

// CountedKinds returns the kinds whose number in a namespace of a tenant is limited, as
// RESOURCE.GROUP, which is also the name of their CRD: the kinds that the controllers of Flux and
// flux-operator reconcile. ExternalArtifacts are not among them, because only the platform creates
// these.
func CountedKinds() []string {
	kinds := []string{
		"artifactgenerators.source.extensions.fluxcd.io",
		"helmreleases.helm.toolkit.fluxcd.io",
		"kustomizations.kustomize.toolkit.fluxcd.io",
	}
	for group, resources := range map[string][]string{
		"fluxcd.controlplane.io":         {"resourcesetinputproviders", "resourcesets"},
		"image.toolkit.fluxcd.io":        {"imagepolicies", "imagerepositories", "imageupdateautomations"},
		"notification.toolkit.fluxcd.io": {"alerts", "providers", "receivers"},
		"source.toolkit.fluxcd.io":       {"buckets", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories"},
	} {
		for _, resource := range resources {
			kinds = append(kinds, resource+"."+group)
		}
	}
	slices.Sort(kinds)
	return kinds
}
