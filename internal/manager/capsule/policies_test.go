package capsule

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
)

// policyFixture has an owner with rights on nodes, a node, and the CapsuleConfiguration that holds
// the owner back.
const policyFixture = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hail-owner}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, update, patch]}
  - {apiGroups: [""], resources: [namespaces], verbs: [create]}
  - {apiGroups: [tenure.dev], resources: [tenantnamespaces], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hail-owner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hail-owner}
subjects: [{kind: User, name: hail}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hail-other}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hail-other}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hail-other}
subjects: [{kind: User, name: hail-other}]
---
apiVersion: v1
kind: Node
metadata: {name: hail, labels: {given: x}, annotations: {stone-1: x}}
---
apiVersion: capsule.clastix.io/v1beta2
kind: CapsuleConfiguration
metadata: {name: default}
spec:
  ignoreUserWithGroups: [hail-ignored]
  nodeMetadata:
    forbiddenLabels: {denied: [given], deniedRegex: "^stone-[0-9]+$"}
    forbiddenAnnotations: {denied: [taken], deniedRegex: "^stone-"}
`

// as returns a client of a user.
func as(t *testing.T, restConfig *rest.Config, user string, groups ...string) client.Client {
	t.Helper()
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return newClient(t, restConfig)
}

// TestPolicies tries what the policies of config/capsule refuse, with the owner of a tenant.
func TestPolicies(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	apply(t, restConfig, policyFixture)
	owner := as(t, restConfig, "hail")
	node := func(patch string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hail"}}, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":`+patch+`}`)), client.DryRunAll)
		}
	}
	tenant := func(name string, labels map[string]string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, client.DryRunAll)
		}
	}
	namespace := func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hail-1"}}, client.DryRunAll)
	}
	const labels, annotations = "some labels are marked as forbidden", "some annotations are marked as forbidden"
	testwait.For(t, "the rules to be in force", patience, func() (bool, string) {
		one, two := node(`{"labels":{"given":"y"}}`)(t.Context(), owner), namespace(t.Context(), as(t, restConfig, "hail", "hail-ignored"))
		return one != nil && two != nil, fmt.Sprint(one, two)
	})
	for _, tc := range []struct {
		reason string
		do     func(context.Context, client.Client) error
		by     client.Client
		want   string
	}{
		{"a label that nothing forbids", node(`{"labels":{"a":"b"},"annotations":{"a":"b"}}`), owner, ""},
		{"a forbidden label", node(`{"labels":{"given":"y"}}`), owner, labels + " for owners of tenants in spec.nodeMetadata of the CapsuleConfiguration: leave out given"},
		{"taking it off", node(`{"labels":{"given":null}}`), owner, labels},
		{"a label that the expression matches", node(`{"labels":{"stone-2":"y"}}`), owner, labels},
		{"one that it does not match", node(`{"labels":{"stone-two":"y"}}`), owner, ""},
		{"a forbidden annotation", node(`{"annotations":{"taken":"y"}}`), owner, annotations},
		{"an annotation that the expression matches", node(`{"annotations":{"stone-1":"y"}}`), owner, annotations},
		{"a program that owns no tenant", node(`{"labels":{"given":"y"}}`), as(t, restConfig, "hail-other"), ""},
		{"the platform", node(`{"labels":{"given":"y"}}`), admin, ""},
		{"an owner in an ignored group", namespace, as(t, restConfig, "hail", "hail-ignored"), "whose members make no namespaces"},
		{"an owner in another group", namespace, as(t, restConfig, "hail", "hail-others"), ""},
		{"the platform in an ignored group", namespace, as(t, restConfig, "root", "system:masters", "hail-ignored"), ""},
		{"a Tenant", tenant("hail", nil), admin, ""},
		{"with its name in the label", tenant("hail", map[string]string{"kubernetes.io/metadata.name": "hail"}), admin, ""},
		{"with another", tenant("hail", map[string]string{"kubernetes.io/metadata.name": "evil"}), admin, "must not have another name in the label"},
		{"a name with a dot", tenant("hail.storm", nil), admin, "must not have a name with a dot"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			err := tc.do(t.Context(), tc.by)
			if err == nil && tc.want != "" || err != nil && (tc.want == "" || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}
