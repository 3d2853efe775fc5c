package replication_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func read(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifest))
	if err != nil || len(objects) != 1 {
		t.Fatalf("%v: %s", err, manifest)
	}
	return objects[0]
}

// TestCapsule: Capsule's kinds, for the tenants that Capsule's manifests made.
func TestCapsule(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	create(t, c, `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: solar, labels: {energy: renewable}}
spec: {owners: [{kind: ServiceAccount, name: "system:serviceaccount:solar-a:gitops"}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: solar-a, labels: {tenure.dev/tenant: solar, capsule.clastix.io/tenant: solar}}
---
apiVersion: v1
kind: Namespace
metadata: {name: solar-b, labels: {tenure.dev/tenant: solar, capsule.clastix.io/tenant: solar, environment: production}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: privileged, namespace: solar-a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: labelled, namespace: solar-b, labels: {shared: "true"}}, data: {key: value}}
`)
	exists(t, c, true, &rbacv1.RoleBinding{}, "solar-b", "tenure:replicator")
	create(t, c, `
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: db, namespace: solar-a}
spec:
  serviceAccount: {name: gitops}
  resources:
    - namespaceSelector: {matchLabels: {environment: production}}
      additionalMetadata: {labels: {replicated-by: capsule, for: "{{tenant.name}}"}}
      rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "db-{{namespace}}"}, data: {of: "{{ tenant.name }}"}}]
      context: {resources: [{index: labelled, kind: ConfigMap, selector: {matchLabels: {shared: "true"}}, namespace: "{{ namespace }}"}]}
      generators:
        - template: |
            apiVersion: v1
            kind: ConfigMap
            metadata: {name: "db-{{ .namespace.metadata.name }}", namespace: platform}
            data: {found: "{{ len .labelled }} {{ (index .labelled 0).data.key }}", owner: "{{ (index .tenant.spec.owners 0).name }}"}
---
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: second, namespace: solar-a}
spec:
  dependsOn: [{name: nothing}]
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: second}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: takes, namespace: solar-a}
spec:
  serviceAccount: {name: privileged}
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: taken}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: others, namespace: solar-a}
spec:
  serviceAccount: {name: "platform:admin"}
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: taken}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: narrow, namespace: solar-a}
spec:
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: narrow}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: nobodys, namespace: platform}
spec:
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: all}
spec:
  tenantSelector: {matchLabels: {energy: renewable}}
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: everywhere}}]}]
---
apiVersion: capsule.clastix.io/v1beta2
kind: GlobalTenantResource
metadata: {name: cluster}
spec:
  scope: None
  tenantSelector: {matchLabels: {energy: renewable}}
  resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]}]
`)
	local := func(name string) *v1beta2.TenantResource {
		return &v1beta2.TenantResource{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-a", Name: name}}
	}
	db := local("db")
	ready(t, c, db, metav1.ConditionTrue, "InPlace", "1 object is in place")
	made := &corev1.ConfigMap{}
	exists(t, c, true, made, "solar-b", "db-solar-b")
	if made.Labels["projectcapsule.dev/managed-by"] != "replications" || made.Labels["projectcapsule.dev/created-by"] != "replications" {
		t.Errorf("the object lacks Capsule's labels: %v", made.Labels)
	}
	if diff := cmp.Diff([]v1beta2.ProcessedItem{{
		Version: "v1", Kind: "ConfigMap", Namespace: "solar-b", Name: "db-solar-b", Tenant: "solar", Origin: "0/raw-0",
		Status: v1beta2.ProcessedStatus{Type: "Ready", Status: metav1.ConditionTrue, Created: true},
	}}, db.Status.ProcessedItems); diff != "" {
		t.Errorf("the processed items (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"of": "solar", "found": "1 value", "owner": "system:serviceaccount:solar-a:gitops"}, made.Data); diff != "" || made.Labels["replicated-by"] != "capsule" || made.Labels["for"] != "solar" {
		t.Errorf("the object has labels %v and data (-want +got):\n%s", made.Labels, diff)
	}
	ready(t, c, local("second"), metav1.ConditionUnknown, "DependencyNotReady", "there is no TenantResource nothing")
	ready(t, c, local("takes"), metav1.ConditionFalse, "Refused", "account privileged of namespace solar-a is none that tenant solar may be applied as (allowed: gitops, solar)")
	ready(t, c, local("others"), metav1.ConditionFalse, "Refused", "account platform:admin")
	// Its account has no rights in the tenant's other namespace: the API server says so.
	narrow := local("narrow")
	ready(t, c, narrow, metav1.ConditionFalse, "Refused", "applying of 1 resources failed, of 2: ", "ConfigMap solar-b/narrow is not what account solar-a/solar may have")
	if items := narrow.Status.ProcessedItems; len(items) != 2 || items[0].Namespace != "solar-b" || items[0].Status.Status != metav1.ConditionFalse || !strings.Contains(items[0].Status.Message, "is not what account") || items[1].Status.Status != metav1.ConditionTrue {
		t.Errorf("the processed items: %+v", items)
	}
	exists(t, c, true, made, "solar-a", "narrow")
	nobodys := local("nobodys")
	nobodys.Namespace = "platform"
	ready(t, c, nobodys, metav1.ConditionFalse, "Refused", "namespace platform is no tenant's")
	global := &v1beta2.GlobalTenantResource{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	ready(t, c, global, metav1.ConditionTrue, "InPlace", "2 objects")
	if diff := cmp.Diff([]string{"solar"}, global.Status.SelectedTenants); diff != "" {
		t.Errorf("the tenants (-want +got):\n%s", diff)
	}
	ready(t, c, &v1beta2.GlobalTenantResource{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}, metav1.ConditionFalse, "Refused", "spec.scope: None puts objects outside of the tenants' namespaces too: name the account")

	merge(t, c, db.DeepCopy(), `{"spec":{"pruningOnDelete":false}}`)
	ready(t, c, db, metav1.ConditionTrue, "InPlace")
	if err := c.Delete(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	exists(t, c, false, local("db"), "solar-a", "db")
	exists(t, c, true, made, "solar-b", "db-solar-b")
	if err := c.Delete(t.Context(), global); err != nil {
		t.Fatal(err)
	}
	exists(t, c, false, &v1beta2.GlobalTenantResource{}, "", "all")
	exists(t, c, false, made, "solar-a", "everywhere")
}
