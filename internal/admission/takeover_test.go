package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owners are owners of tenants. The owner of alpha has the rights that RBAC gives an owner. taker is also
// an owner, and RBAC allows it everything on namespaces, so that only the rules stop it. The group both
// owns two tenants. ci owns no tenant, and may create namespaces.
const owners = `
apiVersion: v1
kind: Namespace
metadata: {name: taken-alpha, labels: {tenure.dev/tenant: alpha, team: alpha}}
---
apiVersion: v1
kind: Namespace
metadata: {name: taken-beta, labels: {tenure.dev/tenant: beta}}
---
apiVersion: v1
kind: Namespace
metadata: {name: taken-nobody}
---
apiVersion: v1
kind: Namespace
metadata: {name: alpha-made, labels: {tenure.dev/tenant: alpha, tenure.dev/made-by: owner, given: x, kustomize.toolkit.fluxcd.io/name: apps}}
---
apiVersion: v1
kind: Namespace
metadata: {name: alpha-adopted, labels: {tenure.dev/tenant: alpha, tenure.dev/made-by: platform}}
---
apiVersion: v1
kind: Namespace
metadata: {name: beta-made, labels: {tenure.dev/tenant: beta, tenure.dev/made-by: owner}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: alpha, namespace: taken-alpha}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: alpha}
spec: {}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: beta}
spec: {}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "tenure:owners:alpha"}
rules:
  - {apiGroups: [""], resources: [namespaces], verbs: [create, patch]}
  - {apiGroups: [tenure.dev], resources: [tenants], resourceNames: [alpha], verbs: [get, own]}
  - {apiGroups: [tenure.dev], resources: [tenantnamespaces], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "tenure:owners:beta"}
rules:
  - {apiGroups: [""], resources: [namespaces], verbs: [create, patch]}
  - {apiGroups: [tenure.dev], resources: [tenants], resourceNames: [beta], verbs: [get, own]}
  - {apiGroups: [tenure.dev], resources: [tenantnamespaces], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "tenure:owners:alpha"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "tenure:owners:alpha"}
subjects: [{kind: User, name: owner}, {kind: User, name: taker}, {kind: User, name: free}, {kind: Group, name: both}, {kind: ServiceAccount, name: alpha, namespace: taken-alpha}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "tenure:owners:beta"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "tenure:owners:beta"}
subjects: [{kind: Group, name: both}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: taker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hostile-namespaces}
subjects: [{kind: User, name: taker}, {kind: User, name: ci}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: free-names}
rules: [{apiGroups: [tenure.dev], resources: [tenants], verbs: [name, label]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: free-names}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: free-names}
subjects: [{kind: User, name: taker}, {kind: User, name: free}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alpha, namespace: taken-alpha}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: alpha, namespace: taken-alpha}]
`

func user(t *testing.T, restConfig *rest.Config, name string, groups ...string) client.Client {
	t.Helper()
	return newClient(t, restConfig, rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")})
}

// taken is a namespace with labels, given as key and value in turn.
func taken(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	if _, ofTenant := ns.Labels[label]; ofTenant {
		// As the webhook has it.
		ns.Labels["tenure.dev/made-by"] = "owner"
	}
	return ns
}

// made is a namespace that says who made it.
func made(ns *corev1.Namespace, by string) *corev1.Namespace {
	ns.Labels["tenure.dev/made-by"] = by
	return ns
}

// unlabelled returns a namespace without a label.
func unlabelled(ns *corev1.Namespace, key string) *corev1.Namespace {
	delete(ns.Labels, key)
	return ns
}

// What stops an attempt.
const (
	byPolicy = "policy" // tenure-namespaces: without it the attempt succeeds
	byNames  = "names"  // tenure-namespace-names
	byRBAC   = "RBAC"   // an owner's role has no such right
	bySchema = "schema" // the API server's own checks
)

// attempt is one way to take, lose, rename or re-own a namespace.
type attempt struct {
	reason string
	// advisory is the published one whose flaw it was.
	advisory string
	control  string
	do       func(context.Context, client.Client) error
	want     string
}

func creating(ns *corev1.Namespace) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, ns.DeepCopy(), client.DryRunAll)
	}
}

func annotated(ns *corev1.Namespace, key string) *corev1.Namespace {
	ns.Annotations = map[string]string{key: "x"}
	return ns
}

func patching(name string, kind types.PatchType, content string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, taken(name), client.RawPatch(kind, []byte(content)), client.DryRunAll)
	}
}

func merging(name, content string) func(context.Context, client.Client) error {
	return patching(name, types.MergePatchType, content)
}

func subresource(name, sub, content string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.SubResource(sub).Patch(ctx, taken(name), client.RawPatch(types.MergePatchType, []byte(content)),
			client.DryRunAll)
	}
}

func applying(ns string) func(context.Context, client.Client) error {
	return patchingAs(ns, types.ApplyPatchType)
}

func patchingAs(manifest string, kind types.PatchType) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		name := strings.Fields(manifest[strings.Index(manifest, "name: ")+len("name: "):])[0]
		return c.Patch(ctx, taken(strings.Trim(name, "},")), client.RawPatch(kind, []byte(manifest)), client.DryRunAll, client.FieldOwner("kustomize-controller"), client.ForceOwnership)
	}
}

func deleting(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Delete(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

func finalizing(name string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		ns := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
			return err
		}
		ns.Spec.Finalizers = nil
		return c.SubResource("finalize").Update(ctx, ns, client.DryRunAll)
	}
}

const (
	whoseIs  = "assign it to a tenant"
	ownerRef = `{"metadata":{"ownerReferences":[{"apiVersion":"tenure.dev/v1alpha1","kind":"Tenant","name":"alpha","uid":"6c54c8a5-7a3f-4a19-a4ce-9d2a8e2a4f50"}]}}`
	label    = "tenure.dev/tenant"
)

// generated is a namespace whose name the API server chooses.
func generated(ns *corev1.Namespace, prefix string) *corev1.Namespace {
	ns.GenerateName = prefix
	return ns
}

func ownerReferenced(ns *corev1.Namespace) *corev1.Namespace {
	ns.OwnerReferences = []metav1.OwnerReference{{APIVersion: "tenure.dev/v1alpha1", Kind: "Tenant", Name: "beta", UID: "6c54c8a5-7a3f-4a19-a4ce-9d2a8e2a4f50"}}
	return ns
}

// attemptsByTaker are the attempts of an owner that RBAC does not limit.
func attemptsByTaker() []attempt {
	wedged, kept := taken("taken-new", label, "alpha"), taken("taken-new", label, "alpha")
	wedged.Finalizers = []string{"example.com/mine"}
	kept.Spec.Finalizers = []corev1.FinalizerName{"kubernetes", "example.com/mine"}
	chosen := taken("", label, "beta")
	chosen.GenerateName = "taken-"
	return []attempt{
		// Making one.
		{"a namespace outside of the tenant", "", byPolicy, creating(taken("taken-new")), "namespace taken-new needs the label tenure.dev/tenant with the name of a tenant that you own"},
		{"one with an empty label", "", byPolicy, creating(taken("taken-new", label, "")), "needs the label tenure.dev/tenant"},
		{"one of another tenant", "", byPolicy, creating(taken("taken-new", label, "beta")), "must not be made for tenant beta, which you do not own"},
		{"one whose name is chosen by the API server", "", byPolicy, creating(chosen), "must not be made for tenant beta"},
		{"one of a tenant that is not there", "", byPolicy, creating(taken("taken-new", label, "gamma")), "must not be made for tenant gamma"},
		{"the tenant's name in mixed case", "GHSA-gjw4-3v3v-rqxg", byPolicy, creating(taken("taken-new", label, "Alpha")), "must not be made for tenant Alpha"},
		{"a name that a regular expression would match", "GHSA-gjw4-3v3v-rqxg", byPolicy, creating(taken("taken-new", label, "a.pha")), "must not be made for tenant a.pha"},
		{"a name that begins like the tenant's", "GHSA-gjw4-3v3v-rqxg", byPolicy, creating(taken("taken-new", label, "alphabet")), "must not be made for tenant alphabet"},
		{"the label in mixed case", "GHSA-gjw4-3v3v-rqxg", byPolicy, creating(taken("taken-new", "tenure.dev/Tenant", "alpha")), "needs the label tenure.dev/tenant"},
		{"all tenants at once", "GHSA-gjw4-3v3v-rqxg", bySchema, creating(taken("taken-new", label, "*")), "must be an empty string or consist of"},
		{"one that is another's for Flux", "", byPolicy, creating(taken("taken-new", label, "alpha", "toolkit.fluxcd.io/tenant", "beta")), "must not name another tenant"},
		{"one that is another's for Capsule", "", byPolicy, creating(taken("taken-new", label, "alpha", "capsule.clastix.io/tenant", "beta")), "must not name another tenant"},
		{"one that is only Flux's", "", byPolicy, creating(taken("taken-new", "toolkit.fluxcd.io/tenant", "alpha")), "needs the label tenure.dev/tenant"},
		{"a name of Kubernetes'", "", byPolicy, creating(taken("kube-mine", label, "alpha")), "tenant alpha: namespace kube-mine must not have this name"},
		{"the end of the addresses of Services", "", byNames, creating(taken("svc", label, "alpha")), "tenant alpha: namespace svc must "},
		{"a protected name", "", byNames, creating(taken("protected-mine", label, "alpha")), "namespace protected-mine must not have this name"},
		{"a name of the platform's", "", byNames, creating(taken("platform-two", label, "alpha")), "namespace platform-two must not have this name"},
		{"a protected name in mixed case", "GHSA-gjw4-3v3v-rqxg", bySchema, creating(taken("Protected-mine", label, "alpha")), "must consist of lower case"},
		{"one that has parameters already", "", byPolicy, creating(taken("taken-new", label, "alpha", "tenure.dev/parameters", "true")), "leave out tenure.dev/parameters"},
		{"one without a Pod Security level", "", byPolicy, creating(taken("taken-new", label, "alpha", "pod-security.kubernetes.io/enforce", "privileged")), "leave out pod-security.kubernetes.io/enforce"},
		{"an old Pod Security level", "", byPolicy, creating(taken("taken-new", label, "alpha", "pod-security.kubernetes.io/enforce", "baseline", "pod-security.kubernetes.io/enforce-version", "v1.20")), "leave out pod-security.kubernetes.io/enforce-version"},
		{"access of admins to devices", "", byPolicy, creating(taken("taken-new", label, "alpha", "resource.kubernetes.io/admin-access", "true")), "leave out resource.kubernetes.io/admin-access"},
		{"a place in another tree", "", byPolicy, creating(taken("taken-new", label, "alpha", "beta.tree.hnc.x-k8s.io/depth", "1")), "leave out beta.tree.hnc.x-k8s.io/depth"},
		{"nodes of others", "", byPolicy, creating(annotated(taken("taken-new", label, "alpha"), "scheduler.alpha.kubernetes.io/node-selector")), "leave out scheduler.alpha.kubernetes.io/node-selector"},
		{"one that does not say who made it", "", byPolicy, creating(unlabelled(taken("taken-new", label, "alpha"), "tenure.dev/made-by")), "needs the label tenure.dev/made-by with the value owner"},
		{"one that says the platform made it", "", byPolicy, creating(made(taken("taken-new", label, "alpha"), "platform")), "needs the label tenure.dev/made-by with the value owner"},
		{"an owner that is another tenant", "", byPolicy, creating(ownerReferenced(taken("taken-new", label, "alpha"))), "must not have owners or finalizers"},
		{"one that cannot be deleted", "", byPolicy, creating(wedged), "must not have owners or finalizers"},
		{"one that cannot be emptied", "", byPolicy, creating(kept), "must not have owners or finalizers"},
		{"another tenant's by server-side apply", "", byPolicy, applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-new, labels: {tenure.dev/tenant: beta}}}`), "must not be made for tenant beta"},

		// Taking one.
		{"one of the system's, by its owner", "CVE-2024-39690", byPolicy, merging("kube-system", ownerRef), whoseIs},
		{"one of nobody's, by its owner", "CVE-2024-39690", byPolicy, merging("taken-nobody", ownerRef), whoseIs},
		{"another tenant's, by its owner", "CVE-2024-39690", byPolicy, merging("taken-beta", ownerRef), whoseIs},
		{"one of the system's, by label", "CVE-2025-55205", byPolicy, merging("kube-system", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), whoseIs},
		{"one of the system's, by a label without meaning", "CVE-2025-55205", byPolicy, merging("kube-system", `{"metadata":{"labels":{"x":"y"}}}`), whoseIs},
		{"one of nobody's, by label", "CVE-2025-55205", byPolicy, merging("taken-nobody", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), whoseIs},
		{"one of nobody's, by Capsule's label", "CVE-2025-55205", byPolicy, merging("taken-nobody", `{"metadata":{"labels":{"capsule.clastix.io/tenant":"alpha"}}}`), whoseIs},
		{"the platform's", "", byPolicy, merging("flux-system", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), whoseIs},
		{"another tenant's", "", byPolicy, merging("taken-beta", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), whoseIs},
		{"another tenant's, by JSON patch", "", byPolicy, patching("taken-beta", types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/tenure.dev~1tenant","value":"alpha"}]`), whoseIs},
		{"another tenant's, by strategic merge", "", byPolicy, patching("taken-beta", types.StrategicMergePatchType, `{"metadata":{"labels":{"$patch":"replace","tenure.dev/tenant":"alpha"}}}`), whoseIs},
		{"another tenant's, by server-side apply", "", byPolicy, applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-beta, labels: {tenure.dev/tenant: alpha}}}`), whoseIs},
		{"reading another tenant's by a patch of nothing", "", byPolicy, merging("taken-beta", `{}`), whoseIs},
		{"labels through the status", "CVE-2026-30963", byPolicy, subresource("taken-nobody", "status", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), whoseIs},
		{"the status of another tenant's", "CVE-2026-30963", byPolicy, subresource("taken-beta", "status", `{"status":{"conditions":[{"type":"x","status":"True"}]}}`), whoseIs},
		{"finalizing another tenant's", "CVE-2026-30963", byPolicy, finalizing("taken-beta"), whoseIs},
		{"finalizing one of nobody's", "CVE-2026-30963", byPolicy, finalizing("taken-nobody"), whoseIs},
		{"deleting another tenant's", "", byPolicy, deleting(taken("taken-beta")), "namespace taken-beta must not be deleted: it is not a namespace of a tenant that you own"},
		{"deleting one of nobody's", "", byPolicy, deleting(taken("taken-nobody")), "must not be deleted"},
		{"deleting all", "", bySchema, func(ctx context.Context, c client.Client) error {
			return c.DeleteAllOf(ctx, taken(""), client.DryRunAll)
		}, "the server does not allow this method"},

		// Losing, renaming and re-owning its own.
		{"its own without the label", "CVE-2022-46167", byPolicy, merging("taken-alpha", `{"metadata":{"labels":{"tenure.dev/tenant":null}}}`), whoseIs},
		{"its own without any label", "CVE-2022-46167", byPolicy, merging("taken-alpha", `{"metadata":{"labels":null}}`), whoseIs},
		{"keeping a label of its own, by an apply of the same", "", byPolicy, applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-alpha, labels: {team: alpha}}}`), whoseIs},
		{"its own as another tenant's", "CVE-2022-46167", byPolicy, merging("taken-alpha", `{"metadata":{"labels":{"tenure.dev/tenant":"beta"}}}`), whoseIs},
		{"its own with a second tenant", "", byPolicy, merging("taken-alpha", `{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":"beta"}}}`), whoseIs},
		{"its own as the platform's", "", byPolicy, merging("taken-alpha", `{"metadata":{"labels":{"tenure.dev/made-by":"platform"}}}`), whoseIs},
		{"its own with another owner", "CVE-2022-46167", byPolicy, merging("taken-alpha", ownerRef), whoseIs},
		{"its own without Pod Security", "", byPolicy, merging("taken-alpha", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), whoseIs},
		{"labels of its own through the status", "CVE-2026-30963", byPolicy, subresource("taken-alpha", "status", `{"metadata":{"labels":{"tenure.dev/tenant":null}}}`), whoseIs},
		{"finalizing its own", "CVE-2026-30963", byPolicy, finalizing("taken-alpha"), whoseIs},
		{"renaming its own", "", bySchema, merging("taken-alpha", `{"metadata":{"name":"taken-other"}}`), "does not match"},
	}
}

// attemptsByOwner are by an owner with the rights of one: what says who owns what.
func attemptsByOwner() []attempt {
	object := func(apiVersion, kind, name, more string) client.Object {
		u := parseOrPanic(fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: '%s'%s}}", apiVersion, kind, name, more))
		return u
	}
	patch := func(o client.Object, content string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(content)), client.DryRunAll)
		}
	}
	tenant := object("tenure.dev/v1alpha1", "Tenant", "alpha", "")
	role := object("rbac.authorization.k8s.io/v1", "ClusterRole", "tenure:owners:alpha", "")
	const forbidden = "is forbidden: User"
	return []attempt{
		{"a name that is not the tenant's", "", byNames, creating(taken("taken-new", label, "alpha")), "tenant alpha: namespace taken-new must have a name that begins with alpha-"},
		{"the tenant's name alone", "", byNames, creating(taken("alpha", label, "alpha")), "must have a name that begins with alpha-"},
		{"a top-level domain", "", byNames, creating(taken("com", label, "alpha")), "must have a name that begins with alpha-"},
		{"a component that is to come", "", byNames, creating(taken("cert-manager", label, "alpha")), "must have a name that begins with alpha-"},
		{"a name that the API server chooses", "", byNames, creating(generated(taken("", label, "alpha"), "taken-")), "must have a name that begins with alpha-"},
		{"by server-side apply", "", byNames, applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-new, labels: {tenure.dev/tenant: alpha, tenure.dev/made-by: owner}}}`), "must have a name that begins with alpha-"},
		{"an exemption from policies", "", byNames, creating(taken("alpha-new", label, "alpha", "admission.gatekeeper.sh/ignore", "x")), "not among those which owners choose: leave out admission.gatekeeper.sh/ignore"},
		{"the label of a control plane", "", byNames, creating(taken("alpha-new", label, "alpha", "control-plane", "x")), "leave out control-plane"},
		{"a label that nobody has heard of", "", byNames, creating(taken("alpha-new", label, "alpha", "shared-gateway-access", "true")), "leave out shared-gateway-access"},
		{"a label that reads like one that is listed", "GHSA-gjw4-3v3v-rqxg", byNames, creating(taken("alpha-new", label, "alpha", "kustomize.toolkit.fluxcd.iox/name", "x")), "leave out kustomize.toolkit.fluxcd.iox/name"},
		{"a project of others", "", byNames, creating(annotated(taken("alpha-new", label, "alpha"), "field.cattle.io/projectId")), "leave out field.cattle.io/projectId"},
		{"to look as if the platform applied it", "", byNames, creating(taken("alpha-new", label, "alpha", "kustomize.toolkit.fluxcd.io/namespace", "flux-system")), "must not say in its labels that a Kustomization, HelmRelease or ResourceSet of the platform applied it"},
		{"its own quota in the Tenant", "", byRBAC, patch(tenant, `{"spec":{"namespaces":{"quota":100}}}`), forbidden},
		{"reservations in the Tenant's status", "", byRBAC, func(ctx context.Context, c client.Client) error {
			return c.SubResource("status").Patch(ctx, tenant.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespaces":[]}}`)))
		}, forbidden},
		{"deleting another Tenant", "", byRBAC, deleting(object("tenure.dev/v1alpha1", "Tenant", "beta", "")), forbidden},
		{"the names that the profile keeps", "", byRBAC, patch(object("tenure.dev/v1alpha1", "TenancyProfile", "default", ""), `{"spec":{"protectedNamespaces":[]}}`), forbidden},
		{"owning another tenant", "", byRBAC, patch(role, `{"rules":[{"apiGroups":["tenure.dev"],"resources":["tenants"],"verbs":["own"]}]}`), forbidden},
		{"being bound to another tenant", "", byRBAC, patch(object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "tenure:owners:beta", ""), `{"subjects":[{"kind":"User","name":"owner"}]}`), forbidden},
		{"the rule itself", "", byRBAC, deleting(object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "tenure-namespaces", "")), forbidden},
		{"the webhook", "", byRBAC, deleting(object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "tenure-namespaces", "")), forbidden},
		{"deleting another tenant's namespace", "", byRBAC, deleting(taken("taken-beta")), forbidden},
		{"another tenant's namespace, with the rights of Flux's user", "CVE-2025-55205", byPolicy, applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-beta, labels: {tenure.dev/tenant: alpha}}}`), whoseIs},
	}
}

// TestTakeover tries each way, and that each is stopped by the control that is
// named: without the policy, the ones that it stops succeed.
func TestTakeover(t *testing.T) {
	admin, _, restConfig := cluster(t)
	taker, owner := user(t, restConfig, "taker"), user(t, restConfig, "owner")
	type by struct {
		attempt
		client client.Client
	}
	var all []by
	for _, a := range attemptsByTaker() {
		all = append(all, by{a, taker})
	}
	for _, a := range attemptsByOwner() {
		all = append(all, by{a, owner})
	}
	advisories := map[string]bool{}
	for _, a := range all {
		t.Run(a.reason, func(t *testing.T) { check(t, a.do(t.Context(), a.client), a.want) })
		advisories[a.advisory] = true
	}
	for _, advisory := range []string{"CVE-2022-46167", "CVE-2024-39690", "CVE-2025-55205", "CVE-2026-30963", "GHSA-gjw4-3v3v-rqxg"} {
		if !advisories[advisory] {
			t.Errorf("no attempt is about %s", advisory)
		}
	}

	inForce := func(action admissionregistrationv1.ValidationAction) {
		enforce(t, admin, "tenure-namespaces", action)
		testwait.For(t, "the policy to "+string(action), patience, func() (bool, string) {
			err := all[0].do(context.WithoutCancel(t.Context()), taker)
			return (err != nil) == (action == admissionregistrationv1.Deny), fmt.Sprint(err)
		})
	}
	inForce(admissionregistrationv1.Audit)
	defer inForce(admissionregistrationv1.Deny)
	for _, a := range all {
		t.Run("without the policy, "+a.reason, func(t *testing.T) {
			if err := a.do(t.Context(), a.client); (err == nil) != (a.control == byPolicy) {
				t.Errorf("the control is %s, and without the policy the attempt ends with: %v", a.control, err)
			}
		})
	}
}

// TestServiceDomain checks that no owner makes the namespace svc, even where the profile allows all names.
func TestServiceDomain(t *testing.T) {
	admin, _, restConfig := cluster(t)
	taker := user(t, restConfig, "taker")
	make := func(name string) error {
		return creating(taken(name, label, "alpha"))(context.WithoutCancel(t.Context()), taker)
	}
	inForce := func(action admissionregistrationv1.ValidationAction) {
		enforce(t, admin, "tenure-namespace-names", action)
		testwait.For(t, "the names of namespaces to "+string(action), patience, func() (bool, string) {
			err := make("protected-mine")
			return (err != nil) == (action == admissionregistrationv1.Deny), fmt.Sprint(err)
		})
	}
	inForce(admissionregistrationv1.Audit)
	defer inForce(admissionregistrationv1.Deny)
	check(t, make("svc"), "tenant alpha: namespace svc must not have this name")
}

// enforce changes what a binding does.
func enforce(t *testing.T, admin client.Client, name string, action admissionregistrationv1.ValidationAction) {
	t.Helper()
	b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Appendf(nil, `{"spec":{"validationActions":[%q]}}`, action)
	if err := admin.Patch(context.WithoutCancel(t.Context()), b, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// TestNamespacesOfOwners checks the requests of owners and of other users.
func TestNamespacesOfOwners(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	owner, both, ci := user(t, restConfig, "owner"), user(t, restConfig, "somebody", "both"), user(t, restConfig, "ci")
	account := user(t, restConfig, "system:serviceaccount:taken-alpha:alpha", "system:serviceaccounts", "system:serviceaccounts:taken-alpha")
	born := taken("alpha-new", label, "alpha", "capsule.clastix.io/tenant", "alpha", "pod-security.kubernetes.io/enforce", "restricted",
		"pod-security.kubernetes.io/enforce-version", "latest", "app.kubernetes.io/managed-by", "flux", "kustomize.toolkit.fluxcd.io/name", "apps", "kustomize.toolkit.fluxcd.io/namespace", "taken-alpha")
	for _, tc := range []struct {
		reason string
		do     func(context.Context, client.Client) error
		by     client.Client
		want   string
	}{
		{"an owner makes one of its tenant", creating(taken("alpha-new", label, "alpha")), owner, ""},
		{"with labels that give nothing away", creating(born), owner, ""},
		{"one whose Tenant lets it choose names and labels", creating(taken("web-new", label, "alpha", "team", "a")), user(t, restConfig, "free"), ""},
		{"but not the end of an internet address", creating(taken("com", label, "alpha")), user(t, restConfig, "free"), "must have a name that begins with alpha-"},
		{"nor one in other letters", creating(taken("xn--p1ai", label, "alpha")), user(t, restConfig, "free"), "must have a name that begins with alpha-"},
		{"nor a protected one", creating(taken("protected-mine", label, "alpha")), user(t, restConfig, "free"), "must not have this name"},
		{"nor what Kubernetes decides by", creating(taken("alpha-new", label, "alpha", "resource.kubernetes.io/admin-access", "true")), user(t, restConfig, "free"), "leave out resource.kubernetes.io/admin-access"},
		{"by Git, as the tenant's account", applying(`{apiVersion: v1, kind: Namespace, metadata: {name: alpha-new, labels: {tenure.dev/tenant: alpha, tenure.dev/made-by: owner, kustomize.toolkit.fluxcd.io/name: apps}}}`), account, ""},
		{"applying the name, which Kubernetes sets", applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-alpha, labels: {kubernetes.io/metadata.name: taken-alpha}}}`), account, ""},
		{"applying again what is there", applying(`{apiVersion: v1, kind: Namespace, metadata: {name: taken-alpha, labels: {tenure.dev/tenant: alpha}}}`), account, ""},
		{"an owner of two tenants, for the one", creating(taken("alpha-new", label, "alpha")), both, ""},
		{"and for the other", creating(taken("beta-new", label, "beta")), both, ""},
		{"but not for a third", creating(taken("gamma-new", label, "gamma")), both, "which you do not own"},
		{"nor for both", creating(taken("alpha-new", label, "alpha", "toolkit.fluxcd.io/tenant", "beta")), both, "must not name another tenant"},
		{"an owner changes a label that the profile lists", merging("alpha-made", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"web"}}}`), owner, ""},
		{"and takes it off", merging("alpha-made", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":null}}}`), owner, ""},
		{"and an annotation", merging("alpha-made", `{"metadata":{"annotations":{"meta.helm.sh/release-name":"web"}}}`), owner, ""},
		{"but none that nobody lists", merging("alpha-made", `{"metadata":{"labels":{"control-plane":"x"},"annotations":{"a":"b"}}}`), owner, "must not have labels and annotations that are not among those which owners choose: leave out control-plane, a"},
		{"nor takes off one that was given", merging("alpha-made", `{"metadata":{"labels":{"given":null}}}`), owner, "leave out given"},
		{"nor says that the platform applied it", merging("alpha-made", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/namespace":"flux-system"}}}`), owner, "of the platform applied it"},
		{"unless its Tenant lists labels", merging("alpha-made", `{"metadata":{"labels":{"control-plane":"x"}}}`), user(t, restConfig, "free"), ""},
		{"also those below Capsule's domain that Capsule does not use", merging("alpha-made", `{"metadata":{"labels":{"acme.capsule.clastix.io/team":"x"}}}`), user(t, restConfig, "free"), ""},
		{"but none that Capsule uses", merging("alpha-made", `{"metadata":{"annotations":{"clusterrolenames.capsule.clastix.io/0":"x"}}}`), user(t, restConfig, "free"), "must keep the labels and annotations that the platform decides on: clusterrolenames.capsule.clastix.io/0"},
		{"but never what the platform decides on", merging("alpha-made", `{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`), user(t, restConfig, "free"), "must keep the labels and annotations that the platform decides on: resource.kubernetes.io/admin-access"},
		{"nor its level", merging("alpha-made", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), owner, "must keep the labels and annotations that the platform decides on"},
		{"nor its tenant", merging("alpha-made", `{"metadata":{"labels":{"tenure.dev/tenant":"beta"}}}`), both, "must keep the labels and annotations that the platform decides on: tenure.dev/tenant"},
		{"nor who made it", merging("alpha-made", `{"metadata":{"labels":{"tenure.dev/made-by":null}}}`), owner, "tenure.dev/made-by"},
		{"nor an owner reference", merging("alpha-made", `{"metadata":{"ownerReferences":[{"apiVersion":"capsule.clastix.io/v1beta2","kind":"Tenant","name":"beta","uid":"x"}]}}`), owner, whoseIs},
		{"nor a finalizer", merging("alpha-made", `{"metadata":{"finalizers":["example.com/x"]}}`), owner, whoseIs},
		{"nor a namespace of another tenant", merging("beta-made", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"web"}}}`), owner, "it is not a namespace of a tenant that you own"},
		{"nor reads it with a patch that changes nothing", merging("beta-made", `{"metadata":{"labels":{"tenure.dev/made-by":"owner"}}}`), owner, "it is not a namespace of a tenant that you own"},
		{"nor one that the platform made", merging("taken-alpha", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"web"}}}`), owner, whoseIs},
		{"nor one that the platform has adopted", merging("alpha-adopted", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"web"}}}`), owner, whoseIs},
		{"nor one of nobody's", merging("taken-nobody", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"web"}}}`), owner, whoseIs},
		{"a program that owns nothing changes no tenant's", merging("alpha-made", `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"web"}}}`), ci, whoseIs},
		{"an account with all rights in its namespace deletes it", deleting(taken("taken-alpha")), account, ""},
		{"a program that owns nothing makes what it likes", creating(taken("taken-new", "control-plane", "x")), ci, ""},
		{"and changes it", merging("taken-nobody", `{"metadata":{"labels":{"x":"y"}}}`), ci, ""},
		{"and deletes it", deleting(taken("taken-nobody")), ci, ""},
		{"and tenants' as well, which RBAC decides", deleting(taken("taken-beta")), ci, ""},
		{"but makes none for a tenant", creating(taken("taken-new", label, "alpha")), ci, whoseIs},
		{"nor gives it one", merging("taken-nobody", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), ci, whoseIs},
		{"the platform makes what it likes", creating(taken("kube-new", label, "gamma", "tenure.dev/parameters", "true", "toolkit.fluxcd.io/tenant", "beta")), admin, ""},
		{"and gives it to another", merging("taken-nobody", `{"metadata":{"labels":{"tenure.dev/tenant":"alpha"}}}`), admin, ""},
		{"Kubernetes makes its own", creating(taken("kube-new")), user(t, restConfig, "system:apiserver", "system:masters"), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.do(t.Context(), tc.by), tc.want) })
	}
}
