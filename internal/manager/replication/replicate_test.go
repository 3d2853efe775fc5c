package replication_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replicated waits until a Tenant says something of its objects as they are now.
func replicated(t *testing.T, c client.Client, name string, status metav1.ConditionStatus, reason string, want ...string) *v1alpha1.Tenant {
	t.Helper()
	tenant := &v1alpha1.Tenant{}
	testwait.For(t, fmt.Sprintf("tenant %s to say %s %s %q", name, status, reason, want), patience, func() (bool, string) {
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		return says(tenant.Status.Conditions, "Replicated", tenant.Generation, status, reason, want), fmt.Sprint(tenant.Status, ended.Load())
	})
	return tenant
}

func says(conditions []metav1.Condition, kind string, generation int64, status metav1.ConditionStatus, reason string, want []string) bool {
	c := apimeta.FindStatusCondition(conditions, kind)
	if c == nil || c.ObservedGeneration != generation || c.Status != status || c.Reason != reason {
		return false
	}
	for _, text := range want {
		if !strings.Contains(c.Message, text) {
			return false
		}
	}
	return true
}

// TestTenant follows a Tenant's objects: into its namespaces, kept as they are, in
// peace with others, and out again.
func TestTenant(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: house}, data: {rule: one}}"
	create(t, c, `
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: rep}
spec:
  namespaces: {create: [rep-a, rep-b]}
  objects:
    - name: all
      items: [`+config+`]
      from: [{apiVersion: v1, kind: Secret, namespace: platform, selector: {matchLabels: {share: "yes"}}}]
`)
	tenant := replicated(t, c, "rep", metav1.ConditionFalse, "Refused", "account rep-a/rep may not read it", "RoleBinding in namespace platform")
	house := &corev1.ConfigMap{}
	exists(t, c, true, house, "rep-b", "house")
	create(t, c, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rep, namespace: platform}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads-pull}
subjects: [{kind: ServiceAccount, name: rep, namespace: rep-a}, {kind: ServiceAccount, name: rep, namespace: rep-b}]
`)
	// A change of the Tenant, so that nobody has to wait for the next look.
	spec := func(patch string) { merge(t, c, tenant.DeepCopy(), `{"spec":`+patch+`}`) }
	spec(`{"namespaces":{"quota":5}}`)
	tenant = replicated(t, c, "rep", metav1.ConditionTrue, "InPlace", "4 objects are in place")
	want := []v1alpha1.ReplicatedObject{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "house", ServiceAccount: "rep", Namespaces: []string{"rep-a", "rep-b"}},
		{APIVersion: "v1", Kind: "Secret", Name: "pull", ServiceAccount: "rep", Namespaces: []string{"rep-a", "rep-b"}},
	}
	if diff := cmp.Diff(want, tenant.Status.Objects); diff != "" {
		t.Errorf("the status lists what there is (-want +got):\n%s", diff)
	}
	pull := &corev1.Secret{}
	exists(t, c, true, pull, "rep-a", "pull")
	if diff := cmp.Diff(map[string]string{"share": "yes", "tenure.dev/replicated": "made"}, pull.Labels); string(pull.Data["token"]) != "shared" || diff != "" {
		t.Errorf("the copy has %q and labels (-want +got):\n%s", pull.Data["token"], diff)
	}
	// Drift in one namespace, nothing new in the other.
	exists(t, c, true, house, "rep-b", "house")
	untouched := house.ResourceVersion
	drifted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "rep-a", Name: "house"}}
	merge(t, c, drifted, `{"data":{"rule":"mine","more":"kept"}}`)
	// And somebody else's object of a name that is to come.
	create(t, c, "{apiVersion: v1, kind: ConfigMap, metadata: {name: later, namespace: rep-a}, data: {rule: mine}}")
	const later = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"later"},"data":{"rule":"one"}}`
	const rule = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"house"},"data":{"rule":"one"}}`
	list := func(options string, items ...string) string {
		return `{"objects":[{"name":"all",` + options + `"items":[` + strings.Join(items, ",") + `]}]}`
	}
	spec(list("", rule, later))
	replicated(t, c, "rep", metav1.ConditionFalse, "Conflict", "ConfigMap rep-a/later exists, and somebody else made it")
	exists(t, c, true, drifted, "rep-a", "house")
	if diff := cmp.Diff(map[string]string{"rule": "one", "more": "kept"}, drifted.Data); diff != "" {
		t.Errorf("drift is corrected, and what is not declared is left alone (-want +got):\n%s", diff)
	}
	exists(t, c, true, house, "rep-b", "house")
	if house.ResourceVersion != untouched {
		t.Error("an object in which nothing differs was written")
	}
	exists(t, c, false, pull, "rep-a", "pull")
	taken := &corev1.ConfigMap{}
	spec(list(`"adopt":true,`, rule, later))
	replicated(t, c, "rep", metav1.ConditionFalse, "Conflict", "ConfigMap rep-a/later has fields that somebody else has set")
	exists(t, c, true, taken, "rep-a", "later")
	if taken.Data["rule"] != "mine" {
		t.Error("a field of somebody else's was taken without force")
	}
	spec(list(`"adopt":true,"force":true,`, rule, later))
	replicated(t, c, "rep", metav1.ConditionTrue, "InPlace", "4 objects")
	exists(t, c, true, taken, "rep-a", "later")
	if taken.Data["rule"] != "one" || taken.Labels["tenure.dev/replicated"] != "adopted" {
		t.Errorf("what was taken by force is %v %v", taken.Labels, taken.Data)
	}
	// A namespace that is not selected any more, and then everything, goes.
	spec(`{"objects":[{"name":"all","namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"rep-a"}},"items":[` + rule + `,` + later + `]}]}`)
	exists(t, c, false, house, "rep-b", "house")
	spec(`{"objects":null}`)
	exists(t, c, false, drifted, "rep-a", "house")
	exists(t, c, true, taken, "rep-a", "later")
}

// TestTakeover tries through the API server what a plan cannot decide, with what it
// does decide among it (I15).
func TestTakeover(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	create(t, c, `
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: victim}
spec: {namespaces: {create: [victim-a]}}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: taker}
spec: {namespaces: {create: [taker-a]}}
`)
	exists(t, c, true, &corev1.ServiceAccount{}, "victim-a", "victim")
	create(t, c, "{apiVersion: v1, kind: Secret, metadata: {name: private, namespace: victim-a}, stringData: {a: b}}")
	for i, tc := range []struct{ reason, object, want string }{
		{"cluster-scoped (CVE-2026-22872)", "items: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}]", "kind rbac.authorization.k8s.io/v1/ClusterRoleBinding is not allowed"},
		{"cluster-scoped", "items: [{apiVersion: v1, kind: Namespace, metadata: {name: x}}]", "kind v1/Namespace is not allowed"},
		{"another tenant's namespace (CVE-2026-65835)", "items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: victim-a}}]", "must not come into namespace victim-a"},
		{"a system namespace", "items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: kube-system}}]", "must not come into namespace kube-system"},
		{"endlessly many", "items: [{apiVersion: v1, kind: ConfigMap, metadata: {generateName: x-}}]", "it needs a name"},
		{"a list", "items: [{apiVersion: v1, kind: ConfigMapList, items: []}]", "it is a list"},
		{"a subresource", "items: [{apiVersion: policy/v1, kind: Eviction, metadata: {name: x}}]", "does not store kind Eviction"},
		{"a token by a subresource", "items: [{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: taker}}]", "does not store kind TokenRequest"},
		{"our own kinds", "items: [{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure}}]", "grants permissions"},
		{"more rights than the account has", "items: [{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: default, namespace: taker-a}]}]", "is not what account taker-a/taker may have"},
		{"what the tenant may not make", "items: [{apiVersion: v1, kind: ResourceQuota, metadata: {name: x}, spec: {hard: {pods: 1000}}}]", "is not what account taker-a/taker may have"},
		{"another tenant's Secret", "from: [{apiVersion: v1, kind: Secret, namespace: victim-a, name: private}]", "account taker-a/taker may not read it"},
		{"a system Secret", `from: [{apiVersion: v1, kind: Secret, namespace: kube-system, selector: {}}]`, "account taker-a/taker may not read it"},
		{"a source in no namespace", "from: [{apiVersion: v1, kind: Namespace, namespace: victim-a, name: victim-a}]", "has no kind Namespace of v1 in namespaces"},
		{"an account without rights", "serviceAccount: default\n      items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]", "is not what account taker-a/default may have"},
	} {
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "taker"}}
		objects := fmt.Sprintf("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: taker}, spec: {namespaces: {create: [taker-a], quota: %d}}}", i)
		objects = strings.TrimSuffix(objects, "}}") + ", objects: [{name: a, " + strings.ReplaceAll(tc.object, "\n      ", ", ") + "}]}}"
		apply(t, c, objects)
		replicated(t, c, tenant.Name, metav1.ConditionFalse, "Refused", tc.want)
	}
	exists(t, c, false, &corev1.ConfigMap{}, "victim-a", "x")
	exists(t, c, false, &corev1.Secret{}, "taker-a", "private")
	exists(t, c, false, &rbacv1.RoleBinding{}, "taker-a", "x")
}

// TestManager: what the manager may do with accounts ends at tenants' namespaces.
func TestManager(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	create(t, c, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: plain}, spec: {namespaces: {create: [plain-a]}}}")
	exists(t, c, true, &corev1.ServiceAccount{}, "plain-a", "plain")
	m := newClient(t, lowest)
	binding := func(namespace, subject string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", Labels: map[string]string{"tenure.dev/managed-by": "manager"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenure-replicator"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: subject}},
		}
	}
	everywhere := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}, RoleRef: binding("", "").RoleRef, Subjects: binding("", "tenure-manager").Subjects}
	for name, tc := range map[string]struct {
		reason string
		who    client.Client
		object client.Object
		want   string
	}{
		"system":      {"not in Kubernetes' own namespaces", m, binding("kube-system", "tenure-manager"), "in namespaces of tenants"},
		"own":         {"not in its own namespace", m, binding("flux-system", "tenure-manager"), "in namespaces of tenants"},
		"platform":    {"not in those of the platform", m, binding("platform", "tenure-manager"), "in namespaces of tenants"},
		"others":      {"not for others", m, binding("plain-a", "somebody"), "to itself alone"},
		"everywhere":  {"not in all namespaces", m, everywhere, "all namespaces at once"},
		"by an admin": {"not in all namespaces, whoever does it", c, everywhere.DeepCopy(), "all namespaces at once"},
		"tenant's":    {"in a tenant's", m, binding("plain-a", "tenure-manager"), ""},
		"admin's":     {"where an admin allows more", c, binding("platform", "tenure-manager"), ""},
	} {
		// Policies are in force a moment after they are written.
		testwait.For(t, name+": "+tc.reason, patience, func() (bool, string) {
			err := tc.who.Create(t.Context(), tc.object.DeepCopyObject().(client.Object), client.DryRunAll)
			if tc.want == "" {
				return err == nil, fmt.Sprint(err)
			}
			// Of two rules that refuse, the API server names one.
			own := tc.who == m && strings.Contains(fmt.Sprint(err), "the manager must not create")
			return apierrors.IsForbidden(err) && (own || strings.Contains(err.Error(), tc.want)), fmt.Sprint(err)
		})
	}
}

func apply(t *testing.T, c client.Client, manifest string) {
	t.Helper()
	u := read(t, manifest)
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("admin"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
}

// ready waits until a TenantResource or GlobalTenantResource says something.
func ready(t *testing.T, c client.Client, o client.Object, status metav1.ConditionStatus, reason string, want ...string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("%T %s to say %s %s %q", o, o.GetName(), status, reason, want), patience, func() (bool, string) {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return false, err.Error()
		}
		is := v1beta2.TenantResourceStatus{}
		switch o := o.(type) {
		case *v1beta2.TenantResource:
			is = o.Status
		case *v1beta2.GlobalTenantResource:
			is = o.Status.TenantResourceStatus
		}
		return says(is.Conditions, "Ready", o.GetGeneration(), status, reason, want), fmt.Sprint(is, ended.Load())
	})
}
