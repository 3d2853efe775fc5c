package capsule

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// policyFixture has an owner with rights on nodes, another user with them, and a node.
const policyFixture = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hail-owner}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, update, patch]}
  - {apiGroups: [""], resources: [namespaces], verbs: [create]}
  - {apiGroups: [tenure.dev], resources: [tenantnamespaces], verbs: [create]}
  - {apiGroups: [tenure.dev], resources: [tenants], resourceNames: [storm], verbs: [own]}
  - {apiGroups: [""], resources: [serviceaccounts], verbs: [create]}
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
  - {apiGroups: [""], resources: [serviceaccounts], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hail-other}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hail-other}
subjects: [{kind: User, name: hail-other}]
---
apiVersion: v1
kind: Namespace
metadata: {name: storm-a, labels: {capsule.clastix.io/tenant: storm}}
---
apiVersion: v1
kind: Namespace
metadata: {name: gale-a, labels: {capsule.clastix.io/tenant: gale}}
---
apiVersion: v1
kind: Node
metadata: {name: hail, labels: {given: x}, annotations: {stone-1: x}}
`

// policyParameters is applied with a field manager of its own, since other tests apply the same
// CapsuleConfiguration.
const policyParameters = `
apiVersion: capsule.clastix.io/v1beta2
kind: CapsuleConfiguration
metadata: {name: default}
spec:
  ignoreUserWithGroups: [hail-ignored]
  allowServiceAccountPromotion: true
  nodeMetadata:
    forbiddenLabels: {denied: [given], deniedRegex: "^stone-[0-9]+$"}
    forbiddenAnnotations: {denied: [taken], deniedRegex: "^stone-"}
`

func setPolicyParameters(t *testing.T, admin client.Client) {
	t.Helper()
	parameters, err := flux.ReadObjects([]byte(policyParameters))
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(parameters[0]), client.FieldOwner("policies")); err != nil {
		t.Fatal(err)
	}
}

// as returns a client of a user.
func as(t *testing.T, restConfig *rest.Config, user string, groups ...string) client.Client {
	t.Helper()
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return newClient(t, restConfig)
}

// TestStatusOwners lists the owners of ours in the status of theirs, without administrators.
func TestStatusOwners(t *testing.T) {
	t.Parallel()
	admin := v1alpha1.Owner{Kind: "User", Name: "admin", Roles: []string{"capsule-namespace-deleter"}}
	robot := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: "ci", Name: "robot", Roles: []string{"view"}}
	got := owners([]v1alpha1.Owner{robot, admin}, []v1alpha1.Owner{admin})
	want := []v1beta2.StatusOwner{{Identity: v1beta2.Identity{Kind: "ServiceAccount", Name: "system:serviceaccount:ci:robot"}, ClusterRoles: []string{"view"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPromotion makes a service account an owner by its label, for as long as the Tenant allows it.
func TestPromotion(t *testing.T) {
	t.Parallel()
	c, restConfig := cluster(t)
	setPolicyParameters(t, c)
	apply(t, restConfig, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: gust}, spec: {owners: [{kind: User, name: alice}]}}")
	theirs(t, c, "gust", "there", func(tt *v1beta2.Tenant) bool { return hasCondition(tt, "Cordoned", metav1.ConditionFalse, "") })
	apply(t, restConfig, "{apiVersion: v1, kind: Namespace, metadata: {name: gust-a, labels: {tenure.dev/tenant: gust, capsule.clastix.io/tenant: gust}}}")
	apply(t, restConfig, "{apiVersion: v1, kind: Namespace, metadata: {name: gust-b, labels: {capsule.clastix.io/tenant: gust}}}")
	provision(t, c, "gust", metav1.ConditionTrue, "gust-a")
	for _, namespace := range []string{"gust-a", "gust-b"} {
		apply(t, restConfig, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: "+namespace+`, labels: {owner.projectcapsule.dev/promote: "true"}}}`)
	}
	robot := v1beta2.StatusOwner{Identity: v1beta2.Identity{Kind: "ServiceAccount", Name: "system:serviceaccount:gust-a:robot"}, ClusterRoles: []string{"capsule-namespace-provisioner", "capsule-namespace-deleter"}}
	alice := v1beta2.StatusOwner{Identity: v1beta2.Identity{Kind: "User", Name: "alice"}, ClusterRoles: []string{"admin", "capsule-namespace-deleter"}}
	owned := func(reason string, want ...v1beta2.StatusOwner) {
		t.Helper()
		theirs(t, c, "gust", reason, func(tt *v1beta2.Tenant) bool { return cmp.Diff(want, tt.Status.Owners) == "" })
	}
	owned("with the promoted account of its namespace", alice, robot)
	apply(t, restConfig, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: gust}, spec: {owners: [{kind: User, name: alice}], permissions: {allowOwnerPromotion: false}}}")
	owned("without it, when the Tenant does not allow it", alice)
}

// TestEntitlement gives a promoted service account the roles of a rule, in the namespaces that the
// rule selects, and lists them in the status.
func TestEntitlement(t *testing.T) {
	t.Parallel()
	c, restConfig := cluster(t)
	setPolicyParameters(t, c)
	apply(t, restConfig, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: mist}, spec: {owners: [{kind: User, name: alice}], rules: ["+
		"{permissions: {promotions: [{clusterRoles: [view]}]}}, {namespaceSelector: {matchLabels: {env: prod}}, permissions: {promotions: [{clusterRoles: [edit], selector: {matchLabels: {super: account}}}]}}]}}")
	theirs(t, c, "mist", "there", func(tt *v1beta2.Tenant) bool { return hasCondition(tt, "Cordoned", metav1.ConditionFalse, "") })
	for namespace, env := range map[string]string{"mist-a": "prod", "mist-b": "dev"} {
		apply(t, restConfig, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+", labels: {tenure.dev/tenant: mist, capsule.clastix.io/tenant: mist, env: "+env+"}}}")
	}
	provision(t, c, "mist", metav1.ConditionTrue, "mist-a", "mist-b")
	account := func(labels string) {
		apply(t, restConfig, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: mist-a, labels: {"+labels+"}}}")
	}
	entitled := func(reason string, bindings int, want ...v1beta2.Promotion) {
		t.Helper()
		theirs(t, c, "mist", reason, func(tt *v1beta2.Tenant) bool { return cmp.Diff(want, tt.Status.Promotions) == "" })
		ours(t, c, "mist", reason, func(o *v1alpha1.Tenant) bool { return len(o.Spec.RoleBindings) == bindings })
	}
	promotion := func(role string, targets ...string) v1beta2.Promotion {
		return v1beta2.Promotion{
			StatusOwner: v1beta2.StatusOwner{Identity: v1beta2.Identity{Kind: "ServiceAccount", Name: "system:serviceaccount:mist-a:robot"}, ClusterRoles: []string{role}}, Targets: targets,
		}
	}
	account(`projectcapsule.dev/promote: "true"`)
	entitled("with the account that has no other label", 1, promotion("view", "mist-a", "mist-b"))
	account(`projectcapsule.dev/promote: "true", super: account`)
	entitled("with the account that the rule selects", 2, promotion("view", "mist-a", "mist-b"), promotion("edit", "mist-a"))
	account("super: account")
	entitled("without the account", 0)
}

// TestPolicies tries what the policies of config/capsule refuse, with the owner of a tenant.
func TestPolicies(t *testing.T) {
	t.Parallel()
	admin, restConfig := cluster(t)
	apply(t, restConfig, policyFixture)
	setPolicyParameters(t, admin)
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
		return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hail-1", Labels: map[string]string{v1alpha1.LabelMadeBy: v1alpha1.MadeByOwner}}}, client.DryRunAll)
	}
	account := func(namespace string, labels map[string]string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Namespace: namespace, Labels: labels}}, client.DryRunAll)
		}
	}
	promote := map[string]string{"owner.projectcapsule.dev/promote": "true"}
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
		{"an owner promotes an account", account("storm-a", promote), owner, ""},
		{"but none of another tenant", account("gale-a", promote), owner, "can be promoted by owners of tenant gale only"},
		{"nor does another user", account("storm-a", promote), as(t, restConfig, "hail-other"), "can be promoted by owners of tenant storm only"},
		{"to anything", account("storm-a", map[string]string{"projectcapsule.dev/promote": "false"}), as(t, restConfig, "hail-other"), "can be promoted by owners of tenant storm only"},
		{"who makes other accounts", account("storm-a", map[string]string{"a": "b"}), as(t, restConfig, "hail-other"), ""},
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

// TestManyStatusOwners leaves out owners that etcd could not store a second time.
func TestManyStatusOwners(t *testing.T) {
	t.Parallel()
	most := make([]v1alpha1.Owner, maxStatusOwners)
	if got := owners(most, nil); len(got) != maxStatusOwners {
		t.Errorf("%d owners are in the status as %d", maxStatusOwners, len(got))
	}
	if got := owners(append(most, v1alpha1.Owner{}), nil); got != nil {
		t.Errorf("%d owners are in the status as %d", maxStatusOwners+1, len(got))
	}
}
