package admission_test

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/flux"
)

// Objects of many kinds in a tenant's namespace that the platform's syncs applied, and
// one that a sync applied which the platform delegated to the tenant. Two accounts of the
// platform's namespace apply tenants' repositories.
const platformMade = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {replicas: 0, selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: agent, namespace: NAMESPACE, labels: {helm.toolkit.fluxcd.io/name: agent, helm.toolkit.fluxcd.io/namespace: platform-two}}
spec: {clusterIP: None}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: agent, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {minAvailable: 0, selector: {matchLabels: {app: agent}}}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: delegated, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: delegate, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: delegate, namespace: flux-system}, {kind: ServiceAccount, name: kustomize-controller, namespace: flux-system}]
`

// What the platform applied stays as it is, of every kind and by every way, whether the
// namespace has parameters of its own or not; what a delegated sync applied is the
// tenant's.
func TestManagedKinds(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	as := func(user string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"}})
	}
	delegate, controller := as("system:serviceaccount:flux-system:delegate"), as("system:serviceaccount:flux-system:kustomize-controller")
	const belongs, forged = "belongs to the platform", "must not say in its labels"
	dryRun := &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}}
	for _, namespace := range []string{"hostile", "hostile-own"} {
		objects, err := flux.ReadObjects([]byte(strings.ReplaceAll(platformMade, "NAMESPACE", namespace)))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		named := func(apiVersion, kind, name string) *unstructured.Unstructured {
			return parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}}", apiVersion, kind, name, namespace))
		}
		merge := func(c client.Client, u *unstructured.Unstructured, content string) error {
			return c.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(content)), client.DryRunAll)
		}
		status := func(c client.Client, u *unstructured.Unstructured, subresource, content string) error {
			return c.SubResource(subresource).Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(content)),
				&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		}
		labelled := func(kind, by, namespace, name string) string {
			return fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: new, namespace: apps, labels: {%s/name: %s, %s/namespace: %s}}}", kind, by, name, by, namespace)
		}
		make := func(c client.Client, manifest string) error {
			return c.Create(t.Context(), parse(t, in(namespace, manifest)), client.DryRunAll)
		}
		deployment, service := named("apps/v1", "Deployment", "agent"), named("v1", "Service", "agent")
		budget, pod, theirs := named("policy/v1", "PodDisruptionBudget", "agent"), named("v1", "Pod", "agent"), named("v1", "ConfigMap", "theirs")
		// Without parameters, the rule is about the kinds that decide about the tenant.
		everyKind, everyForged := belongs, forged
		if namespace == "hostile" {
			everyKind, everyForged = "", ""
		}
		const kustomize, helm = "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"a Deployment is changed", merge(tenant, deployment, `{"spec":{"replicas":1}}`), everyKind},
			{"by its status", status(tenant, deployment, "status", `{"status":{"replicas":1}}`), everyKind},
			{"it is deleted", tenant.Delete(t.Context(), deployment.DeepCopy(), client.DryRunAll), everyKind},
			{"all Deployments are", tenant.DeleteAllOf(t.Context(), deployment.DeepCopy(), client.InNamespace(namespace), client.DryRunAll), everyKind},
			{"its label is taken off", merge(tenant, deployment, `{"metadata":{"labels":null}}`), everyKind},
			{"a Service of a release in another namespace of the platform's", merge(tenant, service, `{"spec":{"publishNotReadyAddresses":true}}`), everyKind},
			{"a disruption budget", merge(tenant, budget, `{"spec":{"minAvailable":1}}`), everyKind},
			{"a Pod is deleted", tenant.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll), everyKind},
			{"a container is put into a Pod", status(tenant, pod, "ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"x","image":"x"}]}}`), everyKind},
			{"a delegating sync overwrites it", merge(delegate, deployment, `{"spec":{"replicas":1},"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"delegated"}}}`), everyKind},
			{"the platform's controller changes it", merge(controller, deployment, `{"spec":{"replicas":1}}`), ""},
			{"a kind whose label is a lie", make(tenant, labelled("ConfigMap", kustomize, "flux-system", "tenants")), forged},
			{"an account whose label is a lie", make(tenant, labelled("ServiceAccount", helm, "platform-two", "agent")), forged},
			{"the label of the manager", make(tenant, "{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: apps, labels: {tenure.dev/managed-by: manager}}}"), forged},
			{"a delegating sync brings what is new", make(delegate, labelled("ConfigMap", kustomize, "flux-system", "delegated")), ""},
			{"before it is listed as well", make(delegate, labelled("ConfigMap", kustomize, "flux-system", "unlisted")), ""},
			{"but not with the label of the manager", make(delegate, strings.Replace(labelled("ConfigMap", kustomize, "flux-system", "delegated"), "labels: {", "labels: {tenure.dev/managed-by: manager, ", 1)), forged},
			{"nor as another namespace's", make(delegate, labelled("ConfigMap", kustomize, "platform-two", "delegated")), forged},
			{"the tenant's namespaces may be named", make(tenant, labelled("ConfigMap", kustomize, namespace, "own")), ""},
			{"what its own delegated sync applied is the tenant's", merge(tenant, theirs, `{"data":{"a":"b"}}`), ""},
			{"and the sync's", merge(delegate, theirs, `{"data":{"a":"b"}}`), ""},
			{"a kind of which the label is a lie that is not about tenants", make(tenant, strings.Replace(labelled("Service", kustomize, "flux-system", "tenants"), "}}}", "}}, spec: {clusterIP: None}}", 1)), everyForged},
			{"a Pod of its own", make(tenant, "{apiVersion: v1, kind: Pod, metadata: {name: own, namespace: apps}, spec: {containers: [{name: x, image: x}]}}"), ""},
		} {
			t.Run(namespace+": "+tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
		}
		// Known limit: a Scale has no labels, so that nothing tells whose it is.
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
		if err := tenant.SubResource("scale").Update(t.Context(), deployment.DeepCopy(), client.WithSubResourceBody(scale), dryRun); err != nil {
			t.Errorf("%s: a platform's Deployment cannot be scaled any more: say so in the documentation: %v", namespace, err)
		}
	}
}

// An account of the platform's namespace that is not listed is no more than a tenant's.
func TestDelegatingAccount(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"}
	delegate := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:sync", Groups: groups})
	controller := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:source-controller", Groups: groups})
	for _, account := range []string{"sync", "source-controller"} {
		binding := parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: "+account+", namespace: hostile-capsule}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: "+account+", namespace: flux-system}]}")
		if err := admin.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	source := parse(t, "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: delegated, namespace: hostile-capsule}, spec: {interval: 1h, url: 'https://git.example.com/acme/x'}}")
	if err := admin.Create(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	says := func(c client.Client) error {
		return c.Status().Patch(t.Context(), source.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`)),
			&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
	}
	artifact := func(c client.Client) error {
		return c.Create(t.Context(), parse(t, "{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, metadata: {name: x, namespace: hostile-capsule}, spec: {}}"), client.DryRunAll)
	}
	parameters := func(c client.Client) error {
		return c.Create(t.Context(), parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: hostile-capsule}, spec: {tenant: hostile}}"), client.DryRunAll)
	}
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"it writes the status of a source", says(delegate), "has a status that only Flux writes"},
		{"Flux's own account does", says(controller), ""},
		{"it makes an artifact", artifact(delegate), "can be made and changed by the platform only"},
		{"Flux's own account does", artifact(controller), ""},
		{"it writes parameters", parameters(delegate), "is written by the platform only"},
		{"so does an account that is listed: the profile is not read there", parameters(controller), "is written by the platform only"},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
	}
}
