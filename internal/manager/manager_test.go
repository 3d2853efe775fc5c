package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

// patience keeps a test from hanging; a manager on a busy machine takes less.
const patience = 2 * time.Minute

const testProfile = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    sources: {git: ["https://git.example.com/acme/**"]}
    bounds: {maxObjects: 3}
`

var (
	prepared sync.Once
	ended    atomic.Value // the error that Run returned
)

// cluster returns an admin's client of a cluster with the policies in force, on which a
// manager runs with the rights of config/rbac, and no others.
func cluster(t *testing.T) (client.Client, *rest.Config) {
	t.Helper()
	c := testcluster.Shared(t)
	prepared.Do(func() { prepare(t, c.REST) })
	return newClient(t, c.REST, rest.ImpersonationConfig{}), c.REST
}

func prepare(t *testing.T, admin *rest.Config) {
	t.Helper()
	lowest := install(t, admin)
	policies, err := client.New(admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := catalog.AwaitPolicies(t.Context(), policies, "in-force"); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := Run(context.Background(), lowest, Options{MetricsAddr: "0", HealthAddr: "0", WebhookAddr: "0", LeaderElection: true, Namespace: "flux-system", Instance: "test",
			ProxyURL: admin.Host, ProxyCA: "tenure-proxy-ca", TokenLifetime: time.Hour, now: testClock.now, another: true})
		ended.Store(fmt.Sprint(err))
	}()
}

// install puts into a cluster what a manager needs, and returns its identity.
func install(t *testing.T, admin *rest.Config) *rest.Config {
	t.Helper()
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}"
	testcluster.Apply(t, admin, testcluster.WithoutControllers, []byte(namespace), config.FluxComponents(), config.CRDs(), config.Roles(), config.Manager(), []byte(testProfile), config.Policies())
	lowest := rest.CopyConfig(admin)
	lowest.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:flux-system:tenure-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"},
	}
	return lowest
}

func newClient(t *testing.T, config *rest.Config, as rest.ImpersonationConfig) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = as
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// create creates objects given as a stream of manifests.
func create(t *testing.T, c client.Client, manifests string) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("cannot create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

func namespace(name, label, tenant string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s: %s}}}\n", name, label, tenant)
}

// governed waits until a namespace has what a tenant's has.
func governed(t *testing.T, c client.Client, name, tenant string) {
	t.Helper()
	testwait.For(t, "the namespace "+name+" to be the tenant's", patience, func() (bool, string) {
		ns := &corev1.Namespace{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
			return false, err.Error()
		}
		if _, ok := ns.Labels[v1alpha1.LabelParameters]; !ok {
			return false, fmt.Sprintf("it has the labels %v (manager: %v)", ns.Labels, ended.Load())
		}
		p := &v1alpha1.TenantParameters{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: v1alpha1.ParametersName}, p); err != nil {
			return false, err.Error()
		}
		return p.Spec.Tenant == tenant, "the parameters are tenant " + p.Spec.Tenant + "'s"
	})
}

// exists waits until an object is there, or is not.
func exists(t *testing.T, c client.Client, want bool, object client.Object, namespace, name string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("%T %s/%s to exist: %v", object, namespace, name, want), patience, func() (bool, string) {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
		return want == (err == nil) && (err == nil || apierrors.IsNotFound(err)), fmt.Sprint(err)
	})
}

// isCounted waits until the quota of objects is there to stay: on a new cluster
// Kubernetes does not count Flux's kinds yet, and the manager takes them out again.
func isCounted(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	testwait.For(t, "Kubernetes to count Flux's objects in "+namespace, patience, func() (bool, string) {
		q := &corev1.ResourceQuota{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: tenancy.QuotaName}, q)
		_, counted := q.Status.Used["count/gitrepositories.source.toolkit.fluxcd.io"]
		return err == nil && counted, fmt.Sprint(q.Status, err)
	})
}

func merge(t *testing.T, c client.Client, object client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// TestProfilePace makes many namespaces, while the profile's status is written once a
// second at most: each look is one at all namespaces, and a write that was the reason for
// the next look took up to a third of the manager's time while 3,000 Tenants were made.
func TestProfilePace(t *testing.T) {
	t.Parallel()
	admin, config := cluster(t)
	watcher, err := client.NewWithWatch(config, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := watcher.Watch(t.Context(), &v1alpha1.TenancyProfileList{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	var pace writePace
	go func() {
		for e := range watch.ResultChan() {
			if e.Type == apiwatch.Modified {
				pace.add(time.Now())
			}
		}
	}()
	for i := range 150 {
		create(t, admin, namespace(fmt.Sprintf("paced-%d", i), v1alpha1.LabelTenant, "paced"))
	}
	for i := range 150 {
		governed(t, admin, fmt.Sprintf("paced-%d", i), "paced")
	}
	if problem := pace.problem(); problem != "" {
		t.Errorf("the profile's status: %s", problem)
	}
}

// writePace is when writes were heard of.
type writePace struct {
	mu          sync.Mutex
	writes      int
	first, last time.Time
}

func (p *writePace) add(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writes++; p.writes == 1 {
		p.first = at
	}
	p.last = at
}

// problem says why the writes were not a second apart: their number in all the time from
// the first to the last, of which each may be heard of late on a busy machine, and the
// first a second late at most.
func (p *writePace) problem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := p.last.Sub(p.first)
	if p.writes > 0 && time.Duration(p.writes-1)*time.Second <= took+time.Second {
		return ""
	}
	return fmt.Sprintf("%d writes in %s", p.writes, took)
}

func TestWritePace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		at     []time.Duration
		right  bool
	}{
		{"none", nil, false},
		{"one", []time.Duration{0}, true},
		{"a second apart", []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, true},
		{"two of them late", []time.Duration{0, 1900 * time.Millisecond, 2 * time.Second, 3900 * time.Millisecond, 4 * time.Second}, true},
		{"half a second apart", []time.Duration{0, time.Second / 2, time.Second, 3 * time.Second / 2, 2 * time.Second}, false},
		{"all at once", []time.Duration{0, 0, 0}, false},
	} {
		var p writePace
		for _, at := range tc.at {
			p.add(time.Unix(0, 0).Add(at))
		}
		if problem := p.problem(); (problem == "") != tc.right {
			t.Errorf("%s: got %q", tc.reason, problem)
		}
	}
}

// TestProfile changes the one profile, so it does not run beside others.
func TestProfile(t *testing.T) {
	admin, _ := cluster(t)
	others := &v1alpha1.TenantParametersList{} // of tests that ran before, each of another tenant
	if err := admin.List(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	governedOf := func(n int) string {
		n += len(others.Items)
		if n == 1 {
			return "in force in 1 namespace of 1 tenant"
		}
		return fmt.Sprintf("in force in %d namespaces of %[1]d tenants", n)
	}
	create(t, admin, namespace("profiled", v1alpha1.LabelTenant, "profiled"))
	governed(t, admin, "profiled", "profiled")
	profile := &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}
	status := func(reason, want string) {
		t.Helper()
		testwait.For(t, "the profile to say "+want, patience, func() (bool, string) {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(profile), profile); err != nil {
				return false, err.Error()
			}
			c := apimeta.FindStatusCondition(profile.Status.Conditions, "Ready")
			if c == nil || c.ObservedGeneration != profile.Generation {
				return false, fmt.Sprint(c)
			}
			return c.Reason == reason && strings.Contains(c.Message, want), fmt.Sprint(c)
		})
	}
	interval := func(want time.Duration) {
		t.Helper()
		testwait.For(t, "the parameters to follow the profile", patience, func() (bool, string) {
			p := &v1alpha1.TenantParameters{}
			err := admin.Get(t.Context(), client.ObjectKey{Namespace: "profiled", Name: v1alpha1.ParametersName}, p)
			got := p.Spec.Tenants.Bounds.MinInterval.Duration
			return err == nil && got == want, fmt.Sprint(got, err)
		})
	}
	status("InForce", governedOf(1))
	merge(t, admin, profile, `{"spec":{"tenants":{"bounds":{"minInterval":"45s"}}}}`)
	interval(45 * time.Second)
	status("InForce", governedOf(1))

	merge(t, admin, profile, `{"spec":{"breakGlass":["system:authenticated"],"tenants":{"bounds":{"minInterval":"50s"}}}}`)
	status("Invalid", "spec.breakGlass contains system:authenticated")
	create(t, admin, namespace("meanwhile", v1alpha1.LabelTenant, "meanwhile"))
	interval(45 * time.Second)

	if err := admin.Delete(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "profiled"}}, `{"metadata":{"labels":{"wake":"up"}}}`)
	testwait.For(t, "an event to say that there is no profile", patience, func() (bool, string) {
		var list eventsv1.EventList
		if err := admin.List(t.Context(), &list, client.InNamespace("default")); err != nil {
			return false, err.Error()
		}
		for _, e := range list.Items {
			if e.Reason == "NoProfile" && e.Regarding.Name == "profiled" {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d events", len(list.Items))
	})
	exists(t, admin, true, &rbacv1.RoleBinding{}, "profiled", "tenure-reconciler")
	exists(t, admin, true, &v1alpha1.TenantParameters{}, "profiled", v1alpha1.ParametersName)

	create(t, admin, testProfile)
	interval(30 * time.Second)
	governed(t, admin, "meanwhile", "meanwhile")
	status("InForce", governedOf(2))
	create(t, admin, namespace("wrong", v1alpha1.LabelTenant, "Not_A_Name"))
	status("Failed", fmt.Sprintf("in force in %d of %d namespaces", len(others.Items)+2, len(others.Items)+3)+`; tenant "Not_A_Name" of namespace wrong cannot have an account`)
	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}, `{"metadata":{"labels":{"tenure.dev/tenant":null}}}`)
	status("InForce", governedOf(2))
}

func TestLabelledNamespace(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	for _, label := range []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant} {
		name := "labelled-" + label[:strings.IndexByte(label, '.')]
		create(t, admin, namespace(name, label, "labelled"))
		governed(t, admin, name, "labelled")
		exists(t, admin, true, &corev1.ServiceAccount{}, name, "labelled")
		exists(t, admin, true, &corev1.ResourceQuota{}, name, "tenure")
		// D1: whoever may impersonate this user has the tenant's rights.
		user := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "gotk:" + name + ":reconciler"})
		for namespace, allowed := range map[string]bool{name: true, "default": false, "flux-system": false} {
			err := user.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}, client.DryRunAll)
			if allowed != (err == nil) || (err != nil && !apierrors.IsForbidden(err)) {
				t.Errorf("the user of %s in namespace %s: %v", name, namespace, err)
			}
		}
	}
}

func TestTenantIsHeldBack(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	create(t, admin, namespace("held", v1alpha1.LabelTenant, "held")+`---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all, namespace: held},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: eve}]}`)
	governed(t, admin, "held", "held")
	exists(t, admin, true, &rbacv1.RoleBinding{}, "held", "tenure-reconciler")
	isCounted(t, admin, "held")
	eve := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "eve", Groups: []string{"system:authenticated"}})
	object := func(o client.Object, name string) client.Object {
		o.SetNamespace("held")
		o.SetName(name)
		return o
	}
	for _, tc := range []struct {
		reason string
		object client.Object
		patch  string
	}{
		{"the parameters are the platform's", object(&v1alpha1.TenantParameters{}, "tenure"), `{"spec":{"breakGlass":["eve"]}}`},
		{"so is the quota", object(&corev1.ResourceQuota{}, "tenure"), `{"spec":{"hard":null}}`},
		{"and the binding", object(&rbacv1.RoleBinding{}, "tenure-reconciler"), `{"metadata":{"labels":null}}`},
		{"and the account", object(&corev1.ServiceAccount{}, "held"), `{"metadata":{"labels":null}}`},
	} {
		for what, err := range map[string]error{
			"change": eve.Patch(t.Context(), tc.object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll),
			"delete": eve.Delete(t.Context(), tc.object.DeepCopyObject().(client.Object), client.DryRunAll),
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ask the platform team") {
				t.Errorf("%s: a tenant with cluster-admin in its namespace can %s it, or is not told why: %v", tc.reason, what, err)
			}
		}
	}
}

func TestObjectsAreCounted(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, namespace("counted", v1alpha1.LabelTenant, "counted"))
	isCounted(t, admin, "counted")
	repository := func(i int) error {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: r%d, namespace: counted}, spec: {interval: 1h, url: 'https://git.example.com/acme/x'}}", i), &u.Object); err != nil {
			t.Fatal(err)
		}
		return admin.Create(t.Context(), u)
	}
	for i := range 3 {
		// The API server's own view of the quota may be older than ours.
		testwait.For(t, "an object within the bound to be taken", patience, func() (bool, string) {
			err := repository(i)
			return err == nil, fmt.Sprint(err)
		})
	}
	if err := repository(3); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: tenure") {
		t.Errorf("one object more than the bound: want a refusal, got %v", err)
	}
}

// fleetObjects applies an account or a binding as Flux applies it from the platform's
// repository.
func fleetObjects(t *testing.T, c client.Client, namespace, tenant string) {
	t.Helper()
	labels := "{kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system, toolkit.fluxcd.io/tenant: " + tenant + "}"
	objects, err := flux.ReadObjects(fmt.Appendf(nil, `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: %[2]s, namespace: %[1]s, labels: %[3]s}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[2]s-reconciler, namespace: %[1]s, labels: %[3]s},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]}`, namespace, tenant, labels))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kustomize-controller"), client.ForceOwnership); err != nil {
			t.Fatalf("what a fleet brings was refused: %v", err)
		}
	}
}

func TestFleetBringsItsOwn(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	for _, tc := range []struct {
		reason, namespace string
		before            func()
	}{
		{"in the same moment, before or after the manager", "brings", func() {}},
		{"when the manager was there long before", "takes-over", func() { governed(t, admin, "takes-over", "own") }},
	} {
		create(t, admin, namespace(tc.namespace, v1alpha1.LabelFluxTenant, "own"))
		tc.before()
		fleetObjects(t, admin, tc.namespace, "own")
		governed(t, admin, tc.namespace, "own")
		exists(t, admin, false, &rbacv1.RoleBinding{}, tc.namespace, "tenure-reconciler")
		account := &corev1.ServiceAccount{}
		exists(t, admin, true, account, tc.namespace, "own")
		testwait.For(t, "the manager to give the account up", patience, func() (bool, string) {
			err := admin.Get(t.Context(), client.ObjectKeyFromObject(account), account)
			return err == nil && account.Labels["tenure.dev/managed-by"] == "", fmt.Sprint(account.Labels, err)
		})
		binding := &rbacv1.RoleBinding{}
		exists(t, admin, true, binding, tc.namespace, "own-reconciler")
		if binding.RoleRef.Name != "view" {
			t.Errorf("%s: the fleet's binding gives %s", tc.reason, binding.RoleRef.Name)
		}
	}
}

func TestRepairsAndRemoves(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const name = "changing"
	create(t, admin, namespace(name, v1alpha1.LabelTenant, "one"))
	governed(t, admin, name, "one")
	binding := &rbacv1.RoleBinding{}
	exists(t, admin, true, binding, name, "tenure-reconciler")
	first := binding.UID
	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the binding to come back", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(binding), binding)
		return err == nil && binding.UID != first, fmt.Sprint(err)
	})
	// Parameters that somebody deletes go in order, and come back.
	parameters := &v1alpha1.TenantParameters{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenure"}}
	exists(t, admin, true, parameters, name, "tenure")
	second := parameters.UID
	if err := admin.Delete(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the parameters to come back", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters)
		return err == nil && parameters.UID != second, fmt.Sprint(err)
	})
	governed(t, admin, name, "one")

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	merge(t, admin, ns, `{"metadata":{"labels":{"tenure.dev/tenant":"two"}}}`)
	governed(t, admin, name, "two")
	exists(t, admin, true, &corev1.ServiceAccount{}, name, "two")
	exists(t, admin, false, &corev1.ServiceAccount{}, name, "one")

	merge(t, admin, ns, `{"metadata":{"labels":{"tenure.dev/tenant":null}}}`)
	for object, at := range map[client.Object]string{
		&corev1.ServiceAccount{}: "two", &rbacv1.RoleBinding{}: "tenure-reconciler",
		&corev1.ResourceQuota{}: "tenure", &v1alpha1.TenantParameters{}: "tenure",
	} {
		exists(t, admin, false, object, name, at)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil || ns.Labels[v1alpha1.LabelParameters] != "" {
		t.Errorf("a namespace that is nobody's any more has the labels %v: %v", ns.Labels, err)
	}
}

// TestDeletedNamespace deletes a namespace in which Flux's finalizers have to be
// taken off while the policies hold.
func TestDeletedNamespace(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const name = "deleted"
	create(t, admin, namespace(name, v1alpha1.LabelTenant, "gone"))
	governed(t, admin, name, "gone")
	create(t, admin, `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x, namespace: deleted, finalizers: [finalizers.fluxcd.io]},
 spec: {interval: 1h, prune: true, serviceAccountName: gone, sourceRef: {kind: GitRepository, name: x}}}`)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := admin.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	k := &unstructured.Unstructured{}
	k.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
	k.SetKind("Kustomization")
	testwait.For(t, "the object to be deleted", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "x"}, k)
		return err == nil && k.GetDeletionTimestamp() != nil, fmt.Sprint(err)
	})
	merge(t, admin, k, `{"metadata":{"finalizers":null}}`)
	exists(t, admin, false, ns, "", name)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		options Options
		want    string
	}{
		{"nobody says where it runs", Options{}, "RUNTIME_NAMESPACE is not set"},
		{"not an address", Options{Namespace: "x", EventsAddr: "notification-controller"}, "is not an http address"},
		{"a file", Options{Namespace: "x", EventsAddr: "file:///x"}, "is not an http address"},
		{"a proxy without TLS", Options{Namespace: "x", ProxyURL: "http://proxy:9001"}, "write https://HOST:PORT"},
		{"tokens shorter than there are", Options{Namespace: "x", TokenLifetime: time.Minute}, "between 10m0s and 24h0m0s"},
		{"tokens that hardly end", Options{Namespace: "x", TokenLifetime: 1000 * time.Hour}, "between 10m0s and 24h0m0s"},
	} {
		if err := tc.options.complete(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
		}
	}
	if err := Run(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, Options{MetricsAddr: "0", HealthAddr: "0", Namespace: "x"}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("without an API server: want an error, got %v", err)
	}
}
