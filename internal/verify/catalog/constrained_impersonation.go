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

// Kubernetes 1.36 has a second way to impersonate, which the verb impersonate does not cover (KEP-5284). A caller
// needs the verb impersonate:MODE on the identity, in the group authentication.k8s.io, and for each request
// the verb impersonate-on:MODE:VERB on its object. Older versions ignore both verbs.

// impersonationModes are the modes, each with the resource of the identities that it covers.
var impersonationModes = []struct{ name, resource string }{
	{"serviceaccount", "serviceaccounts"},
	{"user-info", "users"},
	{"arbitrary-node", "nodes"},
	{"associated-node", "nodes"},
}

// constrainedBy returns the right to impersonate an identity in one of the modes and the right to a request that
// goes with it, as text, or "". A rule with all verbs is no right to a request: the caller may send this request without
// another identity. If counts is nil, every identity counts; every node counts anyway.
func constrainedBy(rules []authorizationv1.ResourceRule, counts func(name string) bool) string {
	for _, mode := range impersonationModes {
		identity := right{verbs: []string{"impersonate:" + mode.name}, resources: []string{mode.resource + ".authentication.k8s.io"}, counts: counts}
		if mode.resource == "nodes" {
			identity.counts = nil
		}
		held := identity.heldBy(rules)
		if held == "" {
			continue
		}
		for _, rule := range rules {
			i := slices.IndexFunc(rule.Verbs, func(verb string) bool { return strings.HasPrefix(verb, "impersonate-on:"+mode.name+":") })
			if i >= 0 && len(rule.Resources) > 0 {
				return fmt.Sprintf("%s and to %s %s", held, rule.Verbs[i], rule.Resources[0])
			}
		}
	}
	return ""
}

// impersonatesNone looks in a namespace for the rights to impersonate with constraints. The result has the form of the
// error that the request would return.
func impersonatesNone(namespace string, counts func(name string) bool) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		status, err := e.rulesIn(ctx, namespace)
		if err != nil {
			return fmt.Errorf("cannot read the tenant's rights: %w", err)
		}
		if held := constrainedBy(status.ResourceRules, counts); held != "" {
			where := "namespace " + namespace
			if namespace == e.Victim.Namespace {
				where = "the whole cluster" // no binding of the fleet is there
			}
			return &heldError{fmt.Sprintf("act as another identity with constraints, by the right to %s in %s", held, where)}
		}
		resource := schema.GroupResource{Resource: "serviceaccounts"}
		return apierrors.NewForbidden(resource, "", fmt.Errorf("user %q cannot impersonate resource %q", e.who.user, resource.Resource))
	}
}
