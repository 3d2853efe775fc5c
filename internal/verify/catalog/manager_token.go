package catalog

import (
	"context"

	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addManagerToken(register func(...Attack)) {
	register(Attack{
		ID: "I25", Via: API,
		Kinds:    []string{"ClusterRole", "ClusterRoleBinding", "Kustomization", "Namespace", "RoleBinding"},
		Title:    "becomes cluster admin with the manager's token: by a binding, a namespace, a Kustomization or a shared role",
		Controls: []string{"policy on the manager's own requests", "RBAC"},
		Fix:      Fix{Advice: "install Tenure's rules: RBAC cannot limit the manager's rights to the namespaces of tenants"},
		Run:      usesTheManager,
	})
}

// usesTheManager tries, as the manager, the first step of each escalation from the manager's
// rights to cluster-admin.
func usesTheManager(ctx context.Context, e *Scenario) Finding {
	account := object("v1", "ServiceAccount", e.Platform, tenancy.ManagerAccount, nil)
	there, err := e.exists(ctx, account)
	if err != nil {
		return notProven("cannot look for the manager: " + firstLine(err.Error()))
	}
	if !there {
		return e.nothingThere(ctx, notInstalled, "there is no account "+e.Platform+"/"+tenancy.ManagerAccount)
	}
	manager, err := e.ofPlatform(tenancy.ManagerAccount)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	made := map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}
	binding := func(kind, namespace, role string) func(*Scenario) *unstructured.Unstructured {
		return func(*Scenario) *unstructured.Unstructured {
			u := object(rbacv1.SchemeGroupVersion.String(), kind, namespace, name("i25"), map[string]any{
				"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role},
				"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": e.Account.Namespace, "name": e.Account.Name}},
			})
			u.SetLabels(made)
			return u
		}
	}
	sync := func(*Scenario) *unstructured.Unstructured {
		u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", e.Platform, name("i25"), map[string]any{"spec": map[string]any{
			"interval": "1h", "prune": true, "path": "./", "suspend": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": name("i25")},
		}})
		u.SetLabels(made)
		return u
	}
	own := creating(binding("RoleBinding", e.Account.Namespace, tenancy.Role))
	kubeSystem := object("v1", "Namespace", "", "kube-system", nil)
	basic := object(rbacv1.SchemeGroupVersion.String(), "ClusterRole", "", "system:basic-user", nil)
	return requests(
		request{what: "give admin in kube-system with the manager's token", aimed: creating(binding("RoleBinding", "kube-system", "admin")), own: own},
		request{what: "give admin in namespace " + e.Platform + " with the manager's token", aimed: creating(binding("RoleBinding", e.Platform, "admin")), own: own},
		request{what: "give admin in all namespaces with the manager's token", aimed: creating(binding("ClusterRoleBinding", "", "admin")), own: own},
		request{what: "have Flux apply a repository as the platform with the manager's token", aimed: creating(sync), own: own},
		request{what: "make kube-system a tenant's namespace with the manager's token", aimed: merging(kubeSystem, `{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":"`+name("i25")+`"}}}`), own: own},
		request{what: "give everybody rights with the manager's token", aimed: merging(basic, `{"rules":[{"apiGroups":[""],"resources":["namespaces"],"verbs":["patch"]}]}`), own: own},
	)(ctx, manager)
}
