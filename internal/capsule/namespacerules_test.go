package capsule

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestNamespaceRefusal checks what the rules of a Tenant about metadata say about a new namespace.
func TestNamespaceRefusal(t *testing.T) {
	t.Parallel()
	const required = "{enforce: {action: allow, metadata: [{kinds: [Namespace], labels: {env: {required: true, values: [{exact: [dev, test]}]}}}]}}"
	for _, tc := range []struct {
		reason, rules string
		labels        map[string]string
		want          string
	}{
		{"no rule", "[]", nil, ""},
		{"what is required is missing", "[" + required + "]", nil, `metadata label "env" is required at metadata.labels["env"]`},
		{"an allowed value", "[" + required + "]", map[string]string{"env": "dev"}, ""},
		{"another value", "[" + required + "]", map[string]string{"env": "prod"}, `metadata label "prod" at metadata.labels["env"] is not allowed by namespace rule`},
		{"a label that no rule is about", "[" + required + "]", map[string]string{"env": "dev", "x": "y"}, ""},
		{"a later rule denies", "[" + required + ", {enforce: {metadata: [{kinds: [Namespace], labels: {env: {values: [{exp: ^d}]}}}]}}]", map[string]string{"env": "dev"}, "is denied by namespace rule"},
		{"a later rule allows", "[{enforce: {metadata: [{kinds: [Namespace], labels: {env: {}}}]}}, " + required + "]", map[string]string{"env": "dev"}, ""},
		{"a denied name without values", "[{enforce: {metadata: [{kinds: [Namespace], labels: {cost*: {}}}]}}]", map[string]string{"cost-x": "y"}, "is denied"},
		{"an audit", "[{enforce: {action: audit, metadata: [{kinds: [Namespace], labels: {env: {values: [{exp: .*}]}}}]}}]", map[string]string{"env": "dev"}, ""},
		{"a rule about other kinds", "[{enforce: {metadata: [{kinds: [Pod], labels: {env: {}}}]}}]", map[string]string{"env": "dev"}, ""},
		{"a default comes later", "[{enforce: {action: allow, metadata: [{kinds: [Namespace], labels: {env: {required: true, default: dev}}}]}}]", nil, ""},
		{"a managed value comes later", "[{enforce: {action: allow, metadata: [{kinds: [Namespace], labels: {env: {required: true, managed: dev}}}]}}]", nil, ""},
		{"the managed value", "[{enforce: {metadata: [{kinds: [Namespace], labels: {env: {managed: dev}}}]}}, {enforce: {metadata: [{kinds: [Namespace], labels: {'e*': {}}}]}}]", map[string]string{"env": "dev"}, ""},
		{"another value than the managed one", "[{enforce: {metadata: [{kinds: [Namespace], labels: {env: {managed: dev}}}]}}, {enforce: {metadata: [{kinds: [Namespace], labels: {'e*': {}}}]}}]", map[string]string{"env": "prod"}, "is denied"},
		{"namespaces that the rule does not select", "[{namespaceSelector: {matchLabels: {a: b}}, enforce: {metadata: [{kinds: [Namespace], labels: {env: {}}}]}}]", map[string]string{"env": "dev"}, ""},
		{"namespaces that it selects", "[{namespaceSelector: {matchLabels: {a: b}}, enforce: {metadata: [{kinds: [Namespace], labels: {env: {}}}]}}]", map[string]string{"env": "dev", "a": "b"}, "is denied"},
		{"an audience of others", "[{audience: [{kind: User, name: bob}], enforce: {metadata: [{kinds: [Namespace], labels: {env: {}}}]}}]", map[string]string{"env": "dev"}, ""},
		{"the audience of owners", "[{audience: [{kind: Custom, name: TenantOwner}], enforce: {metadata: [{kinds: [Namespace], labels: {env: {}}}]}}]", map[string]string{"env": "dev"}, "is denied"},
		{"names of Capsule", "[{enforce: {metadata: [{kinds: [Namespace], labels: {.*: {}}}]}}]", map[string]string{"capsule.clastix.io/tenant": "oil"}, ""},
	} {
		var rules []runtime.RawExtension
		if err := yaml.Unmarshal([]byte(tc.rules), &rules); err != nil {
			t.Fatal(err)
		}
		tenant := &v1beta2.Tenant{}
		for _, r := range rules {
			tenant.Spec.Rules = append(tenant.Spec.Rules, v1beta2.Unknown{RawExtension: r})
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "oil-a", Labels: tc.labels}}
		if got := NamespaceRefusal(tenant, ns, "alice", nil); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
