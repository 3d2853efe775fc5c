package capsule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRuleStatus follows the rules of a Tenant into the RuleStatus of each of its namespaces, and
// out of it.
func TestRuleStatus(t *testing.T) {
	t.Parallel()
	c, config := cluster(t)
	for name, labels := range map[string]string{"ruled-prod": "env: prod, ", "ruled-dev": ""} {
		apply(t, config, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+", labels: {"+labels+"capsule.clastix.io/tenant: ruled, tenure.dev/tenant: ruled}}}")
	}
	apply(t, config, `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: ruled}
spec:
  owners: [{kind: User, name: alice}]
  rules:
  - enforce: {action: allow, workloads: {registries: [{exp: "{{ .namespace.metadata.name }}/.*"}]}}
  - namespaceSelector: {matchLabels: {env: prod}}
    enforce: {workloads: {qosClasses: [BestEffort]}}
  - audience: [{kind: Custom, name: TenantOwner}]
`)
	become := func(namespace, want string) {
		t.Helper()
		testwait.For(t, "the rules of "+namespace, patience, func() (bool, string) {
			status := &v1beta2.RuleStatus{}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "capsule-managed-rules"}, status)
			var got []string
			for _, r := range status.Status.Rules {
				got = append(got, string(r.Raw))
			}
			diff := cmp.Diff(want, strings.Join(got, " "))
			owned := len(status.OwnerReferences) == 1 && status.OwnerReferences[0].Kind == "Tenant" && status.OwnerReferences[0].Name == status.Labels["capsule.clastix.io/tenant"]
			return diff == "" && owned && len(status.Status.Conditions) == 1, fmt.Sprint(err, diff, status.OwnerReferences)
		})
	}
	become("ruled-prod", `{"enforce":{"action":"allow","workloads":{"registries":[{"exp":"ruled-prod/.*"}]}}} {"enforce":{"action":"deny","workloads":{"qosClasses":["BestEffort"]}}}`)
	become("ruled-dev", `{"enforce":{"action":"allow","workloads":{"registries":[{"exp":"ruled-dev/.*"}]}}}`)
	testwait.For(t, "the users of the audience", patience, func() (bool, string) {
		status := &v1beta2.RuleStatus{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "ruled-dev", Name: "capsule-managed-rules"}, status)
		diff := cmp.Diff([]v1beta2.RuleAudience{{Name: "TenantOwner", Users: []string{"alice"}}}, status.Status.Audiences)
		return diff == "", fmt.Sprint(err, diff)
	})
	ours(t, c, "ruled", "labelled", func(o *v1alpha1.Tenant) bool { return o.Spec.Namespaces.Labels["projectcapsule.dev/rules"] == "true" })

	// The manager writes it again, and follows the labels of the namespace.
	if err := c.Delete(t.Context(), &v1beta2.RuleStatus{ObjectMeta: metav1.ObjectMeta{Namespace: "ruled-dev", Name: "capsule-managed-rules"}}); err != nil {
		t.Fatal(err)
	}
	dev := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ruled-dev"}}
	patch(t, c, dev, `{"metadata":{"labels":{"env":"prod","projectcapsule.dev/rules":"true"}}}`)
	become("ruled-dev", `{"enforce":{"action":"allow","workloads":{"registries":[{"exp":"ruled-dev/.*"}]}}} {"enforce":{"action":"deny","workloads":{"qosClasses":["BestEffort"]}}}`)

	// A template that cannot be filled in is a problem of the Tenant, and the rules stay.
	tenant := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "ruled"}}
	patch(t, c, tenant, `{"spec":{"rules":[{"enforce":{"action":"allow","workloads":{"registries":[{"exp":"{{ .namespace.missing }}"}]}}}]}}`)
	theirs(t, c, "ruled", "refused", func(t *v1beta2.Tenant) bool {
		ready := condition(t, conditionReady)
		return ready != nil && ready.Status == metav1.ConditionFalse && strings.Contains(ready.Message, "cannot fill in the template")
	})
	become("ruled-prod", `{"enforce":{"action":"allow","workloads":{"registries":[{"exp":"ruled-prod/.*"}]}}} {"enforce":{"action":"deny","workloads":{"qosClasses":["BestEffort"]}}}`)

	// Without rules it is empty: until the label has gone, the API server needs it.
	patch(t, c, tenant, `{"spec":{"rules":null}}`)
	become("ruled-prod", "")
	ours(t, c, "ruled", "without the label", func(o *v1alpha1.Tenant) bool {
		_, labelled := o.Spec.Namespaces.Labels["projectcapsule.dev/rules"]
		return !labelled
	})
	become("ruled-dev", "")

	// A rule with the action audit asks for the webhook.
	patch(t, c, tenant, `{"spec":{"rules":[{"enforce":{"action":"audit","workloads":{"qosClasses":["Burstable"]}}}]}}`)
	ours(t, c, "ruled", "with the label for audits", func(o *v1alpha1.Tenant) bool { return o.Spec.Namespaces.Labels["projectcapsule.dev/rules"] == "audit" })

	// A namespace that becomes another tenant's gets the rules of that Tenant.
	apply(t, config, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: unruled}, spec: {owners: [{kind: User, name: bob}]}}")
	patch(t, c, dev, `{"metadata":{"labels":{"capsule.clastix.io/tenant":"unruled","tenure.dev/tenant":"unruled"}}}`)
	testwait.For(t, "the RuleStatus to be the other Tenant's", patience, func() (bool, string) {
		status := &v1beta2.RuleStatus{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "ruled-dev", Name: "capsule-managed-rules"}, status)
		return err == nil && len(status.OwnerReferences) == 1 && status.OwnerReferences[0].Name == "unruled" && len(status.Status.Rules) == 0, fmt.Sprint(err, status.OwnerReferences)
	})
}

func patch(t *testing.T, c client.Client, o client.Object, content string) {
	t.Helper()
	if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(content))); err != nil {
		t.Fatal(err)
	}
}

func condition(tenant *v1beta2.Tenant, kind string) *metav1.Condition {
	for i := range tenant.Status.Conditions {
		if tenant.Status.Conditions[i].Type == kind {
			return &tenant.Status.Conditions[i]
		}
	}
	return nil
}
