package catalog

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
// busy machine. The wait ends with the first accepted request.
const rightsPatience = time.Minute

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
	var refused error
	if err := pollUntil(ctx, rightsPatience, func(ctx context.Context) (bool, error) {
		refused = delegate.tryApply(ctx, configMap(e.Namespace, name("i23")))
		return refused == nil, nil
	}); err != nil {
		return notProven("the account of a delegated sync cannot do anything here: " + firstLine(cmp.Or(refused, err).Error()))
	}
	account := object("v1", "ServiceAccount", e.Account.Namespace, e.Account.Name, nil)
	return requests(overwriting("overwrite the account that Flux applies its objects as, as the account of a delegated sync", account))(ctx, delegate)
}

// ofPlatform returns the Scenario with the identity of an account in the platform's namespace.
func (e *Scenario) ofPlatform(account string) (*Scenario, error) {
	who := identity{user: "system:serviceaccount:" + e.Platform + ":" + account, groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + e.Platform, "system:authenticated"}}
	as, err := asIdentity(e.config, who)
	if err != nil {
		return nil, err
	}
	other := *e
	other.As, other.who = as, who
	return &other, nil
}
