package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unreadyObject is a Kustomization or HelmRelease of the platform that has not applied all of
// its objects.
type unreadyObject struct {
	flux.Ref
	reason string
}

// unreadyOf returns the Kustomizations and HelmReleases of the platform that are not ready,
// or that the cluster only assumes to be.
func unreadyOf(ctx context.Context, admin client.Reader, all []discovery.Tenant) ([]unreadyObject, error) {
	var found []unreadyObject
	for _, kind := range []flux.Kind{flux.Kustomization, flux.HelmRelease} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersionKind())
		if err := admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot read the fleet's %ss: %w", kind, err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			ref := flux.Ref{Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()}
			a, _ := readyCondition(u)
			switch {
			case ofTenant(ref, all):
			case a.message == flux.AssumedMessage:
				found = append(found, unreadyObject{ref, "is assumed"})
			case a.ready != "True":
				found = append(found, unreadyObject{ref, "is not ready"})
			}
		}
	}
	return found, nil
}

// ofTenant reports whether a Kustomization or HelmRelease delivers a tenant's repository,
// or is in a namespace of a tenant.
func ofTenant(ref flux.Ref, all []discovery.Tenant) bool {
	return slices.ContainsFunc(all, func(t discovery.Tenant) bool {
		return slices.Contains(t.Namespaces, ref.Namespace) ||
			slices.ContainsFunc(t.Repositories, func(r discovery.Repository) bool { return r.Kustomization == ref })
	})
}

// lacks returns why a tenant may lack rights here that the fleet gives it, or "": the
// platform's object that applies its namespaces or bindings is not ready, or the tenant has
// no right at all and some object of the platform is not ready.
func lacks(t discovery.Tenant, namespaces []corev1.Namespace, missing []unreadyObject) string {
	appliedBy := map[flux.Ref]bool{}
	for i := range namespaces {
		if ns := &namespaces[i]; slices.Contains(t.Namespaces, ns.Name) {
			for kind, group := range map[flux.Kind]string{flux.Kustomization: "kustomize", flux.HelmRelease: "helm"} {
				group += ".toolkit.fluxcd.io/"
				appliedBy[flux.Ref{Kind: kind, Namespace: ns.Labels[group+"namespace"], Name: ns.Labels[group+"name"]}] = true
			}
		}
	}
	rights := false
	for _, right := range t.Rights {
		namespace, name, _ := strings.Cut(right.AppliedBy, "/")
		appliedBy[flux.Ref{Kind: flux.Kustomization, Namespace: namespace, Name: name}] = true
		rights = rights || strings.HasPrefix(right.Subject, "ServiceAccount ")
	}
	for _, u := range missing {
		switch {
		case appliedBy[u.Ref]:
			return fmt.Sprintf("the tenant may lack rights that the fleet gives it, since %s, which applies its objects, %s", u.Ref, u.reason)
		case !rights:
			return fmt.Sprintf("the tenant has no rights here, and %s, which may give them, %s", u.Ref, u.reason)
		}
	}
	return ""
}
