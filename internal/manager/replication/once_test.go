package replication_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onceBase has two tenants, and accounts of a namespace of the platform as which the manager may act.
const onceBase = `
apiVersion: v1
kind: Namespace
metadata: {name: catalog}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: writer, namespace: catalog}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: manager, namespace: catalog}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-replicator}
subjects: [{kind: ServiceAccount, name: tenure-manager, namespace: flux-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: writer, namespace: catalog}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: writer, namespace: catalog}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: once-writer}
rules:
  - {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [get, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: once-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: once-writer}
subjects: [{kind: ServiceAccount, name: writer, namespace: catalog}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: comet, labels: {body: small}}
spec: {owners: [{kind: User, name: halley}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: moon, labels: {body: small}}
spec: {owners: [{kind: User, name: luna}]}
`

// TestOnce applies objects once a tenant, and once, with the rights of the account that is named.
func TestOnce(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	create(t, c, onceBase+`
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: each}
spec:
  scope: Tenant
  serviceAccount: {name: writer, namespace: catalog}
  tenantSelector: {matchLabels: {body: small}}
  resources:
    - rawItems:
        - {apiVersion: v1, kind: ConfigMap, metadata: {name: "of-{{tenant.name}}", namespace: catalog}, data: {tenant: "{{ tenant.name }}"}}
        - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "once-{{tenant.name}}"}, rules: []}
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: single}
spec:
  scope: None
  serviceAccount: {name: writer, namespace: catalog}
  resources: [{rawItems: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: once-single}, rules: []}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: beyond}
spec:
  scope: None
  serviceAccount: {name: writer, namespace: catalog}
  resources:
    - rawItems:
        - {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: platform}}
        - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: once-beyond}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
        - {apiVersion: v1, kind: ConfigMap, metadata: {name: within, namespace: catalog}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: stranger}
spec:
  scope: None
  serviceAccount: {name: admin, namespace: platform}
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: platform}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: same}
spec:
  scope: Tenant
  serviceAccount: {name: writer, namespace: catalog}
  tenantSelector: {matchLabels: {body: small}}
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: same, namespace: catalog}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: template}
spec:
  scope: None
  serviceAccount: {name: writer, namespace: catalog}
  resources: [{generators: [{template: "{apiVersion: v1, kind: ConfigMap, metadata: {name: generated, namespace: catalog}}"}]}]
`)
	global := func(name string) *v1beta2.GlobalTenantResource {
		return &v1beta2.GlobalTenantResource{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	each, single := global("each"), global("single")
	ready(t, c, each, metav1.ConditionTrue, "InPlace", "4 objects are in place")
	ready(t, c, single, metav1.ConditionTrue, "InPlace", "1 object is in place")
	made := &corev1.ConfigMap{}
	exists(t, c, true, made, "catalog", "of-moon")
	if made.Data["tenant"] != "moon" || made.Labels["projectcapsule.dev/managed-by"] != "replications" {
		t.Errorf("the object has labels %v and data %v", made.Labels, made.Data)
	}
	exists(t, c, true, &rbacv1.ClusterRole{}, "", "once-comet")
	if diff := cmp.Diff([]v1beta2.ProcessedItem{{
		Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "once-single", Origin: "0/raw-0",
		Status: v1beta2.ProcessedStatus{Type: "Ready", Status: metav1.ConditionTrue, Created: true, ClusterScoped: true},
	}}, single.Status.ProcessedItems); diff != "" {
		t.Errorf("the processed items (-want +got):\n%s", diff)
	}
	// The rights of the account decide, and the API server's rule against more rights than one has.
	ready(t, c, global("beyond"), metav1.ConditionFalse, "Refused", "ConfigMap platform/x is not what account catalog/writer may have", "ClusterRole once-beyond is not what account catalog/writer may have", "attempting to grant RBAC permissions not currently held")
	exists(t, c, true, &corev1.ConfigMap{}, "catalog", "within")
	ready(t, c, global("stranger"), metav1.ConditionUnknown, "Waiting", "the manager may not act as account platform/admin yet")
	ready(t, c, global("same"), metav1.ConditionFalse, "Refused", "ConfigMap catalog/same is the same object for the tenants comet, moon: put {{ tenant.name }} into its name or its namespace")
	ready(t, c, global("template"), metav1.ConditionFalse, "Refused", "resources[0].generators: it is for objects in each namespace")
	for _, name := range []string{"same", "generated"} {
		exists(t, c, false, &corev1.ConfigMap{}, "catalog", name)
	}

	// A tenant that is no longer selected, or is deleted, loses its objects.
	merge(t, c, &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "moon"}}, `{"metadata":{"labels":{"body":"large"}}}`)
	exists(t, c, false, &corev1.ConfigMap{}, "catalog", "of-moon")
	exists(t, c, false, &rbacv1.ClusterRole{}, "", "once-moon")
	ready(t, c, global("same"), metav1.ConditionTrue, "InPlace", "1 object is in place")
	if err := c.Delete(t.Context(), &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "comet"}}); err != nil {
		t.Fatal(err)
	}
	exists(t, c, false, &corev1.ConfigMap{}, "catalog", "of-comet")
	exists(t, c, false, &rbacv1.ClusterRole{}, "", "once-comet")
	ready(t, c, each, metav1.ConditionTrue, "InPlace", "0 objects are in place")

	// The objects go with their declaration.
	if err := c.Delete(t.Context(), single); err != nil {
		t.Fatal(err)
	}
	exists(t, c, false, single, "", "single")
	exists(t, c, false, &rbacv1.ClusterRole{}, "", "once-single")
}
