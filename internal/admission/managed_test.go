package admission_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// platformMade are objects of many kinds in a tenant's namespace that the platform's syncs applied, and an
// object from a sync that the platform delegated to the tenant. Two accounts of the platform's namespace
// apply tenants' repositories.
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

// TestManagedKinds checks that a tenant cannot change the objects that the platform applied, for every kind
// and every kind of request, with and without parameters in the namespace. An object that a delegated sync
// applied belongs to the tenant.
func TestManagedKinds(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	as := func(user string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"}})
	}
	delegate, controller := as("system:serviceaccount:flux-system:delegate"), as("system:serviceaccount:flux-system:kustomize-controller")
	const belongs, forged = "belongs to the platform", "must not say in its labels"
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
				client.DryRunAll)
		}
		labelled := func(kind, by, namespace, name string) string {
			return fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: new, namespace: apps, labels: {%s/name: %s, %s/namespace: %s}}}", kind, by, name, by, namespace)
		}
		make := func(c client.Client, manifest string) error {
			return c.Create(t.Context(), parse(t, in(namespace, manifest)), client.DryRunAll)
		}
		deployment, service := named("apps/v1", "Deployment", "agent"), named("v1", "Service", "agent")
		budget, pod, theirs := named("policy/v1", "PodDisruptionBudget", "agent"), named("v1", "Pod", "agent"), named("v1", "ConfigMap", "theirs")
		// Without parameters, the rule is about the kinds that decide about the tenant. The rule
		// tenure-new-namespaces refuses new labels on other kinds, and changes of the objects of Flux's namespace.
		everyKind, ofFlux := belongs, belongs
		if namespace == "hostile" {
			everyKind, ofFlux = "", "has the labels of an object of the platform"
		}
		const kustomize, helm = "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"
		for _, tc := range []struct {
			reason string
			err    error
			want   string
		}{
			{"a Deployment is changed", merge(tenant, deployment, `{"spec":{"replicas":1}}`), ofFlux},
			{"by its status", status(tenant, deployment, "status", `{"status":{"replicas":1}}`), everyKind},
			{"it is deleted", tenant.Delete(t.Context(), deployment.DeepCopy(), client.DryRunAll), ofFlux},
			{"all Deployments are", tenant.DeleteAllOf(t.Context(), deployment.DeepCopy(), client.InNamespace(namespace), client.DryRunAll), ofFlux},
			{"its label is taken off", merge(tenant, deployment, `{"metadata":{"labels":null}}`), ofFlux},
			{"a Service of a release in another namespace of the platform's", merge(tenant, service, `{"spec":{"publishNotReadyAddresses":true}}`), everyKind},
			{"a disruption budget", merge(tenant, budget, `{"spec":{"minAvailable":1}}`), ofFlux},
			{"a Pod is deleted", tenant.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll), ofFlux},
			{"a container is put into a Pod", status(tenant, pod, "ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"x","image":"x"}]}}`), ofFlux},
			{"a delegating sync overwrites it", merge(delegate, deployment, `{"spec":{"replicas":1},"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"delegated"}}}`), everyKind},
			{"the platform's controller changes it", merge(controller, deployment, `{"spec":{"replicas":1}}`), ""},
			{"a kind whose label is a lie", make(tenant, labelled("ConfigMap", kustomize, "flux-system", "tenants")), forged},
			{"an account whose label is a lie", make(tenant, labelled("ServiceAccount", helm, "platform-two", "agent")), forged},
			{"the label of the manager", make(tenant, "{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: apps, labels: {tenure.dev/managed-by: manager}}}"), forged},
			{"a delegating sync brings what is new", make(delegate, labelled("ConfigMap", kustomize, "flux-system", "delegated")), ""},
			{"before it is listed as well", make(delegate, labelled("ConfigMap", kustomize, "flux-system", "unlisted")), ""},
			{"but not with the label of the manager", make(delegate, strings.Replace(labelled("ConfigMap", kustomize, "flux-system", "delegated"), "labels: {", "labels: {tenure.dev/managed-by: manager, ", 1)), forged},
			{"nor as another namespace's", make(delegate, labelled("ConfigMap", kustomize, "platform-two", "delegated")), forged},
			{"a network policy that Flux passes over", make(tenant, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: new, namespace: apps, annotations: {kustomize.toolkit.fluxcd.io/ssa: ignore}}, spec: {podSelector: {}}}"), "must not tell Flux to pass over it"},
			{"a role binding that Flux passes over, by a label", make(tenant, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: new, namespace: apps, labels: {kustomize.toolkit.fluxcd.io/reconcile: Disabled}}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}"), "must not tell Flux to pass over it"},
			{"a network policy that Flux merges into", make(tenant, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: new, namespace: apps, annotations: {kustomize.toolkit.fluxcd.io/ssa: Merge}}, spec: {podSelector: {}}}"), ""},
			{"a kind that does not limit the tenant", make(tenant, "{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: apps, annotations: {kustomize.toolkit.fluxcd.io/ssa: Ignore}}}"), ""},
			{"the tenant's namespaces may be named", make(tenant, labelled("ConfigMap", kustomize, namespace, "own")), ""},
			{"what its own delegated sync applied is the tenant's", merge(tenant, theirs, `{"data":{"a":"b"}}`), ""},
			{"and the sync's", merge(delegate, theirs, `{"data":{"a":"b"}}`), ""},
			{"a kind of which the label is a lie that is not about tenants", make(tenant, strings.Replace(labelled("Service", kustomize, "flux-system", "tenants"), "}}}", "}}, spec: {clusterIP: None}}", 1)), "must not say in its labels"},
			{"a Pod of its own", make(tenant, "{apiVersion: v1, kind: Pod, metadata: {name: own, namespace: apps}, spec: {containers: [{name: x, image: x}]}}"), ""},
		} {
			t.Run(namespace+": "+tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
		}
	}
}

// managedNamespaces are namespaces of a tenant whose user may delete them: the platform's sync and a
// delegated sync applied one each, and an owner made another.
const managedNamespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {tenure.dev/tenant: hostile, tenure.dev/parameters: "true"LABELS}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec:
  tenant: hostile
  platformNamespaces: [flux-system]
  platformAccounts: [flux-system/kustomize-controller]
  delegatedSyncs: [{namespace: flux-system, name: delegated, tenant: hostile}]
  tenants: {}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hostile, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: hostile, namespace: hostile}, {kind: ServiceAccount, name: kustomize-controller, namespace: flux-system}]
`

// An owner may delete the namespaces of the tenant, but not one that the platform's repository
// delivers: the owner could create it again, and a namespace of an owner takes no objects of the
// platform, so that the sync of the platform fails for everybody.
func TestManagedNamespaces(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	controller := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:kustomize-controller", Groups: []string{"system:authenticated"}})
	const sync = ", kustomize.toolkit.fluxcd.io/namespace: flux-system, kustomize.toolkit.fluxcd.io/name: "
	for _, tc := range []struct {
		reason, name, labels, want string
		by                         client.Client
	}{
		{"the platform delivers it", "hostile-delivered", sync + "tenants", "Namespace hostile-delivered belongs to the platform", tenant},
		{"the platform prunes it", "hostile-pruned", sync + "tenants", "", controller},
		{"a delegated sync delivers it", "hostile-delegated", sync + "delegated", "", tenant},
		{"an owner made it", "hostile-made", ", tenure.dev/made-by: owner", "", tenant},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", tc.name, "LABELS", tc.labels).Replace(managedNamespaces), "---\n"))
			namespace := parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+tc.name+"}}")
			// Without parameters every object is refused. A forged object cannot be the question here:
			// two rules refuse it in the namespace of an owner, and the API server names any of them.
			ordinary := parse(t, in(tc.name, "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: apps}, spec: {clusterIP: None}}"))
			testwait.For(t, "the rule to know the parameters", patience, func() (bool, string) {
				err := tenant.Create(t.Context(), ordinary.DeepCopy(), client.DryRunAll)
				return err == nil, fmt.Sprint(err)
			})
			check(t, tc.by.Delete(t.Context(), namespace.DeepCopy(), client.DryRunAll), tc.want)
		})
	}
}

// A tenant's namespace with workloads that the platform applied, as the manager lists them, with
// their ReplicaSets and Pods, and with workloads of the tenant.
const platformWorkloads = `
apiVersion: v1
kind: Namespace
metadata: {name: hostile-workloads, labels: {tenure.dev/tenant: hostile, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec:
  tenant: hostile
  platformNamespaces: [flux-system]
  platformWorkloads: [CronJob/backup, DaemonSet/logs, Deployment/agent, Deployment/web-primary, Deployment/an-agent-with-a-name-of-so-many-letters-that-kubernetes-shortens-it, HorizontalPodAutoscaler/agent, HorizontalPodAutoscaler/web-primary, StatefulSet/my-db, StatefulSet/store, Job/migrate]
  platformSelectors:
    - {matchLabels: {app: agent}}
    - {matchLabels: {app: logs}}
    - {matchExpressions: [{key: app, operator: In, values: [store, storage]}, {key: tier, operator: Exists}, {key: track, operator: NotIn, values: [own]}, {key: own, operator: DoesNotExist}]}
  tenants: {flagger: {}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hostile, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: hostile, namespace: hostile}, {kind: ServiceAccount, name: delegate, namespace: flux-system}, {kind: ServiceAccount, name: kustomize-controller, namespace: flux-system}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {replicas: 0, selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: agent-5d9c7bbf4, namespace: NAMESPACE}
spec: {replicas: 0, selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: agent-5d9c7bbf4-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: v1
kind: Pod
metadata: {name: store-0, namespace: NAMESPACE}
spec: {containers: [{name: store, image: store}]}
---
apiVersion: v1
kind: Pod
metadata: {name: an-agent-with-a-name-of-so-many-letters-that-kubernetes-shvw7k, namespace: NAMESPACE}
spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent-own, namespace: NAMESPACE}
spec: {replicas: 0, selector: {matchLabels: {app: own}}, template: {metadata: {labels: {app: own}}, spec: {containers: [{name: own, image: own}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: agent-own-5d9c7bbf4, namespace: NAMESPACE}
spec: {replicas: 0, selector: {matchLabels: {app: own}}, template: {metadata: {labels: {app: own}}, spec: {containers: [{name: own, image: own}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: agent-own-5d9c7bbf4-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: own, image: own}]}
---
apiVersion: v1
kind: Pod
metadata: {name: logs-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: logs, image: logs}]}
---
apiVersion: apps/v1
kind: ControllerRevision
metadata: {name: store-7bbf497d4, namespace: NAMESPACE}
revision: 1
data: {spec: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: migrate-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: migrate, image: migrate}]}
---
apiVersion: v1
kind: Pod
metadata: {name: migrate-0-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: migrate, image: migrate}]}
---
apiVersion: v1
kind: Pod
metadata: {name: backup-29384756-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: backup, image: backup}]}
---
apiVersion: v1
kind: Pod
metadata: {name: backup-own-x2v7k, namespace: NAMESPACE}
spec: {containers: [{name: backup, image: backup}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: backup-29384756, namespace: NAMESPACE}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: backup, image: backup}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: backup-own, namespace: NAMESPACE}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: backup, image: backup}]}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-store-0, namespace: NAMESPACE}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-own-0, namespace: NAMESPACE}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-x-0, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: agents, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: NAMESPACE, labels: {app: alone, kustomize.toolkit.fluxcd.io/name: agents, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {containers: [{name: alone, image: alone}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: alone, namespace: NAMESPACE, labels: {app: alone, kustomize.toolkit.fluxcd.io/name: agents, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {replicas: 0, selector: {matchLabels: {app: alone-set}}, template: {metadata: {labels: {app: alone-set}}, spec: {containers: [{name: alone, image: alone}]}}}
`

// TestPlatformWorkloads sends the requests that show no label of the platform's workload on which
// they act.
func TestPlatformWorkloads(t *testing.T) {
	t.Parallel()
	const namespace = "hostile-workloads"
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	as := func(user string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"}})
	}
	delegate, controller := as("system:serviceaccount:flux-system:delegate"), as("system:serviceaccount:flux-system:kustomize-controller")
	makeAll(t, admin, strings.Split(strings.TrimPrefix(strings.ReplaceAll(platformWorkloads, "NAMESPACE", namespace), "\n"), "---\n"))
	named := func(apiVersion, kind, name string) *unstructured.Unstructured {
		return parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %s}}", apiVersion, kind, name, namespace))
	}
	scale := func(c client.Client, u *unstructured.Unstructured) error {
		body := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
		return c.SubResource("scale").Update(t.Context(), u.DeepCopy(), client.WithSubResourceBody(body), client.DryRunAll)
	}
	evict := func(u *unstructured.Unstructured) error {
		return tenant.SubResource("eviction").Create(t.Context(), u.DeepCopy(), named("policy/v1", "Eviction", u.GetName()), client.DryRunAll)
	}
	enter := func(u *unstructured.Unstructured) error {
		config := rest.CopyConfig(restConfig)
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:hostile:hostile", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:hostile", "system:authenticated"}}
		caller, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		response, err := caller.Post(restConfig.Host+"/api/v1/namespaces/"+namespace+"/pods/"+u.GetName()+"/exec?command=sh&stdout=true", "", nil) //nolint:noctx // it has no stream
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		said, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusForbidden {
			return err
		}
		return errors.New(string(said))
	}
	autoscaler := func(kind, target string) error {
		return tenant.Create(t.Context(), parse(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: x, namespace: "+namespace+"}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: "+kind+", name: "+target+"}, maxReplicas: 3}}"), client.DryRunAll)
	}
	canary := func(fields string) error {
		if !strings.Contains(fields, "service: {") {
			fields += ", service: {port: 80}"
		}
		return tenant.Create(t.Context(), parse(t, "{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: x, namespace: "+namespace+"}, spec: {"+fields+", analysis: {interval: 1m, threshold: 1}}}"), client.DryRunAll)
	}
	patch := func(u *unstructured.Unstructured, kind types.PatchType, content string, subresource ...string) error {
		if len(subresource) == 0 {
			return tenant.Patch(t.Context(), u.DeepCopy(), client.RawPatch(kind, []byte(content)), client.DryRunAll)
		}
		return tenant.SubResource(subresource[0]).Patch(t.Context(), u.DeepCopy(), client.RawPatch(kind, []byte(content)), client.DryRunAll)
	}
	made := strings.NewReplacer("NAMESPACE", namespace, "LABELS", "{app: agent, pod-template-hash: 5d9c7bbf4}", "SPEC", "{restartPolicy: Never, containers: [{name: x, image: x}]}").Replace
	labelled := func(object string) error {
		return tenant.Create(t.Context(), parse(t, made(object)), client.DryRunAll)
	}
	// claiming returns a StatefulSet with a template of claims.
	claiming := func(name, claims string) string {
		return "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: " + name + ", namespace: NAMESPACE}, spec: {replicas: 0, serviceName: x, selector: {matchLabels: {app: claiming}}, template: {metadata: {labels: {app: claiming}}, spec: {containers: [{name: x, image: x}]}}," +
			" volumeClaimTemplates: [{metadata: {name: " + claims + "}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}]}}"
	}
	deployment, own := named("apps/v1", "Deployment", "agent"), named("apps/v1", "Deployment", "agent-own")
	replicaSet, ownReplicaSet := named("apps/v1", "ReplicaSet", "agent-5d9c7bbf4"), named("apps/v1", "ReplicaSet", "agent-own-5d9c7bbf4")
	child, ownPod := named("v1", "Pod", "agent-5d9c7bbf4-x2v7k"), named("v1", "Pod", "agent-own-5d9c7bbf4-x2v7k")
	kubernetes := func(controller string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:" + controller, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:masters"}})
	}
	adopted := func(controller string, u *unstructured.Unstructured, owner string) error {
		kind, name, _ := strings.Cut(owner, "/")
		patch := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"` + kind + `","name":"` + name + `","uid":"00000000-0000-0000-0000-000000000001","controller":true,"blockOwnerDeletion":true}]}}`
		return kubernetes(controller).Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	job, ownJob := named("batch/v1", "Job", "backup-29384756"), named("batch/v1", "Job", "backup-own")
	jobOf := func(name, metadata, spec string) string {
		return fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {name: %s, namespace: NAMESPACE, %s}, spec: {%s}}", name, metadata, cmp.Or(spec, "template: {spec: SPEC}"))
	}
	podWith := func(labels string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: NAMESPACE, labels: {" + labels + "}}, spec: SPEC}"
	}
	setWith := func(labels string) string {
		return "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x, namespace: NAMESPACE, labels: {" + labels + "}}, spec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: x}]}}}}"
	}
	revision := named("apps/v1", "ControllerRevision", "store-7bbf497d4")
	claim, ownClaim := named("v1", "PersistentVolumeClaim", "data-store-0"), named("v1", "PersistentVolumeClaim", "data-own-0")
	const acts, takes = "belongs to the platform, or acts on an object of the platform", "must not have labels by which a workload of the platform takes it or its Pods for its own"
	const taken = "must not be taken over by "
	testwait.For(t, "the parameters to be in force", patience, func() (bool, string) {
		err := scale(tenant, deployment)
		return err != nil && strings.Contains(err.Error(), acts), fmt.Sprint(err)
	})
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"a delegating sync scales a Deployment of the platform's", scale(delegate, deployment), acts},
		{"the platform's controller does", scale(controller, deployment), ""},
		{"its ReplicaSet is scaled", scale(tenant, replicaSet), acts},
		{"its ReplicaSet, without labels, is deleted", tenant.Delete(t.Context(), replicaSet.DeepCopy(), client.DryRunAll), acts},
		{"the tenant's own Deployment is scaled", scale(tenant, own), ""},
		{"and its ReplicaSet", scale(tenant, ownReplicaSet), ""},
		{"an autoscaler of the platform's Deployment", autoscaler("Deployment", "agent"), acts},
		{"an autoscaler of the tenant's", autoscaler("Deployment", "agent-own"), ""},
		{"an autoscaler of the ReplicaSet of the platform's Deployment", autoscaler("ReplicaSet", "agent-5d9c7bbf4"), acts},
		{"an autoscaler of the tenant's ReplicaSet", autoscaler("ReplicaSet", "agent-own-5d9c7bbf4"), ""},
		{"and of another kind with the same name", autoscaler("StatefulSet", "agent"), ""},
		{"a Canary of the platform's Deployment", canary("targetRef: {apiVersion: apps/v1, kind: Deployment, name: agent}"), acts},
		{"a Canary that takes the platform's autoscaler over", canary("targetRef: {apiVersion: apps/v1, kind: Deployment, name: agent-own}, autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: agent}"), acts},
		{"a Canary whose primary Deployment would be the platform's", canary("targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}"), acts},
		{"a Canary whose primary autoscaler would be the platform's", canary("targetRef: {apiVersion: apps/v1, kind: Deployment, name: agent-own}, autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: web}"), acts},
		{"a Canary of another kind with the same name", canary("targetRef: {apiVersion: apps/v1, kind: DaemonSet, name: web}"), ""},
		{"a Canary whose Services count as the platform's", canary("targetRef: {apiVersion: apps/v1, kind: Deployment, name: agent-own}, service: {port: 80, apex: {labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}}"), "must not say in the labels of its templates"},
		{"a Canary of the tenant's", canary("targetRef: {apiVersion: apps/v1, kind: Deployment, name: agent-own}"), ""},
		{"a Pod of the platform's Deployment is evicted", evict(child), acts},
		{"it is deleted", tenant.Delete(t.Context(), child.DeepCopy(), client.DryRunAll), acts},
		{"with all Pods", tenant.DeleteAllOf(t.Context(), child.DeepCopy(), client.InNamespace(namespace), client.DryRunAll), acts},
		{"a container is put into it", patch(child, types.StrategicMergePatchType, `{"spec":{"ephemeralContainers":[{"name":"x","image":"x"}]}}`, "ephemeralcontainers"), acts},
		{"its labels are changed", patch(child, types.MergePatchType, `{"metadata":{"labels":{"app":"other"}}}`), acts},
		{"a program is run in it", enter(child), acts},
		{"a Pod of a StatefulSet is evicted", evict(named("v1", "Pod", "store-0")), acts},
		{"a Pod of a DaemonSet is evicted", evict(named("v1", "Pod", "logs-x2v7k")), acts},
		{"a Pod whose name Kubernetes shortened is evicted", evict(named("v1", "Pod", "an-agent-with-a-name-of-so-many-letters-that-kubernetes-shvw7k")), acts},
		{"a Pod of the tenant's gets the name of a further one of the StatefulSet", labelled("{apiVersion: v1, kind: Pod, metadata: {name: store-1, namespace: NAMESPACE}, spec: SPEC}"), acts},
		{"and the name of one that Kubernetes would not give", labelled("{apiVersion: v1, kind: Pod, metadata: {name: store-one, namespace: NAMESPACE}, spec: SPEC}"), ""},
		{"a Pod of the tenant's has the labels of the platform's Pods", labelled("{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: NAMESPACE, labels: LABELS}, spec: SPEC}"), takes},
		{"it gets them later", patch(ownPod, types.MergePatchType, `{"metadata":{"labels":{"app":"agent","pod-template-hash":"5d9c7bbf4"}}}`), takes},
		{"the Pods of its Job have them", labelled("{apiVersion: batch/v1, kind: Job, metadata: {name: x, namespace: NAMESPACE}, spec: {template: {metadata: {labels: LABELS}, spec: SPEC}}}"), takes},
		{"the Pods of its CronJob have them", labelled("{apiVersion: batch/v1, kind: CronJob, metadata: {name: x, namespace: NAMESPACE}, spec: {schedule: '@daily', jobTemplate: {spec: {template: {metadata: {labels: LABELS}, spec: SPEC}}}}}"), takes},
		{"a Pod of the tenant's has the labels of the Pods of the platform's DaemonSet", labelled("{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: NAMESPACE, labels: {app: logs, controller-revision-hash: 97d45c996}}, spec: SPEC}"), takes},
		{"it gets them later", patch(ownPod, types.MergePatchType, `{"metadata":{"labels":{"app":"logs","controller-revision-hash":"97d45c996"}}}`), takes},
		{"the Pods of its Deployment have them", labelled("{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: logs}}, template: {metadata: {labels: {app: logs, controller-revision-hash: 97d45c996}}, spec: {containers: [{name: x, image: x}]}}}}"), takes},
		{"the controller of the tenant's StatefulSet labels its Pods", kubernetes("statefulset-controller").Create(t.Context(), parse(t, strings.ReplaceAll("{apiVersion: v1, kind: Pod, metadata: {name: own-0, namespace: NAMESPACE, labels: {controller-revision-hash: own-97d45c996}}, spec: {containers: [{name: x, image: x}]}}", "NAMESPACE", namespace)), client.DryRunAll), ""},
		{"a Pod of the tenant's has another label", patch(ownPod, types.MergePatchType, `{"metadata":{"labels":{"app":"other"}}}`), ""},
		{"a label that Kubernetes gives to Pods of the platform, without theirs", labelled(podWith("pod-template-hash: 5d9c7bbf4, controller-revision-hash: 97d45c996")), ""},
		{"a Pod of the tenant's has the labels of the selector alone, as where a DaemonSet updates no Pod by itself", labelled(podWith("app: logs")), takes},
		{"it gets them later", patch(ownPod, types.MergePatchType, `{"metadata":{"labels":{"app":"logs"}}}`), takes},
		{"by its status", patch(ownPod, types.MergePatchType, `{"metadata":{"labels":{"app":"logs"}}}`, "status"), takes},
		{"labels of expressions", labelled(podWith("app: store, tier: x")), takes},
		{"without the one that must be there", labelled(podWith("app: store")), ""},
		{"with another value", labelled(podWith("app: shop, tier: x")), ""},
		{"with a value that must not be there", labelled(podWith("app: store, tier: x, track: own")), ""},
		{"with a label that must not be there", labelled(podWith("app: store, tier: x, own: x")), ""},
		{"the tenant copies the template of the platform's Deployment", labelled("{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}}}"), takes},
		{"it adds the labels to a Deployment of its own", patch(own, types.MergePatchType, `{"spec":{"template":{"metadata":{"labels":{"app":"own","tier":"x"}}}}}`), ""},
		{"with those of the platform's", tenant.Create(t.Context(), parse(t, made("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x, namespace: NAMESPACE}, spec: {serviceName: x, selector: {matchLabels: {app: storage}}, template: {metadata: {labels: {app: storage, tier: x}}, spec: {containers: [{name: x, image: x}]}}}}")), client.DryRunAll), takes},
		{"a ReplicaSet of the tenant's has the labels by which the platform's Deployment takes it", labelled(setWith("app: agent")), takes},
		{"a ReplicaSet of the tenant's has other labels", labelled(setWith("app: x")), ""},
		{"a ControllerRevision of the tenant's has the labels by which the platform's DaemonSet takes it", labelled("{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: x, namespace: NAMESPACE, labels: {app: logs}}, revision: 1, data: {spec: {}}}"), takes},
		{"a ControllerRevision of the tenant's has other labels", labelled("{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: x, namespace: NAMESPACE, labels: {app: x}}, revision: 1, data: {spec: {}}}"), ""},
		{"it has the name of a revision of the platform's StatefulSet", labelled("{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: store-97d45c996, namespace: NAMESPACE}, revision: 1, data: {spec: {}}}"), acts},
		{"a revision of the platform's StatefulSet is deleted", tenant.Delete(t.Context(), revision.DeepCopy(), client.DryRunAll), acts},
		{"it gets another number", patch(revision, types.MergePatchType, `{"revision":7}`), acts},
		{"Kubernetes' controller gives it another number", kubernetes("statefulset-controller").Patch(t.Context(), revision.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"revision":7}`)), client.DryRunAll), ""},
		{"the controller of ReplicaSets makes a Pod of the platform's", kubernetes("replicaset-controller").Create(t.Context(), parse(t, made(podWith("app: agent, pod-template-hash: 5d9c7bbf4"))), client.DryRunAll), ""},
		{"the controller of Deployments makes a ReplicaSet of the platform's", kubernetes("deployment-controller").Create(t.Context(), parse(t, made(setWith("app: agent"))), client.DryRunAll), ""},
		{"a Pod of a Job of the platform's is deleted", tenant.Delete(t.Context(), named("v1", "Pod", "migrate-x2v7k"), client.DryRunAll), acts},
		{"a Pod of an indexed Job is evicted", evict(named("v1", "Pod", "migrate-0-x2v7k")), acts},
		{"a Pod of a CronJob of the platform's is deleted", tenant.Delete(t.Context(), named("v1", "Pod", "backup-29384756-x2v7k"), client.DryRunAll), acts},
		{"a program is run in it", enter(named("v1", "Pod", "backup-29384756-x2v7k")), acts},
		{"its status says that it succeeded", patch(named("v1", "Pod", "backup-29384756-x2v7k"), types.MergePatchType, `{"status":{"phase":"Succeeded"}}`, "status"), acts},
		{"a Pod of the tenant's Job is deleted", tenant.Delete(t.Context(), named("v1", "Pod", "backup-own-x2v7k"), client.DryRunAll), ""},
		{"a Job of the CronJob is deleted", tenant.Delete(t.Context(), job.DeepCopy(), client.DryRunAll), acts},
		{"it is changed", patch(job, types.MergePatchType, `{"spec":{"suspend":false}}`), acts},
		{"a Job of the tenant's has the name of the next one", labelled(jobOf("backup-29384757", "", "")), acts},
		{"a Job of the tenant's is one of the CronJob's, which deletes its oldest", labelled(jobOf("x", "ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: backup, uid: 00000000-0000-0000-0000-000000000001, controller: true}]", "")), acts},
		{"a Job of the tenant's is one of its own CronJob's", labelled(jobOf("x", "ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: own, uid: 00000000-0000-0000-0000-000000000001, controller: true}]", "")), ""},
		{"a Job of the tenant's, in whose template the API server sets the label", labelled(jobOf("x", "", "")), ""},
		{"it is changed", patch(ownJob, types.MergePatchType, `{"spec":{"suspend":false}}`), ""},
		{"it is deleted", tenant.Delete(t.Context(), ownJob.DeepCopy(), client.DryRunAll), ""},
		{"a Pod of the tenant's has the label of the Pods of the platform's Job", labelled("{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: NAMESPACE, labels: {batch.kubernetes.io/controller-uid: 00000000-0000-0000-0000-000000000002}}, spec: SPEC}"), takes},
		{"it gets it later", patch(ownPod, types.MergePatchType, `{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"00000000-0000-0000-0000-000000000002"}}}`), takes},
		{"the Pods of its Job have it, which selects by another label", labelled(jobOf("x", "", "manualSelector: true, selector: {matchLabels: {app: own}}, template: {metadata: {labels: {app: own, batch.kubernetes.io/controller-uid: 00000000-0000-0000-0000-000000000002}}, spec: SPEC}")), takes},
		{"the Pods of its ReplicationController have it", labelled("{apiVersion: v1, kind: ReplicationController, metadata: {name: x, namespace: NAMESPACE}, spec: {selector: {app: own}, template: {metadata: {labels: {app: own, batch.kubernetes.io/controller-uid: 00000000-0000-0000-0000-000000000002}}, spec: {containers: [{name: x, image: x}]}}}}"), takes},
		{"the controller of CronJobs makes the next Job", kubernetes("cronjob-controller").Create(t.Context(), parse(t, made(jobOf("backup-29384757", "", ""))), client.DryRunAll), ""},
		{"and deletes the oldest", kubernetes("cronjob-controller").Delete(t.Context(), job.DeepCopy(), client.DryRunAll), ""},
		{"so does the one of times to live", kubernetes("ttl-after-finished-controller").Delete(t.Context(), job.DeepCopy(), client.DryRunAll), ""},
		{"the controller of Jobs makes a Pod", kubernetes("job-controller").Create(t.Context(), parse(t, made("{apiVersion: v1, kind: Pod, metadata: {name: migrate-y2v7k, namespace: NAMESPACE, labels: {batch.kubernetes.io/controller-uid: 00000000-0000-0000-0000-000000000002}, finalizers: [batch.kubernetes.io/job-tracking]}, spec: SPEC}")), client.DryRunAll), ""},
		{"it takes one", adopted("job-controller", named("v1", "Pod", "migrate-x2v7k"), "Job/migrate"), ""},
		{"it counts one and releases it", kubernetes("job-controller").Patch(t.Context(), named("v1", "Pod", "migrate-x2v7k"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), client.DryRunAll), ""},
		{"it deletes one", kubernetes("job-controller").Delete(t.Context(), named("v1", "Pod", "migrate-x2v7k"), client.DryRunAll), ""},
		{"it writes the status of a Job", kubernetes("job-controller").SubResource("status").Patch(t.Context(), job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"ready":0}}`)), client.DryRunAll), ""},
		{"the garbage collector deletes a Pod", kubernetes("generic-garbage-collector").Delete(t.Context(), named("v1", "Pod", "backup-29384756-x2v7k"), client.DryRunAll), ""},
		{"and a Job", kubernetes("generic-garbage-collector").Delete(t.Context(), job.DeepCopy(), client.DryRunAll), ""},
		{"and leaves a Pod without its owner", kubernetes("generic-garbage-collector").Patch(t.Context(), named("v1", "Pod", "migrate-x2v7k"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`)), client.DryRunAll), ""},
		{"the collector of old Pods deletes one", kubernetes("pod-garbage-collector").Delete(t.Context(), named("v1", "Pod", "migrate-x2v7k"), client.DryRunAll), ""},
		{"a claim of the platform's StatefulSet is deleted", tenant.Delete(t.Context(), claim.DeepCopy(), client.DryRunAll), acts},
		{"it is changed", patch(claim, types.MergePatchType, `{"metadata":{"labels":{"app":"other"}}}`), acts},
		{"the claim of a further Pod of it is created", labelled("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-store-1, namespace: NAMESPACE}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}"), acts},
		{"the claim for an ephemeral volume of a further Pod of it is created", labelled("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: store-1-cache, namespace: NAMESPACE}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}"), acts},
		{"a StatefulSet with its claims is created", labelled(claiming("db", "data-my")), acts},
		{"one with claims of other names is created", labelled(claiming("db", "data")), ""},
		{"one with a longer name is created", labelled(claiming("your-store", "data")), ""},
		{"a claim of the tenant's is deleted", tenant.Delete(t.Context(), ownClaim.DeepCopy(), client.DryRunAll), ""},
		{"a ReplicaSet of the tenant's takes a Pod that the platform applied", adopted("replicaset-controller", named("v1", "Pod", "alone"), "ReplicaSet/own"), taken + "ReplicaSet own"},
		{"a Deployment of the tenant's takes a ReplicaSet that the platform applied", adopted("deployment-controller", named("apps/v1", "ReplicaSet", "alone"), "Deployment/own"), taken + "Deployment own"},
		{"a StatefulSet of the tenant's takes a claim that the platform applied", adopted("statefulset-controller", named("v1", "PersistentVolumeClaim", "data-x-0"), "StatefulSet/x"), taken + "StatefulSet x"},
		{"a StatefulSet of the platform's does", adopted("statefulset-controller", named("v1", "PersistentVolumeClaim", "data-x-0"), "StatefulSet/store"), ""},
		{"a StatefulSet of the tenant's takes its own claim", adopted("statefulset-controller", ownClaim, "StatefulSet/own"), ""},
		{"a ReplicaSet of the tenant's takes a Pod of the tenant's", adopted("replicaset-controller", ownPod, "ReplicaSet/own"), ""},
		{"a Pod of the tenant's is evicted", evict(ownPod), ""},
		{"it is deleted", tenant.Delete(t.Context(), ownPod.DeepCopy(), client.DryRunAll), ""},
		{"a program is run in it", enter(ownPod), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
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
			client.DryRunAll)
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
		{"it writes parameters", parameters(delegate), "only the platform writes it"},
		{"so does an account that is listed: the profile is not read there", parameters(controller), "only the platform writes it"},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
	}
}
