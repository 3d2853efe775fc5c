package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestConflictingWriter lets another program apply one of the manager's objects, by
// force: each of its writes is answered once, and when it ends, there is peace.
func TestConflictingWriter(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	const rounds = 10
	create(t, admin, tenantManifest("fought", "{owners: [{kind: User, name: ann}], namespaces: {create: [fought]}}"))
	condition(t, admin, "fought", "Ready", "InPlace", "1 namespace")
	governed(t, admin, "fought", "fought")
	const name = "tenure:owners:tenure-tenant"
	rival, err := flux.ReadObjects([]byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: "` + name + `", namespace: fought},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-tenant}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: rival}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := watched(ctx, t, restConfig, "fought", name)
	for range rounds {
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(rival[0].DeepCopy()), client.FieldOwner("rival"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		testwait.For(t, "the manager to set the binding right", patience, func() (bool, string) {
			b := &rbacv1.RoleBinding{}
			err := admin.Get(t.Context(), client.ObjectKey{Namespace: "fought", Name: name}, b)
			return err == nil && len(b.Subjects) == 1 && b.Subjects[0].Name == "ann", fmt.Sprint(b.Subjects, err)
		})
	}
	unchanged(t, admin, "fought", "fought")
	cancel()
	if seen := <-changes; seen > 2*rounds {
		t.Errorf("%d writes of the other program led to %d changes, want one each", rounds, seen)
	}
}

// watched counts the changes of a RoleBinding until the context ends.
func watched(ctx context.Context, t *testing.T, restConfig *rest.Config, namespace, name string) <-chan int {
	t.Helper()
	c, err := client.NewWithWatch(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan int, 1)
	go func() {
		seen := 0
		for event := range w.ResultChan() {
			if event.Type == watch.Modified {
				seen++
			}
		}
		changes <- seen
	}()
	return changes
}

// TestStuckNamespace deletes Tenants of which something in a namespace never ends:
// the condition names it, and the others go on.
func TestStuckNamespace(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("stuck", "{namespaces: {create: [stuck-a, stuck-b]}}"))
	condition(t, admin, "stuck", "Ready", "InPlace", "2 namespaces")
	create(t, admin, "{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: stuck-a, finalizers: [example.com/nobody]}}")
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}}
	if err := admin.Delete(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, &corev1.Namespace{}, "", "stuck-b")
	condition(t, admin, "stuck", "Ready", "Deleting", "waits for the deletion of namespace stuck-a: ")
	condition(t, admin, "stuck", "Ready", "Deleting", "example.com/nobody in 1 resource instances")
	create(t, admin, tenantManifest("not-stuck", "{namespaces: {create: [not-stuck]}}"))
	condition(t, admin, "not-stuck", "Ready", "InPlace", "1 namespace")
	governed(t, admin, "not-stuck", "not-stuck")
	merge(t, admin, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stays", Namespace: "stuck-a"}}, `{"metadata":{"finalizers":null}}`)
	exists(t, admin, false, tenant, "", "stuck")
}

// TestNamespaceStillGoing lists a namespace in a Tenant while something in it keeps it from being deleted, and deletes
// a namespace of a Tenant in the same way: the conditions name the reason, and the manager creates the namespaces again.
func TestNamespaceStillGoing(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const held = "{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: %s, finalizers: [example.com/nobody]}}"
	create(t, admin, tenantManifest("going-own", "{namespaces: {create: [going-own]}}")+"---\n{apiVersion: v1, kind: Namespace, metadata: {name: going-nobodys}}")
	condition(t, admin, "going-own", "Ready", "InPlace", "1 namespace")
	for _, name := range []string{"going-own", "going-nobodys"} {
		create(t, admin, fmt.Sprintf(held, name))
		if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, admin, tenantManifest("going-nobodys", "{namespaces: {create: [going-nobodys]}}"))
	condition(t, admin, "going-own", "Ready", "Progressing", "namespace going-own (is being deleted: Some content in the namespace has finalizers remaining: example.com/nobody in 1 resource instances")
	condition(t, admin, "going-nobodys", "Ready", "NamespaceTaken", "namespace going-nobodys of spec.namespaces.create exists, is no tenant's and is being deleted: Some content in the namespace has finalizers remaining: example.com/nobody")
	for _, name := range []string{"going-own", "going-nobodys"} {
		merge(t, admin, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stays", Namespace: name}}, `{"metadata":{"finalizers":null}}`)
	}
	for _, name := range []string{"going-own", "going-nobodys"} {
		condition(t, admin, name, "Ready", "InPlace", "1 namespace")
		governed(t, admin, name, name)
	}
}

// TestDeletedTenants deletes one while its namespaces are being made, and makes one
// again at once.
func TestDeletedTenants(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const count = 12
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("brief-%d", i))
	}
	manifest := tenantManifest("brief", "{owners: [{kind: User, name: ann}], namespaces: {create: ["+strings.Join(names, ", ")+"]}}")
	create(t, admin, manifest)
	exists(t, admin, true, &corev1.Namespace{}, "", names[0])
	before := &v1alpha1.Tenant{}
	exists(t, admin, true, before, "", "brief")
	if err := admin.Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	objects, err := flux.ReadObjects([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the Tenant to be made again", 2*patience, func() (bool, string) {
		err := admin.Create(t.Context(), objects[0].DeepCopy())
		return err == nil, fmt.Sprint(err)
	})
	after := condition(t, admin, "brief", "Ready", "InPlace", fmt.Sprintf("%d namespaces", count))
	if after.UID == before.UID {
		t.Error("it is still the first one")
	}
	for _, name := range names {
		ns := &corev1.Namespace{}
		exists(t, admin, true, ns, "", name)
		if ns.CreationTimestamp.Before(&after.CreationTimestamp) || !ns.DeletionTimestamp.IsZero() {
			t.Errorf("namespace %s is what is left of the first Tenant: made %s", name, ns.CreationTimestamp)
		}
	}
	exists(t, admin, true, &rbacv1.ClusterRoleBinding{}, "", "tenure:owners:brief")
}

// TestTenThousandOwners is a Tenant at the bound of its schema.
func TestTenThousandOwners(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const count = 10_000
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "crowd"}, Spec: v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Create: []string{"crowd"}}}}
	for i := range count {
		tenant.Spec.Owners = append(tenant.Spec.Owners, v1alpha1.Owner{Kind: "User", Name: fmt.Sprintf("Somebody.Number%05d@people.example.com", i)})
	}
	began := time.Now()
	if err := admin.Create(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	// A megabyte each time that it is read or written, on a machine that may be busy.
	conditionWithin(t, 4*patience, admin, "crowd", "Ready", "InPlace", "1 namespace")
	t.Logf("in place %.2f s after it was applied", time.Since(began).Seconds())
	binding, cluster := &rbacv1.RoleBinding{}, &rbacv1.ClusterRoleBinding{}
	exists(t, admin, true, binding, "crowd", "tenure:owners:tenure-tenant")
	exists(t, admin, true, cluster, "", "tenure:owners:crowd")
	if len(binding.Subjects) != count || len(cluster.Subjects) != count {
		t.Errorf("want %d owners with rights, got %d in the namespace and %d in the cluster", count, len(binding.Subjects), len(cluster.Subjects))
	}
	tenant = &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "crowd-more"}, Spec: *tenant.Spec.DeepCopy()}
	tenant.Spec.Owners = append(tenant.Spec.Owners, v1alpha1.Owner{Kind: "User", Name: "one-more"})
	if err := admin.Create(t.Context(), tenant); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "10000") {
		t.Errorf("one owner more than the bound: want it to be named, got %v", err)
	}
}

// TestLimits are Tenants at the limits of names, and such as contradict themselves.
func TestLimits(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	long := func(end string) string { return strings.Repeat("l", 63-len(end)) + end }
	const quotaName = "quota-with-a-name-of-32-letters-"
	for _, end := range []string{"-1", "-2"} {
		create(t, admin, tenantManifest(long(end), fmt.Sprintf(`{owners: [{kind: User, name: Ann}, {kind: User, name: ann}, {kind: ServiceAccount, namespace: %[1]s, name: %[1]s}],
 namespaces: {create: [%[1]s]}, quotas: [{name: %[2]sa, scope: Namespace, hard: {secrets: 5}}, {name: %[2]sb, scope: Namespace, hard: {secrets: 6}}]}`, long(end), quotaName[:31])))
	}
	for _, end := range []string{"-1", "-2"} {
		name := long(end)
		condition(t, admin, name, "Ready", "InPlace", "1 namespace")
		governed(t, admin, name, name)
		exists(t, admin, true, &corev1.ServiceAccount{}, name, name)
		exists(t, admin, true, &corev1.ResourceQuota{}, name, "tenure-"+quotaName[:31]+"a")
		exists(t, admin, true, &corev1.ResourceQuota{}, name, "tenure-"+quotaName[:31]+"b")
		binding := &rbacv1.ClusterRoleBinding{}
		exists(t, admin, true, binding, "", "tenure:owners:"+name)
		var got []string
		for _, s := range binding.Subjects {
			got = append(got, s.Kind+" "+s.Namespace+" "+s.Name)
		}
		if diff := cmp.Diff([]string{"User  Ann", "User  ann", "ServiceAccount " + name + " " + name}, got); diff != "" {
			t.Errorf("the owners of %s, who are different people if their case is (-want +got):\n%s", name, diff)
		}
	}
	for reason, name := range map[string]string{"a letter too much": long("-1") + "x", "a capital letter": "Team"} {
		err := admin.Create(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: want a refusal, got %v", reason, err)
		}
	}
	for classes, refused := range map[string]bool{
		"{allowed: [fast], default: slow}": true, "{allowed: [], default: slow}": true,
		"{allowed: [fast, slow], default: slow}": false, "{allowed: ['s*'], default: slow}": false, "{default: slow}": false,
		"{allowed: [fast], selector: {}, default: slow}": false, "{allowed: [fast], expression: ^s, default: slow}": false,
	} {
		err := admin.Create(t.Context(), parse(t, tenantManifest("defaults", "{storage: {classes: "+classes+"}}")), client.DryRunAll)
		if refused && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.storage.classes.default: Invalid value: default is one of the allowed classes")) || !refused && err != nil {
			t.Errorf("classes %s: got %v, want refused: %t", classes, err, refused)
		}
	}
}

// TestContradictoryQuotas gives three bounds for one resource: all of them hold, so
// that the narrowest is what the tenant has.
func TestContradictoryQuotas(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("torn", `{namespaces: {create: [torn-a, torn-b]}, quotas: [
 {name: wide, hard: {configmaps: "8"}}, {name: narrow, hard: {configmaps: "4"}}, {name: each, scope: Namespace, hard: {configmaps: "100"}}]}`))
	condition(t, admin, "torn", "Ready", "InPlace", "2 namespaces")
	for namespace, hard := range map[string]map[string]int64{
		"torn-a": {"tenure-wide": 4, "tenure-narrow": 2, "tenure-each": 100},
		"torn-b": {"tenure-wide": 4, "tenure-narrow": 2, "tenure-each": 100},
	} {
		for name, want := range hard {
			testwait.For(t, fmt.Sprintf("quota %s/%s to allow %d", namespace, name, want), patience, func() (bool, string) {
				q := &corev1.ResourceQuota{}
				err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, q)
				got := q.Status.Hard["configmaps"]
				return err == nil && got.Value() == want, fmt.Sprint(q.Spec.Hard, q.Status.Hard, err)
			})
		}
	}
	// Each namespace has a ConfigMap of Kubernetes'.
	refused := ""
	for i := range 4 {
		err := admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i), Namespace: "torn-a"}})
		if err != nil {
			refused = err.Error()
			break
		}
	}
	if !strings.Contains(refused, "exceeded quota: tenure-narrow") {
		t.Errorf("want the narrowest quota to refuse, got %q", refused)
	}
}
