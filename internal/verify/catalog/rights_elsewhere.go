package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// right is a set of verbs and resources. A role that gives one of the verbs on one of the resources, each
// as RESOURCE.GROUP/SUBRESOURCE, lets the tenant reach others.
type right struct {
	// what describes the effect in a phrase that completes "it could …, by the right to …".
	what             string
	verbs, resources []string
	// counts reports whether the right to the object with a name counts. If it is nil, every object counts.
	counts func(name string) bool
}

// heldError is the result for a role that gives a right. [judge] counts it as an accepted request.
type heldError struct{ what string }

func (h *heldError) Error() string { return h.what }

// holdsNone reads the tenant's rules in a namespace from the API server, and looks for rights that the
// tenant must not have there. A review of a right without a name does not cover rules for single objects,
// and a single object may suffice: the tenant's own Kustomization in the namespace of Flux, or the token of
// an account. The result has the form of the error that the request would return.
func holdsNone(namespace string, rights ...right) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		if err := e.As.Create(ctx, review); err != nil {
			return fmt.Errorf("cannot read the tenant's rights: %w", err)
		}
		for _, r := range rights {
			if held := r.heldBy(review.Status.ResourceRules); held != "" {
				where := "namespace " + namespace
				if namespace == e.Victim.Namespace {
					where = "the whole cluster" // no binding of the fleet is there
				}
				return &heldError{fmt.Sprintf("%s, by the right to %s in %s", r.what, held, where)}
			}
		}
		resource := schema.GroupResource{Resource: rights[0].resources[0]}
		return apierrors.NewForbidden(resource, "", fmt.Errorf("user %q cannot %s resource %q", e.who.user, rights[0].verbs[0], resource.Resource))
	}
}

// heldBy returns the right that one of the rules gives, as text, or "".
func (r right) heldBy(rules []authorizationv1.ResourceRule) string {
	for _, rule := range rules {
		for _, verb := range r.verbs {
			for _, resource := range r.resources {
				if !covers(rule, verb, resource) {
					continue
				}
				if len(rule.ResourceNames) == 0 {
					return verb + " " + resource
				}
				// Requests to create an object have no name, except for subresources.
				if verb == "create" && !strings.Contains(resource, "/") {
					continue
				}
				for _, name := range rule.ResourceNames {
					if r.counts == nil || r.counts(name) {
						return verb + " " + resource + " " + name
					}
				}
			}
		}
	}
	return ""
}

// covers reports whether a rule gives a verb on a resource, as RESOURCE.GROUP/SUBRESOURCE.
func covers(rule authorizationv1.ResourceRule, verb, resource string) bool {
	plain, subresource, _ := strings.Cut(resource, "/")
	plain, group, _ := strings.Cut(plain, ".")
	resources := []string{"*", plain}
	if subresource != "" {
		resources = []string{"*", plain + "/" + subresource, "*/" + subresource}
	}
	any := func(of []string, among ...string) bool {
		return slices.ContainsFunc(of, func(s string) bool { return slices.Contains(among, s) })
	}
	return any(rule.Verbs, "*", verb) && any(rule.APIGroups, "*", group) && any(rule.Resources, resources...)
}

// actingRights returns the rights by which the tenant acts as an account in a namespace of others.
func actingRights(place string) []right {
	return []right{
		{what: "impersonate an account of namespace " + place, verbs: []string{"impersonate"}, resources: []string{"serviceaccounts"}},
		{what: "make a token for an account of namespace " + place, verbs: []string{"create"}, resources: []string{"serviceaccounts/token"}},
		{what: "run a Pod as an account of namespace " + place, verbs: []string{"create", "update", "patch"}, resources: []string{
			"pods", "replicationcontrollers", "deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch",
		}},
		{what: "run commands as an account of namespace " + place, verbs: []string{"update", "patch"}, resources: []string{"pods/ephemeralcontainers"}},
		{what: "run commands as an account of namespace " + place, verbs: []string{"create", "get"}, resources: []string{"pods/exec", "pods/attach"}},
	}
}
