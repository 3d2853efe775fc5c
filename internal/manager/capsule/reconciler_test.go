package capsule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func hasCondition(t *v1beta2.Tenant, kind string, status metav1.ConditionStatus, message string) bool {
	c := apimeta.FindStatusCondition(t.Status.Conditions, kind)
	return c != nil && c.Status == status && strings.Contains(c.Message, message) && t.Status.ObservedGeneration == t.Generation
}

// fleetShape has the objects of the public Capsule fleets, at the same API versions.
const fleetShape = `
{apiVersion: v1, kind: Namespace, metadata: {name: dev-team, labels: {toolkit.fluxcd.io/tenant: dev-team, capsule.clastix.io/tenant: dev-team}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gitops-reconciler, namespace: dev-team}}
---
apiVersion: capsule.clastix.io/v1beta1
kind: Tenant
metadata: {name: dev-team}
spec:
  additionalRoleBindings:
    - {clusterRoleName: cluster-admin, subjects: [{kind: ServiceAccount, name: gitops-reconciler, namespace: dev-team}]}
  owners: [{kind: ServiceAccount, name: "system:serviceaccount:dev-team:gitops-reconciler"}]
---
{apiVersion: capsule.clastix.io/v1alpha1, kind: CapsuleConfiguration, metadata: {name: default}, spec: {userGroups: ["system:serviceaccounts:dev-team"]}}
`

// TestFleet applies the objects of the public Capsule fleets, and the original manifests of
// the fleets if these are beside the repository.
func TestFleet(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, admin, fleetShape)
	for _, fleet := range []string{"flux2-capsule-multi-tenancy", "flux2-capsule-multi-tenancy-v1"} {
		folder := filepath.Join(root, "../shared/data", fleet, "main/tenants")
		for _, file := range []string{"base/dev-team/rbac.yaml", "staging/capsule-configuration.yaml"} {
			content, err := os.ReadFile(filepath.Join(folder, file))
			if errors.Is(err, os.ErrNotExist) {
				t.Logf("%s is not beside the repository: its shape alone is tried", fleet)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			apply(t, admin, string(content))
		}
	}
	got := ours(t, c, "dev-team", "made of Capsule's", func(*v1alpha1.Tenant) bool { return true })
	account := "gitops-reconciler"
	if diff := cmp.Diff([]v1alpha1.Owner{{Kind: "ServiceAccount", Namespace: "dev-team", Name: account, Roles: []string{"admin", "capsule-namespace-deleter"}}}, got.Spec.Owners); diff != "" {
		t.Errorf("the owner is the fleet's reconciler (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]v1alpha1.TenantRoleBinding{{Role: "tenure-tenant", Subjects: []v1alpha1.Subject{{Kind: "ServiceAccount", Namespace: "dev-team", Name: account}}}}, got.Spec.RoleBindings); diff != "" {
		t.Errorf("cluster-admin is not given (-want +got):\n%s", diff)
	}
	theirs(t, c, "dev-team", "told about cluster-admin", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Honoured", metav1.ConditionTrue, "in another way: spec.additionalRoleBindings[0].clusterRoleName")
	})
	testwait.For(t, "the CapsuleConfiguration to list its tenants", patience, func() (bool, string) {
		configuration := &v1beta2.CapsuleConfiguration{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "default"}, configuration); err != nil {
			return false, err.Error()
		}
		ready := apimeta.IsStatusConditionTrue(configuration.Status.Conditions, "Ready")
		return ready && slices.Contains(configuration.Status.Tenants, "dev-team"), strings.Join(configuration.Status.Tenants, " ")
	})
}

// TestVersions writes at one version and reads at the other: fields that the older version's
// type lacks remain.
func TestVersions(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	at := func(version, kind, name string) *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "capsule.clastix.io", Version: version, Kind: kind})
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, tc := range map[string]struct{ reason, written, read, spec string }{
		"older to newer": {"older fleets write at v1beta1", "v1beta1", "v1beta2",
			"{owners: [{kind: User, name: alice, proxySettings: [{kind: Nodes, operations: [List]}]}], namespaceOptions: {quota: 3}, networkPolicies: {items: [{podSelector: {}, ingress: [{from: [{podSelector: {}}]}], policyTypes: [Ingress]}]}}"},
		"newer to older": {"what is read at v1beta1 and written back must not lose what holds the tenant back", "v1beta2", "v1beta1",
			"{owners: [{kind: User, name: alice, clusterRoles: [view]}], cordoned: true, preventDeletion: false, namespaceOptions: {forbiddenLabels: {denied: [a]}, managedMetadataOnly: true}, storageClasses: {allowed: [a], matchLabels: {b: c}}, rules: [{enforce: {a: [1]}}], ingressOptions: {allowWildcardHostnames: true, allowedHostnames: {allowedRegex: a}}}"},
	} {
		tenant := "versions-" + strings.ReplaceAll(name, " ", "-")
		apply(t, admin, "{apiVersion: capsule.clastix.io/"+tc.written+", kind: Tenant, metadata: {name: "+tenant+"}, spec: "+tc.spec+"}")
		written, read := at(tc.written, "Tenant", tenant), at(tc.read, "Tenant", tenant)
		if diff := cmp.Diff(written.Object["spec"], read.Object["spec"]); diff != "" {
			t.Errorf("%s: %s (-%s +%s):\n%s", name, tc.reason, tc.written, tc.read, diff)
		}
		// Write the object back at the version that it was read at.
		read.SetLabels(map[string]string{"touched": "true"})
		testwait.For(t, "a write without a conflict", patience, func() (bool, string) {
			err := c.Update(t.Context(), read)
			if apierrors.IsConflict(err) {
				read.SetResourceVersion(at(tc.read, "Tenant", tenant).GetResourceVersion())
			}
			return err == nil, "conflict"
		})
		if diff := cmp.Diff(written.Object["spec"], at(tc.written, "Tenant", tenant).Object["spec"]); diff != "" {
			t.Errorf("%s: written back (-before +after):\n%s", name, diff)
		}
	}
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1alpha1, kind: CapsuleConfiguration, metadata: {name: other}, spec: {userGroups: [a], forceTenantPrefix: true, protectedNamespaceRegex: b}}")
	older, newer := at("v1alpha1", "CapsuleConfiguration", "other"), at("v1beta2", "CapsuleConfiguration", "other")
	if diff := cmp.Diff(older.Object["spec"], newer.Object["spec"]); diff != "" {
		t.Errorf("the configuration is not the same at both versions:\n%s", diff)
	}
}

func TestTenant(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	tenant := func(more string) string {
		return "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: oil}, spec: {owners: [{kind: User, name: alice}], namespaceOptions: {quota: 3}" + more + "}}"
	}
	quota := func(want int32) func(*v1alpha1.Tenant) bool {
		return func(o *v1alpha1.Tenant) bool {
			return o.Spec.Namespaces.Quota != nil && *o.Spec.Namespaces.Quota == want
		}
	}
	apply(t, admin, tenant(""))
	made := ours(t, c, "oil", "there", quota(3))
	if made.Labels["tenure.dev/managed-by"] != ManagedValue {
		t.Errorf("labels are %v", made.Labels)
	}
	made.Finalizers = []string{"example.com/others"}
	if err := c.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	apply(t, admin, `{apiVersion: v1, kind: Namespace, metadata: {name: oil-dev, labels: {tenure.dev/parameters: "true"}}}`)
	provision(t, c, "oil", metav1.ConditionTrue, "oil-dev")
	theirs(t, c, "oil", "ready as ours is", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Ready", metav1.ConditionTrue, "as it is") && tt.Status.Size == 1 && slices.Equal(tt.Status.Namespaces, []string{"oil-dev"}) && tt.Status.State == "Active"
	})

	apply(t, admin, tenant(", rules: [{enforce: {metadata: [{kinds: [Secret], labels: {a: {managed: b}}}]}}], cordoned: true"))
	ours(t, c, "oil", "as before, but cordoned", func(o *v1alpha1.Tenant) bool { return o.Spec.Cordoned && quota(3)(o) })
	provision(t, c, "oil", metav1.ConditionTrue, "oil-dev")
	theirs(t, c, "oil", "refused, and cordoned all the same", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Ready", metav1.ConditionFalse, "spec.rules[0].enforce.metadata[0].labels[a].managed") && hasCondition(tt, "Honoured", metav1.ConditionFalse, "spec.rules[0].enforce.metadata[0].labels[a].managed") && tt.Status.State == "Cordoned"
	})

	apply(t, admin, strings.Replace(strings.Replace(tenant(", rules: [{enforce: {metadata: [{kinds: [Secret], labels: {a: {managed: b}}}]}}]"), "name: oil}", "name: oil, annotations: {tenure.dev/accept-unenforced: spec.rules}}", 1), "quota: 3", "quota: 4", 1))
	changed := ours(t, c, "oil", "changed", func(o *v1alpha1.Tenant) bool { return !o.Spec.Cordoned && quota(4)(o) })
	if diff := cmp.Diff([]string{"example.com/others"}, changed.Finalizers); diff != "" {
		t.Errorf("what others wrote on the Tenant is lost:\n%s", diff)
	}
	theirs(t, c, "oil", "told what is accepted", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Honoured", metav1.ConditionFalse, "accepted") && hasCondition(tt, "Ready", metav1.ConditionUnknown, "not ready yet")
	})

	deleting := theirs(t, c, "oil", "there", func(*v1beta2.Tenant) bool { return true })
	if err := c.Delete(t.Context(), deleting); err != nil {
		t.Fatal(err)
	}
	theirs(t, c, "oil", "waiting for what is in it", func(tt *v1beta2.Tenant) bool { return tt.Status.State == "Terminating" })
	last := ours(t, c, "oil", "deleted", func(o *v1alpha1.Tenant) bool { return !o.DeletionTimestamp.IsZero() })
	last.Finalizers = nil
	if err := c.Update(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	gone(t, c, deleting)
}

// TestNameTaken checks that a Tenant written by hand is neither overwritten nor deleted with
// Capsule's, and that its namespaces are not deleted with Capsule's Tenant either.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	apply(t, admin, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: gas}, spec: {namespaces: {quota: 1}}}")
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: gas}, spec: {owners: [{kind: User, name: bob}]}}")
	other := theirs(t, c, "gas", "told that the name is taken", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Ready", metav1.ConditionFalse, "that a person wrote") && tt.Status.Size == 0
	})
	references := "ownerReferences: [{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, name: gas, uid: " + string(other.UID) + "}]"
	namespace := func(name, label string) {
		apply(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+", labels: {capsule.clastix.io/tenant: gas"+label+"}, "+references+"}}")
	}
	// Without a namespace that it owns, the layer lets Capsule's Tenant go at once.
	namespace("gas-left", "")
	theirs(t, c, "gas", "held for its namespace", func(tt *v1beta2.Tenant) bool { return slices.Contains(tt.Finalizers, Finalizer) })
	namespace("gas-moved", ", tenure.dev/tenant: gas")
	owners := func(name string, want int) {
		t.Helper()
		testwait.For(t, fmt.Sprintf("namespace %s to have %d owners", name, want), patience, func() (bool, string) {
			got := readNamespace(t, c, name).OwnerReferences
			return len(got) == want, fmt.Sprint(got)
		})
	}
	owners("gas-moved", 0)
	owners("gas-left", 1)
	if err := c.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	gone(t, c, other)
	owners("gas-left", 0)
	ours(t, c, "gas", "as it was", func(o *v1alpha1.Tenant) bool {
		return o.DeletionTimestamp.IsZero() && len(o.Spec.Owners) == 0 && *o.Spec.Namespaces.Quota == 1
	})
}

func TestPreventDeletion(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: kept}, spec: {preventDeletion: true}}")
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta1, kind: Tenant, metadata: {name: kept-too, annotations: {capsule.clastix.io/protected: ''}}, spec: {owners: []}}")
	for _, name := range []string{"kept", "kept-too"} {
		ours(t, c, name, "protected", func(o *v1alpha1.Tenant) bool { return o.Spec.Protected })
		// A policy takes about a second to take effect, so the deletion is a dry run.
		testwait.For(t, "the deletion to be refused", patience, func() (bool, string) {
			err := c.Delete(t.Context(), &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "preventDeletion"), "deletion is allowed"
		})
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	for name, tc := range map[string]struct{ reason, manifest string }{
		"webhook":    {"its webhooks refuse what Tenure makes", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: capsule-validating-webhook-configuration}, webhooks: []}"},
		"controller": {"two controllers would undo each other's work", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: capsule-controller-manager, namespace: default}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}"},
	} {
		apply(t, admin, tc.manifest)
		err := Preflight(t.Context(), c)
		if !errors.Is(err, ErrRuns) {
			t.Errorf("%s: %s: got %v", name, tc.reason, err)
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
		u.SetName("capsule-controller-manager")
		u.SetNamespace("default")
		if name == "webhook" {
			u.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"})
			u.SetName("capsule-validating-webhook-configuration")
			u.SetNamespace("")
		}
		if err := c.Delete(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		if err := Preflight(t.Context(), c); err != nil {
			t.Errorf("%s is gone, and still: %v", name, err)
		}
	}
}

// converted is a reader of a cluster in which Capsule's webhook converts its kinds.
type converted struct{ client.Reader }

func (c converted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := c.Reader.Get(ctx, key, o, opts...)
	if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == "CustomResourceDefinition" && err == nil {
		return unstructured.SetNestedField(u.Object, "Webhook", "spec", "conversion", "strategy")
	}
	return err
}

func TestPreflightConversion(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	if err := Preflight(t.Context(), converted{c}); !errors.Is(err, ErrRuns) || !strings.Contains(err.Error(), "strategy None") {
		t.Errorf("without Capsule nobody converts its kinds, and the error is %v", err)
	}
}
