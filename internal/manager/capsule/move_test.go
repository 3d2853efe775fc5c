package capsule

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ready writes the status of a Tenant of tenure.dev in place of the Tenant's controller.
func ready(t *testing.T, c client.Client, name string, namespaces ...string) {
	t.Helper()
	tenant := ours(t, c, name, "there", func(*v1alpha1.Tenant) bool { return true })
	before := tenant.DeepCopy()
	tenant.Status = v1alpha1.TenantStatus{
		ObservedGeneration: tenant.Generation, Size: int32(len(namespaces)), Namespaces: namespaces,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "InPlace", Message: "everything is in place", LastTransitionTime: metav1.Now()}},
	}
	if err := c.Status().Patch(t.Context(), tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// TestMove migrates objects that Capsule's controller created. Owners keep their rights
// throughout, and none of their objects is deleted.
func TestMove(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	tenant := &v1beta2.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "solar", Finalizers: []string{Finalizer}},
		Spec: v1beta2.TenantSpec{
			Owners:         []v1beta2.Owner{{Identity: v1beta2.Identity{Kind: "User", Name: "joe"}}},
			ResourceQuotas: &v1beta2.ResourceQuotas{Items: []corev1.ResourceQuotaSpec{{Hard: corev1.ResourceList{"pods": resource.MustParse("3")}}}},
		},
		Status: v1beta2.TenantStatus{State: "Active", Size: 1, Namespaces: []string{"solar-dev"}},
	}
	if err := c.Create(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	references := "ownerReferences: [{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, name: solar, controller: true, blockOwnerDeletion: true, uid: " + string(tenant.UID) + "}]"
	// The label of one tenant does not move the namespace of another.
	lunar := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "lunar"}, Status: v1beta2.TenantStatus{State: "Active"}}
	if err := c.Create(t.Context(), lunar); err != nil {
		t.Fatal(err)
	}
	foreign := strings.NewReplacer(string(tenant.UID), string(lunar.UID), "solar", "lunar").Replace(references)
	namespace := func(name, references string) string {
		return "---\n{apiVersion: v1, kind: Namespace, metadata: {name: " + name + ", labels: {capsule.clastix.io/tenant: solar}, " + references + "}}\n"
	}
	binding := func(name, role, user, labels string) string {
		return "---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: solar-dev, name: '" + name + "', " + labels + "}, " +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + user + "}]}\n"
	}
	// The namespace solar-home has the label but no owner reference, like the home namespace of
	// the data fleets.
	apply(t, admin, namespace("solar-dev", references)+namespace("platform", references)+namespace("solar-home", "annotations: {}")+namespace("solar-foreign", foreign)+
		binding("capsule:managed:1", "admin", "joe", references)+
		binding("capsule:managed:2", "capsule-namespace-deleter", "joe", references)+
		binding("capsule:managed:3", "cluster-admin", "mallory", references)+
		binding("capsule:managed:4", "admin", "joe", "labels: {a: b}")+
		"---\n{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: solar-dev, name: capsule-solar-0, "+references+"}, spec: {hard: {pods: 3}}}\n"+
		"---\n{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: solar-dev, name: solars-own, "+references+"}, spec: {hard: {pods: 3}}}\n"+
		"---\n{apiVersion: v1, kind: LimitRange, metadata: {namespace: solar-dev, name: capsule-solar-0, "+references+"}, spec: {limits: []}}\n"+
		"---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: solar-dev, name: capsule-solar-0, "+references+"}, spec: {podSelector: {}}}\n"+
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {namespace: solar-dev, name: data}}\n")

	testwait.For(t, "the namespace to have both labels", patience, func() (bool, string) {
		ns := &corev1.Namespace{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "solar-dev"}, ns); err != nil {
			return false, err.Error()
		}
		return ns.Labels["tenure.dev/tenant"] == "solar" && ns.Labels["capsule.clastix.io/tenant"] == "solar", "label tenure.dev/tenant"
	})
	theirs(t, c, "solar", "waiting for ours", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Moved", metav1.ConditionFalse, "until the Tenant of tenure.dev is ready there") && hasCondition(tt, "Moved", metav1.ConditionFalse, "namespace platform is the platform's")
	})
	expect(t, c, "1", "2", "3", "4", "quota")

	// Only one of Tenure's two RoleBindings exists, and the quota does not.
	tenantOurs := "labels: {tenure.dev/managed-by: manager}"
	apply(t, admin, binding("tenure-owner-admin", "admin", "joe", tenantOurs))
	ready(t, c, "solar", "solar-dev")
	theirs(t, c, "solar", "moved in part", func(tt *v1beta2.Tenant) bool {
		return !hasCondition(tt, "Moved", metav1.ConditionFalse, "capsule:managed:1") && hasCondition(tt, "Moved", metav1.ConditionFalse, "capsule:managed:2") && hasCondition(tt, "Moved", metav1.ConditionFalse, "gives User mallory the role cluster-admin")
	})
	expect(t, c, "2", "3", "4", "quota")

	// Apply the second RoleBinding, and a quota.
	apply(t, admin, binding("tenure-owner-deleter", "capsule-namespace-deleter", "joe", tenantOurs)+
		"---\n{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: solar-dev, name: tenure-capsule-0, "+tenantOurs+"}, spec: {hard: {pods: 3}}}\n")
	theirs(t, c, "solar", "moved but for what nobody gives", func(tt *v1beta2.Tenant) bool {
		// The reconciler may have read the cluster when only one of the two objects existed.
		return !hasCondition(tt, "Moved", metav1.ConditionFalse, "capsule:managed:2") && !hasCondition(tt, "Moved", metav1.ConditionFalse, "every ResourceQuota") &&
			hasCondition(tt, "Moved", metav1.ConditionFalse, "capsule:managed:3")
	})
	expect(t, c, "3", "4")

	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "solar-dev"}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-dev", Name: "solars-own"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-dev", Name: "data"}},
	} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || !o.GetDeletionTimestamp().IsZero() {
			t.Errorf("%T %s is lost: %v", o, o.GetName(), err)
		}
	}
	for _, name := range []string{"platform", "solar-home", "solar-foreign"} {
		ns := &corev1.Namespace{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
			t.Fatal(err)
		}
		if tenant, ok := ns.Labels["tenure.dev/tenant"]; ok {
			t.Errorf("namespace %s has become tenant %s's", name, tenant)
		}
	}
}

// expect checks which of Capsule's objects remain.
func expect(t *testing.T, c client.Client, kept ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, k := range kept {
		want[k] = true
	}
	for _, n := range []string{"1", "2", "3", "4"} {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "solar-dev", Name: "capsule:managed:" + n}, &rbacv1.RoleBinding{})
		if apierrors.IsNotFound(err) == want[n] {
			t.Errorf("capsule:managed:%s: want it there: %t, got %v", n, want[n], err)
		}
	}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: "solar-dev", Name: "capsule-solar-0"}, &corev1.ResourceQuota{})
	if apierrors.IsNotFound(err) == want["quota"] {
		t.Errorf("the quota: want it there: %t, got %v", want["quota"], err)
	}
}
