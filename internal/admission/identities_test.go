package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A tenant in whose namespace two accounts own a tenant: one that is there, and one that
// is not yet. Beside them lives an account that everybody of the tenant may use.
const owningTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {LABELS}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec: {tenant: owning, ownerAccounts: [owner]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: owner, namespace: NAMESPACE, annotations: {example.com/role: x}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: helper, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-owners}
rules:
  - {apiGroups: [tenure.dev], resources: [tenants], resourceNames: [owning], verbs: [own]}
  - {apiGroups: [tenure.dev], resources: [tenantnamespaces], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-owners}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE-owners}
subjects:
  - {kind: ServiceAccount, name: owner, namespace: NAMESPACE}
  - {kind: ServiceAccount, name: later, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: owning, namespace: NAMESPACE}, {kind: ServiceAccount, name: owner, namespace: NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-secrets}
rules: [{apiGroups: [""], resources: [serviceaccounts], verbs: [patch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-secrets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE-secrets}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: NAMESPACE-secrets}]
`

// eachParameters runs a test in a namespace with parameters of its own and in one that
// the profile governs.
func eachParameters(t *testing.T, name string, test func(t *testing.T, namespace, labels string)) {
	t.Helper()
	for suffix, labels := range map[string]string{
		"own":     `tenure.dev/tenant: %s, tenure.dev/parameters: "true"`,
		"profile": "toolkit.fluxcd.io/tenant: %s",
	} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			test(t, name+"-"+suffix, fmt.Sprintf(labels, name))
		})
	}
}

// inNamespace is the account of a namespace, as a client.
func inNamespace(t *testing.T, restConfig *rest.Config, namespace, account string) client.Client {
	t.Helper()
	return newClient(t, restConfig, rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	})
}

// TestOwnerAccounts checks that only the platform uses an account that owns a tenant: no Pod may run as the
// account, and nobody else may request its token or change its labels and annotations.
func TestOwnerAccounts(t *testing.T) {
	t.Parallel()
	eachParameters(t, "owning", func(t *testing.T, namespace, labels string) {
		admin, _, restConfig := cluster(t)
		makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", namespace, "LABELS", labels).Replace(owningTenant), "---\n"))
		tenant, owner := inNamespace(t, restConfig, namespace, "owning"), inNamespace(t, restConfig, namespace, "owner")
		controller := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:masters"}})
		node := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "kubelet", Groups: []string{"system:nodes", "system:masters"}})
		operator := newClient(t, restConfig, rest.ImpersonationConfig{UserName: namespace + "-secrets", Groups: []string{"system:authenticated"}})
		manifest := func(format string, values ...any) *unstructured.Unstructured {
			u := parse(t, fmt.Sprintf(format, values...))
			u.SetNamespace(namespace)
			return u
		}
		create := func(c client.Client, format string, values ...any) error {
			return c.Create(t.Context(), manifest(format, values...), client.DryRunAll)
		}
		account := func(name string) *unstructured.Unstructured {
			return manifest("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s}}", name)
		}
		patch := func(c client.Client, u *unstructured.Unstructured, content string) error {
			return c.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(content)), client.DryRunAll)
		}
		token := func(c client.Client, name string) error {
			u := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			return c.SubResource("token").Create(t.Context(), u, &authenticationv1.TokenRequest{},
				client.DryRunAll)
		}
		const (
			pod        = "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {serviceAccountName: %s, containers: [{name: x, image: x}]}}"
			template   = "{metadata: {labels: {a: b}}, spec: {serviceAccountName: %s, restartPolicy: %s, containers: [{name: a, image: a}]}}"
			deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: " + template + "}}"
			replicaSet = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: " + template + "}}"
			cronJob    = "{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: '0 0 * * *', jobTemplate: {spec: {template: " + template + "}}}}"
			secret     = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, annotations: {kubernetes.io/service-account.name: %s}}}"
			annotation = `{"metadata":{"annotations":{"eks.amazonaws.com/role-arn":"x"}}}`

			given = "a token of owner, which owns a tenant, can be made by the platform only"
			held  = "ServiceAccount owner owns a tenant, and is made, changed and deleted by the platform and by itself only"
		)
		const runs = "as owner, which owns a tenant: make another account for it"
		// What Kubernetes makes is not held back by the rule about templates.
		before := strings.Replace(fmt.Sprintf(deployment, "owner", "Always"), "name: x}", "name: before}", 1)
		if err := controller.Create(t.Context(), manifest("%s", strings.Replace(before, "spec: {selector", "spec: {replicas: 0, selector", 1))); err != nil {
			t.Fatal(err)
		}
		testwait.For(t, "the account to own a tenant and the rule to be in force", patience, func() (bool, string) {
			err := create(tenant, pod, "owner")
			return err != nil && strings.Contains(err.Error(), runs), fmt.Sprint(err)
		})
		workloads := requester{admin: admin, account: tenant, namespace: namespace, reconciler: "owning"}
		for kind, change := range templates("serviceAccountName", `"owner"`) {
			if kind != "pods" {
				t.Run(kind, func(t *testing.T) { workloads.breaks(t, "tenure-owner-pods", kind, change) })
			}
		}
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"a Pod", create(tenant, pod, "owner"), "tenant owning: a Pod must not run " + runs},
			{"a Pod that a workload makes", create(controller, pod, "owner"), runs},
			{"the older field", create(tenant, strings.Replace(pod, "serviceAccountName", "serviceAccount", 1), "owner"), runs},
			{"a Pod of the owner's own", create(owner, pod, "owner"), runs},
			{"a Pod as another account", create(tenant, pod, "helper"), ""},
			{"a Pod as no account", create(tenant, "%s", strings.Replace(pod, "serviceAccountName: %s, ", "", 1)), ""},
			{"a Deployment", create(tenant, deployment, "owner", "Always"), "Deployment x must not run Pods " + runs},
			{"a Deployment as the reconciler", create(tenant, deployment, "owning", "Always"), "Deployment x must not run Pods as owning, which Flux applies as"},
			{"a Deployment as another account", create(tenant, deployment, "helper", "Always"), ""},
			{"a StatefulSet", create(tenant, strings.Replace(deployment, "Deployment", "StatefulSet", 1), "owner", "Always"), runs},
			{"a DaemonSet", create(tenant, strings.Replace(deployment, "Deployment", "DaemonSet", 1), "owner", "Always"), runs},
			{"a Job", create(tenant, "{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: "+template+"}}", "owner", "Never"), runs},
			{"a CronJob", create(tenant, cronJob, "owner", "Never"), runs},
			{"a PodTemplate", create(tenant, "{apiVersion: v1, kind: PodTemplate, metadata: {name: x}, template: "+template+"}", "owner", "Always"), runs},
			{"a ReplicationController", create(tenant, "{apiVersion: v1, kind: ReplicationController, metadata: {name: x}, spec: {selector: {a: b}, template: "+template+"}}", "owner", "Always"), runs},
			{"a ReplicaSet", create(tenant, replicaSet, "owner", "Always"), runs},
			{"a ReplicaSet that Kubernetes makes", create(controller, replicaSet, "owner", "Always"), ""},
			{"a Deployment from before", patch(tenant, manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: before}}"), `{"spec":{"minReadySeconds":1}}`), ""},
			{"its account, taken out", patch(tenant, manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: before}}"), `{"spec":{"template":{"spec":{"serviceAccountName":"helper","serviceAccount":null}}}}`), ""},

			{"a token", token(tenant, "owner"), given},
			{"a token of its own", token(owner, "owner"), given},
			{"a token of another account", token(tenant, "helper"), ""},
			{"the token of a Pod on a node", token(node, "owner"), ""},
			{"a token that the platform makes", token(admin, "owner"), ""},
			{"a Secret for a token", create(tenant, secret, "owner"), given},
			{"a Secret for a token of an account to come", create(tenant, secret, "later"), "a token of later"},
			{"a Secret for the token of another account", create(tenant, secret, "helper"), ""},
			{"a Secret for what is no account", create(tenant, secret, "'Owner!'"), ""},

			{"an annotation", patch(tenant, account("owner"), annotation), held},
			{"a label", patch(tenant, account("owner"), `{"metadata":{"labels":{"azure.workload.identity/use":"true"}}}`), held},
			{"a finalizer", patch(tenant, account("owner"), `{"metadata":{"finalizers":["foregroundDeletion"]}}`), held},
			{"an owner that takes it along", patch(tenant, account("owner"), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"6c54c8a5-7a3f-4a19-a4ce-9d2a8e2a4f50"}]}}`), held},
			{"pull secrets", patch(tenant, account("owner"), `{"imagePullSecrets":[{"name":"x"}]}`), held},
			{"taking it over by server-side apply", tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(manifest("{apiVersion: v1, kind: ServiceAccount, metadata: {name: owner, labels: {a: b}}}")), client.FieldOwner("x"), client.ForceOwnership, client.DryRunAll), held},
			{"keeping an annotation, by an apply of the same", tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(manifest("{apiVersion: v1, kind: ServiceAccount, metadata: {name: owner, annotations: {example.com/role: x}}}")), client.FieldOwner("x"), client.DryRunAll), held},
			{"nothing", patch(tenant, account("owner"), `{}`), ""},
			{"deleting it", tenant.Delete(t.Context(), account("owner"), client.DryRunAll), held},
			{"deleting all", tenant.DeleteAllOf(t.Context(), account("x"), client.InNamespace(namespace), client.DryRunAll), held},
			{"making the one to come", tenant.Create(t.Context(), account("later"), client.DryRunAll), "ServiceAccount later owns a tenant"},
			{"making another one", tenant.Create(t.Context(), account("x"), client.DryRunAll), ""},
			{"another account", patch(tenant, account("helper"), annotation), ""},
			{"its own annotation", patch(owner, account("owner"), annotation), ""},
			{"the platform annotates it", patch(admin, account("owner"), annotation), ""},
			{"an operator that may do so everywhere", patch(operator, account("owner"), annotation), ""},
			{"Kubernetes cleans up", newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{"system:masters"}}).Delete(t.Context(), account("owner"), client.DryRunAll), ""},
		} {
			t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
		}
	})
}

const sharingTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {LABELS}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec: {tenant: sharing}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: sharing, namespace: NAMESPACE}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: before, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'system:authenticated'}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-operator}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings, clusterroles], verbs: [create, bind]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE-operator}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: NAMESPACE-operator}]
`

// TestBroadBindings checks that a tenant gives rights in its namespace only to users, groups and accounts
// that it can name, and not to everybody.
func TestBroadBindings(t *testing.T) {
	t.Parallel()
	eachParameters(t, "sharing", func(t *testing.T, namespace, labels string) {
		admin, _, restConfig := cluster(t)
		makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", namespace, "LABELS", labels).Replace(sharingTenant), "---\n"))
		tenant := inNamespace(t, restConfig, namespace, "sharing")
		operator := newClient(t, restConfig, rest.ImpersonationConfig{UserName: namespace + "-operator", Groups: []string{"system:authenticated"}})
		binding := func(name string, subjects ...string) *unstructured.Unstructured {
			return parse(t, fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s, namespace: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [%s]}",
				name, namespace, strings.Join(subjects, ", ")))
		}
		group := func(name string) string {
			return "{kind: Group, apiGroup: rbac.authorization.k8s.io, name: '" + name + "'}"
		}
		user := func(name string) string {
			return "{kind: User, apiGroup: rbac.authorization.k8s.io, name: '" + name + "'}"
		}
		create := func(c client.Client, subjects ...string) error {
			return c.Create(t.Context(), binding("x", subjects...), client.DryRunAll)
		}
		const refused = "RoleBinding x must not give rights to Group system:authenticated: name people, groups of yours and service accounts"
		testwait.For(t, "the rule to be in force", patience, func() (bool, string) {
			err := create(tenant, group("system:authenticated"))
			return err != nil && strings.Contains(err.Error(), refused), fmt.Sprint(err)
		})
		before := binding("before", group("system:authenticated"))
		more := binding("before", group("system:authenticated"), group("system:unauthenticated"))
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"everybody who logs in", create(tenant, group("system:authenticated")), "tenant sharing: " + refused + " (of your own namespace, system:serviceaccounts:" + namespace + " is all)"},
			{"everybody who does not", create(tenant, group("system:unauthenticated")), "Group system:unauthenticated"},
			{"the user that stands for them", create(tenant, user("system:anonymous")), "User system:anonymous"},
			{"all accounts", create(tenant, group("system:serviceaccounts")), "Group system:serviceaccounts:"},
			{"all accounts of another namespace", create(tenant, group("system:serviceaccounts:hostile")), "Group system:serviceaccounts:hostile"},
			{"of one whose name begins alike", create(tenant, group("system:serviceaccounts:"+namespace+"-two")), "Group system:serviceaccounts:" + namespace + "-two"},
			{"all nodes", create(tenant, group("system:nodes")), "Group system:nodes"},
			{"beside somebody", create(tenant, user("bob"), group("system:authenticated")), refused},
			{"several", create(tenant, group("system:authenticated"), user("system:anonymous")), "Group system:authenticated, User system:anonymous"},
			{"by server-side apply", tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(binding("x", group("system:authenticated"))), client.FieldOwner("x"), client.ForceOwnership, client.DryRunAll), refused},
			{"people, a group of theirs and accounts", create(tenant, user("bob"), group("developers"), "{kind: ServiceAccount, name: app, namespace: "+namespace+"}", "{kind: ServiceAccount, name: prometheus, namespace: monitoring}"), ""},
			{"an account by its user name", create(tenant, user("system:serviceaccount:monitoring:prometheus")), ""},
			{"all accounts of its own", create(tenant, group("system:serviceaccounts:"+namespace)), ""},
			{"a binding from before", tenant.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll), ""},
			{"more of the same", tenant.Update(t.Context(), more, client.DryRunAll), "RoleBinding before must not give rights to Group system:unauthenticated:"},
			{"somebody less", tenant.Patch(t.Context(), before.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"subjects":[]}`)), client.DryRunAll), ""},
			{"deleted", tenant.Delete(t.Context(), before.DeepCopy(), client.DryRunAll), ""},
			{"by an admin", create(admin, group("system:authenticated")), ""},
			{"by an operator that may do so everywhere", create(operator, group("system:authenticated")), ""},
		} {
			t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
		}
	})
}

// A tenant has all verbs on network policies, roles and role bindings, and those of the
// platform stay: each object of a collection is looked at.
func TestPlatformsObjectsStay(t *testing.T) {
	t.Parallel()
	eachParameters(t, "kinds-kept", func(t *testing.T, namespace, labels string) {
		admin, _, restConfig := cluster(t)
		roleServed.Do(func() { serve(t, restConfig, config.Roles()) })
		tenant := tenantOfKinds(t, restConfig, namespace, strings.ReplaceAll(labels, "kinds-kept", "kinds"))
		for _, tc := range []struct{ apiVersion, kind, name, content string }{
			{"networking.k8s.io/v1", "NetworkPolicy", "platform", `{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`},
			{"rbac.authorization.k8s.io/v1", "Role", "platform", `{"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}`},
			{"rbac.authorization.k8s.io/v1", "RoleBinding", "tenure-reconciler", `{"subjects":[]}`},
		} {
			t.Run(tc.kind, func(t *testing.T) {
				t.Parallel()
				object := func() *unstructured.Unstructured {
					return parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}}", tc.apiVersion, tc.kind, tc.name, namespace))
				}
				before := object()
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
					t.Fatal(err)
				}
				patch := func(content string) error {
					return tenant.Patch(t.Context(), object(), client.RawPatch(types.MergePatchType, []byte(content)))
				}
				applied := object()
				applied.SetLabels(map[string]string{"a": "b"})
				foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
				held := tc.kind + " " + tc.name + " belongs to the platform"
				for reason, err := range map[string]error{
					"changing it":          patch(tc.content),
					"taking its label off": patch(`{"metadata":{"labels":null}}`),
					"taking it over":       tenant.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("x"), client.ForceOwnership),
					"deleting it":          tenant.Delete(t.Context(), object()),
					"deleting all":         tenant.DeleteAllOf(t.Context(), object(), client.InNamespace(namespace)),
					"deleting all later":   tenant.DeleteAllOf(t.Context(), object(), client.InNamespace(namespace), foreground),
				} {
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), held) {
						t.Errorf("%s: %v", reason, err)
					}
				}
				for _, label := range []string{"tenure.dev/managed-by: manager", "kustomize.toolkit.fluxcd.io/namespace: flux-system", "helm.toolkit.fluxcd.io/namespace: flux-system"} {
					pretender := parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: x, namespace: %s, labels: {%s}}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-flux-view}, spec: {podSelector: {}}}", tc.apiVersion, tc.kind, namespace, label))
					if tc.kind != "RoleBinding" {
						delete(pretender.Object, "roleRef")
					}
					if tc.kind != "NetworkPolicy" {
						delete(pretender.Object, "spec")
					}
					check(t, tenant.Create(t.Context(), pretender), "must not say in its labels that a Kustomization, HelmRelease or ResourceSet of the platform applied it")
				}
				after := object()
				if err := admin.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(after), after); err != nil || after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
					t.Errorf("the object is not what it was: %v", err)
				}
			})
		}
	})
}
