package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// posture is the profile of a cluster, and what is wrong with it.
type posture struct {
	profile *v1alpha1.TenancyProfile
	err     error
}

func (p *posture) Profile(context.Context) (*v1alpha1.TenancyProfile, error) { return p.profile, p.err }

// anybody acts as every account with one client.
type anybody struct{ client.Client }

func (a anybody) As(replication.Account) (client.Client, error) { return a.Client, nil }

// faked returns a client of a cluster in memory.
func faked(t *testing.T, there ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.Tenant{}, &v1beta2.TenantResource{}, &v1beta2.GlobalTenantResource{}).
		WithIndex(&corev1.Namespace{}, tenantnamespace.IndexTenant, func(o client.Object) []string {
			return []string{o.GetLabels()[v1alpha1.LabelTenant]}
		}).
		WithObjects(there...).Build()
}

func engine(c client.Client) *Engine {
	return &Engine{Clients: anybody{c}, Mapper: c.RESTMapper(), Now: time.Now}
}

// settled is a namespace of tenant solar that is in place.
func settled(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelTenant: "solar", v1alpha1.LabelParameters: "tenure",
	}}}
}

// requestFor is a request for an object.
func requestFor(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// TestWithoutProfile: no event tells that a profile is right again.
func TestWithoutProfile(t *testing.T) {
	t.Parallel()
	raw := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"house"}}`)}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}}
	tenant.Spec.Objects = []v1alpha1.ReplicatedObjects{{Name: "all", Items: []v1alpha1.ReplicatedItem{{RawExtension: raw}}}}
	local := &v1beta2.TenantResource{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-a", Name: "db"}}
	local.Spec.Resources = []v1beta2.Replicated{{RawItems: []v1beta2.RawItem{{RawExtension: raw}}}}
	for name, tc := range map[string]struct {
		reason  string
		profile posture
	}{
		"none":    {"the profile was deleted", posture{}},
		"invalid": {"the profile has a mistake", posture{err: fmt.Errorf("%w: a mistake", tenancy.ErrInvalid)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := tc.profile
			c := faked(t, settled("solar-a"), tenant.DeepCopy(), local.DeepCopy())
			tenants := &TenantReconciler{Client: c, Engine: engine(c), Profiles: &profile}
			locals := &CapsuleReconciler{Client: c, Engine: engine(c), Profiles: &profile, kind: tenantResources}
			got := map[string]time.Duration{}
			for kind, reconcile := range map[string]func() (ctrl.Result, error){
				"Tenant":         func() (ctrl.Result, error) { return tenants.Reconcile(t.Context(), requestFor(tenant)) },
				"TenantResource": func() (ctrl.Result, error) { return locals.Reconcile(t.Context(), requestFor(local)) },
			} {
				result, err := reconcile()
				if err != nil {
					t.Fatalf("%s: %s: %v", tc.reason, kind, err)
				}
				got[kind] = result.RequeueAfter
			}
			if diff := cmp.Diff(map[string]time.Duration{"Tenant": resync, "TenantResource": resync}, got); diff != "" {
				t.Errorf("%s: when it is looked at again (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// recorder notes as which accounts it acts.
type recorder struct {
	client.Client
	accounts map[replication.Account]bool
}

func (r *recorder) As(account replication.Account) (client.Client, error) {
	r.accounts[account] = true
	return r.Client, nil
}

// TestTenantResourceAccounts checks with whose rights the objects of a TenantResource are applied,
// by capsule.replication of the profile.
func TestTenantResourceAccounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, way, account string
		want                 []string
		refused              string
	}{
		"default":         {reason: "a TenantResource gives nothing in another namespace", want: []string{"solar-a/solar"}},
		"default, named":  {reason: "the tenant is not applied as every account", account: "builder", refused: "account builder of namespace solar-a is none that tenant solar may be applied as"},
		"Capsule's":       {reason: "the account of each namespace", way: v1alpha1.ReplicationTenant, want: []string{"solar-a/solar", "solar-b/solar"}},
		"Capsule's named": {reason: "every account of the same namespace", way: v1alpha1.ReplicationTenant, account: "builder", want: []string{"solar-a/builder"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := &v1beta2.TenantResource{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-a", Name: "db"}}
			local.Spec.Resources = []v1beta2.Replicated{{RawItems: []v1beta2.RawItem{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"house"}}`)}}}}}
			if tc.account != "" {
				local.Spec.ServiceAccount = &v1beta2.AccountName{Name: tc.account}
			}
			profile := &posture{profile: &v1alpha1.TenancyProfile{}}
			profile.profile.Spec.Capsule.Replication = tc.way
			c := faked(t, settled("solar-a"), settled("solar-b"), local)
			mapper := apimeta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
			clients := &recorder{Client: c, accounts: map[replication.Account]bool{}}
			r := &CapsuleReconciler{Client: c, Engine: &Engine{Clients: clients, Mapper: mapper, Now: time.Now}, Profiles: profile, kind: tenantResources}
			if _, err := r.Reconcile(t.Context(), requestFor(local)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for account := range clients.accounts {
				got = append(got, account.Namespace+"/"+account.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(local), local); err != nil {
				t.Fatal(err)
			}
			ready := apimeta.FindStatusCondition(local.Status.Conditions, conditionReady)
			if tc.refused != "" && (ready == nil || !strings.Contains(ready.Message, tc.refused)) {
				t.Errorf("%s: got %v, want %q", tc.reason, ready, tc.refused)
			}
		})
	}
}

// TestSharedObjects checks that another declaration of Capsule's shares an object that a declaration
// made, and no object of others.
func TestSharedObjects(t *testing.T) {
	t.Parallel()
	manager := fieldManager("TenantResource", "solar-a", "first")
	for name, tc := range map[string]struct {
		reason string
		object *unstructured.Unstructured
		want   bool
	}{
		"made":      {"the API server reports fields that both set", replicatedObject(replication.Made, manager), true},
		"adopted":   {"the object is somebody else's", replicatedObject(replication.Adopted, manager), false},
		"forged":    {"a label alone makes no object a declaration's", replicatedObject(replication.Made, "kubectl"), false},
		"unrelated": {"it was there before", replicatedObject("", "kubectl"), false},
	} {
		if got := replicatedByOthers(tc.object); got != tc.want {
			t.Errorf("%s: %s: got %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

// TestReplicatedByCapsule checks which objects a declaration takes over unasked.
func TestReplicatedByCapsule(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		labels map[string]string
		want   bool
	}{
		"older":     {"versions of Capsule before 0.12", map[string]string{"capsule.clastix.io/resources": "0", "capsule.clastix.io/tenant": "solar"}, true},
		"another":   {"it is another tenant's", map[string]string{"capsule.clastix.io/resources": "0", "capsule.clastix.io/tenant": "wind"}, false},
		"present":   {"later versions", map[string]string{"projectcapsule.dev/managed-by": "replications"}, true},
		"tenure's":  {"a declaration of Tenure's made it", map[string]string{"projectcapsule.dev/managed-by": "replications", "tenure.dev/replicated": "adopted"}, false},
		"by others": {"another part of Capsule made it", map[string]string{"projectcapsule.dev/managed-by": "controller"}, false},
		"unrelated": {"nobody replicated it", map[string]string{"capsule.clastix.io/tenant": "solar"}, false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetLabels(tc.labels)
		if got := replicatedByCapsule(u, "solar"); got != tc.want {
			t.Errorf("%s: %s: got %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

// TestTakeOver applies a declaration of Capsule's for an object that Capsule replicated, with another value.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	object := func(value string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"mode": value}}}
		u.SetAPIVersion("v1")
		u.SetKind("ConfigMap")
		u.SetNamespace("solar-b")
		u.SetName("house")
		return u
	}
	for name, labels := range map[string]map[string]string{
		"there": {"capsule.clastix.io/resources": "0", "capsule.clastix.io/tenant": "solar"},
		"other": {"app": "house"},
	} {
		there := object("before")
		there.SetLabels(labels)
		c := faked(t, there)
		e := engine(c)
		var p problems
		got := e.apply(t.Context(), "tenure-replicate-x", wantedObject{object: object("now"), entry: &entry{Entry: replication.Entry{Capsule: true}}, tenant: "solar"}, &p)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
			t.Fatal(err)
		}
		mode, _, _ := unstructured.NestedString(there.Object, "data", "mode")
		switch {
		case name == "there" && (got != inPlace || mode != "now" || there.GetLabels()["tenure.dev/replicated"] != "made"):
			t.Errorf("what Capsule replicated is not taken over: %v, %s", there.Object, p.message())
		case name == "other" && (got != notOurs || mode != "before"):
			t.Errorf("somebody else's object has been taken over: %v", there.Object)
		}
	}
}

// TestClusterScopedSources refuses references to kinds that are in no namespace.
func TestClusterScopedSources(t *testing.T) {
	t.Parallel()
	kinds := func(gvk schema.GroupVersionKind) replication.Scope {
		if gvk.Kind == "ClusterRole" {
			return replication.Cluster
		}
		return replication.Namespaced
	}
	for kind, want := range map[string]string{
		"ClusterRole": "cluster-scoped kind rbac.authorization.k8s.io/v1/ClusterRole is not allowed",
		"Role":        "it needs a namespace",
	} {
		ref := v1beta2.ObjectReference{Kind: kind, Name: "x"}
		ref.APIVersion = "rbac.authorization.k8s.io/v1"
		if _, err := sourceOf("x", ref, kinds); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", kind, err, want)
		}
	}
}

func replicatedObject(mark, manager string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if mark != "" {
		u.SetLabels(map[string]string{replication.LabelReplicated: mark})
	}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationApply}})
	return u
}

// TestContextIsRead checks that a template does not run without its context, and that copies lose the
// labels by which they were found.
func TestContextIsRead(t *testing.T) {
	t.Parallel()
	no := false
	for name, tc := range map[string]struct {
		reason, object string
		want           []string
		problem        string
	}{
		"there":   {reason: "the template reads it", object: "there", want: []string{"made-1"}},
		"missing": {reason: "the template would make something else", object: "missing", problem: "there is no ConfigMap solar-a/missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-a", Name: "there"}}
			c := faked(t, there)
			mapper := apimeta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
			e := &Engine{Clients: anybody{c}, Mapper: mapper, Now: time.Now}
			d := &declaration{perNamespace: true}
			d.spec.Resources = []v1beta2.Replicated{{
				Context:    &v1beta2.TemplateContext{Resources: []v1beta2.ContextResource{{Index: "read", ObjectReference: v1beta2.ObjectReference{Kind: "ConfigMap", Name: tc.object, Optional: &no}}}},
				Generators: []v1beta2.Generator{{Template: `{apiVersion: v1, kind: ConfigMap, metadata: {name: "made-{{ len .read }}"}}`}},
			}}
			account := func(namespace string) replication.Account {
				return replication.Account{Namespace: namespace, Name: "solar"}
			}
			scopes := []scope{{tenant: "solar", namespaces: []replication.Namespace{{Name: "solar-a"}}}}
			var p problems
			wanted := e.plan(t.Context(), &job{scopes: scopes, entries: capsuleEntries(d, account, scopes, e.scope, &p)}, &p)
			var got []string
			for _, w := range wanted {
				got = append(got, w.object.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if p.message() != "" && tc.problem == "" || !strings.Contains(p.message(), tc.problem) {
				t.Errorf("%s: got %q, want %q", tc.reason, p.message(), tc.problem)
			}
		})
	}
	found := &unstructured.Unstructured{Object: map[string]any{}}
	found.SetLabels(map[string]string{"replicate": "true", "source": "static", "other": "true"})
	withoutSelector(found, map[string]string{"replicate": "true", "other": "false"})
	if diff := cmp.Diff(map[string]string{"source": "static", "other": "true"}, found.GetLabels()); diff != "" {
		t.Errorf("the labels of a copy (-want +got):\n%s", diff)
	}
}

// TestSelectedNamespaces checks by which labels a declaration selects namespaces that an owner made.
func TestSelectedNamespaces(t *testing.T) {
	t.Parallel()
	made := settled("solar-a")
	made.Labels[v1alpha1.LabelMadeBy], made.Labels["chosen"] = v1alpha1.MadeByOwner, "true"
	c := faked(t, made, settled("solar-b"))
	s, err := scopeOf(t.Context(), c, &posture{profile: &v1alpha1.TenancyProfile{}}, "solar")
	if err != nil {
		t.Fatal(err)
	}
	scopes := []scope{*s}
	account := func(namespace string) replication.Account {
		return replication.Account{Namespace: namespace, Name: "solar"}
	}
	for _, tc := range []struct {
		reason, home string
		want         []string
	}{
		{reason: "owners of the tenant write a TenantResource, and choose the labels", home: "solar-b", want: []string{"solar-a"}},
		{reason: "the platform writes a GlobalTenantResource, and owners must not choose what they get"},
	} {
		d := &declaration{home: tc.home}
		d.spec.Resources = []v1beta2.Replicated{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"chosen": "true"}}}}
		var p problems
		var got []string
		for _, ns := range capsuleEntries(d, account, scopes, engine(c).scope, &p)[0].Selects(s.namespaces) {
			got = append(got, ns.Name)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestNamespacedItems checks the references of Capsule's documentation: without a namespace, with
// variables, and with neither a name nor a selector.
func TestNamespacedItems(t *testing.T) {
	t.Parallel()
	object := func(namespace, name string, labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	c := faked(t,
		object("solar-a", "own", nil), object("solar-a", "solar-conf", map[string]string{"for": "solar"}), object("solar-a", "for-solar-b", nil),
		object("solar-a", "copy", map[string]string{replication.LabelReplicated: replication.Made}), object("solar-system", "shared", nil),
	)
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
	e := &Engine{Clients: anybody{c}, Mapper: mapper, Now: time.Now}
	account := func(namespace string) replication.Account {
		return replication.Account{Namespace: namespace, Name: "solar"}
	}
	scopes := []scope{{tenant: "solar", namespaces: []replication.Namespace{{Name: "solar-b"}}}}
	for name, tc := range map[string]struct {
		reason, home string
		item         v1beta2.ObjectReference
		want         []string
		problem      string
	}{
		"own namespace":      {reason: "a TenantResource reads its own namespace", home: "solar-a", item: v1beta2.ObjectReference{Name: "own"}, want: []string{"own"}},
		"everything":         {reason: "all but copies", home: "solar-a", item: v1beta2.ObjectReference{}, want: []string{"for-solar-b", "own", "solar-conf"}},
		"namespace":          {reason: "the tenant names it", item: v1beta2.ObjectReference{Namespace: "{{tenant.name}}-system"}, want: []string{"shared"}},
		"name":               {reason: "the tenant names it", home: "solar-a", item: v1beta2.ObjectReference{Name: "{{ tenant.name }}-conf"}, want: []string{"solar-conf"}},
		"name for namespace": {reason: "the target names it", home: "solar-a", item: v1beta2.ObjectReference{Name: "for-{{namespace}}"}, want: []string{"for-solar-b"}},
		"selector": {reason: "the tenant names it", home: "solar-a", item: v1beta2.ObjectReference{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": "{{tenant.name}}"}},
		}, want: []string{"solar-conf"}},
		"other variable": {reason: "nothing else is a variable", home: "solar-a", item: v1beta2.ObjectReference{Name: "{{ x }}"}, problem: "only {{ tenant.name }} and {{ namespace }}"},
		"no namespace":   {reason: "a GlobalTenantResource would read the whole cluster", item: v1beta2.ObjectReference{Name: "own"}, problem: "it needs a namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.item.Kind = "ConfigMap"
			d := &declaration{home: tc.home}
			d.spec.Resources = []v1beta2.Replicated{{NamespacedItems: []v1beta2.ObjectReference{tc.item}}}
			var p problems
			wanted := e.plan(t.Context(), &job{scopes: scopes, entries: capsuleEntries(d, account, scopes, e.scope, &p)}, &p)
			var got []string
			for _, w := range wanted {
				got = append(got, w.object.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if p.message() != "" && tc.problem == "" || !strings.Contains(p.message(), tc.problem) {
				t.Errorf("%s: got %q, want %q", tc.reason, p.message(), tc.problem)
			}
		})
	}
}

// TestRequested asks for reconciliations as clients of Capsule do.
func TestRequested(t *testing.T) {
	t.Parallel()
	at := func(value string) client.Object {
		o := &v1beta2.TenantResource{}
		if value != "" {
			o.Annotations = map[string]string{"reconcile.projectcapsule.dev/requestedAt": value}
		}
		return o
	}
	for _, tc := range []struct {
		reason, before, after string
		want                  bool
	}{
		{"nobody asks", "", "", false},
		{"somebody asks", "", "2026-11-26T10:00:00Z", true},
		{"again", "2026-11-26T10:00:00Z", "2026-11-26T11:00:00Z", true},
		{"another change", "2026-11-26T10:00:00Z", "2026-11-26T10:00:00Z", false},
		{"the annotation goes", "2026-11-26T10:00:00Z", "", false},
	} {
		if got := requested.Update(event.UpdateEvent{ObjectOld: at(tc.before), ObjectNew: at(tc.after)}); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}

// TestSettings checks the settings of a declaration of Capsule's: each of its lists has them.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, settings := range []v1beta2.ReplicationSettings{{}, {Adopt: true}, {Force: true}} {
		d := &declaration{home: "solar-a"}
		d.spec.Settings = settings
		d.spec.Resources = []v1beta2.Replicated{{}, {}}
		var p problems
		entries := capsuleEntries(d, nil, nil, nil, &p)
		if len(entries) != 2 {
			t.Fatalf("%d lists, want 2: %s", len(entries), p.message())
		}
		for _, e := range entries {
			if e.adopt != settings.Adopt || e.force != settings.Force {
				t.Errorf("%+v: got adopt %v and force %v", settings, e.adopt, e.force)
			}
		}
	}
}

// TestPeriod checks the bounds of a resyncPeriod.
func TestPeriod(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": resync, "90s": 90 * time.Second, "1ms": 5 * time.Second, "-1h": 5 * time.Second, "25h": 24 * time.Hour, "0": 5 * time.Second} {
		if got, problem := period(text); got != want || problem != "" {
			t.Errorf("%q: got %v %s, want %v", text, got, problem, want)
		}
	}
	for _, text := range []string{"60", "1 m", "1d"} {
		if _, problem := period(text); problem == "" {
			t.Errorf("%q is a duration", text)
		}
	}
}

// TestCordonedDeclaration checks that a cordoned declaration of Capsule's makes no objects, whatever else it says.
func TestCordonedDeclaration(t *testing.T) {
	t.Parallel()
	for _, cordoned := range []bool{false, true} {
		local := &v1beta2.TenantResource{ObjectMeta: metav1.ObjectMeta{Namespace: "solar-a", Name: "db"}}
		local.Spec.Cordoned = cordoned
		local.Spec.Resources = []v1beta2.Replicated{{RawItems: []v1beta2.RawItem{{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"house"}}`)}}}}}
		c := faked(t, settled("solar-a"), local)
		mapper := apimeta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
		clients := &recorder{Client: c, accounts: map[replication.Account]bool{}}
		r := &CapsuleReconciler{Client: c, Engine: &Engine{Clients: clients, Mapper: mapper, Now: time.Now}, Profiles: &posture{profile: &v1alpha1.TenancyProfile{}}, kind: tenantResources}
		if _, err := r.Reconcile(t.Context(), requestFor(local)); err != nil {
			t.Fatal(err)
		}
		if applies := len(clients.accounts) > 0; applies == cordoned {
			t.Errorf("cordoned %v: objects are applied: %v", cordoned, applies)
		}
	}
}
