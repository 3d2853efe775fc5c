package replication

import (
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replicatedMap is a ConfigMap that a declaration replicated.
func replicatedMap(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace(namespace)
	u.SetName("house")
	u.SetLabels(map[string]string{replication.LabelReplicated: replication.Made})
	return u
}

// TestLeave deletes declarations with mistakes.
func TestLeave(t *testing.T) {
	t.Parallel()
	wrong := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "energy", Operator: "Near"}}}
	waiting := settled("solar-z")
	delete(waiting.Labels, v1alpha1.LabelParameters)
	for name, tc := range map[string]struct {
		reason  string
		local   func(*v1beta2.TenantResource)
		global  func(*v1beta2.GlobalTenantResource)
		profile *posture
		there   []client.Object
	}{
		"nothing":   {reason: "it is as it should be"},
		"period":    {reason: "a period has no part in the removal", local: func(o *v1beta2.TenantResource) { o.Spec.ResyncPeriod = "60" }, global: func(o *v1beta2.GlobalTenantResource) { o.Spec.ResyncPeriod = "60" }},
		"namespace": {reason: "nor has who was to get it", local: func(o *v1beta2.TenantResource) { o.Spec.Resources[0].NamespaceSelector = &wrong }, global: func(o *v1beta2.GlobalTenantResource) { o.Spec.Resources[0].NamespaceSelector = &wrong }},
		"tenants":   {reason: "nor whose", global: func(o *v1beta2.GlobalTenantResource) { o.Spec.TenantSelector = wrong }},
		"scope":     {reason: "nor where", global: func(o *v1beta2.GlobalTenantResource) { o.Spec.Scope = "Cluster" }},
		"account":   {reason: "who made it removes it", local: func(o *v1beta2.TenantResource) { o.Spec.ServiceAccount = &v1beta2.AccountName{Name: "other"} }},
		"cordoned":  {reason: "whoever deletes it does not want it any more", local: func(o *v1beta2.TenantResource) { o.Spec.Cordoned = true }},
		"waits":     {reason: "nothing is made after another one", local: func(o *v1beta2.TenantResource) { o.Spec.DependsOn = []v1beta2.AccountName{{Name: "none"}} }},
		"profile":   {reason: "a profile says what may be made", profile: &posture{}},
		"waiting":   {reason: "a namespace that is not in place yet has nothing", there: []client.Object{waiting}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.Now()
			meta := metav1.ObjectMeta{Name: "db", Finalizers: []string{Finalizer}, DeletionTimestamp: &now}
			global := &v1beta2.GlobalTenantResource{ObjectMeta: *meta.DeepCopy()}
			global.Spec.Resources = []v1beta2.Replicated{{}}
			meta.Namespace = "solar-a"
			local := &v1beta2.TenantResource{ObjectMeta: meta}
			local.Spec.Resources = []v1beta2.Replicated{{}}
			if tc.local != nil {
				tc.local(local)
			}
			if tc.global != nil {
				tc.global(global)
			}
			local.Status.Inventory = []v1beta2.ReplicatedObject{{APIVersion: "v1", Kind: "ConfigMap", Name: "house", ServiceAccountNamespace: "solar-a", ServiceAccount: "solar", Namespaces: []string{"solar-b"}}}
			global.Status.Inventory = []v1beta2.ReplicatedObject{{APIVersion: "v1", Kind: "ConfigMap", Name: "house", ServiceAccount: "solar", Namespaces: []string{"solar-a"}}}
			profile := tc.profile
			if profile == nil {
				profile = &posture{profile: &v1alpha1.TenancyProfile{}}
			}
			c := faked(t, append(tc.there, settled("solar-a"), settled("solar-b"), local, global)...)
			for _, made := range []struct {
				kind   kindOfCapsule
				object client.Object
				at     string
			}{{tenantResources, local, "solar-b"}, {globalTenantResources, global, "solar-a"}} {
				manager := fieldManager(made.kind.name, made.object.GetNamespace(), made.object.GetName())
				if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(replicatedMap(made.at)), client.FieldOwner(manager)); err != nil {
					t.Fatal(err)
				}
				r := &CapsuleReconciler{Client: c, Engine: engine(c), Profiles: profile, kind: made.kind}
				if _, err := r.Reconcile(t.Context(), requestFor(made.object)); err != nil {
					t.Fatalf("%s: %s: %v", tc.reason, made.kind.name, err)
				}
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: made.at, Name: "house"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
					t.Errorf("%s: what %s has is there still: %v", tc.reason, made.kind.name, err)
				}
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(made.object), made.object); !apierrors.IsNotFound(err) {
					t.Errorf("%s: %s is there still: %v, status %+v", tc.reason, made.kind.name, err, made.kind.read(made.object).status)
				}
			}
		})
	}
}

// TestIsManaged checks from where the objects of a declaration are deleted.
func TestIsManaged(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	former, ending := settled("solar-former"), settled("solar-ending")
	former.Labels = nil
	ending.DeletionTimestamp, ending.Finalizers = &now, []string{"example.com/x"}
	c := faked(t, settled("solar-a"), former, ending)
	r := &CapsuleReconciler{Client: c}
	local, global := &v1beta2.TenantResource{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-a"}}, &v1beta2.GlobalTenantResource{}
	own := replication.Account{Namespace: "solar-former", Name: "solar"}
	other := replication.Account{Namespace: "platform", Name: "writer"}
	for _, tc := range []struct {
		reason      string
		of          client.Object
		declaration declaration
		namespace   string
		account     replication.Account
		want        bool
	}{
		{"a tenant's namespace", global, declaration{}, "solar-a", own, true},
		{"a tenant's own declaration", local, declaration{}, "solar-a", own, true},
		{"but not elsewhere", local, declaration{}, "solar-former", other, false},
		{"nor in the cluster", local, declaration{}, "", other, false},
		{"the cluster", global, declaration{account: &other}, "", other, true},
		{"a namespace that was a tenant's, and its account", global, declaration{}, "solar-former", own, false},
		{"the account of another namespace", global, declaration{}, "solar-former", other, true},
		{"the account of the declaration", global, declaration{account: &own}, "solar-former", own, true},
		{"a namespace that is being deleted", global, declaration{account: &own}, "solar-ending", own, false},
		{"a missing namespace", global, declaration{account: &own}, "solar-gone", own, false},
	} {
		held := replication.Held{Key: replication.Key{Kind: "ConfigMap", Namespace: tc.namespace, Name: "x"}, Account: tc.account}
		if got := r.isManaged(t.Context(), tc.of, &tc.declaration, []string{"solar"}, held); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}
