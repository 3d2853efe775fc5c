package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deliverers are the kinds that apply manifests.
var deliverers = []flux.Kind{flux.Kustomization, flux.HelmRelease, flux.ResourceSet}

// unreadyObject is a Kustomization, HelmRelease or ResourceSet of the platform that has not
// applied all of its objects.
type unreadyObject struct {
	flux.Ref
	reason string
	// object is the object, and contents are the manifests that it would apply; see
	// [readContents].
	object   *unstructured.Unstructured
	contents []contents
}

// listOf returns the objects of a kind of Flux, and none if the cluster lacks the kind.
func listOf(ctx context.Context, admin client.Reader, kind flux.Kind) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersionKind())
	if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cannot read the fleet's %ss: %w", kind, err)
	}
	return list.Items, nil
}

// refOf returns the reference to an object of Flux.
func refOf(u *unstructured.Unstructured) flux.Ref {
	return flux.Ref{Kind: flux.Kind(u.GetKind()), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// unready returns the reason why an object has not applied all of its manifests, or "".
func unready(u *unstructured.Unstructured) string {
	switch a, _ := readyCondition(u); {
	case a.message == flux.AssumedMessage:
		return "is assumed"
	case a.ready == metav1.ConditionUnknown && appliesAgain(u):
		return ""
	case a.ready != metav1.ConditionTrue:
		return "is not ready"
	}
	return ""
}

// appliesAgain reports whether Flux reconciles a Kustomization whose current revision and generation it has
// already applied, as it does at each interval.
func appliesAgain(u *unstructured.Unstructured) bool {
	applied, _, _ := unstructured.NestedString(u.Object, "status", "lastAppliedRevision")
	attempted, _, _ := unstructured.NestedString(u.Object, "status", "lastAttemptedRevision")
	generation, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return applied != "" && applied == attempted && generation == u.GetGeneration()
}

// unreadyOf returns the Kustomizations, HelmReleases and ResourceSets of the platform that are not ready,
// or that the cluster only assumes to be ready. It includes the ResourceSets that take inputs from a
// ResourceSetInputProvider in this state, because they are ready without the objects for these inputs. It
// omits Kustomizations that only wait for the health of the applied objects; see [appliedUnhealthy].
func unreadyOf(ctx context.Context, admin client.Reader, all []discovery.Tenant) ([]unreadyObject, error) {
	providers, err := listOf(ctx, admin, flux.ResourceSetInputProvider)
	if err != nil {
		return nil, err
	}
	providers = slices.DeleteFunc(providers, func(u unstructured.Unstructured) bool { return unready(&u) == "" })
	var found []unreadyObject
	for _, kind := range deliverers {
		objects, err := listOf(ctx, admin, kind)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			u := &objects[i]
			reason := unready(u)
			for j := range providers {
				if reason == "" && kind == flux.ResourceSet && takesFrom(u, &providers[j]) {
					reason = fmt.Sprintf("takes inputs from %s, which %s", refOf(&providers[j]), unready(&providers[j]))
				}
			}
			if reason != "" && !ofTenant(refOf(u), all) && !appliedUnhealthy(ctx, admin, u) {
				found = append(found, unreadyObject{Ref: refOf(u), reason: reason, object: u})
			}
		}
	}
	return found, nil
}

// takesFrom reports whether a ResourceSet takes inputs from a provider, by its name or its
// labels.
func takesFrom(set, provider *unstructured.Unstructured) bool {
	inputs, _, _ := unstructured.NestedSlice(set.Object, "spec", "inputsFrom")
	return set.GetNamespace() == provider.GetNamespace() && slices.ContainsFunc(inputs, func(input any) bool {
		from, _ := input.(map[string]any)
		selected, found, _ := unstructured.NestedStringMap(from, "selector", "matchLabels")
		return from["name"] == provider.GetName() || found && labels.SelectorFromSet(selected).Matches(labels.Set(provider.GetLabels()))
	})
}

// ofTenant reports whether an object delivers a tenant's repository, or is in a namespace of a tenant.
func ofTenant(ref flux.Ref, all []discovery.Tenant) bool {
	return slices.ContainsFunc(all, func(t discovery.Tenant) bool {
		return slices.Contains(t.Namespaces, ref.Namespace) ||
			slices.ContainsFunc(t.Deliveries(), func(r discovery.Repository) bool { return r.Kustomization == ref })
	})
}

// unreadTenants returns, by the name of a Capsule Tenant without a status, the reason why its owners may lack rights here: Capsule
// binds them, and only the CRD of the kind is here. Tenure's manager, which may take Capsule's place, writes a status.
func unreadTenants(ctx context.Context, admin client.Reader) (map[string]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "capsule.clastix.io", Version: "v1beta2", Kind: "Tenant"})
	if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("cannot read the Tenants of Capsule: %w", err)
	}
	unread := map[string]string{}
	for _, u := range list.Items {
		if status, _, _ := unstructured.NestedMap(u.Object, "status"); len(status) == 0 {
			unread[u.GetName()] = "the tenant may lack rights that the fleet gives it, since nothing that gives the owners of Capsule Tenant " + u.GetName() + " their rights runs here"
		}
	}
	return unread, nil
}

// lacks returns the reason why a tenant may lack rights here that the fleet gives it, or "". The reason is
// that an unready object of the platform applies the tenant's namespaces or bindings, or has more of them
// in its manifests, or that the tenant has no rights at all.
func lacks(t discovery.Tenant, namespaces []corev1.Namespace, missing []unreadyObject) string {
	appliedBy := map[flux.Ref]bool{}
	for i := range namespaces {
		if ns := &namespaces[i]; slices.Contains(t.Namespaces, ns.Name) {
			appliedBy[flux.AppliedBy(ns.Labels)] = true
		}
	}
	rights := false
	for _, right := range t.Rights {
		appliedBy[right.AppliedBy] = true
		rights = rights || strings.HasPrefix(right.Subject, "ServiceAccount ")
	}
	const may = "the tenant may lack rights that the fleet gives it, since %s, which %s, %s"
	for _, u := range missing {
		switch evidence := u.evidence(t); {
		case appliedBy[u.Ref]:
			return fmt.Sprintf(may, u.Ref, "applies its objects", u.reason)
		case evidence != "":
			return fmt.Sprintf(may, u.Ref, evidence, u.reason)
		case !rights:
			return fmt.Sprintf("the tenant has no rights here, and %s, which may give them, %s", u.Ref, u.reason)
		}
	}
	return ""
}
