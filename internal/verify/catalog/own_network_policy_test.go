package catalog

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A policy of the cluster stands above the tenant's own only if it denies all connections from
// other tenants before it lets any in.
func TestOwnNetworkPolicy(t *testing.T) {
	t.Parallel()
	others := map[string]any{"namespaces": map[string]any{"matchExpressions": []any{
		map[string]any{"key": "tenure.dev/tenant", "operator": "Exists"},
		map[string]any{"key": "tenure.dev/tenant", "operator": "NotIn", "values": []any{"team"}},
	}}}
	everybody := map[string]any{"namespaces": map[string]any{}}
	rule := func(action string, from map[string]any, fields ...string) map[string]any {
		r := map[string]any{"action": action, "from": []any{from}}
		for _, field := range fields {
			r[field] = []any{map[string]any{}}
		}
		return r
	}
	policy := func(name, tier string, priority int64, rules ...any) client.Object {
		return object("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", "", name, map[string]any{"spec": map[string]any{
			"tier": tier, "priority": priority, "subject": map[string]any{"namespaces": map[string]any{"matchLabels": map[string]any{"tenure.dev/tenant": "team"}}}, "ingress": rules,
		}})
	}
	for name, tc := range map[string]struct {
		reason   string
		policies []client.Object
		want     Outcome
	}{
		"none":     {"the tenant's own policy lets everybody in", nil, GotThrough},
		"denied":   {"a policy of the platform stands above it", []client.Object{policy("a", "Admin", 10, rule("Deny", others))}, Stopped},
		"baseline": {"a policy of the tier Baseline gives way", []client.Object{policy("a", "Baseline", 10, rule("Deny", others))}, GotThrough},
		"ports":    {"a rule about some ports leaves others open", []client.Object{policy("a", "Admin", 10, rule("Deny", others, "protocols"))}, GotThrough},
		"passed":   {"an earlier rule passes the decision on to the tenant's policies", []client.Object{policy("a", "Admin", 10, rule("Pass", everybody), rule("Deny", others))}, GotThrough},
		"priority": {"a policy of a lower number comes first", []client.Object{policy("a", "Admin", 10, rule("Accept", everybody)), policy("b", "Admin", 1, rule("Deny", others))}, Stopped},
		"subject": {"a policy of other namespaces says nothing", []client.Object{object("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", "", "a", map[string]any{"spec": map[string]any{
			"tier": "Admin", "priority": int64(1), "subject": map[string]any{"namespaces": map[string]any{"matchLabels": map[string]any{"tenure.dev/tenant": "other"}}}, "ingress": []any{rule("Deny", others)},
		}})}, GotThrough},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, u client.Object, opts ...client.CreateOption) error {
				if o, ok := u.(*unstructured.Unstructured); ok && strings.HasSuffix(o.GetKind(), "NetworkPolicy") && o.GetNamespace() == "" {
					return forbidden(`User "x" cannot create resource "clusternetworkpolicies"`)
				}
				return c.Create(ctx, u, opts...)
			}}, tc.policies...)
			e.namespaces = []corev1.Namespace{
				{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"tenure.dev/tenant": "team"}}},
			}
			if f := opensItself(t.Context(), e); f.Outcome != tc.want {
				t.Errorf("%s: got %+v, want %v", tc.reason, f, tc.want)
			}
		})
	}
}
