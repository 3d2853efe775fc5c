package catalog

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			e := newFakeEnv(withoutClusterPolicies(), tc.policies...)
			e.namespaces = []corev1.Namespace{
				{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"tenure.dev/tenant": "team"}}},
			}
			if f := opensItself(t.Context(), e); f.Outcome != tc.want {
				t.Errorf("%s: got %+v, want %v", tc.reason, f, tc.want)
			}
		})
	}
}

// withoutClusterPolicies refuses requests for policies of the cluster, but those with the verbs.
func withoutClusterPolicies(verbs ...string) interceptor.Funcs {
	refused := func(verb string, o client.Object) error {
		if o.GetNamespace() != "" || !strings.HasSuffix(o.GetObjectKind().GroupVersionKind().Kind, "NetworkPolicy") || slices.Contains(verbs, verb) {
			return nil
		}
		return forbidden(`User "x" cannot ` + verb + ` resource "clusternetworkpolicies"`)
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := refused("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return refused("patch", o)
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			return refused("delete", o)
		},
		DeleteAllOf: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteAllOfOption) error {
			return refused("deletecollection", o)
		},
	}
}

// TestGeneratedClusterPolicies judges the policies that the manager writes, for a tenant that has one
// right on them, or none.
func TestGeneratedClusterPolicies(t *testing.T) {
	t.Parallel()
	labelled := func(name, label, tenant string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: tenant, corev1.LabelMetadataName: name}}}
	}
	namespaces := []corev1.Namespace{
		labelled("team", "tenure.dev/tenant", "team"), labelled("team-flux", "toolkit.fluxcd.io/tenant", "team"),
		labelled("other", "tenure.dev/tenant", "other"), labelled("other-flux", "toolkit.fluxcd.io/tenant", "other"), labelled("other-capsule", "capsule.clastix.io/tenant", "other"),
	}
	for _, mode := range []string{v1alpha1.IsolationTenant, v1alpha1.IsolationNamespace, v1alpha1.IsolationNone} {
		profile := &v1alpha1.TenancyProfile{}
		profile.Spec.Tenants.Network.Isolation = mode
		for _, kind := range tenancy.ClusterPolicyKinds() {
			policies, err := tenancy.ClusterIsolation(kind, "team", nil, namespaces, profile)
			if err != nil {
				t.Fatal(err)
			}
			var objects []client.Object
			for _, policy := range policies {
				objects = append(objects, policy)
			}
			for verb, want := range map[string]Outcome{"get": Stopped, "create": GotThrough, "patch": GotThrough, "delete": GotThrough, "deletecollection": GotThrough} {
				if mode == v1alpha1.IsolationNone {
					want = GotThrough
				}
				e := newFakeEnv(withoutClusterPolicies(verb), objects...)
				e.Tenant.Namespaces = []string{"team", "team-flux"}
				e.namespaces = namespaces
				e.tenants = []discovery.Tenant{e.Tenant, {Name: "other", Namespaces: []string{"other", "other-flux", "other-capsule"}}}
				f := opensItself(t.Context(), e)
				if f.Outcome != want || want == Stopped && !strings.Contains(f.Control, "ClusterNetworkPolicy tenure-isolation-") {
					t.Errorf("%s, mode %s, right to %s: got %+v, want %v", kind.Version, mode, verb, f, want)
				}
			}
		}
	}
}
