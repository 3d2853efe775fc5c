package manager

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTenantQuota lets the namespaces of a tenant come, grow and go, and looks all the
// time at what they may use together.
func TestTenantQuota(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const limit = 6
	divided := func(want map[string]int64) {
		t.Helper()
		testwait.For(t, fmt.Sprintf("the quota to be divided as %v", want), patience, func() (bool, string) {
			var list corev1.ResourceQuotaList
			if err := admin.List(t.Context(), &list, client.MatchingLabels{"tenure.dev/quota-scope": "Tenant", v1alpha1.LabelFluxTenant: "shares"}); err != nil {
				return false, err.Error()
			}
			got, held := map[string]int64{}, int64(0)
			for _, q := range list.Items {
				hard, enforced := q.Spec.Hard["services"], q.Status.Hard["services"]
				held += max(hard.Value(), enforced.Value())
				if hard.Cmp(enforced) == 0 {
					got[q.Namespace] = hard.Value()
				}
			}
			if held > limit {
				t.Fatalf("namespaces may use %d of %d: %v", held, limit, list.Items)
			}
			return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
		})
	}
	create(t, admin, tenantManifest("shares", fmt.Sprintf(`{owners: [{kind: User, name: ann}], namespaces: {create: [shares-a, shares-b]}, quotas: [{name: all, hard: {services: "%d"}}]}`, limit)))
	divided(map[string]int64{"shares-a": 3, "shares-b": 3})
	exists(t, admin, true, &rbacv1.RoleBinding{}, "shares-a", "tenure:owners:tenure-tenant")
	for i := range 3 {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shares-a", Name: fmt.Sprintf("s%d", i)},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		// The API server's own view of the quota may be older than ours.
		testwait.For(t, "a Service within the quota to be taken", patience, func() (bool, string) {
			err := admin.Create(t.Context(), service.DeepCopy())
			return err == nil, fmt.Sprint(err)
		})
	}
	// Three are free: each namespace gets one, and the first by name what is left.
	divided(map[string]int64{"shares-a": 5, "shares-b": 1})
	create(t, admin, namespace("shares-c", v1alpha1.LabelTenant, "shares"))
	divided(map[string]int64{"shares-a": 4, "shares-b": 1, "shares-c": 1})
	condition(t, admin, "shares", "WithinQuota", "Within", "")
	if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shares-c"}}); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, &corev1.Namespace{}, "", "shares-c")
	divided(map[string]int64{"shares-a": 4, "shares-b": 1})
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "shares"}}
	merge(t, admin, tenant, `{"spec":{"quotas":[{"name":"all","hard":{"services":"2"}}]}}`)
	condition(t, admin, "shares", "WithinQuota", "Exceeded", "services")
	divided(map[string]int64{"shares-a": 2, "shares-b": 0})
	merge(t, admin, tenant, `{"spec":{"quotas":null}}`)
	divided(map[string]int64{})
}

// TestTenantQuotaSelector gives a quota to the namespaces with a label, which come and go.
func TestTenantQuotaSelector(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const divided = "divided-quota.tenure.dev/services"
	bound := func(want string) {
		t.Helper()
		testwait.For(t, "the namespaces "+want+" to have parts of the quota", patience, func() (bool, string) {
			var parts corev1.ResourceQuotaList
			var namespaces corev1.NamespaceList
			if err := errors.Join(admin.List(t.Context(), &parts, client.MatchingLabels{"tenure.dev/quota-scope": "Tenant", v1alpha1.LabelFluxTenant: "selected"}), admin.List(t.Context(), &namespaces, client.MatchingLabels{v1alpha1.LabelTenant: "selected"})); err != nil {
				return false, err.Error()
			}
			var got, waiting []string
			for _, q := range parts.Items {
				hard, enforced := q.Spec.Hard["services"], q.Status.Hard["services"]
				if hard.Cmp(enforced) == 0 {
					got = append(got, q.Namespace+"="+hard.String())
				}
			}
			for _, ns := range namespaces.Items {
				if ns.Labels[divided] != "" {
					waiting = append(waiting, ns.Name)
				}
			}
			found := strings.Join(got, " ") + " | " + strings.Join(waiting, " ")
			return found == want, found
		})
	}
	labelled := func(namespace, stage string) {
		t.Helper()
		merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, `{"metadata":{"labels":{"stage":`+stage+`}}}`)
	}
	create(t, admin, tenantManifest("selected", `{owners: [{kind: User, name: ann}], namespaces: {create: [selected-a, selected-b, selected-c]}, quotas: [{name: tests, hard: {services: "4"}, namespaceSelector: {matchLabels: {stage: test}}}]}`))
	condition(t, admin, "selected", "Ready", "InPlace", "")
	exists(t, admin, true, &rbacv1.RoleBinding{}, "selected-c", "tenure:owners:tenure-tenant")
	bound(" | ")
	labelled("selected-a", `"test"`)
	bound("selected-a=4 | selected-a")
	labelled("selected-b", `"test"`)
	bound("selected-a=2 selected-b=2 | selected-a selected-b")
	labelled("selected-a", `"live"`)
	// A part that is at least half of what it could be stays, until a request needs more.
	bound("selected-b=2 | selected-b")
	merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "selected"}}, `{"spec":{"quotas":[{"name":"tests","hard":{"services":"4"},"namespaceSelector":{"matchExpressions":[{"key":"stage","operator":"Is"}]}}]}}`)
	condition(t, admin, "selected", "Ready", "Invalid", "spec.quotas[0].namespaceSelector is not valid")
	bound("selected-a=2 selected-b=1 selected-c=1 | selected-a selected-b selected-c")
	condition(t, admin, "selected", "WithinQuota", "Within", "")
}

// TestTenantQuotaInTheWay deletes a part of a quota, takes a role away while another
// quota is refused, and gives a namespace to another Tenant.
func TestTenantQuotaInTheWay(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("parts", `{owners: [{kind: User, name: ann, roles: [view]}, {kind: User, name: bob, roles: [view]}, {kind: User, name: ann, roles: [edit]}], namespaces: {create: [parts-a, parts-b]}, quotas: [{name: all, hard: {services: "4"}}]}`))
	create(t, admin, tenantManifest("parts-other", `{}`))
	condition(t, admin, "parts", "Ready", "InPlace", "")
	part := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "parts-a", Name: "tenure-all"}}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(part), part); err != nil {
		t.Fatal(err)
	}
	before := part.UID
	if err := admin.Delete(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the part to be made again", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(part), part)
		return err == nil && part.UID != before && part.DeletionTimestamp.IsZero(), fmt.Sprint(err, part)
	})
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "parts"}}
	merge(t, admin, tenant, `{"spec":{"owners":[{"kind":"User","name":"bob","roles":["view","admin"]}],"quotas":[{"name":"all","hard":{"services":"4"}},{"name":"bad","hard":{"pod":"10"}}]}}`)
	condition(t, admin, "parts", "Ready", "Invalid", "quota bad cannot be kept")
	exists(t, admin, false, &rbacv1.RoleBinding{}, "parts-a", "tenure:owners:edit")
	binding := &rbacv1.RoleBinding{}
	testwait.For(t, "ann to lose a role that bob keeps", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: "parts-a", Name: "tenure:owners:view"}, binding)
		return err == nil && len(binding.Subjects) == 1 && binding.Subjects[0].Name == "bob", fmt.Sprint(err, binding.Subjects)
	})
	exists(t, admin, false, &rbacv1.RoleBinding{}, "parts-a", "tenure:owners:admin")
	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "parts-b"}}, `{"metadata":{"labels":{"tenure.dev/tenant":"parts-other"}}}`)
	exists(t, admin, false, &corev1.ResourceQuota{}, "parts-b", "tenure-all")
}

// TestCordonedTenant lets a cordon through to where the policies read it.
func TestCordonedTenant(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("halted", "{owners: [{kind: User, name: ann}], namespaces: {create: [halted]}}"))
	condition(t, admin, "halted", "Ready", "InPlace", "1 namespace")
	merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "halted"}}, `{"spec":{"cordoned":true}}`)
	condition(t, admin, "halted", "Ready", "InPlace", "cordoned")
	parameters := &v1alpha1.TenantParameters{}
	exists(t, admin, true, parameters, "halted", "tenure")
	role := &rbacv1.ClusterRole{}
	exists(t, admin, true, role, "", "tenure:owners:halted")
	for _, rule := range role.Rules {
		if rule.Resources[0] == "namespaces" {
			t.Error("owners of a cordoned tenant can make namespaces")
		}
	}
	if !parameters.Spec.Cordoned {
		t.Error("the parameters do not say that the tenant is cordoned")
	}
}
