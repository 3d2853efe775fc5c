package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// calledService is a Service to which the API server sends requests or objects of other users. A program
// that answers in the place of the Service reads them, and decides about them.
type calledService struct {
	namespace, name string
	// caller is the object that names the Service, as text.
	caller string
}

// callers are the kinds of objects that name Services for the API server, with the path of the Service's
// reference, in spec or in each entry of webhooks.
var callers = []struct {
	version, kind string
	at            []string
}{
	{"admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", []string{"clientConfig", "service"}},
	{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", []string{"clientConfig", "service"}},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinition", []string{"conversion", "webhook", "clientConfig", "service"}},
	{"apiregistration.k8s.io/v1", "APIService", []string{"service"}},
}

// calledServices returns the Services that the API server calls: one entry for each object that names a
// Service. It returns an error if it cannot list a kind that the cluster serves.
func calledServices(ctx context.Context, admin client.Reader) ([]calledService, error) {
	var all []calledService
	for _, c := range callers {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(c.version)
		list.SetKind(c.kind + "List")
		if err := admin.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("cannot read the objects of kind %s: %w", c.kind, err)
		}
		for _, u := range list.Items {
			spec, _, _ := unstructured.NestedMap(u.Object, "spec")
			webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
			for _, in := range append(webhooks, spec) {
				in, _ := in.(map[string]any)
				service, _, _ := unstructured.NestedStringMap(withoutPort(in, c.at), c.at...)
				called := calledService{service["namespace"], service["name"], c.kind + " " + u.GetName()}
				if called.name != "" && !slices.Contains(all, called) {
					all = append(all, called)
				}
			}
		}
	}
	return all, nil
}

// withoutPort returns a copy of an object in which the reference to a Service contains only texts.
func withoutPort(in map[string]any, at []string) map[string]any {
	service, _, _ := unstructured.NestedMap(in, at...)
	maps.DeleteFunc(service, func(_ string, value any) bool { _, text := value.(string); return !text })
	out := map[string]any{}
	_ = unstructured.SetNestedMap(out, service, at...)
	return out
}

// answersCalls returns the requests with which the tenant would answer the API server in the tenant's
// namespaces: it changes or creates a Service that the API server calls, or runs a Pod that such a Service
// selects.
func (e *Scenario) answersCalls(ctx context.Context) ([]request, error) {
	var all []request
	for _, called := range e.called {
		if !slices.Contains(e.Tenant.Namespaces, called.namespace) {
			continue
		}
		which := fmt.Sprintf("Service %s/%s, which the API server calls for %s", called.namespace, called.name, called.caller)
		service := object("v1", "Service", called.namespace, called.name, map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(443)}}}})
		there, err := e.exists(ctx, service)
		if err != nil {
			return nil, fmt.Errorf("cannot read a Service that the API server calls: %w", err)
		}
		if !there {
			all = append(all, request{what: "make " + which, aimed: func(ctx context.Context, e *Scenario) error { return e.tryCreate(ctx, service) }})
			continue
		}
		all = append(all, request{what: "change " + which, aimed: changing(service, `{"spec":{"selector":{"tenure-attack":"i17"}}}`)})
		if err := e.Admin.Get(ctx, keyOf(service), service); err != nil {
			return nil, fmt.Errorf("cannot read a Service that the API server calls: %w", err)
		}
		selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
		if len(selector) > 0 {
			all = append(all, request{what: "run a Pod that answers as " + which, aimed: func(ctx context.Context, e *Scenario) error {
				pod := gated("i17-answers", map[string]any{})(e)
				pod.SetNamespace(called.namespace)
				pod.SetLabels(selector)
				return e.tryCreate(ctx, pod)
			}})
		}
	}
	return all, nil
}
