package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A tenant with defaults, and a neighbour with the same limits and without defaults.
const defaultedTenant = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: defaulted}
value: 4711
preemptionPolicy: Never
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: undefaulted}
value: 4712
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: defaulted}
handler: runsc
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: defaulted}
spec:
  tenant: defaulted
  platformNamespaces: [flux-system]
  defaultClasses: {priorityClass: defaulted, runtimeClass: defaulted, ingressClass: defaulted, gatewayClass: defaulted, storageClass: defaulted}
  tenants:
    workloads: {images: {pullPolicy: Always, pullPolicies: [Always]}, priorityClasses: {allowed: [defaulted]}, metadata: {labels: {team/cost: "42"}, annotations: {example.com/a.b: c}}, nodes: {selector: {example.com/pool: defaulted}, tolerations: [{key: pool, value: defaulted, effect: NoSchedule}]}}
    network: {services: {metadata: {labels: {lb: internal}}}, ingressClasses: {allowed: [defaulted, other]}}
    storage: {classes: {allowed: [defaulted]}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: neighbour}
spec:
  tenant: neighbour
  platformNamespaces: [flux-system]
  tenants: {storage: {classes: {allowed: [defaulted]}}}`

// The API server leaves the policy out where the manager says that there are no defaults, and calls it where an
// older manager set the label.
func TestDefaultsSelectNamespaces(t *testing.T) {
	t.Parallel()
	policy, _ := admission.DefaultsPolicy()
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.MatchConstraints.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"manager": true, "true": true, "": true, v1alpha1.ParametersWithoutDefaults: false} {
		if got := selector.Matches(labels.Set{v1alpha1.LabelParameters: value}); got != want {
			t.Errorf("the value %q: got %t, want %t", value, got, want)
		}
	}
	if selector.Matches(labels.Set{v1alpha1.LabelTenant: "dev"}) {
		t.Error("the policy is called in a namespace without parameters")
	}
}

// The policy sets defaults on objects in the tenant's namespaces, and on no others. The rules
// check the result.
func TestDefaults(t *testing.T) {
	admin, _, restConfig := cluster(t)
	serve(t, restConfig, testcrds.GatewayAPI())
	objects, err := flux.ReadObjects(config.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := flux.ApplyManifests(t.Context(), restConfig, objects); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The other tests of the cluster are about objects without defaults.
		for _, u := range objects {
			if err := admin.Delete(context.WithoutCancel(t.Context()), u); err != nil {
				t.Error(err)
			}
		}
	})
	tenants := map[string]client.Client{}
	var documents []string
	for _, namespace := range []string{"defaulted", "neighbour"} {
		documents = append(documents,
			fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s, labels: {tenure.dev/tenant: %[1]s, tenure.dev/parameters: 'true'}}}", namespace),
			fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tenant, namespace: %[1]s, labels: {tenure.dev/managed-by: manager}}, "+
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: tenant, namespace: %[1]s}]}", namespace))
	}
	// The rules need the parameters before the binding.
	made := append([]string{documents[0], documents[2]}, strings.Split(defaultedTenant, "---\n")...)
	makeAll(t, admin, append(made, documents[1], documents[3]))
	for _, namespace := range []string{"defaulted", "neighbour"} {
		tenants[namespace] = inNamespace(t, restConfig, namespace, "tenant")
		testwait.For(t, "the account of Pods in "+namespace, patience, func() (bool, string) {
			err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, parse(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}"))
			return err == nil, fmt.Sprint(err)
		})
	}
	create := func(namespace, manifest string) (*unstructured.Unstructured, error) {
		u := parse(t, manifest)
		u.SetNamespace(namespace)
		return u, tenants[namespace].Create(t.Context(), u, client.DryRunAll)
	}
	const service = "{apiVersion: v1, kind: Service, metadata: {name: x%s}, spec: {ports: [{port: 80}]}}"
	testwait.For(t, "the defaults to be in force", patience, func() (bool, string) {
		u, err := create("defaulted", fmt.Sprintf(service, ""))
		return err == nil && u.GetLabels()["lb"] == "internal", fmt.Sprint(err, u)
	})
	const (
		pod     = "{apiVersion: v1, kind: Pod, metadata: {name: x%s}, spec: {serviceAccountName: default, containers: [{name: a, image: a}]%s}}"
		ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x%s}, spec: {rules: [{host: a.example.com}]%s}}"
		slice   = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x%s}, addressType: IPv4, endpoints: []}"
		claim   = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%s}}"
		gateway = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x}, spec: {listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.example.com}]%s}}"
	)
	testwait.For(t, "the API server to know Gateways", patience, func() (bool, string) {
		_, err := create("defaulted", fmt.Sprintf(gateway, ""))
		return err == nil, fmt.Sprint(err)
	})
	const set = "{apiVersion: apps/v1, kind: %s, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]%s}}}}"
	const tolerations = "[map[effect:NoSchedule key:pool operator:Equal value:defaulted]]"
	for _, tc := range []struct {
		what, manifest, fields, want, refused string
		neighbour                             string
	}{
		{"a priority class", fmt.Sprintf(pod, "", ""), "spec priorityClassName", "defaulted", "", ""},
		{"the number of the class", fmt.Sprintf(pod, "", ""), "spec priority", "4711", "", "0"},
		{"its preemption", fmt.Sprintf(pod, "", ""), "spec preemptionPolicy", "Never", "", "PreemptLowerPriority"},
		{"a runtime class", fmt.Sprintf(pod, "", ""), "spec runtimeClassName", "defaulted", "", ""},
		{"another priority class", fmt.Sprintf(pod, "", ", priorityClassName: undefaulted"), "spec priorityClassName", "", "must not have priority class undefaulted", "undefaulted"},
		{"a label of a Pod", fmt.Sprintf(pod, "", ""), "metadata labels team/cost", "42", "", ""},
		{"a label that the tenant chose", fmt.Sprintf(pod, ", labels: {team/cost: '0'}", ""), "metadata labels team/cost", "42", "", "0"},
		{"another label", fmt.Sprintf(pod, ", labels: {a: b}", ""), "metadata labels a", "b", "", "b"},
		{"an annotation of a Pod", fmt.Sprintf(pod, "", ""), "metadata annotations example.com/a.b", "c", "", ""},
		{"a label of a Service", fmt.Sprintf(service, ", labels: {lb: external}"), "metadata labels lb", "internal", "", "external"},
		{"a label of an EndpointSlice", fmt.Sprintf(slice, ", labels: {lb: external}"), "metadata labels lb", "internal", "", "external"},
		{"a pull policy", "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {initContainers: [{name: i, image: 'i:1'}], containers: [{name: a, image: 'a:1', imagePullPolicy: Never}, {name: b, image: b}]}}", "POLICIES", "Always Always Always", "", "IfNotPresent Never Always"},
		{"a pull policy of a template", fmt.Sprintf(set, "Deployment", ", initContainers: [{name: i, image: 'i:1', imagePullPolicy: Never}]"), "spec template spec nodeSelector", "", "", ""},
		{"a pull policy of an image volume", fmt.Sprintf(pod, "", ", volumes: [{name: v, image: {reference: 'v:1', pullPolicy: Never}}]"), "spec", "", "must not have imagePullPolicy Never (allowed: Always)", "ignored"},
		{"a pool of nodes", fmt.Sprintf(pod, "", ""), "spec nodeSelector example.com/pool", "defaulted", "", ""},
		{"a pool beside another label", fmt.Sprintf(pod, "", ", nodeSelector: {disk: ssd}"), "spec nodeSelector example.com/pool", "defaulted", "", ""},
		{"another label of nodes", fmt.Sprintf(pod, "", ", nodeSelector: {disk: ssd}"), "spec nodeSelector disk", "ssd", "", "ssd"},
		{"another pool", fmt.Sprintf(pod, "", ", nodeSelector: {example.com/pool: other}"), "spec nodeSelector", "", "must not run on nodes of others: spec.nodeSelector needs example.com/pool: defaulted", "map[example.com/pool:other]"},
		{"an affinity to another pool", fmt.Sprintf(pod, "", ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/pool, operator: In, values: [other]}]}]}}}"), "spec nodeSelector example.com/pool", "defaulted", "", ""},
		{"a pool of a DaemonSet", fmt.Sprintf(set, "DaemonSet", ""), "spec template spec nodeSelector example.com/pool", "defaulted", "", ""},
		{"tolerations of a DaemonSet", fmt.Sprintf(set, "DaemonSet", ""), "spec template spec tolerations", tolerations, "", ""},
		{"tolerations that a DaemonSet has", fmt.Sprintf(set, "DaemonSet", ", tolerations: [{key: pool, value: defaulted, effect: NoSchedule}]"), "spec template spec tolerations", "[map[effect:NoSchedule key:pool value:defaulted]]", "", "refused"},
		{"another toleration of the same key", fmt.Sprintf(set, "DaemonSet", ", tolerations: [{key: pool, value: other, effect: NoSchedule}]"), "spec", "", "must not tolerate taints pool (allowed: node.kubernetes.io/*, pool=defaulted)", "refused"},
		{"another pool of a DaemonSet", fmt.Sprintf(set, "DaemonSet", ", nodeSelector: {example.com/pool: other}"), "spec", "", "DaemonSet x must not run on nodes of others", "ignored"},
		{"no pool of a Deployment", fmt.Sprintf(set, "Deployment", ""), "spec template spec nodeSelector", "", "", ""},
		{"another pool of a Deployment", fmt.Sprintf(set, "Deployment", ", nodeSelector: {example.com/pool: other}"), "spec", "", "Deployment x must not run on nodes of others", "ignored"},
		{"another pool of a CronJob", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: '0 0 1 1 *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, nodeSelector: {example.com/pool: other}, containers: [{name: a, image: a}]}}}}}}", "spec", "", "CronJob x must not run on nodes of others", "ignored"},
		{"an ingress class", fmt.Sprintf(ingress, "", ""), "spec ingressClassName", "defaulted", "", ""},
		{"a chosen ingress class", fmt.Sprintf(ingress, "", ", ingressClassName: other"), "spec ingressClassName", "other", "", "other"},
		{"an ingress class by annotation", fmt.Sprintf(ingress, ", annotations: {kubernetes.io/ingress.class: other}", ""), "spec ingressClassName", "", "", ""},
		{"in the place of the cluster's default", fmt.Sprintf(claim, ""), "spec storageClassName", "defaulted", "", "refused"},
		{"the cluster's default, chosen", fmt.Sprintf(claim, ", storageClassName: standard"), "spec storageClassName", "", "must not have storage class 'standard'", "refused"},
		{"another storage class", fmt.Sprintf(claim, ", storageClassName: slow"), "spec storageClassName", "", "must not have storage class 'slow'", "refused"},
		{"no storage class", fmt.Sprintf(claim, ", storageClassName: ''"), "spec storageClassName", "", "must not choose an existing volume", "refused"},
		{"a gateway class", fmt.Sprintf(gateway, ""), "spec gatewayClassName", "defaulted", "", "refused"},
		{"a chosen gateway class", fmt.Sprintf(gateway, ", gatewayClassName: other"), "spec gatewayClassName", "other", "", "other"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			value := func(u *unstructured.Unstructured) string {
				if tc.fields == "POLICIES" {
					return pullPolicies(u)
				}
				found, ok, _ := unstructured.NestedFieldNoCopy(u.Object, strings.Fields(tc.fields)...)
				if !ok {
					return ""
				}
				return fmt.Sprint(found)
			}
			u, err := create("defaulted", tc.manifest)
			switch {
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("got %v, want a refusal with %q", err, tc.refused)
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused == "" && value(u) != tc.want:
				t.Errorf("%s is %q, want %q", tc.fields, value(u), tc.want)
			}
			if tc.neighbour == "ignored" {
				return
			}
			u, err = create("neighbour", tc.manifest)
			if tc.neighbour == "refused" && err == nil || tc.neighbour != "refused" && (err != nil || value(u) != tc.neighbour) {
				t.Errorf("of the neighbour %s is %q, want %q (%v)", tc.fields, value(u), tc.neighbour, err)
			}
		})
	}
	t.Run("a storage class", func(t *testing.T) { storageDefault(t, admin, create, fmt.Sprintf(claim, "")) })
	t.Run("volumes of a Tenant of Capsule", func(t *testing.T) { tenantVolumes(t, admin) })
	t.Run("an Ingress without its class", func(t *testing.T) {
		u := parse(t, fmt.Sprintf(ingress, "", ", ingressClassName: other"))
		u.SetName("dropped")
		u.SetNamespace("defaulted")
		if err := tenants["defaulted"].Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ingressClassName":null}}`))
		err := tenants["defaulted"].Patch(t.Context(), u, patch)
		if class, _, _ := unstructured.NestedString(u.Object, "spec", "ingressClassName"); err != nil || class != "defaulted" {
			t.Errorf("the class is %q, %v", class, err)
		}
	})
	t.Run("an update", func(t *testing.T) {
		u := parse(t, fmt.Sprintf(service, ""))
		u.SetName("kept")
		u.SetNamespace("defaulted")
		if err := tenants["defaulted"].Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"lb":null}}}`))
		if err := tenants["defaulted"].Patch(t.Context(), u, patch); err != nil || u.GetLabels()["lb"] != "internal" {
			t.Errorf("the labels are %v, %v", u.GetLabels(), err)
		}
	})
}

// tenantVolumes creates claims in a namespace of a Tenant of Capsule: one that chooses a volume selects
// those of the Tenant only.
func tenantVolumes(t *testing.T, admin client.Client) {
	t.Helper()
	makeAll(t, admin, []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: claiming, labels: {tenure.dev/tenant: claiming, capsule.clastix.io/tenant: claiming, tenure.dev/parameters: 'true'}}}",
		"{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: claiming}, spec: {tenant: claiming, platformNamespaces: [flux-system]}}",
	})
	const own = "map[key:capsule.clastix.io/tenant operator:In values:[claiming]]"
	for what, tc := range map[string]struct{ fields, want string }{
		"a dynamic claim": {"", "<nil>"},
		"a name":          {", volumeName: v", "map[matchExpressions:[" + own + "]]"},
		"a selector":      {", selector: {matchLabels: {tier: gold}}", "map[matchExpressions:[" + own + "] matchLabels:map[tier:gold]]"},
		"another tenant's label": {
			", selector: {matchLabels: {tier: gold, capsule.clastix.io/tenant: other}, matchExpressions: [{key: capsule.clastix.io/tenant, operator: NotIn, values: [claiming]}, {key: a, operator: Exists}]}",
			"map[matchExpressions:[map[key:a operator:Exists] " + own + "] matchLabels:map[tier:gold]]",
		},
	} {
		u := parse(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x, namespace: claiming}, spec: {storageClassName: manual, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"+tc.fields+"}}")
		// The API server learns of the parameters after a moment.
		testwait.For(t, "the selector of "+what, patience, func() (bool, string) {
			created := u.DeepCopy()
			err := admin.Create(t.Context(), created, client.DryRunAll)
			selector, _, _ := unstructured.NestedFieldNoCopy(created.Object, "spec", "selector")
			return err == nil && fmt.Sprint(selector) == tc.want, fmt.Sprint(err, selector)
		})
	}
}

// pullPolicies returns those of the containers of a Pod, in order.
func pullPolicies(u *unstructured.Unstructured) string {
	var all []string
	for _, list := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", list)
		for _, c := range containers {
			policy, _, _ := unstructured.NestedString(c.(map[string]any), "imagePullPolicy")
			all = append(all, policy)
		}
	}
	return strings.Join(all, " ")
}

// storageDefault creates a claim while the cluster has no default class.
func storageDefault(t *testing.T, admin client.Client, create func(namespace, manifest string) (*unstructured.Unstructured, error), claim string) {
	t.Helper()
	mark := func(value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"`+value+`"}}}`))
		if err := admin.Patch(t.Context(), parse(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: standard}}"), patch); err != nil {
			t.Fatal(err)
		}
	}
	mark("false")
	defer mark("true")
	testwait.For(t, "the claim to get the default of the tenant", patience, func() (bool, string) {
		u, err := create("defaulted", claim)
		class, _, _ := unstructured.NestedString(u.Object, "spec", "storageClassName")
		return err == nil && class == "defaulted", fmt.Sprint(err, class)
	})
	if _, err := create("neighbour", claim); err == nil || !strings.Contains(err.Error(), "must not have storage class ''") {
		t.Errorf("the neighbour got %v", err)
	}
}
