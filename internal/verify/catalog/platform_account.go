package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addPlatformAccount(register func(...Attack)) {
	register(Attack{
		ID: "I23", Via: API,
		Kinds:    []string{"ServiceAccount"},
		Title:    "overwrites the platform's objects in its namespace, as an account of the platform's namespace that applies its repository",
		Controls: []string{"RBAC", "policy on platform-managed objects, which lists the platform's accounts"},
		Fix:      Fix{Advice: "exempt the platform's accounts from policies by name, and not all accounts of the platform's namespace, and give the accounts of delegated syncs no write verb on serviceaccounts"},
		Run:      actsAsDelegate,
	})
}

// rightsPatience is the maximum time to wait until a new RoleBinding takes effect, which takes long on a
// busy machine. The wait ends with the first accepted request. delegatePatience is the same for a right that the API server
// is asked about, which it grants for certain.
const (
	rightsPatience   = time.Minute
	delegatePatience = 5 * time.Minute
)

// actsAsDelegate gives an account of the platform's namespace the tenant's roles in the tenant's namespace,
// as the platform does for a sync that it delegates. With the identity of that account, it then changes the
// tenant's account.
func actsAsDelegate(ctx context.Context, e *Scenario) Finding {
	var bindings []*unstructured.Unstructured
	for _, right := range e.Tenant.Rights {
		kind, role, _ := strings.Cut(right.Role, "/")
		if right.Subject != "ServiceAccount "+e.Account.String() || kind == "Role" && right.Namespace != e.Namespace {
			continue
		}
		bindings = append(bindings, object(rbacv1.SchemeGroupVersion.String(), "RoleBinding", e.Namespace, fmt.Sprint(name("i23"), "-", len(bindings)), map[string]any{
			"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": kind, "name": role},
			"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": e.Platform, "name": name("i23")}},
		}))
	}
	if len(bindings) == 0 {
		return e.nothingThere(ctx, rbac, "the tenant's account has no role that a delegated sync could have as well")
	}
	for _, binding := range bindings {
		if err := e.Admin.Create(ctx, binding.DeepCopy()); err != nil {
			return notProven("cannot delegate a sync: " + firstLine(err.Error()))
		}
		defer e.remove(binding)
	}
	delegate, err := e.ofPlatform(name("i23"))
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	for _, binding := range bindings {
		if err := delegate.awaitRights(ctx, binding); err != nil {
			return notProven("the account of a delegated sync does not get its rights here: " + firstLine(err.Error()))
		}
	}
	account := object("v1", "ServiceAccount", e.Account.Namespace, e.Account.Name, nil)
	return requests(overwriting("overwrite the account that Flux applies its objects as, as the account of a delegated sync", account))(ctx, delegate)
}

// awaitRights waits until the API server grants the rights of a new RoleBinding: it asks for one of them, since a role may
// have no right to any object that a request could try, and a webhook may refuse each request. It returns nil for a role without
// rights, or that does not exist.
func (e *Scenario) awaitRights(ctx context.Context, binding *unstructured.Unstructured) error {
	kind, _, _ := unstructured.NestedString(binding.Object, "roleRef", "kind")
	named, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
	role := &rbacv1.ClusterRole{}
	var err error
	if kind == "Role" {
		of := &rbacv1.Role{}
		err = e.Admin.Get(ctx, client.ObjectKey{Namespace: binding.GetNamespace(), Name: named}, of)
		role.Rules = of.Rules
	} else {
		err = e.Admin.Get(ctx, client.ObjectKey{Name: named}, role)
	}
	i := slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return len(r.Verbs) > 0 && len(r.APIGroups) > 0 && len(r.Resources) > 0
	})
	if client.IgnoreNotFound(err) != nil || i < 0 {
		return client.IgnoreNotFound(err)
	}
	rule := role.Rules[i]
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	right := authorizationv1.ResourceAttributes{
		Namespace: binding.GetNamespace(), Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
	}
	if len(rule.ResourceNames) > 0 {
		right.Name = rule.ResourceNames[0]
	}
	return pollUntil(ctx, delegatePatience, func(ctx context.Context) (bool, error) { return e.isAllowed(ctx, right) })
}

// ofPlatform returns the Scenario with the identity of an account in the platform's namespace.
func (e *Scenario) ofPlatform(account string) (*Scenario, error) {
	who := identity{user: "system:serviceaccount:" + e.Platform + ":" + account, groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + e.Platform, "system:authenticated"}}
	as, err := asIdentity(e.config, who, e.customs)
	if err != nil {
		return nil, err
	}
	other := *e
	other.As, other.who = as, who
	return &other, nil
}
