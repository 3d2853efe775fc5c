package tenancy

import "slices"

// CountedKinds are the kinds of which a tenant may have a bounded number in a
// namespace, as RESOURCE.GROUP, which is also the name of their CRD: what the
// controllers of Flux and flux-operator work for. ExternalArtifacts are not among them: only the
// platform makes those.
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
