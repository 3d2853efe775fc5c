package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An account of a tenant's namespace that owns another tenant is protected there for as
// long as it does.
func TestOwnerAccountsAreProtected(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: lodging, labels: {toolkit.fluxcd.io/tenant: lodging}}}")
	create(t, admin, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: lodging}}")
	pod := func() error {
		return admin.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "lodging", Name: "x"},
			Spec:       corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "x", Image: "x"}}},
		}, client.DryRunAll)
	}
	testwait.For(t, "Pods to run as an account that owns nothing", patience, func() (bool, string) {
		err := pod()
		return err == nil, fmt.Sprint(err)
	})
	create(t, admin, tenantManifest("lodger", "{owners: [{kind: User, name: lois}, {kind: ServiceAccount, namespace: lodging, name: robot}]}"))
	testwait.For(t, "the parameters of the namespace to list the account", patience, func() (bool, string) {
		err := pod()
		return err != nil && strings.Contains(err.Error(), "tenant lodging: a Pod must not run as robot, which owns a tenant"), fmt.Sprint(err)
	})
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "lodger"}}
	if err := admin.Patch(t.Context(), tenant, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"owners":[{"kind":"User","name":"lois"}]}}`))); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the account to be free again", patience, func() (bool, string) {
		err := pod()
		return err == nil, fmt.Sprint(err)
	})
}
