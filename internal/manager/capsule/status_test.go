package capsule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// provision writes the status of a Tenant of tenure.dev, as ready does, with the condition
// Provisioned.
func provision(t *testing.T, c client.Client, name string, status metav1.ConditionStatus, namespaces ...string) {
	t.Helper()
	tenant := ours(t, c, name, "there", func(*v1alpha1.Tenant) bool { return true })
	before := tenant.DeepCopy()
	tenant.Status = v1alpha1.TenantStatus{ObservedGeneration: tenant.Generation, Size: int32(len(namespaces)), Namespaces: namespaces}
	for _, kind := range []string{"Ready", "Provisioned"} {
		tenant.Status.Conditions = append(tenant.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "InPlace", Message: "as it is", LastTransitionTime: metav1.Now()})
	}
	if err := c.Status().Patch(t.Context(), tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func spaceHas(tenant *v1beta2.Tenant, kind string, status metav1.ConditionStatus, reason string) bool {
	if len(tenant.Status.Spaces) != 1 {
		return false
	}
	c := apimeta.FindStatusCondition(tenant.Status.Spaces[0].Conditions, kind)
	return c != nil && c.Status == status && c.Reason == reason
}

// TestStatus checks the parts of the status that clients of Capsule wait for.
func TestStatus(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	const tenant = "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: wind}, spec: {owners: [{kind: User, name: alice}], namespaceOptions: {additionalMetadata: {labels: {example.com/a: b}, annotations: {example.com/c: d}}}"
	apply(t, admin, tenant+"}}")
	first := theirs(t, c, "wind", "with all conditions", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Cordoned", metav1.ConditionFalse, "may make changes") && tt.Labels["kubernetes.io/metadata.name"] == "wind"
	})
	if diff := cmp.Diff([]v1beta2.StatusOwner{{Identity: v1beta2.Identity{Kind: "User", Name: "alice"}, ClusterRoles: []string{"admin", "capsule-namespace-deleter"}}}, first.Status.Owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	apply(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: wind-a, labels: {tenure.dev/tenant: wind, capsule.clastix.io/tenant: wind, example.com/a: b, mine: own}, annotations: {example.com/c: d}}}")
	provision(t, c, "wind", metav1.ConditionTrue, "wind-a")
	theirs(t, c, "wind", "without a namespace that waits for its parameters", func(tt *v1beta2.Tenant) bool {
		return apimeta.IsStatusConditionTrue(tt.Status.Conditions, "Ready") && len(tt.Status.Spaces) == 0 && tt.Status.Size == 0
	})
	ns := readNamespace(t, c, "wind-a")
	patched := ns.DeepCopy()
	metav1.SetMetaDataLabel(&patched.ObjectMeta, v1alpha1.LabelParameters, "true")
	if err := c.Patch(t.Context(), patched, client.MergeFrom(ns)); err != nil {
		t.Fatal(err)
	}
	got := theirs(t, c, "wind", "with a namespace that is ready", func(tt *v1beta2.Tenant) bool {
		return spaceHas(tt, "Ready", metav1.ConditionTrue, "Succeeded") && spaceHas(tt, "Cordoned", metav1.ConditionFalse, "Active")
	})
	ready := apimeta.FindStatusCondition(got.Status.Conditions, "Ready")
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != "Succeeded" {
		t.Errorf("condition Ready is %+v", ready)
	}
	want := v1beta2.TenantSpace{
		Name: "wind-a", UID: ns.UID, Conditions: got.Status.Spaces[0].Conditions,
		Metadata: &v1beta2.Metadata{Labels: map[string]string{"example.com/a": "b"}, Annotations: map[string]string{"example.com/c": "d"}},
	}
	if diff := cmp.Diff([]v1beta2.TenantSpace{want}, got.Status.Spaces); diff != "" {
		t.Errorf("spaces (-want +got):\n%s", diff)
	}
	if got.Status.Size != 1 || !slices.Equal(got.Status.Namespaces, []string{"wind-a"}) {
		t.Errorf("size is %d, namespaces are %v", got.Status.Size, got.Status.Namespaces)
	}
	provision(t, c, "wind", metav1.ConditionFalse, "wind-a")
	theirs(t, c, "wind", "with a namespace that failed", func(tt *v1beta2.Tenant) bool {
		return spaceHas(tt, "Ready", metav1.ConditionFalse, "Failed")
	})
	apply(t, admin, tenant+", cordoned: true}}")
	ours(t, c, "wind", "cordoned", func(o *v1alpha1.Tenant) bool { return o.Spec.Cordoned })
	theirs(t, c, "wind", "active until the namespace has its parameters", func(tt *v1beta2.Tenant) bool {
		return tt.Status.ObservedGeneration == tt.Generation && tt.Status.State == "Active" &&
			hasCondition(tt, "Cordoned", metav1.ConditionFalse, "may make changes") && spaceHas(tt, "Cordoned", metav1.ConditionFalse, "Active") && spaceHas(tt, "Ready", metav1.ConditionUnknown, "Progressing")
	})
	provision(t, c, "wind", metav1.ConditionTrue, "wind-a")
	theirs(t, c, "wind", "cordoned with its namespace", func(tt *v1beta2.Tenant) bool {
		return hasCondition(tt, "Cordoned", metav1.ConditionTrue, "must not make changes") && spaceHas(tt, "Cordoned", metav1.ConditionTrue, "Cordoned") && tt.Status.State == "Cordoned"
	})
}

// TestStatusClasses lists the classes that exist and that a Tenant allows, and follows them.
func TestStatusClasses(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	class := func(kind, name, labels, more string) string {
		return "{apiVersion: " + kind + ", metadata: {name: " + name + ", labels: {" + labels + "}}, " + more + "}"
	}
	apply(t, admin, class("storage.k8s.io/v1, kind: StorageClass", "tide-fast", "", "provisioner: x"))
	apply(t, admin, class("scheduling.k8s.io/v1, kind: PriorityClass", "tide-high", "tide: gold", "value: 1"))
	apply(t, admin, class("node.k8s.io/v1, kind: RuntimeClass", "tide-vm", "", "handler: x"))
	apply(t, admin, class("node.k8s.io/v1, kind: RuntimeClass", "calm-vm", "", "handler: x"))
	apply(t, admin, `{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: tide}, spec: {owners: [{kind: User, name: alice}], storageClasses: {allowed: [tide-fast, tide-none]}, priorityClasses: {matchLabels: {tide: gold}}}}`)
	tenant := theirs(t, c, "tide", "with its classes", func(tt *v1beta2.Tenant) bool {
		return slices.Equal(tt.Status.Classes.Storage, []string{"tide-fast"}) && slices.Equal(tt.Status.Classes.Priority, []string{"tide-high"})
	})
	if diff := cmp.Diff([]string{"tide-vm"}, tenant.Status.Classes.Runtime); diff != "" {
		t.Errorf("runtime classes, about which the TenancyProfile decides (-want +got):\n%s", diff)
	}
	apply(t, admin, class("scheduling.k8s.io/v1, kind: PriorityClass", "tide-low", "tide: gold", "value: 0"))
	theirs(t, c, "tide", "with the new class", func(tt *v1beta2.Tenant) bool {
		return slices.Equal(tt.Status.Classes.Priority, []string{"tide-high", "tide-low"})
	})
}

func readNamespace(t *testing.T, c client.Client, name string) *corev1.Namespace {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestReferences makes the Tenant an owner of its namespaces, and ends that when a namespace
// leaves the tenant: Kubernetes would delete it with the Tenant.
func TestReferences(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: rain}, spec: {owners: [{kind: User, name: alice}]}}")
	tenant := theirs(t, c, "rain", "there", func(tt *v1beta2.Tenant) bool { return hasCondition(tt, "Cordoned", metav1.ConditionFalse, "") })
	// The label alone makes no namespace the tenant's: the Tenant of tenure.dev lists those.
	for _, name := range []string{"rain-a", "rain-b", "rain-c"} {
		apply(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+", labels: {tenure.dev/tenant: rain, capsule.clastix.io/tenant: rain}}}")
	}
	provision(t, c, "rain", metav1.ConditionTrue, "rain-a", "rain-b")
	want := []metav1.OwnerReference{{APIVersion: "capsule.clastix.io/v1beta2", Kind: "Tenant", Name: "rain", UID: tenant.UID}}
	references := func(name, reason string, want []metav1.OwnerReference) {
		t.Helper()
		testwait.For(t, "namespace "+name+" "+reason, patience, func() (bool, string) {
			diff := cmp.Diff(want, readNamespace(t, c, name).OwnerReferences)
			return diff == "", diff
		})
	}
	references("rain-a", "with its Tenant as owner", want)
	references("rain-b", "with its Tenant as owner", want)
	if got := readNamespace(t, c, "rain-c").OwnerReferences; got != nil {
		t.Errorf("a namespace that the Tenant of tenure.dev does not list has owners %v", got)
	}
	for name, labels := range map[string]map[string]string{"rain-a": nil, "rain-b": {"capsule.clastix.io/tenant": "rain"}} {
		ns := readNamespace(t, c, name)
		released := ns.DeepCopy()
		released.Labels = labels
		if err := c.Patch(t.Context(), released, client.MergeFrom(ns)); err != nil {
			t.Fatal(err)
		}
		references(name, "without an owner", nil)
		if got := readNamespace(t, c, name); got.Labels["tenure.dev/tenant"] != "" || got.Annotations[AnnotationReference] != "" {
			t.Errorf("a released namespace has labels %v, annotations %v", got.Labels, got.Annotations)
		}
	}
	theirs(t, c, "rain", "without something to move", func(tt *v1beta2.Tenant) bool {
		return apimeta.FindStatusCondition(tt.Status.Conditions, "Moved") == nil
	})
}

// TestTenantOwner makes a TenantOwner an owner of the Tenants that select it, and ends that when
// it loses the label.
func TestTenantOwner(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	owner := func(labels string) {
		apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta2, kind: TenantOwner, metadata: {name: fog-devops, labels: {"+labels+"}}, spec: {kind: Group, name: fog-devops}}")
	}
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta2, kind: CapsuleConfiguration, metadata: {name: default}, spec: {}}")
	apply(t, admin, "{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, metadata: {name: fog}, spec: {owners: [{kind: User, name: alice, clusterRoles: [view]}], permissions: {matchOwners: [{matchLabels: {fog: devops}}]}}}")
	alice := v1alpha1.Owner{Kind: "User", Name: "alice", Roles: []string{"view"}}
	group := v1alpha1.Owner{Kind: "Group", Name: "fog-devops", Roles: []string{"admin", "capsule-namespace-deleter"}}
	owned := func(reason string, want ...v1alpha1.Owner) {
		t.Helper()
		ours(t, c, "fog", reason, func(o *v1alpha1.Tenant) bool { return cmp.Equal(want, o.Spec.Owners) })
		theirs(t, c, "fog", reason, func(tt *v1beta2.Tenant) bool { return len(tt.Status.Owners) == len(want) })
	}
	owned("with its own owner", alice)
	owner("fog: devops")
	owned("with the selected owner", alice, group)
	testwait.For(t, "the TenantOwner to list its Tenant", patience, func() (bool, string) {
		got := &v1beta2.TenantOwner{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "fog-devops"}, got); err != nil {
			return false, err.Error()
		}
		return apimeta.IsStatusConditionTrue(got.Status.Conditions, "Ready") && slices.Equal(got.Status.Tenants, []string{"fog"}), fmt.Sprintf("%+v", got.Status)
	})
	testwait.For(t, "the CapsuleConfiguration to list the TenantOwner", patience, func() (bool, string) {
		got := &v1beta2.CapsuleConfiguration{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "default"}, got); err != nil {
			return false, err.Error()
		}
		return slices.Contains(got.Status.Users, v1beta2.Identity{Kind: "Group", Name: "fog-devops"}), fmt.Sprintf("%+v", got.Status)
	})
	owner("fog: other")
	owned("without the owner that lost its label", alice)
}

// TestExpressionsRefused writes regular expressions that do not compile.
func TestExpressionsRefused(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t)
	write := func(kind, name, spec string) error {
		objects, err := flux.ReadObjects([]byte("{apiVersion: capsule.clastix.io/v1beta2, kind: " + kind + ", metadata: {name: " + name + "}, spec: {" + spec + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		return c.Create(t.Context(), objects[0], client.DryRunAll)
	}
	testwait.For(t, "the rule to be in force", patience, func() (bool, string) {
		err := write("Tenant", "snow", `containerRegistries: {allowedRegex: "a("}`)
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	for _, spec := range []string{
		`namespaceOptions: {forbiddenLabels: {deniedRegex: "a("}}`, `namespaceOptions: {forbiddenAnnotations: {deniedRegex: "a("}}`,
		`serviceOptions: {forbiddenLabels: {deniedRegex: "a("}}`, `serviceOptions: {forbiddenAnnotations: {deniedRegex: "a("}}`,
		`ingressOptions: {allowedClasses: {allowedRegex: "a("}}`, `ingressOptions: {allowedHostnames: {allowedRegex: "a("}}`,
		`gatewayOptions: {allowedClasses: {allowedRegex: "a("}}`, `storageClasses: {allowedRegex: "a("}`, `priorityClasses: {allowedRegex: "a("}`,
		`runtimeClasses: {allowedRegex: "a("}`, `deviceClasses: {allowedRegex: "a("}`,
		`rules: [{enforce: {workloads: {schedulers: [{exact: [b]}, {exp: "a("}]}}}]`, `rules: [{enforce: {workloads: {registries: [{exp: "a("}]}}}]`,
		`rules: [{enforce: {services: {externalNames: {hostnames: [{exp: "a("}]}}}}]`, `rules: [{permissions: {}}, {enforce: {ingress: {hostnames: [{exp: "a("}]}}}]`,
		`namespaceOptions: {requiredMetadata: {labels: {a: "a("}}}`, `namespaceOptions: {requiredMetadata: {annotations: {a: b, c: "a("}}}`,
	} {
		// The message is Capsule's for the fields with one expression. For others, the API server adds
		// the error of the expression.
		said := "unable to compile regex spec."
		if strings.HasPrefix(spec, "rules") || strings.Contains(spec, "requiredMetadata") {
			said = "is not a valid regular expression"
		}
		if err := write("Tenant", "snow", spec); err == nil || !strings.Contains(err.Error(), "tenure-capsule-expressions") || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: got %v, want it refused by the rule", spec, err)
		}
		if err := write("Tenant", "snow", strings.ReplaceAll(spec, "a(", "^a(b|c)$")); err != nil {
			t.Errorf("%s with an expression that compiles: %v", spec, err)
		}
	}
	for _, spec := range []string{`protectedNamespaceRegex: "a("`, `nodeMetadata: {forbiddenLabels: {deniedRegex: "a("}}`, `nodeMetadata: {forbiddenAnnotations: {deniedRegex: "a("}}`} {
		if err := write("CapsuleConfiguration", "snow", spec); err == nil || !strings.Contains(err.Error(), "tenure-capsule-expressions") {
			t.Errorf("%s: got %v, want it refused by the rule", spec, err)
		}
	}
	if err := write("Tenant", "snow", ""); err != nil {
		t.Errorf("a Tenant without expressions: %v", err)
	}
}
