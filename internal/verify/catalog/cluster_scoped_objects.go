package catalog

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addClusterScopedObjects(register func(...Attack)) {
	namespace := func(*Scenario) *unstructured.Unstructured { return object("v1", "Namespace", "", name("i5"), nil) }
	webhook := func(*Scenario) *unstructured.Unstructured {
		return object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", name("i5"), map[string]any{"webhooks": []any{}})
	}
	// A webhook can change each object, and an API service gets the requests for an API with the
	// credentials of the callers.
	mutating := func(*Scenario) *unstructured.Unstructured {
		return object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", name("i5"), map[string]any{"webhooks": []any{}})
	}
	service := func(*Scenario) *unstructured.Unstructured {
		return object("apiregistration.k8s.io/v1", "APIService", "", "v1.tenure.example.com", map[string]any{"spec": map[string]any{
			"group": "tenure.example.com", "version": "v1", "groupPriorityMinimum": int64(1), "versionPriority": int64(1),
			"service": map[string]any{"namespace": "default", "name": "canary"},
		}})
	}
	volume := func(*Scenario) *unstructured.Unstructured {
		return object("v1", "PersistentVolume", "", name("i5"), map[string]any{"spec": map[string]any{
			"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteOnce"},
			"hostPath": map[string]any{"path": "/"},
		}})
	}
	kind := func(*Scenario) *unstructured.Unstructured {
		return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "canaries.tenure.example.com", map[string]any{"spec": map[string]any{
			"group": "tenure.example.com", "scope": "Cluster",
			"names": map[string]any{"plural": "canaries", "singular": "canary", "kind": "Canary"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		}})
	}
	attack := Attack{
		ID:         "I5",
		Title:      "creates cluster-scoped objects",
		Controls:   []string{"RBAC"},
		References: []string{"RFC-0003"},
		Fix:        Fix{Advice: "give the tenant's account rights by RoleBindings alone, which cannot grant anything cluster-scoped", Rights: true},
	}
	attack.Via = API
	attack.Kinds = []string{"APIService", "CustomResourceDefinition", "MutatingWebhookConfiguration", "Namespace", "PersistentVolume", "ValidatingWebhookConfiguration"}
	attack.Run = requests(
		request{what: "make a Namespace", aimed: creating(namespace)},
		request{what: "make a ValidatingWebhookConfiguration", aimed: creating(webhook)},
		request{what: "make a MutatingWebhookConfiguration", aimed: creating(mutating)},
		request{what: "make an APIService", aimed: creating(service)},
		request{what: "make a PersistentVolume", aimed: creating(volume)},
		request{what: "make a CustomResourceDefinition", aimed: creating(kind)},
		request{what: "change an object of the cluster", aimed: func(ctx context.Context, e *Scenario) error {
			return holdsNone(e.Victim.Namespace, clusterRights...)(ctx, e)
		}},
	)
	register(attack)
	register(deliversManifests(attack, "Namespace", namespace, ownConfigMap("i5")))
	register(deliversByChart(attack, "Namespace", namespace, ownConfigMap("i5-release")))
}

// clusterRights are the rights to cluster-scoped objects that change the requests or the Pods of others. A
// right to a single kind or API does not count, because a team may maintain it. I17 changes the existing
// policies and webhooks.
var clusterRights = []right{
	{
		what: "change the objects of others", verbs: []string{"create"},
		resources: []string{"mutatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io"},
	},
	{
		what: "convert or serve the objects of others", verbs: []string{"create", "update", "patch"},
		resources: []string{"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io"},
		counts:    func(string) bool { return false },
	},
	{what: "change nodes or volumes of others", verbs: []string{"create", "update", "patch"}, resources: []string{"nodes", "nodes/status", "persistentvolumes"}},
}
