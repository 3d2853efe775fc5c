package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxListed is the maximum number of objects of a kind among which an attack looks for one of others.
const maxListed = 500

// systemNamespace is the namespace of Kubernetes' own components. Each of its ConfigMaps, Secrets and Services
// matters for all tenants: the configuration of DNS, for example, or of the network.
const systemNamespace = "kube-system"

// harmlessGroups are API groups whose objects change nothing for others: a Lease belongs to the program that
// uses its name, and reviews are questions.
var harmlessGroups = []string{"coordination.k8s.io", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}

// connecting are the subresources that change no object. I8 and W2 are about them.
var connecting = []string{"exec", "attach", "portforward", "proxy", "token"}

// createsElsewhere returns the requests with which the tenant would create Flux objects of any kind in namespaces of
// no tenant, as far as a role allows it: a source sends its Secret to the address that it names, and an
// ImageUpdateAutomation pushes to the platform's repository.
func (e *Scenario) createsElsewhere(ctx context.Context) ([]request, error) {
	kinds := append(e.ofEveryKind(ctx, "i3"), object(notificationAPI, "Alert", e.Namespace, name("i3"), map[string]any{"spec": map[string]any{
		"suspend": true, "providerRef": map[string]any{"name": "any"}, "eventSources": []any{map[string]any{"kind": "GitRepository", "name": "any"}},
	}}))
	var all []request
	for _, place := range e.elsewhere() {
		status, err := e.rulesIn(ctx, place)
		if err != nil {
			return nil, fmt.Errorf("cannot read the tenant's rights: %w", err)
		}
		for _, u := range kinds {
			plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
			resource := plural.Resource + "." + plural.Group
			if !slices.ContainsFunc(status.ResourceRules, func(rule authorizationv1.ResourceRule) bool {
				return len(rule.ResourceNames) == 0 && covers(rule, "create", resource)
			}) {
				continue
			}
			there := u.DeepCopy()
			there.SetNamespace(place)
			all = append(all, request{
				what:  fmt.Sprintf("create %s in namespace %s", u.GetKind(), place),
				aimed: creating(func(*Scenario) *unstructured.Unstructured { return there }),
			})
		}
	}
	return all, nil
}

// changesEverywhere returns the requests with which the tenant would change objects of others by a right in the
// whole cluster, or in the namespace of Kubernetes' components.
func (e *Scenario) changesEverywhere(ctx context.Context) ([]request, error) {
	all, err := e.changesIn(ctx, "")
	if err != nil || !slices.Contains(e.elsewhere(), systemNamespace) {
		return all, err
	}
	there, err := e.changesIn(ctx, systemNamespace)
	return append(all, there...), err
}

// changesIn reads the tenant's rules in a namespace of others, or in the whole cluster if place is empty, and returns
// a request for each right to write namespaced objects. The request is a dry run for an object of others there, if there is
// one, so that policies count. A right to objects with names counts if such an object is there.
func (e *Scenario) changesIn(ctx context.Context, place string) ([]request, error) {
	// No binding of the fleet is in the victim's namespace.
	status, err := e.rulesIn(ctx, cmp.Or(place, e.Victim.Namespace))
	if err != nil {
		return nil, fmt.Errorf("cannot read the tenant's rights: %w", err)
	}
	var all []request
	for _, rule := range status.ResourceRules {
		verbs := slices.DeleteFunc([]string{"patch", "update", "delete", "deletecollection", "create"}, func(verb string) bool {
			return !slices.Contains(rule.Verbs, verb) && !slices.Contains(rule.Verbs, "*")
		})
		if len(verbs) == 0 {
			continue
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if slices.Contains(harmlessGroups, group) || group == "" && resource == "events" {
					continue
				}
				r, err := e.changesOne(ctx, schema.GroupResource{Group: group, Resource: resource}, verbs, rule.ResourceNames, place)
				if err != nil {
					return nil, err
				}
				if r != nil {
					all = append(all, *r)
				}
			}
		}
	}
	return all, nil
}

// changesOne returns the request for the right to one resource, or nil if no object is namespaced or has the names.
func (e *Scenario) changesOne(ctx context.Context, of schema.GroupResource, verbs, names []string, place string) (*request, error) {
	where := "the whole cluster"
	if place != "" {
		where = "namespace " + place
	}
	what := fmt.Sprintf("%s %s in %s", verbs[0], of, where)
	held := &request{what: what, aimed: func(context.Context, *Scenario) error {
		return &heldError{fmt.Sprintf("change objects of others, by the right to %s", what)}
	}}
	plain, subresource, _ := strings.Cut(of.Resource, "/")
	switch {
	case slices.Contains(connecting, subresource):
		return nil, nil
	case plain == "*" || of.Group == "*":
		return held, nil
	}
	mapper := e.Admin.RESTMapper()
	kind, err := mapper.KindFor(schema.GroupVersionResource{Group: of.Group, Resource: plain})
	if meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot find the kind of %s: %w", of, err)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("cannot find the kind of %s: %w", of, err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := e.Admin.List(ctx, list, client.Limit(maxListed), client.InNamespace(place)); err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", of, err)
	}
	i := slices.IndexFunc(list.Items, func(m metav1.PartialObjectMetadata) bool {
		return !slices.Contains(e.Tenant.Namespaces, m.Namespace) && !strings.HasPrefix(m.Name, name("")) && (len(names) == 0 || slices.Contains(names, m.Name))
	})
	switch {
	// The cluster's provider installs what is in the namespace of Kubernetes' components, so it may be missing here.
	case i < 0 && len(names) > 0 && place != systemNamespace:
		return nil, nil
	case i < 0 || subresource != "" || verbs[0] == "deletecollection" || verbs[0] == "create":
		if verbs[0] == "create" && len(names) > 0 && subresource == "" {
			return nil, nil // a request to create an object has no name
		}
		return held, nil
	}
	u := object(kind.GroupVersion().String(), kind.Kind, list.Items[i].Namespace, list.Items[i].Name, nil)
	r := &request{what: fmt.Sprintf("%s %s %s/%s", verbs[0], u.GetKind(), u.GetNamespace(), u.GetName())}
	r.aimed = changing(u, `{"metadata":{"annotations":{"tenure-attack":"i3"}}}`)
	if verbs[0] == "delete" {
		r.aimed = func(ctx context.Context, e *Scenario) error { return e.As.Delete(ctx, u.DeepCopy(), client.DryRunAll) }
	}
	return r, nil
}
