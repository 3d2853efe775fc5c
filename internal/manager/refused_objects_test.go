package manager

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRoleThatDoesNotExist gives Tenants roles that no ClusterRole has: the condition says so, also on a Tenant
// that was ready, and the Tenants recover when a platform admin creates the role.
func TestRoleThatDoesNotExist(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("no-role", "{owners: [{kind: User, name: ann, roles: [made-later]}], namespaces: {create: [no-role]}}")+"---\n"+
		tenantManifest("no-cluster-role", "{owners: [{kind: User, name: ann}]}"))
	const want = "there is no ClusterRole made-later: create it, and allow the manager to bind it"
	condition(t, admin, "no-role", "Ready", "Failed", "namespace no-role: "+want)
	tenant := condition(t, admin, "no-cluster-role", "Ready", "InPlace", "")
	if err := admin.Patch(t.Context(), tenant, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusterRoles":["made-later"]}}`))); err != nil {
		t.Fatal(err)
	}
	condition(t, admin, "no-cluster-role", "Ready", "Failed", want)
	create(t, admin, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: made-later}
rules: [{apiGroups: [storage.k8s.io], resources: [csinodes], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tenure-manager-binds-made-later, labels: {rbac.tenure.dev/aggregate-to-manager: "true"}}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [made-later], verbs: [bind]}]
`)
	condition(t, admin, "no-cluster-role", "Ready", "InPlace", "")
	condition(t, admin, "no-role", "Ready", "InPlace", "")
	exists(t, admin, true, &rbacv1.RoleBinding{}, "no-role", "tenure:owners:made-later")
	exists(t, admin, true, &rbacv1.ClusterRoleBinding{}, "", "tenure:cluster:no-cluster-role:made-later")
}

// TestDeletionWithRefusedRole deletes a Tenant that has a role that the manager may not bind: the deletion does not
// wait for the role.
func TestDeletionWithRefusedRole(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("leaves-refused", "{owners: [{kind: User, name: ann, roles: [never-made]}], clusterRoles: [never-made], namespaces: {create: [leaves-refused]}}"))
	condition(t, admin, "leaves-refused", "Ready", "Failed", "there is no ClusterRole never-made")
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "leaves-refused"}}
	if err := admin.Delete(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, tenant, "", tenant.Name)
}

// TestNamespaceMetadataRefused gives a Tenant that is ready more annotations than a namespace can have. The
// condition says so, the manager still removes rights, and it adds none.
func TestNamespaceMetadataRefused(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("too-long", "{owners: [{kind: User, name: ann}, {kind: User, name: bob, roles: [view]}], namespaces: {create: [too-long]}}"))
	tenant := condition(t, admin, "too-long", "Ready", "InPlace", "")
	exists(t, admin, true, &rbacv1.RoleBinding{}, "too-long", "tenure:owners:view")
	annotations := map[string]string{}
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		annotations[name] = strings.Repeat("x", 12_000)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"namespaces": map[string]any{"annotations": annotations},
		"owners":     []any{map[string]any{"kind": "User", "name": "ann", "roles": []string{"tenure-tenant", "edit"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Patch(t.Context(), tenant, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	condition(t, admin, "too-long", "Ready", "Failed", "metadata.annotations: Too long")
	exists(t, admin, false, &rbacv1.RoleBinding{}, "too-long", "tenure:owners:view")
	exists(t, admin, false, &rbacv1.RoleBinding{}, "too-long", "tenure:owners:edit")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
		t.Fatal(err)
	}
	if err := admin.Patch(t.Context(), tenant, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"namespaces":{"annotations":null}}}`))); err != nil {
		t.Fatal(err)
	}
	condition(t, admin, "too-long", "Ready", "InPlace", "")
	exists(t, admin, true, &rbacv1.RoleBinding{}, "too-long", "tenure:owners:edit")
}

// TestSyncInForeignNamespace gives a Tenant a sync in a namespace that it does not have.
func TestSyncInForeignNamespace(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("sync-elsewhere", "{namespaces: {create: [sync-elsewhere]}, sync: [{name: app, namespace: somewhere, git: {url: 'https://git.example.com/acme/app'}}]}"))
	condition(t, admin, "sync-elsewhere", "Ready", "Progressing", "waiting for namespace somewhere of spec.sync[0], which the tenant does not have")
}

// TestMetadataThatIsLeftOut gives Tenants labels that an object cannot have: they are not ready.
func TestMetadataThatIsLeftOut(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	long := "left-out-" + strings.Repeat("x", 54)
	create(t, admin, tenantManifest("left-out", "{roleBindings: [{role: view, subjects: [{kind: User, name: ann}], labels: {a: 'not ok!'}}]}")+"---\n"+
		tenantManifest("left-out-long", "{namespaces: {create: ["+long+"], selected: [{labels: {example.com/of: 'team-{{ namespace }}'}}]}}"))
	condition(t, admin, "left-out", "Ready", "Invalid", "label a of spec.roleBindings[0].labels cannot be set: ")
	condition(t, admin, "left-out-long", "Ready", "Failed", "label example.com/of of spec.namespaces.selected[0] cannot be team-"+long+": must be no more than 63")
}
