package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestForeignFields adds fields to objects of the manager, as `kubectl edit` and a server-side apply of another field
// manager do: the manager removes the fields, although it does not own them, and then writes no more.
func TestForeignFields(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const name = "foreign-fields"
	create(t, admin, tenantManifest(name, `{namespaces: {create: [foreign-fields]}, quotas: [{name: all, hard: {secrets: "9"}}, {name: each, scope: Namespace, hard: {services: "5"}}],
 limitRanges: [{limits: [{type: Container, max: {cpu: "1"}}]}], networkPolicies: [{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}],
 sync: [{name: app, git: {url: "https://git.example.com/acme/app", branch: main}}]}`))
	condition(t, admin, name, "Provisioned", "InPlace", "1 namespace is in place")
	for _, tc := range []struct {
		reason, apiVersion, kind, name, spec, field string
	}{
		{"a limit in a part of a quota", "v1", "ResourceQuota", "tenure-all", `{"hard":{"pods":"7"}}`, "hard/pods"},
		{"a limit in a quota of the namespace", "v1", "ResourceQuota", "tenure-each", `{"hard":{"pods":"7"}}`, "hard/pods"},
		{"a label in a selector, so that the policy selects fewer Pods", "networking.k8s.io/v1", "NetworkPolicy", "tenure-0", `{"podSelector":{"matchLabels":{"tier":"x"}}}`, "podSelector/matchLabels/tier"},
		{"a direction that the policy lets through", "networking.k8s.io/v1", "NetworkPolicy", "tenure-0", `{"egress":[{}]}`, "egress"},
		{"a group that no rule is about", "tenure.dev/v1alpha1", "TenantParameters", "tenure", `{"breakGlass":["somebody"]}`, "breakGlass"},
		{"a tag, which Flux fetches before the branch", "source.toolkit.fluxcd.io/v1", "GitRepository", "app", `{"ref":{"tag":"v1"}}`, "ref/tag"},
	} {
		for _, way := range []string{"edit", "apply"} {
			applied := parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}", tc.apiVersion, tc.kind, tc.name, name, tc.spec))
			var err error
			if way == "edit" {
				patch := fmt.Appendf(nil, `{"spec":%s}`, tc.spec)
				err = admin.Patch(t.Context(), applied.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner("kubectl-edit"))
			} else {
				err = admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied.DeepCopy()), client.FieldOwner("another"), client.ForceOwnership)
			}
			if err != nil {
				t.Fatalf("%s, by %s: %v", tc.reason, way, err)
			}
			testwait.For(t, fmt.Sprintf("%s %s to lose %s after %s", tc.kind, tc.name, tc.field, way), patience, func() (bool, string) {
				err := admin.Get(t.Context(), client.ObjectKeyFromObject(applied), applied)
				_, there, _ := unstructured.NestedFieldNoCopy(applied.Object, append([]string{"spec"}, strings.Split(tc.field, "/")...)...)
				return err == nil && !there, fmt.Sprint(tc.reason, ": ", applied.Object["spec"], err)
			})
		}
	}
	condition(t, admin, name, "Provisioned", "InPlace", "1 namespace is in place")
	unchanged(t, admin, name, name)
}

// TestEmptiedManagedFields removes the managed fields of an object, after which the API server no longer knows which
// fields are the manager's: the manager still removes what the Tenant no longer has.
func TestEmptiedManagedFields(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const name = "emptied-fields"
	create(t, admin, tenantManifest(name, `{namespaces: {create: [emptied-fields], labels: {cost: "7"}}, quotas: [{name: each, scope: Namespace, hard: {services: "5", secrets: "9"}}]}`))
	tenant := condition(t, admin, name, "Ready", "InPlace", "")
	quota := &corev1.ResourceQuota{}
	exists(t, admin, true, quota, name, "tenure-each")
	namespace := &corev1.Namespace{}
	exists(t, admin, true, namespace, "", name)
	for _, o := range []client.Object{quota, namespace} {
		merge(t, admin, o, `{"metadata":{"managedFields":[{}]}}`)
	}
	testwait.For(t, "the manager to own the labels of the namespace again", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
		return err == nil && slices.ContainsFunc(namespace.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "tenure-manager" }), fmt.Sprint(namespace.ManagedFields, err)
	})
	merge(t, admin, tenant, `{"spec":{"namespaces":{"labels":null},"quotas":[{"name":"each","scope":"Namespace","hard":{"secrets":"9"}}]}}`)
	condition(t, admin, name, "Ready", "InPlace", "")
	testwait.For(t, "the quota to lose services", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
		_, there := quota.Spec.Hard["services"]
		return err == nil && !there, fmt.Sprint(quota.Spec.Hard, err)
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.Labels["cost"] != "" {
		t.Errorf("the namespace keeps the label cost: %v, %v", namespace.Labels, err)
	}
}

// TestLabelTakenOff replaces objects of the manager with ones without its label, as `kubectl replace` with an old manifest
// does. A rule forbids the manager to change objects of others, so the condition of the Tenant gives advice.
func TestLabelTakenOff(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const name = "label-off"
	create(t, admin, tenantManifest(name, `{owners: [{kind: User, name: ann}], namespaces: {create: [label-off]}, quotas: [{name: each, scope: Namespace, hard: {services: "5"}}, {name: all, hard: {secrets: "9"}}]}`))
	condition(t, admin, name, "Ready", "InPlace", "")
	for _, tc := range []struct {
		object client.Object
		want   string
	}{
		{&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenure-each"}}, "ResourceQuota label-off/tenure-each exists without the label"},
		{&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenure-all"}}, "ResourceQuota label-off/tenure-all exists without the label"},
		{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tenure:owners:label-off"}}, "ClusterRole tenure:owners:label-off exists without the label tenure.dev/managed-by=manager, so the manager may not change it: delete it, or give it the label"},
	} {
		labels := `{"metadata":{"labels":{"tenure.dev/managed-by":%s}}}`
		merge(t, admin, tc.object.DeepCopyObject().(client.Object), fmt.Sprintf(labels, "null"))
		testwait.For(t, "the Tenant to say "+tc.want, patience, func() (bool, string) {
			tenant := &v1alpha1.Tenant{}
			err := admin.Get(t.Context(), client.ObjectKey{Name: name}, tenant)
			c := apimeta.FindStatusCondition(tenant.Status.Conditions, "Ready")
			return c != nil && strings.Contains(c.Message, tc.want), fmt.Sprint(c, err)
		})
		merge(t, admin, tc.object, fmt.Sprintf(labels, `"manager"`))
		condition(t, admin, name, "Ready", "InPlace", "")
	}
}
