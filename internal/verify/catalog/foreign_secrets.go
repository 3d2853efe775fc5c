package catalog

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForeignSecrets(register func(...Attack)) {
	victim, platform := func(e *Scenario) string { return e.Victim.Namespace }, func(e *Scenario) string { return e.Platform }
	everywhere := func(*Scenario) string { return "" }
	all := []request{
		{
			what: "read a Secret of another tenant",
			aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.Get(ctx, client.ObjectKey{Namespace: e.Victim.Namespace, Name: e.Victim.Secret}, &corev1.Secret{})
			},
		},
		{
			what:  "list the ConfigMaps of another tenant",
			aimed: listing(&corev1.ConfigMapList{}, victim),
			own:   listing(&corev1.ConfigMapList{}, func(e *Scenario) string { return e.Namespace }),
		},
		{what: "list the Secrets of the whole cluster", aimed: listing(&corev1.SecretList{}, everywhere)},
		// Credentials of Git hosts and decryption keys are here.
		{what: "list the Secrets of the platform", aimed: listing(&corev1.SecretList{}, platform)},
	}
	// The reviews name no object, so that a right to a single Secret does not count.
	for _, right := range []struct {
		what, verb, resource string
		namespace            func(*Scenario) string
	}{
		{"read the Secrets of the platform", "get", "secrets", platform},
		{"watch the Secrets of the platform", "watch", "secrets", platform},
		{"watch the Secrets of another tenant", "watch", "secrets", victim},
		{"watch the Secrets of the whole cluster", "watch", "secrets", everywhere},
		{"read the events of another tenant", "list", "events", victim},
		{"read the logs of another tenant's Pods", "get", "pods/log", victim},
		{"run commands in another tenant's Pods", "create", "pods/exec", victim},
		{"attach to another tenant's Pods", "create", "pods/attach", victim},
		{"connect to ports of another tenant's Pods", "create", "pods/portforward", victim},
		{"reach another tenant's Services through the API server", "get", "services/proxy", victim},
		{"reach another tenant's Pods through the API server", "get", "pods/proxy", victim},
		{"run commands in the platform's Pods", "create", "pods/exec", platform},
		{"read the logs of the platform's Pods", "get", "pods/log", platform},
		{"reach the platform's Services through the API server", "get", "services/proxy", platform},
		{"reach the platform's Pods through the API server", "get", "pods/proxy", platform},
		{"run commands in another tenant's Pods", "patch", "pods/ephemeralcontainers", victim},
		{"run commands in another tenant's Pods", "update", "pods/ephemeralcontainers", victim},
	} {
		all = append(all, request{what: right.what, aimed: mayNot(right.verb, right.resource, right.namespace)})
	}
	all = append(all,
		request{what: "list the Pods of another tenant, with their environment", aimed: mayNot("list", "pods", victim)},
		// A single node runs Pods of several tenants.
		request{what: "reach a node's kubelet", aimed: func(ctx context.Context, e *Scenario) error {
			return holdsNone(e.Victim.Namespace, right{what: "read and run commands through a node's kubelet", verbs: []string{"get", "create"}, resources: []string{"nodes/proxy"}})(ctx, e)
		}},
	)
	register(Attack{
		ID: "W2", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"*"},
		Title:      "reads objects of another tenant or the platform",
		Controls:   []string{"RBAC"},
		References: []string{"MTB TI-2"},
		Fix:        Fix{Advice: "bind the tenant's account with RoleBindings in its own namespaces only", Rights: true},
		Slow:       true,
		Run:        readsOthers(all),
	})
}

// readsOthers adds the requests that depend on the fleet to the given requests.
func readsOthers(all []request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		credentials, err := e.readsCredentials(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		served, err := e.answersRequests(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return requests(slices.Concat(all, e.readsElsewhere(), credentials, served)...)(ctx, e)
	}
}

// readsElsewhere returns the requests with which the tenant would read objects in namespaces of others.
func (e *Scenario) readsElsewhere() []request {
	var all []request
	for _, place := range e.elsewhere() {
		if place == e.Platform {
			continue // other requests
		}
		in := func(*Scenario) string { return place }
		all = append(all,
			request{what: "read the Secrets of namespace " + place, aimed: mayNot("get", "secrets", in)},
			request{what: "list the Secrets of namespace " + place, aimed: mayNot("list", "secrets", in)},
			request{what: "run commands in the Pods of namespace " + place, aimed: mayNot("create", "pods/exec", in)},
		)
		if place == systemNamespace {
			all = append(all, request{what: "read a Secret of namespace " + place, aimed: holdsNone(place, right{what: "read a Secret of Kubernetes' components", verbs: []string{"get"}, resources: []string{"secrets"}})})
		}
	}
	return all
}

// listing returns a request that lists objects of a namespace, or of all namespaces.
func listing(list client.ObjectList, namespace func(*Scenario) string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		return e.As.List(ctx, list.DeepCopyObject().(client.ObjectList), client.InNamespace(namespace(e)))
	}
}
