package capsule

import (
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestLateNamespace makes a namespace that the manager sees only when its Tenant is being deleted: it
// gets a RuleStatus, without which the API server would refuse what its deletion needs.
func TestLateNamespace(t *testing.T) {
	t.Parallel()
	c, config := cluster(t)
	apply(t, config, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: late}, spec: {owners: [{kind: User, name: ann}], rules: [{enforce: {action: allow, metadata: [{kinds: [ConfigMap], labels: {env: {required: true}}}]}}]}}")
	mine := ours(t, c, "late", "there", func(*v1alpha1.Tenant) bool { return true })
	// The Tenant of Tenure waits for its namespaces.
	mine.Finalizers = append(mine.Finalizers, "example.com/waits")
	if err := c.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); err != nil {
		t.Fatal(err)
	}
	theirs(t, c, "late", "going", func(tenant *v1beta2.Tenant) bool { return !tenant.DeletionTimestamp.IsZero() })
	apply(t, config, "{apiVersion: v1, kind: Namespace, metadata: {name: late-one, labels: {capsule.clastix.io/tenant: late}}}")
	status := &v1beta2.RuleStatus{}
	testwait.For(t, "the RuleStatus of the late namespace", patience, func() (bool, string) {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "late-one", Name: v1beta2.RulesName}, status)
		return err == nil && len(status.Status.Rules) == 1, fmt.Sprint(err, status.Status)
	})
	mine = ours(t, c, "late", "going", func(tenant *v1alpha1.Tenant) bool { return !tenant.DeletionTimestamp.IsZero() })
	mine.Finalizers = nil
	if err := c.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	gone(t, c, &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "late"}})
}
