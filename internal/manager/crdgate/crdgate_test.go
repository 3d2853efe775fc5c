package crdgate_test

import (
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
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testmanager"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
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
	// patience is for a busy machine. That nobody waits for the clock is tested apart.
	patience = 2 * time.Minute

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

// ended is where the error is that the manager returned.
var ended *atomic.Value

// TestLateKinds starts the manager on a cluster that has neither Flux's kinds nor
// Capsule's, and brings them while it runs: Tenants work before, and what needs the
// kinds begins when they are there.
func TestLateKinds(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	admin := newClient(t, cluster.REST)
	// The manager runs in this process.
	all := func(o *unstructured.Unstructured) bool { return o.GetKind() != "Deployment" }
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}"
	testcluster.Apply(t, cluster.REST, all, []byte(namespace), config.CRDs(), config.Roles(), config.Manager(), config.CapsuleRoles(), []byte(profile), config.Policies())
	_, ended = testmanager.Run(t, cluster.REST)

	testcluster.Apply(t, cluster.REST, all, []byte(early))
	condition(t, admin, "plain", "Ready", "InPlace", "1 namespace")
	condition(t, admin, "early", "Ready", "Failed", "GitRepository")
	plain := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	if err := admin.Delete(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	exists(t, admin, false, plain, "", "plain")

	definition := func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" }
	testcluster.Apply(t, cluster.REST, definition, config.FluxComponents())
	condition(t, admin, "early", "Provisioned", "InPlace", "1 namespace")
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

	testcluster.Apply(t, cluster.REST, all, config.CapsuleCRDs(), config.CapsulePolicies())
	testcluster.Apply(t, cluster.REST, all, []byte(late))
	exists(t, admin, true, &v1alpha1.Tenant{}, "", "late")
	testwait.For(t, "the policies to find the kinds that they read", patience, func() (bool, string) {
		objects, err := flux.ReadObjects([]byte(shares))
		if err != nil {
			t.Fatal(err)
		}
		err = admin.Create(t.Context(), objects[0], client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	testcluster.Apply(t, cluster.REST, all, []byte(shares))
	exists(t, admin, true, &corev1.ConfigMap{}, "late", "shared")
}

func newClient(t *testing.T, restConfig *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme, v1beta2.AddToScheme} {
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
