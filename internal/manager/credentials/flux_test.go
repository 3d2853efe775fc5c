package credentials_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/manager/credentials"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const patience = 2 * time.Minute

const (
	sync = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, url: https://git.example.com/acme/fleet, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, retryInterval: 2s, path: ./clusters/test, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`
	tenant = `
{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}, spec: {tenants: {bounds: {maxTimeout: 3m}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: home, labels: {toolkit.fluxcd.io/tenant: team}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gitops, namespace: home, annotations: {capsule.addon.fluxcd/enabled: "true"}}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: team}, spec: {owners: [{kind: ServiceAccount, namespace: home, name: gitops}]}}
`
	delivery = `
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app, namespace: home}, spec: {interval: 1h, url: "https://git.example.com/acme/app", ref: {branch: main}}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: home}
spec:
  interval: 1s
  path: ./
  prune: true
  targetNamespace: home
  serviceAccountName: gitops
  kubeConfig: {secretRef: {name: gitops-kubeconfig, key: kubeconfig}}
  sourceRef: {kind: GitRepository, name: app}
`
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// TestFluxThroughRotations: Flux's own controller goes on applying with the Secret
// while its token is replaced three times, each reconciliation a success.
func TestFluxThroughRotations(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, fleetOptions(t))
	apply(t, c.REST, config.CRDs(), config.Roles(), config.Manager(), []byte(tenant))
	admin := newClient(t, c.REST)
	trust := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "tenure-proxy-ca"}, Data: map[string]string{"ca.crt": string(c.REST.CAData)}}
	if err := admin.Create(t.Context(), trust); err != nil {
		t.Fatal(err)
	}
	ahead := run(t, c.REST)
	secret := issued(t, admin, "")
	apply(t, c.REST, []byte(delivery))
	applied(t, admin, "first")
	for n := range 3 {
		renew, err := time.Parse(time.RFC3339, secret.Annotations["tenure.dev/renew"])
		if err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(time.Until(renew) + time.Second))
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gitops"}}
		patch(t, admin, account, fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, n))
		secret = issued(t, admin, string(secret.Data["kubeconfig"]))
		applied(t, admin, fmt.Sprintf("rotation-%d", n))
	}
	var events eventsv1.EventList
	if err := admin.List(t.Context(), &events, client.InNamespace("home")); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning && e.Regarding.Kind == "Kustomization" {
			t.Errorf("a reconciliation failed: %s: %s", e.Reason, e.Note)
		}
	}
}

func fleetOptions(t *testing.T) localcluster.Options {
	t.Helper()
	dir := t.TempDir()
	const system = "fleet/clusters/test/flux-system/"
	for name, content := range map[string]string{
		system + "gotk-sync.yaml":       sync,
		system + "gotk-components.yaml": "# put in place\n",
		system + "kustomization.yaml":   "resources: [gotk-components.yaml, gotk-sync.yaml]\n",
		"app/state.yaml":                "{apiVersion: v1, kind: ConfigMap, metadata: {name: state}}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	app, err := network.ParseMap("https://git.example.com/acme/app#main=" + filepath.Join(dir, "app"))
	if err != nil {
		t.Fatal(err)
	}
	return localcluster.Options{Fleet: filepath.Join(dir, "fleet"), Path: "clusters/test", Maps: []network.Map{app}}
}

func apply(t *testing.T, to *rest.Config, manifests ...[]byte) {
	t.Helper()
	for _, m := range manifests {
		objects, err := flux.ReadObjects(m)
		if err != nil {
			t.Fatal(err)
		}
		var wanted []*unstructured.Unstructured
		for _, o := range objects {
			// The manager runs in this process.
			if o.GetKind() != "Deployment" && o.GetKind() != "MutatingWebhookConfiguration" {
				wanted = append(wanted, o)
			}
		}
		if err := flux.ApplyManifests(t.Context(), to, wanted); err != nil {
			t.Fatal(err)
		}
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, eventsv1.AddToScheme, authenticationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func newClient(t *testing.T, to *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(to, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs the reconciler with the manager's rights, and returns how far its clock is
// ahead.
func run(t *testing.T, admin *rest.Config) *atomic.Int64 {
	t.Helper()
	lowest := rest.CopyConfig(admin)
	lowest.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:tenure-manager", Groups: []string{"system:authenticated"}}
	mgr, err := ctrl.NewManager(lowest, ctrl.Options{Scheme: newScheme(t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Namespace{}, tenantnamespace.IndexTenant, func(o client.Object) []string {
		return []string{o.GetLabels()[v1alpha1.LabelTenant]}
	}); err != nil {
		t.Fatal(err)
	}
	ahead := &atomic.Int64{}
	r := &credentials.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("tenure-manager"),
		Profiles: &tenantnamespace.ProfileReader{Client: mgr.GetClient(), Home: "flux-system"},
		Targets:  credentials.Proxy{APIReader: mgr.GetAPIReader(), URL: admin.Host, Namespace: "flux-system", ConfigMap: "tenure-proxy-ca"},
		Manager:  rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "tenure-manager"},
		Lifetime: 10 * time.Minute,
		Now:      func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	}
	if err := r.Setup(ctx, mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	return ahead
}

// issued waits until the Secret has another kubeconfig than before.
func issued(t *testing.T, admin client.Client, before string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	testwait.For(t, "a new kubeconfig", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKey{Namespace: "home", Name: "gitops-kubeconfig"}, s)
		return err == nil && len(s.Data["kubeconfig"]) > 0 && string(s.Data["kubeconfig"]) != before, fmt.Sprint(err, s.Annotations)
	})
	return s
}

// applied asks Flux to reconcile, and waits until it has.
func applied(t *testing.T, admin client.Client, token string) {
	t.Helper()
	ks := &unstructured.Unstructured{}
	ks.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
	ks.SetKind("Kustomization")
	ks.SetNamespace("home")
	ks.SetName("app")
	patch(t, admin, ks, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, token))
	testwait.For(t, "Flux to have applied for "+token, patience, func() (bool, string) {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(ks), ks); err != nil {
			return false, err.Error()
		}
		handled, _, _ := unstructured.NestedString(ks.Object, "status", "lastHandledReconcileAt")
		var status struct {
			Conditions []metav1.Condition `json:"conditions"`
		}
		content, _, _ := unstructured.NestedMap(ks.Object, "status")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status); err != nil {
			return false, err.Error()
		}
		return handled == token && apimeta.IsStatusConditionTrue(status.Conditions, "Ready"), fmt.Sprintf("handled %q, %+v", handled, status.Conditions)
	})
}

func patch(t *testing.T, admin client.Client, object client.Object, patch string) {
	t.Helper()
	if err := admin.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}
