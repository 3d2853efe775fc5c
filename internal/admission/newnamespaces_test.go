package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newTenant are objects in a tenant's namespace that has no parameters yet. The user yara has all rights there.
const newTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {LABEL: young}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: there, namespace: NAMESPACE, finalizers: [example.com/before]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: plain, namespace: NAMESPACE}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: theirs, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: theirs, namespace: NAMESPACE, finalizers: [example.com/before], labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: managers, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
  - {kind: User, apiGroup: rbac.authorization.k8s.io, name: yara}
  - {kind: ServiceAccount, name: young, namespace: flux-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAMESPACE-issuer}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE-issuer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAMESPACE-issuer}
subjects: [{kind: ServiceAccount, name: young-issuer, namespace: certificates}]
---
apiVersion: v1
kind: Pod
metadata: {name: old, namespace: NAMESPACE}
spec: {nodeName: nowhere, restartPolicy: Never, containers: [{name: a, image: a}]}
`

// newParameters are the parameters of the namespace of newTenant.
const newParameters = `
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec: {tenant: young, platformNamespaces: [flux-system], tenants: {bounds: {finalizers: [operator.example.com/served]}}}
`

// TestNewNamespaces sends requests in tenants' namespaces that have no parameters yet: nothing in them
// blocks the deletion of the namespace for ever, nothing new passes for the platform's, and the platform's
// objects stay as they are.
func TestNewNamespaces(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	as := func(name string, groups ...string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")})
	}
	tenant, issuer := as("yara"), as("system:serviceaccount:certificates:young-issuer")
	sync := as("system:serviceaccount:flux-system:young")
	for _, label := range []string{"tenure.dev/tenant", "toolkit.fluxcd.io/tenant", "capsule.clastix.io/tenant"} {
		namespace := "young-" + strings.NewReplacer(".", "-", "/", "-").Replace(label)
		makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", namespace, "LABEL", label).Replace(newTenant), "---\n"))
		const (
			lease, configMap = "apiVersion: coordination.k8s.io/v1, kind: Lease", "apiVersion: v1, kind: ConfigMap"
			claim            = "apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"
			budget           = "apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}"
			template         = "apiVersion: v1, kind: PodTemplate, template: {metadata: {%s}, spec: {containers: [{name: a, image: a}]}}"
			foreign          = "finalizers: [example.com/x]"
			platforms        = "labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}"
			releases         = "labels: {helm.toolkit.fluxcd.io/name: tenants, helm.toolkit.fluxcd.io/namespace: flux-system}"
			managers         = "labels: {tenure.dev/managed-by: manager}"
			own              = "labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: NAMESPACE}"
			pod              = "apiVersion: v1, kind: Pod, spec: {terminationGracePeriodSeconds: %d, containers: [{name: a, image: a}]}"
			isHeld           = "must not have finalizers that are not allowed: leave out metadata.finalizers, or try again in some seconds"
			inTemplate       = "must not have finalizers in its templates"
			forged           = "must not say in its labels"
			theirs           = "theirs has the labels of an object of the platform: ask the platform team to change it in its repository, or try again in some seconds"
		)
		create := func(kind, metadata string) func(client.Client) error {
			text := strings.ReplaceAll("{"+kind+", metadata: {name: new, namespace: NAMESPACE, "+metadata+"}}", "NAMESPACE", namespace)
			return func(c client.Client) error { return c.Create(t.Context(), parse(t, text), client.DryRunAll) }
		}
		named := func(kind, name string) *unstructured.Unstructured {
			return parse(t, "{"+kind+", metadata: {name: "+name+", namespace: "+namespace+"}}")
		}
		patch := func(kind, name, content string) func(client.Client) error {
			return func(c client.Client) error {
				return c.Patch(t.Context(), named(kind, name), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{`+content+`}}`)), client.DryRunAll)
			}
		}
		remove := func(seconds int64) func(client.Client) error {
			return func(c client.Client) error {
				return c.Delete(t.Context(), named("apiVersion: v1, kind: Pod", "old"), client.GracePeriodSeconds(seconds), client.DryRunAll)
			}
		}
		removeKind := func(kind, name string) func(client.Client) error {
			return func(c client.Client) error { return c.Delete(t.Context(), named(kind, name), client.DryRunAll) }
		}
		empty := func(kind string) func(client.Client) error {
			return func(c client.Client) error {
				return c.DeleteAllOf(t.Context(), named(kind, "''"), client.InNamespace(namespace), client.DryRunAll)
			}
		}
		change := func(content string) func(client.Client) error {
			return func(c client.Client) error {
				return c.Patch(t.Context(), named(budget, "theirs"), client.RawPatch(types.MergePatchType, []byte(content)), client.DryRunAll)
			}
		}
		apply := func(c client.Client) error {
			u := named(budget, "theirs")
			return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("mine"), client.ForceOwnership, client.DryRunAll)
		}
		testwait.For(t, "the tenant to have its rights, and the rule to be in force", patience, func() (bool, string) {
			err := create(lease, foreign)(tenant)
			return err != nil && strings.Contains(err.Error(), "tenant young: Lease new "+isHeld), fmt.Sprint(err)
		})
		for _, tc := range []struct {
			reason string
			who    client.Client
			what   func(client.Client) error
			says   string
		}{
			{"nothing special", tenant, create(lease, "labels: {a: b}"), ""},
			{"a kind that the policy with the profile covers", tenant, create(configMap, foreign), isHeld},
			{"a kind that no other rule is about", tenant, create(budget, foreign), isHeld},
			{"a finalizer of Kubernetes", tenant, create(lease, "finalizers: [foregroundDeletion]"), ""},
			{"a finalizer that Kubernetes adds to claims", tenant, create(claim, ""), ""},
			{"a finalizer that the parameters will allow", tenant, create(lease, "finalizers: [operator.example.com/served]"), isHeld},
			{"another finalizer later", tenant, patch(configMap, "there", `"finalizers":["example.com/before","example.com/x"]`), isHeld},
			{"a finalizer on an object without one", tenant, patch(lease, "plain", `"finalizers":["example.com/x"]`), isHeld},
			{"the finalizer from before, kept", tenant, patch(configMap, "there", `"labels":{"a":"b"}`), ""},
			{"the finalizer from before, taken off", tenant, patch(configMap, "there", `"finalizers":null`), ""},
			{"a template with a finalizer", tenant, create(fmt.Sprintf(template, foreign), ""), inTemplate},
			{"a template", tenant, create(fmt.Sprintf(template, "labels: {a: b}"), ""), ""},
			{"a Pod that ends in years", tenant, create(fmt.Sprintf(pod, 90000), ""), "seconds to end"},
			{"a Pod", tenant, create(fmt.Sprintf(pod, 30), ""), ""},
			{"a deleted Pod that ends in years", tenant, remove(90000), "seconds to end"},
			{"a deleted Pod", tenant, remove(0), ""},
			{"labels of the platform's objects", tenant, create(lease, platforms), forged},
			{"labels of the objects of a release", tenant, create(lease, releases), forged},
			{"the label of the manager's objects", tenant, create(lease, managers), forged},
			{"labels of the platform's objects later", tenant, patch(lease, "plain", `"labels":{"kustomize.toolkit.fluxcd.io/namespace":"flux-system"}`), forged},
			{"labels of the platform's objects in a template", tenant, create(fmt.Sprintf(template, platforms), ""), forged},
			{"labels of a sync of the tenant's own", tenant, create(lease, own), ""},
			{"a change of an object of the platform", tenant, change(`{"spec":{"minAvailable":0}}`), theirs},
			{"one more annotation of it", tenant, patch(budget, "theirs", `"annotations":{"a":"b"}`), theirs},
			{"no labels of the platform any more", tenant, patch(budget, "theirs", `"labels":null`), theirs},
			{"another field manager of it", tenant, apply, theirs},
			{"a change of an object of a kind without a spec here", tenant, patch(lease, "theirs", `"annotations":{"a":"b"}`), theirs},
			{"its deletion", tenant, removeKind(budget, "theirs"), theirs},
			{"the deletion of all of its kind", tenant, empty(budget), "has the labels of an object of the platform"},
			{"a change of an object of the manager", tenant, patch(budget, "managers", `"annotations":{"a":"b"}`), "managers has the labels of an object of the platform"},
			{"the deletion of an object of the manager", tenant, removeKind(budget, "managers"), "managers has the labels of an object of the platform"},
			{"a request to reconcile it", tenant, patch(budget, "theirs", `"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}`), ""},
			{"without a finalizer, which a controller of the tenant removes", tenant, patch(budget, "theirs", `"finalizers":null`), ""},
			{"its own object, deleted", tenant, removeKind(lease, "plain"), ""},
			{"a sync of the platform's namespace changes its object", sync, change(`{"spec":{"minAvailable":0}}`), ""},
			{"and deletes it", sync, removeKind(budget, "theirs"), ""},
			{"it does not delete the manager's", sync, removeKind(budget, "managers"), "managers has the labels of an object of the platform"},
			{"a controller that may change the kind everywhere", issuer, patch(lease, "theirs", `"annotations":{"a":"b"}`), ""},
			{"a controller of Kubernetes deletes it", as("system:serviceaccount:kube-system:generic-garbage-collector", "system:masters"), removeKind(budget, "theirs"), ""},
			{"an admin deletes it", admin, removeKind(budget, "theirs"), ""},
			{"a sync of the platform's namespace sets its labels", sync, create(lease, platforms), ""},
			{"it does not set the manager's", sync, create(lease, managers), forged},
			{"it sets no finalizer either", sync, create(lease, foreign), isHeld},
			{"a controller that may do so everywhere", issuer, create(lease, foreign), ""},
			{"a controller of Kubernetes", as("system:serviceaccount:kube-system:job-controller", "system:masters"), create(configMap, foreign), ""},
			{"an admin", admin, create(lease, foreign), ""},
			{"the manager", as(admission.ManagerUser, "system:masters"), create(configMap, managers), ""},
		} {
			t.Run(label+": "+tc.reason, func(t *testing.T) {
				decided(t, tc.what(tc.who), tc.says != "", tc.says)
			})
		}
		// Once the namespace has its parameters, they decide.
		makeAll(t, admin, []string{strings.ReplaceAll(newParameters, "NAMESPACE", namespace)})
		labelled := func(value string) {
			t.Helper()
			ns := parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
			if err := admin.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tenure.dev/parameters":`+value+`}}}`))); err != nil {
				t.Fatal(err)
			}
		}
		labelled(`"true"`)
		served := create(lease, "finalizers: [operator.example.com/served]")
		testwait.For(t, "the parameters to decide", patience, func() (bool, string) {
			err := served(tenant)
			return err == nil, fmt.Sprint(err)
		})
		decided(t, create(lease, foreign)(tenant), true, "(rule tenure-contents)")
		// The manager removes the label from a namespace that is being deleted, and during its own
		// uninstallation.
		labelled("null")
		testwait.For(t, "the rule to be in force again", patience, func() (bool, string) {
			err := patch(lease, "plain", `"finalizers":["operator.example.com/served"]`)(tenant)
			return err != nil && strings.Contains(err.Error(), isHeld), fmt.Sprint(err)
		})
		decided(t, create(lease, foreign)(tenant), true, isHeld)
		decided(t, change(`{"spec":{"minAvailable":0}}`)(tenant), true, theirs)
		// When the namespace is being deleted, all of its objects are.
		deleteNamespace(t, admin, namespace)
		testwait.For(t, "the API server to know that the namespace is being deleted", patience, func() (bool, string) {
			err := change(`{"spec":{"minAvailable":0}}`)(tenant)
			return err == nil, fmt.Sprint(err)
		})
		decided(t, removeKind(budget, "theirs")(tenant), false, "")
		namespaceGoes(t, admin, namespace)
	}
}

func deleteNamespace(t *testing.T, admin client.Client, namespace string) {
	t.Helper()
	if err := admin.Delete(t.Context(), parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")); err != nil {
		t.Fatal(err)
	}
}

// namespaceGoes removes what holds up the deletion of the namespace of newTenant, and waits until Kubernetes has
// removed it.
func namespaceGoes(t *testing.T, admin client.Client, namespace string) {
	t.Helper()
	for _, kind := range []string{"apiVersion: v1, kind: ConfigMap, metadata: {name: there", "apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: theirs"} {
		kept := parse(t, "{"+kind+", namespace: "+namespace+"}}")
		if err := admin.Patch(t.Context(), kept, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	pod := parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: old, namespace: "+namespace+"}}")
	if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	ns := parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")
	testwait.For(t, "the namespace to be gone", patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
