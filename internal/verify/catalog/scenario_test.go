package catalog

import (
	"context"
	"errors"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// newFakeEnv is an environment without a cluster: the tenant's requests go
// through the given functions to the same objects as the admin's.
func newFakeEnv(tenant interceptor.Funcs, objects ...client.Object) *Scenario {
	// The fake client adds kinds to its scheme, so it gets one of its own.
	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s)
	field := func(of func(corev1.ObjectReference) string) client.IndexerFunc {
		return func(o client.Object) []string { return []string{of(o.(*corev1.Event).InvolvedObject)} }
	}
	// Parallel tests share objects, and the client writes versions into them.
	copies := make([]client.Object, 0, len(objects))
	for _, o := range objects {
		copies = append(copies, o.DeepCopyObject().(client.Object))
	}
	admin := fake.NewClientBuilder().WithScheme(s).WithObjects(copies...).
		WithIndex(&corev1.Event{}, "involvedObject.kind", field(func(r corev1.ObjectReference) string { return r.Kind })).
		WithIndex(&corev1.Event{}, "involvedObject.name", field(func(r corev1.ObjectReference) string { return r.Name })).
		Build()
	account := discovery.Account{Namespace: "team", Name: "team"}
	controllers := map[string]client.Client{}
	for _, w := range workloads {
		controllers[w.controller] = admin
	}
	return &Scenario{
		Tenant:  discovery.Tenant{Name: "team", Namespaces: []string{"team"}, Accounts: []discovery.Account{account}},
		Account: account, Namespace: "team", Platform: "flux-system",
		Victim: Victim{Namespace: VictimNamespace, Secret: "canary", ConfigMap: "canary"},
		Admin:  admin, As: interceptor.NewClient(admin, tenant),
		controllers: controllers, ordinaries: &ordinaries{},
	}
}

// refusing refuses every object of the names with an error.
func refusing(err error, names ...string) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		for _, name := range names {
			if o.GetName() == name {
				return err
			}
		}
		return c.Create(ctx, o, opts...)
	}}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "configmaps"}
	rbac := forbidden(`User "x" cannot create resource "configmaps"`)
	const policy = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "
	for name, tc := range map[string]struct {
		reason  string
		aimed   error
		own     error
		works   error
		withOwn bool
		outcome Outcome
		control string
	}{
		"through":        {reason: "what is accepted gets through", withOwn: true, outcome: GotThrough},
		"stopped":        {reason: "refused, and its own is not", aimed: rbac, withOwn: true, outcome: Stopped, control: "RBAC"},
		"nothing owned":  {reason: "refused, and the identity works", aimed: rbac, outcome: Stopped, control: "RBAC"},
		"dead identity":  {reason: "an identity that may nothing proves nothing", aimed: rbac, works: rbac, outcome: NotProven},
		"closed":         {reason: "its own is refused by the same control: the way is closed", aimed: rbac, own: rbac, withOwn: true, outcome: Stopped, control: "RBAC (own objects too)"},
		"closed to dead": {reason: "unless the identity may nothing at all", aimed: rbac, own: rbac, works: rbac, withOwn: true, outcome: NotProven},
		"other control":  {reason: "its own is refused for another reason", aimed: rbac, own: forbidden(policy + "no"), withOwn: true, outcome: NotProven},
		"outage":         {reason: "an outage is no control", aimed: apierrors.NewServiceUnavailable("cannot create resource"), withOwn: true, outcome: NotProven},
		"quota":          {reason: "a quota without a comparison may be used up", aimed: forbidden("exceeded quota: bounds, requested"), outcome: NotProven},
		"used up":        {reason: "a quota that refuses its own as well is used up", aimed: forbidden("exceeded quota: bounds, requested"), own: forbidden("exceeded quota: bounds, requested"), withOwn: true, outcome: NotProven},
		"broken policy":  {reason: "a policy that refuses everything because it does not work is an outage", aimed: forbidden(policy + "expression 'x' resulted in error: no such key"), own: forbidden(policy + "expression 'x' resulted in error: no such key"), withOwn: true, outcome: NotProven},
		"missing field":  {reason: "a policy that fails closed for the attack alone is a control", aimed: forbidden(policy + "expression 'x' resulted in error: no such key"), withOwn: true, outcome: Stopped, control: "policy p"},
		"not RBAC":       {reason: "RBAC does not say that an object is invalid", aimed: apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "cannot update resource", nil), withOwn: true, outcome: NotProven},
		"gone":           {reason: "what is not there cannot be attacked", aimed: apierrors.NewNotFound(resource, "x"), withOwn: true, outcome: NotProven},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request{what: "do it", aimed: func(context.Context, *Scenario) error { return tc.aimed }}
			if tc.withOwn {
				r.own = func(context.Context, *Scenario) error { return tc.own }
			}
			e := newFakeEnv(refusing(tc.works, nameIf("control", tc.works)))
			got := requests(r)(t.Context(), e)
			if got.Outcome != tc.outcome || got.Control != tc.control {
				t.Errorf("%s: got %q by %q (%s%s), want %q by %q", tc.reason, got.Outcome, got.Control, got.Reason, got.Message, tc.outcome, tc.control)
			}
		})
	}
}

// nameIf is the name of an attack's object if it is to be refused.
func nameIf(id string, err error) string {
	if err == nil {
		return ""
	}
	return name(id)
}

// TestCreateAndRemove checks that an attack removes the objects that it created, also if the run is
// interrupted.
func TestCreateAndRemove(t *testing.T) {
	t.Parallel()
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			// The object is made, and the answer is lost.
			err := c.Create(ctx, o, opts...)
			cancel()
			return errors.Join(err, context.Canceled)
		}})
		u := configMap("team", name("x"))
		if err := e.create(ctx, u.DeepCopy()); err == nil {
			t.Fatal("an interrupted request must end in an error")
		}
		if there, err := e.exists(t.Context(), u); there || err != nil {
			t.Errorf("the object is left behind: %t, %v", there, err)
		}
	})
	t.Run("another object", func(t *testing.T) {
		t.Parallel()
		e := newFakeEnv(interceptor.Funcs{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name("x"), UID: "other"}})
		u := configMap("team", name("x"))
		u.SetUID("mine")
		e.remove(u)
		if there, err := e.exists(t.Context(), u); !there || err != nil {
			t.Errorf("an object of the same name that somebody else has made is removed: %t, %v", !there, err)
		}
	})
	t.Run("quota", func(t *testing.T) {
		t.Parallel()
		e := newFakeEnv(refusing(forbidden("exceeded quota: bounds, requested: count/x=1"), name("x")))
		if f := judge(e.create(t.Context(), configMap("team", name("x"))), ""); f.Outcome != NotProven {
			t.Errorf("what found no room was %q, want not proven", f.Outcome)
		}
	})
}

// TestCanaryFromBefore checks that a canary that existed before the attack does not count as a success.
func TestCanaryFromBefore(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: VictimNamespace, Name: name("x")}})
	e.Repository = &discovery.Repository{}
	got := e.reconciles(t.Context(), "x", configMap(VictimNamespace, name("x")), configMap("team", name("x")), nil)
	if got.Outcome != NotProven {
		t.Errorf("got %q (%s), want not proven", got.Outcome, got.Evidence)
	}
}

func TestSets(t *testing.T) {
	t.Parallel()
	const refs, account = "--no-cross-namespace-refs=true", "--default-service-account=default"
	for _, tc := range []struct {
		reason string
		args   []string
		flag   string
		want   bool
	}{
		{"not there", []string{"--log-level=info"}, refs, false},
		{"as it is written", []string{refs}, refs, true},
		{"a boolean without a value", []string{"--no-cross-namespace-refs", "--other"}, refs, true},
		{"another word for true", []string{"--no-cross-namespace-refs=1"}, refs, true},
		{"false", []string{"--no-cross-namespace-refs=false"}, refs, false},
		{"the last one counts", []string{refs, "--no-cross-namespace-refs=false"}, refs, false},
		{"a flag that begins alike", []string{"--no-cross-namespace-refs-not=true"}, refs, false},
		{"a value of its own", []string{"--default-service-account", "default"}, account, true},
		{"an account of another name", []string{"--default-service-account=nobody"}, account, true},
		{"no account", []string{"--default-service-account="}, account, false},
		{"another name switches it on as well", []string{"--log-level=info"}, "--log-level=debug", true},
	} {
		if got := sets(tc.args, tc.flag); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
		}
	}
}

// The binding that makes an account unstoppable is named.
func TestNamingBindings(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{})
	e.Tenant.Rights = []discovery.Right{
		{Role: "ClusterRole/edit", Binding: "RoleBinding team/edit"},
		{Role: "ClusterRole/cluster-admin", Binding: "RoleBinding team/all", Subject: "ServiceAccount team/team"},
	}
	run := func(f Finding) string {
		return namingBindings(func(context.Context, *Scenario) Finding { return f })(t.Context(), e).Evidence
	}
	if got, want := run(gotThrough("it could")), "it could; RoleBinding team/all gives ServiceAccount team/team ClusterRole/cluster-admin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := run(stopped("RBAC", "no")); got != "" {
		t.Errorf("what was stopped has the evidence %q", got)
	}
}

// A dry run succeeds while Flux has an object with the name that the attack uses.
func TestCreatingBesideFlux(t *testing.T) {
	t.Parallel()
	made := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name("i3")) }
	e := newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		if o.GetName() == name("i3") {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, o.GetName())
		}
		return nil
	}})
	if err := e.tryCreate(t.Context(), made(e)); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("got %v, want that it exists", err)
	}
	if err := creating(made)(t.Context(), e); err != nil {
		t.Error(err)
	}
}

// A tenant attacks from its own namespace, also where the platform keeps its account.
func TestAttacksFrom(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		tenant  discovery.Tenant
		account discovery.Account
		want    string
		foreign bool
	}{
		{"its account's namespace", discovery.Tenant{Name: "team", Namespaces: []string{"a", "b"}}, discovery.Account{Namespace: "b", Name: "team"}, "b", false},
		{"the account is the platform's", discovery.Tenant{Name: "team", Namespaces: []string{"a"}}, discovery.Account{Namespace: "flux-system", Name: "team"}, "a", true},
		{"no namespace", discovery.Tenant{Name: "team"}, discovery.Account{}, "team", false},
	} {
		e := &Scenario{Tenant: tc.tenant, Account: tc.account, Namespace: attacksFrom(tc.tenant, tc.account)}
		if e.Namespace != tc.want || e.foreignAccount() != tc.foreign {
			t.Errorf("%s: want %s, %v; got %s, %v", tc.reason, tc.want, tc.foreign, e.Namespace, e.foreignAccount())
		}
	}
}
