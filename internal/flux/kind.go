package flux

import (
	"slices"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	automationv1 "github.com/fluxcd/image-automation-controller/api/v1"
	reflectorv1 "github.com/fluxcd/image-reflector-controller/api/v1"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	notificationv1 "github.com/fluxcd/notification-controller/api/v1"
	notificationv1b3 "github.com/fluxcd/notification-controller/api/v1beta3"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is a kind of Flux's objects, spelled as in their manifests.
type Kind string

// The kinds that Flux's controllers reconcile, but ArtifactGenerator, which no fleet without source-watcher serves.
const (
	OCIRepository         Kind = "OCIRepository"
	Bucket                Kind = "Bucket"
	GitRepository         Kind = "GitRepository"
	HelmRepository        Kind = "HelmRepository"
	HelmChart             Kind = "HelmChart"
	ExternalArtifact      Kind = "ExternalArtifact"
	ImageRepository       Kind = "ImageRepository"
	ImagePolicy           Kind = "ImagePolicy"
	ImageUpdateAutomation Kind = "ImageUpdateAutomation"
	HelmRelease           Kind = "HelmRelease"
	Kustomization         Kind = "Kustomization"
	Receiver              Kind = "Receiver"
	Provider              Kind = "Provider"
	Alert                 Kind = "Alert"
)

// The kinds that flux-operator reconciles. It is not a part of Flux, and few clusters
// have it, so [AllKinds] does not include them.
const (
	FluxInstance             Kind = "FluxInstance"
	ResourceSet              Kind = "ResourceSet"
	ResourceSetInputProvider Kind = "ResourceSetInputProvider"
)

// AllKinds returns every kind of Flux in the order of `flux get all`.
func AllKinds() []Kind {
	var all []Kind
	for _, info := range kinds {
		if info.version != operatorVersion {
			all = append(all, info.kind)
		}
	}
	return all
}

// OperatorKinds returns the kinds of flux-operator.
func OperatorKinds() []Kind { return []Kind{FluxInstance, ResourceSet, ResourceSetInputProvider} }

// SourceKinds returns the kinds of `flux get sources all`, in its order.
func SourceKinds() []Kind {
	return []Kind{OCIRepository, Bucket, GitRepository, HelmRepository, HelmChart, ExternalArtifact}
}

// DeployKinds returns the kinds that a running fleet is made of: sources,
// Kustomizations and HelmReleases. All of them are reconciled in every
// installation of Flux, unlike image and notification objects.
func DeployKinds() []Kind { return append(SourceKinds(), HelmRelease, Kustomization) }

// kindInfo holds the properties of a kind. describe computes its rows.
type kindInfo struct {
	kind    Kind
	version schema.GroupVersion
	plural  string
	newList func() client.ObjectList
}

// operatorVersion is the version of flux-operator's kinds. Its Go types are under the AGPL,
// which this program is not, so they are read without them.
var operatorVersion = schema.GroupVersion{Group: "fluxcd.controlplane.io", Version: "v1"}

// newOperatorList returns a function that makes an empty list of a kind of flux-operator.
func newOperatorList(kind Kind) func() client.ObjectList {
	return func() client.ObjectList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(operatorVersion.WithKind(string(kind) + "List"))
		return list
	}
}

// kinds is in the order of `flux get all`, followed by the kinds of flux-operator.
var kinds = []kindInfo{
	{OCIRepository, sourcev1.GroupVersion, "ocirepositories", func() client.ObjectList { return &sourcev1.OCIRepositoryList{} }},
	{Bucket, sourcev1.GroupVersion, "buckets", func() client.ObjectList { return &sourcev1.BucketList{} }},
	{GitRepository, sourcev1.GroupVersion, "gitrepositories", func() client.ObjectList { return &sourcev1.GitRepositoryList{} }},
	{HelmRepository, sourcev1.GroupVersion, "helmrepositories", func() client.ObjectList { return &sourcev1.HelmRepositoryList{} }},
	{HelmChart, sourcev1.GroupVersion, "helmcharts", func() client.ObjectList { return &sourcev1.HelmChartList{} }},
	{ExternalArtifact, sourcev1.GroupVersion, "externalartifacts", func() client.ObjectList { return &sourcev1.ExternalArtifactList{} }},
	{ImageRepository, reflectorv1.GroupVersion, "imagerepositories", func() client.ObjectList { return &reflectorv1.ImageRepositoryList{} }},
	{ImagePolicy, reflectorv1.GroupVersion, "imagepolicies", func() client.ObjectList { return &reflectorv1.ImagePolicyList{} }},
	{ImageUpdateAutomation, automationv1.GroupVersion, "imageupdateautomations", func() client.ObjectList { return &automationv1.ImageUpdateAutomationList{} }},
	{HelmRelease, helmv2.GroupVersion, "helmreleases", func() client.ObjectList { return &helmv2.HelmReleaseList{} }},
	{Kustomization, kustomizev1.GroupVersion, "kustomizations", func() client.ObjectList { return &kustomizev1.KustomizationList{} }},
	{Receiver, notificationv1.GroupVersion, "receivers", func() client.ObjectList { return &notificationv1.ReceiverList{} }},
	{Provider, notificationv1b3.GroupVersion, "providers", func() client.ObjectList { return &notificationv1b3.ProviderList{} }},
	{Alert, notificationv1b3.GroupVersion, "alerts", func() client.ObjectList { return &notificationv1b3.AlertList{} }},
	{FluxInstance, operatorVersion, "fluxinstances", newOperatorList(FluxInstance)},
	{ResourceSet, operatorVersion, "resourcesets", newOperatorList(ResourceSet)},
	{ResourceSetInputProvider, operatorVersion, "resourcesetinputproviders", newOperatorList(ResourceSetInputProvider)},
}

func infoOf(kind Kind) (kindInfo, bool) {
	i := kindIndex(kind)
	if i < 0 {
		return kindInfo{}, false
	}
	return kinds[i], true
}

// kindIndex is a kind's place in the order of `flux get all`, or -1.
func kindIndex(kind Kind) int {
	return slices.IndexFunc(kinds, func(info kindInfo) bool { return info.kind == kind })
}
