package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func clusterBinding(name, role string, labels map[string]string, subject rbacv1.Subject) client.Object {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	serviceAccount := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "apps", Name: "dev-team"}
	group := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }
	user := func(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name} }
	roleBinding := func(namespace string, labels map[string]string, subject rbacv1.Subject) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b", Labels: labels},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{subject},
		}
	}
	applied := map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	both := clusterBinding("c", "edit", nil, user("gotk:apps:reconciler")).(*rbacv1.ClusterRoleBinding)
	both.Subjects = append(both.Subjects, serviceAccount)
	for name, tc := range map[string]struct {
		reason  string
		binding client.Object
		want    string
		role    string
	}{
		"account and user": {
			"as flux create tenant writes it, the account is what counts", both,
			"ClusterRoleBinding c gives ServiceAccount apps/dev-team ClusterRole/edit", "ClusterRole/edit (everywhere)",
		},
		"role binding": {
			"a binding in its namespace is named with who applied it",
			roleBinding("apps", applied, serviceAccount),
			"RoleBinding apps/b gives ServiceAccount apps/dev-team ClusterRole/cluster-admin (applied by Kustomization flux-system/tenants)",
			"ClusterRole/cluster-admin",
		},
		"elsewhere": {
			"so is one in a namespace that is not its own",
			roleBinding("flux-system", nil, serviceAccount),
			"RoleBinding flux-system/b gives ServiceAccount apps/dev-team ClusterRole/cluster-admin", "ClusterRole/cluster-admin (in flux-system)",
		},
		"cluster-wide": {
			"a ClusterRoleBinding counts everywhere",
			clusterBinding("c", "cluster-admin", nil, serviceAccount),
			"ClusterRoleBinding c gives ServiceAccount apps/dev-team ClusterRole/cluster-admin", "ClusterRole/cluster-admin (everywhere)",
		},
		"as a user": {
			"an account has a user name too",
			clusterBinding("c", "edit", nil, user("system:serviceaccount:apps:dev-team")),
			"ClusterRoleBinding c gives User system:serviceaccount:apps:dev-team ClusterRole/edit", "ClusterRole/edit (everywhere)",
		},
		"user of older releases": {
			"the user that Flux used to impersonate is the tenant's",
			clusterBinding("c", "edit", nil, user("gotk:apps:reconciler")),
			"ClusterRoleBinding c gives User gotk:apps:reconciler ClusterRole/edit", "ClusterRole/edit (everywhere)",
		},
		"accounts of its namespace": {
			"every account of a namespace is in the group of that",
			clusterBinding("c", "edit", nil, group("system:serviceaccounts:apps")),
			"ClusterRoleBinding c gives Group system:serviceaccounts:apps ClusterRole/edit", "ClusterRole/edit (everywhere)",
		},
		"everybody": {
			"and in that of all who are known",
			clusterBinding("c", "edit", nil, group("system:authenticated")),
			"ClusterRoleBinding c gives Group system:authenticated ClusterRole/edit", "ClusterRole/edit (everywhere)",
		},
		"Kubernetes' own": {
			"what every cluster grants to everybody is nothing of the tenant's",
			clusterBinding("c", "system:discovery", map[string]string{bootstrapping: "rbac-defaults"}, group("system:authenticated")), "", "",
		},
		"others": {
			"another namespace's group and user are not the tenant's",
			clusterBinding("c", "edit", nil, group("system:serviceaccounts:apps-2")), "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			labels := map[string]string{Label: "dev-team"}
			found := discover(t, namespace("apps", labels), account("apps", "dev-team", labels), tc.binding)
			if len(found) != 1 {
				t.Fatalf("%d tenants, want 1", len(found))
			}
			var got, roles string
			if len(found[0].Rights) > 0 {
				got, roles = found[0].Rights[0].String(), found[0].Roles[0]
			}
			if got != tc.want || roles != tc.role {
				t.Errorf("%s: got %q as %q, want %q as %q", tc.reason, got, roles, tc.want, tc.role)
			}
			if got, want := found[0].HasClusterAdmin(), tc.role != "" && tc.role[:13] == "ClusterRole/c"; got != want {
				t.Errorf("%s: cluster-admin is %t, want %t", tc.reason, got, want)
			}
		})
	}
}

// TestDelegated checks a platform that keeps the tenants' Flux objects in its own
// namespace.
func TestDelegated(t *testing.T) {
	t.Parallel()
	source := fluxObject(flux.GitRepository, "flux-system", "shop", map[string]any{"url": "https://git.example.com/acme/shop", "ref": map[string]any{"branch": "main"}})
	sync := func(account, target string) client.Object {
		spec := map[string]any{"path": "./", "serviceAccountName": account, "sourceRef": map[string]any{"kind": "GitRepository", "name": "shop"}}
		if target != "" {
			spec["targetNamespace"] = target
		}
		return fluxObject(flux.Kustomization, "flux-system", "shop", spec)
	}
	foreign := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "shop"}},
	}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		want    string
		account string
	}{
		"by target":         {"an account and a target make a tenant", []client.Object{namespace("shop", nil), source, sync("shop", "shop")}, "shop", "flux-system/shop"},
		"by rights":         {"so does an account with rights in a labelled namespace", []client.Object{namespace("shop", map[string]string{Label: "shop"}), foreign, source, sync("shop", "")}, "shop", "flux-system/shop"},
		"of the platform":   {"a target alone does not: the platform delivers there", []client.Object{namespace("shop", nil), source, sync("", "shop")}, "", ""},
		"of the controller": {"nor does the controller's own account", []client.Object{namespace("shop", nil), source, sync("kustomize-controller", "shop")}, "", ""},
		"into the platform": {"nor what is aimed at the platform", []client.Object{source, sync("shop", "kube-system")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := discover(t, tc.objects...)
			var name, account string
			for _, tenant := range found {
				name += tenant.Name
				for _, a := range tenant.Accounts {
					account += a.String()
				}
				if len(tenant.Repositories) != 1 {
					t.Errorf("%s: %d repositories, want 1", tc.reason, len(tenant.Repositories))
				}
			}
			if diff := cmp.Diff([]string{tc.want, tc.account}, []string{name, account}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
