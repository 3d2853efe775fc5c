package manager

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// condition waits for what a Tenant says of itself.
func condition(t *testing.T, c client.Client, tenant, kind, reason, want string) *v1alpha1.Tenant {
	t.Helper()
	return conditionWithin(t, patience, c, tenant, kind, reason, want)
}

func conditionWithin(t *testing.T, patience time.Duration, c client.Client, tenant, kind, reason, want string) *v1alpha1.Tenant {
	t.Helper()
	o := &v1alpha1.Tenant{}
	testwait.For(t, fmt.Sprintf("tenant %s to say %s %q", tenant, reason, want), patience, func() (bool, string) {
		if err := c.Get(t.Context(), client.ObjectKey{Name: tenant}, o); err != nil {
			return false, fmt.Sprint(err, ended.Load())
		}
		is := apimeta.FindStatusCondition(o.Status.Conditions, kind)
		if is == nil || is.ObservedGeneration != o.Generation {
			return false, fmt.Sprint(is, ended.Load())
		}
		return is.Reason == reason && strings.Contains(is.Message, want), fmt.Sprint(*is)
	})
	return o
}

func tenantManifest(name, spec string) string {
	return fmt.Sprintf("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: %s}\n", name, spec)
}

func synced(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetKind(kind)
	u.SetAPIVersion("source.toolkit.fluxcd.io/v1")
	if kind == "Kustomization" {
		u.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
	}
	return u
}

// TestTenant applies one Tenant, changes it and deletes it.
func TestTenant(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	began := time.Now()
	create(t, admin, tenantManifest("team", `{owners: [{kind: User, name: ann}], namespaces: {create: [team-one, team-two], podSecurity: restricted, labels: {cost: "7"}},
 roleBindings: [{role: view, subjects: [{kind: Group, name: auditors}]}],
 quotas: [{name: each, scope: Namespace, hard: {secrets: "5"}}],
 limitRanges: [{limits: [{type: Container, max: {cpu: "1"}}]}], networkPolicies: [{podSelector: {}, ingress: [{ports: [{port: 80}]}]}],
 sync: [{name: app, git: {url: "https://git.example.com/other/app"}, path: ./staging}], policy: {bounds: {minInterval: 2m, maxTimeout: 3m, maxObjects: 7}}}`))
	condition(t, admin, "team", "Provisioned", "InPlace", "2 namespaces are in place")
	t.Logf("in place %.2f s after it was applied", time.Since(began).Seconds())
	ann := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "ann", Groups: []string{"system:authenticated"}})
	for _, name := range []string{"team-one", "team-two"} {
		ns := &corev1.Namespace{}
		exists(t, admin, true, ns, "", name)
		for label, want := range map[string]string{v1alpha1.LabelTenant: "team", "cost": "7", "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"} {
			if ns.Labels[label] != want {
				t.Errorf("namespace %s has label %s=%s, want %s", name, label, ns.Labels[label], want)
			}
		}
		for object, at := range map[client.Object]string{
			&rbacv1.RoleBinding{}: "tenure:owners:tenure-tenant", &corev1.ResourceQuota{}: "tenure-each", &corev1.LimitRange{}: "tenure-0",
			&networkingv1.NetworkPolicy{}: "tenure-0", &corev1.ServiceAccount{}: "team",
		} {
			exists(t, admin, true, object, name, at)
		}
		testwait.For(t, "the owner to have rights", patience, func() (bool, string) {
			err := ann.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "x"}}, client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		})
	}
	if err := ann.Get(t.Context(), client.ObjectKey{Name: "team"}, &v1alpha1.Tenant{}); err != nil {
		t.Errorf("an owner cannot read the Tenant: %v", err)
	}
	if err := ann.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("an owner outside of its tenant: %v", err)
	}
	k := synced("Kustomization")
	exists(t, admin, true, synced("GitRepository"), "team-one", "app")
	exists(t, admin, true, k, "team-one", "app")
	if account, _, _ := unstructured.NestedString(k.Object, "spec", "serviceAccountName"); account != "team" {
		t.Errorf("the sync is applied as %q", account)
	}
	condition(t, admin, "team", "Synced", "Progressing", "waiting for GitRepository team-one/app")
	condition(t, admin, "team", "Ready", "Progressing", "waiting for GitRepository team-one/app")
	says := func(kind, status, message string) {
		t.Helper()
		o := synced(kind)
		o.SetNamespace("team-one")
		o.SetName("app")
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"X","message":%q,"lastTransitionTime":"2026-11-21T12:00:00Z"}]}}`, status, message)
		if err := admin.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	says("Kustomization", "False", "Source artifact not found")
	says("GitRepository", "False", "wrong password")
	condition(t, admin, "team", "Synced", "Failed", "GitRepository team-one/app: wrong password")
	says("GitRepository", "True", "stored artifact")
	says("Kustomization", "False", "no such folder")
	condition(t, admin, "team", "Synced", "Failed", "Kustomization team-one/app: no such folder")
	condition(t, admin, "team", "Ready", "Failed", "Kustomization team-one/app: no such folder")
	says("Kustomization", "True", "applied")
	condition(t, admin, "team", "Synced", "Delivered", "")
	condition(t, admin, "team", "Ready", "InPlace", "2 namespaces are in place")
	unchanged(t, admin, "team", "team-one", "team-two")

	merge(t, admin, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, `{"spec":{"sync":null,"limitRanges":null,"namespaces":{"labels":null,"podSecurity":"baseline"},"owners":[{"kind":"User","name":"bob","roles":["view"]}]}}`)
	condition(t, admin, "team", "Ready", "InPlace", "")
	exists(t, admin, false, &corev1.LimitRange{}, "team-two", "tenure-0")
	exists(t, admin, false, synced("Kustomization"), "team-one", "app")
	exists(t, admin, false, &rbacv1.RoleBinding{}, "team-one", "tenure:owners:tenure-tenant")
	exists(t, admin, true, &rbacv1.RoleBinding{}, "team-one", "tenure:owners:view")
	ns := &corev1.Namespace{}
	exists(t, admin, true, ns, "", "team-one")
	if _, there := ns.Labels["cost"]; there || ns.Labels["pod-security.kubernetes.io/enforce"] != "baseline" {
		t.Errorf("the namespace has kept %v", ns.Labels)
	}

	if err := admin.Delete(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "team"}}); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, &corev1.Namespace{}, "", "team-one")
	exists(t, admin, false, &v1alpha1.Tenant{}, "", "team")
	exists(t, admin, false, &rbacv1.ClusterRole{}, "", "tenure:owners:team")
}

// TestTenantReadyWithObjects replicates objects that the API server refuses, and then
// others: the Tenant is ready when all of its objects are there.
func TestTenantReadyWithObjects(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, tenantManifest("copies", `{namespaces: {create: [copies]}, objects: [{name: settings, items: [{apiVersion: v1, kind: Node, metadata: {name: mine}}]}]}`))
	condition(t, admin, "copies", "Provisioned", "InPlace", "1 namespace is in place")
	is := condition(t, admin, "copies", "Ready", "Refused", "Node")
	if apimeta.IsStatusConditionTrue(is.Status.Conditions, "Ready") {
		t.Errorf("ready without its objects: %v", is.Status.Conditions)
	}
	merge(t, admin, is, `{"spec":{"objects":[{"name":"settings","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"}}]}]}}`)
	condition(t, admin, "copies", "Ready", "InPlace", "1 namespace is in place")
	exists(t, admin, true, &corev1.ConfigMap{}, "copies", "settings")
}

// unchanged reads what a tenant has twice, with something that makes the manager look
// at it in between, and wants the same versions.
func unchanged(t *testing.T, c client.Client, tenant string, namespaces ...string) {
	t.Helper()
	for _, name := range namespaces {
		governed(t, c, name, tenant)
		// The quota comes when Kubernetes counts Flux's kinds, which may be in between.
		isCounted(t, c, name)
	}
	versions := func() map[string]string {
		seen := map[string]string{}
		for _, list := range []client.ObjectList{&rbacv1.RoleBindingList{}, &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{}, &v1alpha1.TenantParametersList{}, &v1alpha1.TenantList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}} {
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			_ = apimeta.EachListItem(list, func(item runtime.Object) error {
				o, _ := item.(client.Object)
				if o.GetLabels()["tenure.dev/tenant"] == tenant || o.GetName() == tenant || slices.Contains(namespaces, o.GetNamespace()) {
					seen[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = version(o)
				}
				return nil
			})
		}
		return seen
	}
	before := versions()
	for _, name := range namespaces {
		merge(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, `{"metadata":{"labels":{"wake":"up"}}}`)
	}
	// What the manager does after a label is done when it has done the same for
	// another one, later.
	probe := "probe-" + tenant
	create(t, c, namespace(probe, v1alpha1.LabelTenant, probe))
	governed(t, c, probe, probe)
	for name, version := range versions() {
		if before[name] != version {
			t.Errorf("%s was written though nothing changed", name)
		}
	}
}

// version changes with each write of the manager's. What a quota counts is written by
// Kubernetes, whenever it has counted.
func version(o client.Object) string {
	q, ok := o.(*corev1.ResourceQuota)
	if !ok {
		return o.GetResourceVersion()
	}
	var written []string
	for _, entry := range q.ManagedFields {
		if entry.Subresource == "" {
			written = append(written, fmt.Sprint(entry.Manager, entry.Time, entry.FieldsV1))
		}
	}
	return fmt.Sprint(q.UID, q.Labels, q.Annotations, q.Spec, written)
}

// TestTenantRefusals are Tenants that cannot be what they say.
func TestTenantRefusals(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: nobodys}}\n")
	create(t, admin, namespace("theirs", v1alpha1.LabelTenant, "them"))
	create(t, admin, namespace("labelled-for", v1alpha1.LabelTenant, "labelled-for"))
	for _, tc := range []struct{ reason, name, spec, status, want string }{
		{"a namespace that is nobody's is not taken over", "takes-nobodys", "{namespaces: {create: [nobodys]}}", "NamespaceTaken", "namespace nobodys of spec.namespaces.create exists and is no tenant's"},
		{"nor another tenant's", "takes-theirs", "{namespaces: {create: [theirs]}}", "NamespaceTaken", "is tenant them's"},
		{"nor the platform's", "takes-platform", "{namespaces: {create: [flux-system]}}", "NamespaceTaken", "flux-system of spec.namespaces.create is the platform's"},
		{"one that the platform labelled is adopted", "labelled-for", "{namespaces: {create: [labelled-for]}}", "InPlace", "1 namespace is in place"},
		{"a role that the manager may not give", "gives-all", "{owners: [{kind: User, name: ann, roles: [cluster-admin]}], namespaces: {create: [gives-all]}}", "Failed", `may not bind the role cluster-admin: allow it with a ClusterRole that has the label rbac.tenure.dev/aggregate-to-manager: "true"`},
		{"the same for the cluster", "gives-more", "{owners: [{kind: User, name: ann}], clusterRoles: [system:node]}", "Failed", "may not bind the role system:node"},
		{"a label that Kubernetes does not take", "bad-label", "{namespaces: {labels: {a: 'b c'}, create: [bad-label]}}", "Invalid", "label a of spec.namespaces.labels cannot be set"},
		{"a quota of something that there is not", "bad-quota", "{quotas: [{name: x, scope: Namespace, hard: {nonsense: 1}}], namespaces: {create: [bad-quota]}}", "Failed", "cannot apply ResourceQuota bad-quota/tenure-x of spec.quotas[0]: "},
		{"limits that contradict each other", "bad-range", "{limitRanges: [{limits: [{type: Container, max: {cpu: 1}}]}, {limits: [{type: Container, max: {cpu: 1}, min: {cpu: 2}}]}], namespaces: {create: [bad-range]}}", "Failed", "cannot apply LimitRange bad-range/tenure-1 of spec.limitRanges[1]: "},
		{"a label that no Pod has", "bad-policy", "{networkPolicies: [{podSelector: {matchLabels: {a: 'b c'}}}], namespaces: {create: [bad-policy]}}", "Failed", "cannot apply NetworkPolicy bad-policy/tenure-0 of spec.networkPolicies[0]: "},
		{"a Pod and a half", "bad-count", "{quotas: [{name: x, hard: {pods: 1500m}}], namespaces: {create: [bad-count]}}", "Invalid", "spec.quotas[0].hard has 1500m of pods, which are counted in whole numbers, and the tenant gets 1: write a whole number"},
		{"a name", "just-a-name", "{}", "InPlace", "no namespace yet"},
	} {
		create(t, admin, tenantManifest(tc.name, tc.spec))
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			condition(t, admin, tc.name, "Ready", tc.status, tc.want)
		})
	}
}
