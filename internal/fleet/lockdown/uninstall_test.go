package lockdown

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// installedWith returns a client of a cluster with the objects that this version installs,
// with every option, and further objects.
func installedWith(t *testing.T, funcs interceptor.Funcs, change func(*unstructured.Unstructured) bool, more ...string) (Cluster, client.Client) {
	t.Helper()
	c := Cluster{Namespace: "flux-system"}
	objects, err := c.removable()
	if err != nil {
		t.Fatal(err)
	}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	add := func(builder *fake.ClientBuilder, o *unstructured.Unstructured) {
		scope := apimeta.RESTScopeRoot
		if o.GetNamespace() != "" {
			scope = apimeta.RESTScopeNamespace
		}
		mapper.Add(o.GroupVersionKind(), scope)
		builder.WithObjects(o)
	}
	for _, kind := range []string{"ResourceQuota", "Namespace"} {
		mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, apimeta.RESTScopeRoot)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithRESTMapper(mapper).WithInterceptorFuncs(funcs)
	for _, o := range objects {
		if change == nil || change(o) {
			add(builder, o)
		}
	}
	for _, text := range more {
		add(builder, parsed(t, text))
	}
	kube := builder.Build()
	c.Client = kube
	return c, kube
}

const heldTenant = "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: team, finalizers: [tenure.dev/tenant]}}"

func TestInstallation(t *testing.T) {
	t.Parallel()
	c, kube := installedWith(t, interceptor.Funcs{}, func(o *unstructured.Unstructured) bool {
		if o.GetName() == "tenure-proxy" && o.GetKind() == "Service" {
			o.SetLabels(map[string]string{"app.kubernetes.io/name": "other"})
		}
		return true
	}, heldTenant,
		"{apiVersion: v1, kind: Namespace, metadata: {name: team-apps, labels: {tenure.dev/tenant: team}}}",
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: tenure-manager, namespace: flux-system}}",
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: other, namespace: flux-system}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: kustomize-controller, namespace: flux-system, labels: {app.kubernetes.io/name: tenure}}}")
	found, err := c.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.Tenants != 1 || found.Namespaces != 1 || !found.Manager {
		t.Errorf("want 1 Tenant, 1 namespace and a manager, got %d, %d and %t", found.Tenants, found.Namespaces, found.Manager)
	}
	names := objectNames(found.Objects)
	if slices.Contains(names, "Service flux-system/tenure-proxy") {
		t.Error("a Service without Tenure's label is part of the installation")
	}
	for _, part := range []string{"MutatingAdmissionPolicy tenure-defaults", "MutatingAdmissionPolicyBinding tenure-defaults", "Lease flux-system/tenure-manager"} {
		if !slices.Contains(names, part) {
			t.Errorf("%s would not be deleted", part)
		}
	}
	for _, kept := range []string{"CustomResourceDefinition", "TenancyProfile", "Tenant ", "Namespace", "ServiceAccount flux-system/kustomize", "Lease flux-system/other"} {
		if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, kept) }); i >= 0 {
			t.Errorf("%s would be deleted", names[i])
		}
	}
	if !strings.Contains(names[0], "WebhookConfiguration") || !strings.HasPrefix(names[len(names)-1], "Role") && !strings.HasPrefix(names[len(names)-1], "ClusterRole") {
		t.Errorf("want webhooks first and roles last, got %s first and %s last", names[0], names[len(names)-1])
	}
	if err := found.Remove(t.Context(), kube, func(string) {}); err != nil {
		t.Fatal(err)
	}
	again, err := c.Installation(t.Context())
	if again != nil || !errors.Is(err, ErrManagerMissing) || !strings.Contains(err.Error(), "Tenant team") {
		t.Errorf("without the manager, and with a Tenant that has its finalizer: got %v, %v", again, err)
	}
}

func TestInstallationElsewhere(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, object, label, annotation, want string }{
		{"Flux applies the proxy alone", proxyName, "kustomize.toolkit.fluxcd.io/name: proxy, kustomize.toolkit.fluxcd.io/namespace: flux-system", "", "Kustomization flux-system/proxy applies Tenure"},
		{"Flux applies it", managerName, "kustomize.toolkit.fluxcd.io/name: tenure-manager, kustomize.toolkit.fluxcd.io/namespace: flux-system", "", "Kustomization flux-system/tenure-manager applies Tenure"},
		{"Helm has installed it", managerName, "", "meta.helm.sh/release-name: tenure, meta.helm.sh/release-namespace: flux-system", "Helm release flux-system/tenure has installed Tenure"},
		{"helm-controller has installed it", managerName, "helm.toolkit.fluxcd.io/name: tenure", "meta.helm.sh/release-name: tenure, meta.helm.sh/release-namespace: apps", "Helm release apps/tenure has installed Tenure"},
	} {
		c, _ := installedWith(t, interceptor.Funcs{}, func(o *unstructured.Unstructured) bool {
			if o.GetName() != tc.object || o.GetKind() != "Deployment" {
				return true
			}
			given := parsed(t, "{metadata: {labels: {app.kubernetes.io/name: tenure, "+tc.label+"}, annotations: {"+tc.annotation+"}}}")
			o.SetLabels(given.GetLabels())
			o.SetAnnotations(given.GetAnnotations())
			return true
		})
		rest, helm := strings.CutPrefix(tc.want, "Helm release ")
		want, _, _ := strings.Cut(rest, " ")
		if release, err := c.HelmRelease(t.Context()); err != nil || helm && release != want || !helm && release != "" {
			t.Errorf("%s: the Helm release is %q, %v", tc.reason, release, err)
		}
		found, err := c.Installation(t.Context())
		var other *AppliedElsewhereError
		if found != nil || !errors.As(err, &other) || err.Error() != tc.want {
			t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
		}
	}
}

// TestRelease changes the Deployment once, and waits for the new Pod.
func TestRelease(t *testing.T) {
	t.Parallel()
	c, kube := installedWith(t, interceptor.Funcs{}, nil)
	key := client.ObjectKey{Namespace: "flux-system", Name: managerName}
	ctx, cancel := context.WithTimeout(t.Context(), 3*releasePoll)
	defer cancel()
	if err := c.Release(ctx, kube, func(string) {}); err == nil || !strings.Contains(err.Error(), "its Pod is being replaced") {
		t.Errorf("the manager has no Pod: got %v", err)
	}
	manager := &appsv1.Deployment{}
	if err := kube.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	manager.Status = appsv1.DeploymentStatus{ObservedGeneration: manager.Generation, Replicas: 1, UpdatedReplicas: 1}
	if err := kube.Status().Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 3*releasePoll)
	defer cancel()
	if err := c.Release(ctx, kube, func(string) {}); err == nil || !strings.Contains(err.Error(), "its Pod is not ready") {
		t.Errorf("objects still have finalizers: got %v", err)
	}
	if err := kube.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	manager.Status.ReadyReplicas = 1
	if err := kube.Status().Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Release(ctx, kube, func(string) {}); err != nil {
		t.Errorf("the Pod is ready: got %v", err)
	}
	if err := kube.Get(t.Context(), key, manager); err != nil {
		t.Fatal(err)
	}
	args := manager.Spec.Template.Spec.Containers[0].Args
	if n := len(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a != ReleaseFlag })); n != 1 || *manager.Spec.Replicas != 1 {
		t.Errorf("want one %s and one replica, got %v and %d", ReleaseFlag, args, *manager.Spec.Replicas)
	}
}

// TestRemoveGoesOn deletes all other objects after an error, and reports it.
func TestRemoveGoesOn(t *testing.T) {
	t.Parallel()
	c, kube := installedWith(t, interceptor.Funcs{Delete: func(ctx context.Context, kube client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if o.GetName() == proxyName && o.GetObjectKind().GroupVersionKind().Kind == "Deployment" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, proxyName, errors.New("no"))
		}
		return kube.Delete(ctx, o, opts...)
	}}, nil)
	found, err := c.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Remove(t.Context(), kube, func(string) {}); err == nil || !strings.Contains(err.Error(), "cannot delete Deployment flux-system/tenure-proxy") {
		t.Errorf("one object cannot be deleted: got %v", err)
	}
	left, err := c.Installation(t.Context())
	if err != nil || len(left.Objects) != 1 {
		t.Errorf("want the Deployment of the proxy alone, got %v, %v", left, err)
	}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "flux-system", Name: managerName}, &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
		t.Errorf("the manager's account is left: %v", err)
	}
}

// TestRemoveInterrupted ends each removal after a few of its deletions. The next one finds the rest, in
// the same order, and the last one completes it.
func TestRemoveInterrupted(t *testing.T) {
	t.Parallel()
	const few = 15
	allowed := 0
	c, kube := installedWith(t, interceptor.Funcs{Delete: func(ctx context.Context, kube client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if allowed == 0 {
			return errors.New("the command is killed")
		}
		allowed--
		return kube.Delete(ctx, o, opts...)
	}}, nil)
	whole, err := c.Installation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for removed := 0; removed < len(whole.Objects); removed += few {
		left, err := c.Installation(t.Context())
		if err != nil {
			t.Fatalf("after %d deletions: %v", removed, err)
		}
		if got, want := objectNames(left.Objects), objectNames(whole.Objects[removed:]); !slices.Equal(got, want) {
			t.Fatalf("after %d deletions %q are left, want %q", removed, got, want)
		}
		allowed = few
		if err := left.Remove(t.Context(), kube, func(string) {}); (err == nil) != (len(left.Objects) <= few) {
			t.Fatalf("a removal that is killed with %d objects left: %v", len(left.Objects), err)
		}
	}
	if left, err := c.Installation(t.Context()); err != nil || len(left.Objects) > 0 {
		t.Errorf("the last removal leaves %v, %v", left, err)
	}
}

func objectNames(objects []*unstructured.Unstructured) (names []string) {
	for _, o := range objects {
		names = append(names, ObjectName(o))
	}
	return names
}
