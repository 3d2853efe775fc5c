package olderobjects

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects that the API server returns at once.
const pageSize = 500

// kinds returns the kinds of objects that people write and the rules look at. Controllers write
// HelmCharts and ExternalArtifacts. Pods are last: most of them belong to a controller, and a cluster
// has more of them than of the others.
func kinds() []schema.GroupKind {
	all := []schema.GroupKind{
		{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"},
		{Group: "batch", Kind: "CronJob"}, {Group: "batch", Kind: "Job"},
		{Group: "apps", Kind: "ReplicaSet"}, {Kind: "ReplicationController"}, {Kind: "PodTemplate"},
		{Kind: "Service"}, {Kind: "PersistentVolumeClaim"},
		{Group: "networking.k8s.io", Kind: "Ingress"},
		{Group: "resource.k8s.io", Kind: "ResourceClaim"}, {Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"},
		{Group: "source.extensions.fluxcd.io", Kind: "ArtifactGenerator"},
		{Group: "flagger.app", Kind: "Canary"}, {Group: "flagger.app", Kind: "MetricTemplate"}, {Group: "flagger.app", Kind: "AlertProvider"},
	}
	for _, kind := range []string{"Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"} {
		all = append(all, schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: kind})
	}
	all = append(all, schema.GroupKind{Group: "gateway.networking.x-k8s.io", Kind: "XListenerSet"})
	for _, kind := range append(flux.AllKinds(), flux.ResourceSet, flux.ResourceSetInputProvider) {
		if kind != flux.HelmChart && kind != flux.ExternalArtifact {
			all = append(all, kind.GroupVersionKind().GroupKind())
		}
	}
	return append(all, schema.GroupKind{Kind: "Pod"})
}

// object is an object to try.
type object struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// find returns the objects in the namespaces of tenants, without those that a controller made from
// another object, and without the platform's. It reports whether there are more than [maxObjects].
func find(ctx context.Context, kube client.Client, tenants []discovery.Tenant) (found []object, more bool, err error) {
	ofTenant := map[string]bool{}
	for _, t := range tenants {
		for _, namespace := range t.Namespaces {
			ofTenant[namespace] = true
		}
	}
	profile, err := readProfile(ctx, kube)
	if err != nil {
		return nil, false, err
	}
	for _, kind := range kinds() {
		mapping, err := kube.RESTMapper().RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("cannot find out how the cluster serves %s: %w", kind, err)
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(mapping.GroupVersionKind)
		for page := true; page; page = list.Continue != "" {
			if err := kube.List(ctx, list, client.Limit(pageSize), client.Continue(list.Continue)); err != nil {
				return nil, false, fmt.Errorf("cannot list %ss: %w", kind.Kind, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				if !ofTenant[o.Namespace] || !byPeople(o, profile) {
					continue
				}
				if len(found) == maxObjects {
					return found, true, nil
				}
				found = append(found, object{mapping.GroupVersionKind, o.Namespace, o.Name})
			}
		}
	}
	return found, false, nil
}

// readProfile returns the spec of the TenancyProfile, which is empty if there is none.
func readProfile(ctx context.Context, kube client.Client) (v1alpha1.TenancyProfileSpec, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	var profile v1alpha1.TenancyProfile
	err := kube.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, u)
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return profile.Spec, fmt.Errorf("cannot read the TenancyProfile: %w", err)
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &profile)
		return profile.Spec, err
	}
	return profile.Spec, nil
}

// byPeople reports whether a tenant wrote an object: no controller owns it, nobody deletes it, and by
// its labels neither the manager wrote it nor a sync of the platform. The rule tenure-managed reads
// these labels in the same way.
func byPeople(o metav1.Object, profile v1alpha1.TenancyProfileSpec) bool {
	if metav1.GetControllerOf(o) != nil || o.GetDeletionTimestamp() != nil || o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
		return false
	}
	by := flux.AppliedBy(o.GetLabels())
	return !slices.Contains(profile.PlatformNamespaces, by.Namespace) ||
		slices.ContainsFunc(profile.DelegatedSyncs, func(d v1alpha1.DelegatedSync) bool { return d.Namespace == by.Namespace && d.Name == by.Name })
}
