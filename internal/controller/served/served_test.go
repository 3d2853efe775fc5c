package served_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/server/manager"
	"github.com/tenure-dev/tenure/internal/testcluster"
	"github.com/tenure-dev/tenure/internal/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

const (
	// patience is less than the longest time between two looks.
	patience = 40 * time.Second

	profile = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec: {tenants: {sources: {git: ["https://git.example.com/acme/**"]}}}
`
	early = `
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: early}
spec:
  owners: [{kind: User, name: ann}]
  namespaces: {create: [early]}
  sync: [{name: app, git: {url: "https://git.example.com/acme/app", branch: main}}]
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: plain}
spec: {owners: [{kind: User, name: ann}], namespaces: {create: [plain]}}
`
	late = `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: late}
spec: {owners: [{kind: User, name: joe}]}
`
	shares = `
apiVersion: v1
kind: Namespace
metadata: {name: late, labels: {tenure.dev/tenant: late, capsule.clastix.io/tenant: late}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: TenantResource
metadata: {name: shared, namespace: late}
spec: {resyncPeriod: 60s, resources: [{rawItems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}}]}]}
`
)

// ended is the error that the manager returned.
var ended atomic.Value

// TestLateKinds starts the manager on a cluster that has neither Flux's kinds nor
// Capsule's, and brings them while it runs: Tenants work before, and what needs the
// kinds begins when they are there.
func TestLateKinds(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	admin := newClient(t, cluster.REST)
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}"
	apply(t, cluster.REST, nil, []byte(namespace), config.CRDs(), config.Roles(), config.Manager(), config.CapsuleRoles(), []byte(profile), config.Policies())
	run(t, cluster.REST, admin)

	apply(t, cluster.REST, nil, []byte(early))
	condition(t, admin, "plain", "Ready", "InPlace", "1 namespace")
	condition(t, admin, "early", "Ready", "Failed", "GitRepository")
	plain := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	if err := admin.Delete(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, plain, "", "plain")

	definition := func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" }
	apply(t, cluster.REST, definition, config.FluxComponents())
	condition(t, admin, "early", "Ready", "InPlace", "1 namespace")
	source := object("source.toolkit.fluxcd.io/v1", "GitRepository")
	exists(t, admin, true, source, "early", "app")
	exists(t, admin, true, object("kustomize.toolkit.fluxcd.io/v1", "Kustomization"), "early", "app")
	const failed = `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"GitOperationFailed","message":"nobody there","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if err := admin.Status().Patch(t.Context(), source, client.RawPatch(types.MergePatchType, []byte(failed))); err != nil {
		t.Fatal(err)
	}
	condition(t, admin, "early", "Synced", "Failed", "nobody there")
	// What was changed by hand is set right, since the kind is watched.
	if err := admin.Patch(t.Context(), source, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"url":"https://git.example.com/acme/other"}}`))); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the source to be set right", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(source), source)
		url, _, _ := unstructured.NestedString(source.Object, "spec", "url")
		return url == "https://git.example.com/acme/app", fmt.Sprint(url, err)
	})

	apply(t, cluster.REST, nil, config.CapsuleCRDs(), config.CapsulePolicies())
	apply(t, cluster.REST, nil, []byte(late))
	exists(t, admin, true, &v1alpha1.Tenant{}, "", "late")
	apply(t, cluster.REST, nil, []byte(shares))
	exists(t, admin, true, &corev1.ConfigMap{}, "late", "shared")
}

// run starts the manager with a token of its own: who is impersonated cannot
// impersonate.
func run(t *testing.T, restConfig *rest.Config, admin client.Client) {
	t.Helper()
	token := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "tenure-manager"}}
	if err := admin.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	lowest := rest.AnonymousClientConfig(restConfig)
	lowest.BearerToken = token.Status.Token
	go func() {
		err := manager.Run(context.Background(), lowest, manager.Options{
			MetricsAddr: "0", HealthAddr: "0", WebhookAddr: "0", Namespace: "flux-system", Instance: "test", Capsule: true,
		})
		ended.Store(fmt.Sprint(err))
	}()
}

func newClient(t *testing.T, restConfig *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme, v1alpha1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply applies manifests, those that are wanted: nil is all but Deployments, as the
// manager runs in this process.
func apply(t *testing.T, restConfig *rest.Config, wanted func(*unstructured.Unstructured) bool, manifests ...[]byte) {
	t.Helper()
	if wanted == nil {
		wanted = func(o *unstructured.Unstructured) bool { return o.GetKind() != "Deployment" }
	}
	for _, m := range manifests {
		objects, err := flux.ReadObjects(m)
		if err != nil {
			t.Fatal(err)
		}
		var some []*unstructured.Unstructured
		for _, o := range objects {
			if wanted(o) {
				some = append(some, o)
			}
		}
		if err := flux.ApplyManifests(t.Context(), restConfig, some); err != nil {
			t.Fatal(err)
		}
	}
}

func object(apiVersion, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return u
}

// exists waits until an object is there, or is not.
func exists(t *testing.T, c client.Client, want bool, o client.Object, namespace, name string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("%T %s/%s to exist: %v", o, namespace, name, want), patience, func() (bool, string) {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
		return want == (err == nil) && (err == nil || apierrors.IsNotFound(err)), fmt.Sprint(err, " manager: ", ended.Load())
	})
}

// condition waits until a Tenant says something.
func condition(t *testing.T, c client.Client, name, kind, reason, message string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("tenant %s to say %s %s %q", name, kind, reason, message), patience, func() (bool, string) {
		tenant := &v1alpha1.Tenant{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		said := apimeta.FindStatusCondition(tenant.Status.Conditions, kind)
		return said != nil && said.Reason == reason && strings.Contains(said.Message, message), fmt.Sprint(said, " manager: ", ended.Load())
	})
}
