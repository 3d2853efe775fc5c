package capsule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

// patience is the timeout for the reconcilers on a busy machine.
const patience = 2 * time.Minute

const profileName = "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}, spec: {platformNamespaces: [flux-system, platform], protectedNamespaces: [corp-*], tenants: {workloads: {runtimeClasses: {allowed: [tide-*]}}}}}"

var prepared sync.Once

// cluster returns an admin's client of a cluster on which the reconcilers run with exactly the
// rights of config/capsule. No controller reconciles Tenants of tenure.dev: tests write their
// status.
func cluster(t *testing.T) (client.Client, *rest.Config) {
	t.Helper()
	c := testcluster.Shared(t)
	prepared.Do(func() { prepare(t, c.REST) })
	return newClient(t, c.REST), c.REST
}

func prepare(t *testing.T, admin *rest.Config) {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := os.ReadFile(filepath.Join(root, "config/crd/tenure.dev_tenants.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing serves the webhooks here.
	noWebhook := func(o *unstructured.Unstructured) bool {
		return !strings.HasSuffix(o.GetKind(), "WebhookConfiguration")
	}
	testcluster.Apply(t, admin, noWebhook, config.CRDs(), tenants, config.CapsuleCRDs(), config.CapsuleRoles(), config.CapsulePolicies(), []byte(profileName))
	lowest := rest.CopyConfig(admin)
	lowest.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:flux-system:tenure-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"},
	}
	mgr, err := ctrl.NewManager(lowest, ctrl.Options{
		Scheme: scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Preflight(t.Context(), mgr.GetAPIReader()); err != nil {
		t.Fatal(err)
	}
	if err := Setup(mgr, profileReader{mgr.GetClient()}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = mgr.Start(context.Background()) }()
}

// profileReader reads the TenancyProfile.
type profileReader struct{ client client.Reader }

func (p profileReader) Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error) {
	u := profile().(*unstructured.Unstructured)
	if err := p.client.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, u); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	out := &v1alpha1.TenancyProfile{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(s), rbacv1.AddToScheme(s), networkingv1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s), v1beta1.AddToScheme(s), v1beta2.AddToScheme(s))
	if err != nil {
		panic(err) // only for types that contradict each other
	}
	return s
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply applies manifests like Flux.
func apply(t *testing.T, config *rest.Config, manifests string) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	if err := flux.ApplyManifests(t.Context(), config, objects); err != nil {
		t.Fatal(err)
	}
}

// theirs waits until ok accepts a Tenant of Capsule, and returns it.
func theirs(t *testing.T, c client.Client, name, reason string, ok func(*v1beta2.Tenant) bool) *v1beta2.Tenant {
	t.Helper()
	tenant := &v1beta2.Tenant{}
	testwait.For(t, "Capsule's Tenant "+name+" to be "+reason, patience, func() (bool, string) {
		*tenant = v1beta2.Tenant{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		return ok(tenant), fmt.Sprintf("%+v", tenant.Status)
	})
	return tenant
}

// ours waits until ok accepts a Tenant of Tenure, and returns it.
func ours(t *testing.T, c client.Client, name, reason string, ok func(*v1alpha1.Tenant) bool) *v1alpha1.Tenant {
	t.Helper()
	tenant := &v1alpha1.Tenant{}
	testwait.For(t, "Tenant "+name+" to be "+reason, patience, func() (bool, string) {
		*tenant = v1alpha1.Tenant{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		return ok(tenant), fmt.Sprintf("%+v", tenant)
	})
	return tenant
}

// gone waits until an object is deleted.
func gone(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("%T %s to be gone", o, o.GetName()), patience, func() (bool, string) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
