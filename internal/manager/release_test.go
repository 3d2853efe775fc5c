package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// held returns the objects of all kinds that have a finalizer of the manager.
func held(t *testing.T, admin *rest.Config) []string {
	t.Helper()
	found, err := discovery.NewDiscoveryClientForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := found.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, admin, rest.ImpersonationConfig{})
	var objects []string
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range group.APIResources {
			if !strings.Contains(fmt.Sprint(kind.Verbs), "list") {
				continue
			}
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(version.WithKind(kind.Kind + "List"))
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			for _, o := range list.Items {
				if text := fmt.Sprint(o.Finalizers); strings.Contains(text, "tenure.dev") || strings.Contains(text, "capsule") {
					objects = append(objects, fmt.Sprintf("%s %s/%s %s", kind.Kind, o.Namespace, o.Name, text))
				}
			}
		}
	}
	return objects
}

// released uninstalls the manager of a cluster with Tenants: after it has run once with the
// option Release, no object has a finalizer of the manager, and Tenants and namespaces can be
// deleted while it is away, before and after the rules go as well. Other objects stay.
func released(t *testing.T, config, lowest *rest.Config, options Options, tenants []string) {
	admin := newClient(t, config, rest.ImpersonationConfig{})
	for _, tenant := range tenants {
		create(t, admin, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: %s}}", tenant))
	}
	if had := strings.Join(held(t, config), "\n"); !strings.Contains(had, "TenantParameters ") || !strings.Contains(had, "ResourceQuota ") || !strings.Contains(had, "\nTenant ") {
		t.Errorf("before the release only these objects have finalizers:\n%s", had)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	options.Release, options.MetricsAddr = true, freeAddress(t)
	go func() { done <- Run(ctx, lowest, options) }()
	testwait.For(t, "the metrics of the releaser", patience, func() (bool, string) {
		return servesMetrics(t, options.MetricsAddr)
	})
	testwait.For(t, "the manager's finalizers to be removed", patience, func() (bool, string) {
		left := held(t, config)
		return len(left) == 0, strings.Join(left, "\n")
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the releaser: %v", err)
	}

	for i, tenant := range tenants {
		exists(t, admin, false, &rbacv1.ClusterRoleBinding{}, "", tenancy.OwnersPrefix+tenant)
		exists(t, admin, false, &rbacv1.ClusterRole{}, "", tenancy.OwnersPrefix+tenant)
		for _, name := range []string{"work", "kube-root-ca.crt"} {
			if err := admin.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: name}, &corev1.ConfigMap{}); err != nil {
				t.Errorf("the release has taken away what is in a tenant's namespace: %v", err)
			}
		}
		if i == len(tenants)-1 {
			// As Flux does in the second step.
			kube, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			rules, ours := kube.AdmissionregistrationV1(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tenure"}
			if err := errors.Join(
				rules.ValidatingAdmissionPolicyBindings().DeleteCollection(t.Context(), metav1.DeleteOptions{}, ours),
				rules.ValidatingAdmissionPolicies().DeleteCollection(t.Context(), metav1.DeleteOptions{}, ours),
			); err != nil {
				t.Fatal(err)
			}
		}
		objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenant}}}
		for _, o := range objects {
			if err := admin.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range objects {
			testwait.For(t, fmt.Sprintf("%T %s to be gone without the manager", o, tenant), patience, func() (bool, string) {
				err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)
				return apierrors.IsNotFound(err), fmt.Sprint(o.GetFinalizers(), err)
			})
		}
	}
}

// servesMetrics reports whether an address serves metrics, and what else it answers.
func servesMetrics(t *testing.T, address string) (bool, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err.Error()
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK, response.Status
}
