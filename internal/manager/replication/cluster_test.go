package replication_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testmanager"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

// patience is how long a manager on a busy machine may take.
const patience = 2 * time.Minute

// base is what the platform has: a namespace whose Secret it shares.
const base = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec: {platformNamespaces: [flux-system, platform], tenants: {sources: {git: ["https://git.example.com/acme/**"]}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: platform}
---
apiVersion: v1
kind: Secret
metadata: {name: pull, namespace: platform, labels: {share: "yes", kustomize.toolkit.fluxcd.io/name: platform}}
stringData: {token: shared}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-pull, namespace: platform}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list]}]
`

var (
	prepared sync.Once
	lowest   *rest.Config
	ended    *atomic.Value // the error that Run returned
)

// cluster returns an admin's client of a cluster on which a manager runs with the
// rights of config/rbac and config/capsule: with a token of its own, as somebody who
// is impersonated would not show what impersonation takes.
func cluster(t *testing.T) (client.Client, *rest.Config) {
	t.Helper()
	c := testcluster.Shared(t)
	prepared.Do(func() { prepare(t, c.REST) })
	return newClient(t, c.REST), c.REST
}

func prepare(t *testing.T, admin *rest.Config) {
	t.Helper()
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}"
	// Of Flux its kinds are enough; the manager runs in this process.
	testcluster.Apply(t, admin, testcluster.WithoutControllers,
		[]byte(namespace), config.FluxComponents(), config.CRDs(), config.CapsuleCRDs(), config.Roles(), config.Manager(), config.CapsuleRoles(),
		[]byte(base), config.Policies(), config.CapsulePolicies())
	lowest, ended = testmanager.Run(t, admin)
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, admissionregistrationv1.AddToScheme, v1alpha1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
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

func merge(t *testing.T, c client.Client, object client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
}

// exists waits until an object is there, or is not.
func exists(t *testing.T, c client.Client, want bool, object client.Object, namespace, name string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("%T %s/%s to exist: %v", object, namespace, name, want), patience, func() (bool, string) {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
		return want == (err == nil) && (err == nil || apierrors.IsNotFound(err)), fmt.Sprint(err)
	})
}
