package manager

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// heldUp is how much more than twice the time of a bare namespace the deletion of a tenant's
// namespace may take. When Kubernetes finds the finalizer of the parameters, it tries again after
// some five seconds. On an idle machine a bare namespace is gone within a second; on a busy one
// the manager is slower as well, and the bound grows.
const heldUp = 3 * time.Second

// TestNamespaceGoes deletes a tenant's namespace and a namespace without a tenant, and checks
// that the finalizer of the parameters does not delay the deletion of the tenant's namespace.
func TestNamespaceGoes(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, namespace("goes-tenant", "toolkit.fluxcd.io/tenant", "goes")+"---\n"+namespace("goes-bare", "team", "goes"))
	governed(t, admin, "goes-tenant", "goes")
	names := []string{"goes-bare", "goes-tenant"}
	for _, name := range names {
		create(t, admin, "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: "+name+"}}")
	}
	began, took := time.Now(), map[string]time.Duration{}
	for _, name := range names {
		if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	testwait.For(t, "both namespaces to be gone", patience, func() (bool, string) {
		for _, name := range names {
			err := admin.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{})
			if _, gone := took[name]; apierrors.IsNotFound(err) && !gone {
				took[name] = time.Since(began)
			}
		}
		return len(took) == len(names), fmt.Sprint(took)
	})
	if t.Logf("gone after %s", took); took["goes-tenant"] > 2*took["goes-bare"]+heldUp {
		t.Errorf("the tenant's namespace went after %s, and a bare one after %s", took["goes-tenant"], took["goes-bare"])
	}
}
