package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const cordonedTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: cordoned, labels: {tenure.dev/tenant: cordoned, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: cordoned}
spec: {tenant: cordoned, cordoned: true, breakGlass: [firefighters]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: there, namespace: cordoned}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all, namespace: cordoned}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
  - {kind: User, apiGroup: rbac.authorization.k8s.io, name: cora}
  - {kind: ServiceAccount, name: cordoned, namespace: cordoned}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cordon-certificates}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cordon-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cordon-certificates}
subjects: [{kind: ServiceAccount, name: issuer, namespace: certificates}]
`

// noAccount is a part of the API server's refusal of a Pod until Kubernetes' controller has made the
// account `default` of the Pod's namespace.
const noAccount = "error looking up service account"

// makeAll creates objects. What comes after a namespace's parameters is refused until
// the policies know those, and so is the namespace's account, which a Pod waits for.
func makeAll(t *testing.T, admin client.Client, documents []string) {
	t.Helper()
	for _, document := range documents {
		testwait.For(t, "the rules to know the parameters", patience, func() (bool, string) {
			err := admin.Create(t.Context(), parse(t, document))
			if err != nil && !strings.Contains(err.Error(), "no params found") && !strings.Contains(err.Error(), noAccount) {
				t.Fatal(err)
			}
			return err == nil, fmt.Sprint(err)
		})
	}
}

func TestCordoned(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	makeAll(t, admin, strings.Split(cordonedTenant, "---\n"))
	as := func(name string, groups ...string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")})
	}
	account := as("system:serviceaccount:cordoned:cordoned", "system:serviceaccounts", "system:serviceaccounts:cordoned")
	configMap := func(name string) *unstructured.Unstructured {
		return parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: cordoned}}")
	}
	const want = "tenant cordoned: is cordoned, and only the platform may change configmaps in namespace cordoned"
	testwait.For(t, "the cordon to be in force", patience, func() (bool, string) {
		err := account.Create(t.Context(), configMap("new"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), want), fmt.Sprint(err)
	})
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`))
	namespace := parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: cordoned}}")
	make := func(c client.Client) error { return c.Create(t.Context(), configMap("new"), client.DryRunAll) }
	change := func(c client.Client) error { return c.Patch(t.Context(), configMap("there"), patch, client.DryRunAll) }
	remove := func(c client.Client) error { return c.Delete(t.Context(), configMap("there"), client.DryRunAll) }
	manifest := func(text string) func(client.Client) error {
		return func(c client.Client) error { return c.Create(t.Context(), parse(t, text), client.DryRunAll) }
	}
	for _, tc := range []struct {
		reason string
		who    client.Client
		what   func(client.Client) error
		held   bool
	}{
		{"an owner creates", as("cora"), make, true},
		{"an owner changes", as("cora"), change, true},
		{"an owner deletes", as("cora"), remove, true},
		{"an owner deletes everything", as("cora"), func(c client.Client) error {
			return c.DeleteAllOf(t.Context(), configMap("x"), client.InNamespace("cordoned"), client.DryRunAll)
		}, true},
		{"an owner deletes the namespace", as("cora"), func(c client.Client) error {
			return c.Delete(t.Context(), parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: cordoned}}"), client.DryRunAll)
		}, true},
		{"an owner updates the namespace", as("cora"), func(c client.Client) error {
			return c.Patch(t.Context(), namespace.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{}`)), client.DryRunAll)
		}, true},
		{"an owner's shell", as("cora"), func(client.Client) error { return shell(t, restConfig, "cora", "cordoned") }, true},
		{"Flux as the tenant", account, change, true},
		{"a binding of the owner's own", as("cora"), manifest("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x, namespace: cordoned}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}"), true},
		{"a lease of what runs", account, manifest("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: x, namespace: cordoned}}"), false},
		{"an event of what runs", account, manifest("{apiVersion: v1, kind: Event, metadata: {name: x, namespace: cordoned}, involvedObject: {namespace: cordoned}}"), false},
		{"an admin", admin, change, false},
		{"break-glass", as("cora", "firefighters"), change, false},
		{"the platform's own account", as("system:serviceaccount:flux-system:kustomize-controller", "system:masters"), make, false},
		{"Kubernetes cleans up", as("system:serviceaccount:kube-system:namespace-controller"), remove, false},
		{"a controller that may do so everywhere", as("system:serviceaccount:certificates:issuer"), make, false},
		{"the same by patch", as("system:serviceaccount:certificates:issuer"), change, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			decided(t, tc.what(tc.who), tc.held, "is cordoned, and only the platform")
		})
	}
}

// shell asks for a command in a Pod, as a user.
func shell(t *testing.T, restConfig *rest.Config, user, namespace string) error {
	t.Helper()
	as := rest.CopyConfig(restConfig)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	as.Wrap(refusals.wrap)
	kube, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	return kube.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("any").SubResource("exec").Param("command", "true").Do(t.Context()).Error()
}

// decided fails unless a request was held back, by the rule that says so, or was not.
func decided(t *testing.T, err error, held bool, says string) {
	t.Helper()
	if !held && err != nil {
		t.Errorf("held back: %v", err)
	}
	if held && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says)) {
		t.Errorf("want the rule's refusal, got %v", err)
	}
}

func TestProtectedTenant(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	for name, held := range map[string]bool{"kept": true, "free": false} {
		tenant := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: "+name+"}, spec: {}}")
		if err := unstructured.SetNestedField(tenant.Object, held, "spec", "protected"); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
		err := admin.Delete(t.Context(), tenant)
		if held != (err != nil) || (held && !strings.Contains(err.Error(), "Tenant kept is protected, and with it all that the tenant has: set spec.protected to false first")) {
			t.Errorf("deletion of a Tenant with protected %v: %v", held, err)
		}
	}
}

const holdingTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: holding, labels: {tenure.dev/tenant: holding, tenure.dev/parameters: "true"}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: holding}
spec: {tenant: holding, tenants: {bounds: {finalizers: [operator.example.com/served]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: there, namespace: holding, finalizers: [example.com/before]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all, namespace: holding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: holder}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: holding-issuer}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: holding-issuer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: holding-issuer}
subjects: [{kind: ServiceAccount, name: holding-issuer, namespace: certificates}]
`

const (
	workload = "{apiVersion: apps/v1, kind: %s, metadata: {name: new, namespace: holding}, spec: {selector: {matchLabels: {a: b}}, %s," +
		" template: {metadata: {labels: {a: b}, finalizers: [%s]}, spec: {containers: [{name: a, image: a}]}}}}"
	claims = "serviceName: a, volumeClaimTemplates: [{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}," +
		" {metadata: {name: b, finalizers: [%s]}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"
)

// TestFinalizersOfTemplates checks templates: Kubernetes copies the finalizers of a template to the objects
// that it creates from it.
func TestFinalizersOfTemplates(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	objects := strings.Split(strings.ReplaceAll(holdingTenant, "holding", "templates"), "---\n")
	there := strings.ReplaceAll(fmt.Sprintf(workload, "Deployment", "replicas: 0", "example.com/before"), "name: new, namespace: holding", "name: there, namespace: templates")
	makeAll(t, admin, append(objects, there))
	holder := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "holder", Groups: []string{"system:authenticated"}})
	controller := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:deployment-controller", Groups: []string{"system:masters"}})
	manifest := func(format string, values ...any) func(client.Client) error {
		text := strings.ReplaceAll(fmt.Sprintf(format, values...), "namespace: holding", "namespace: templates")
		return func(c client.Client) error { return c.Create(t.Context(), parse(t, text), client.DryRunAll) }
	}
	patch := func(content string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Patch(t.Context(), parse(t, there), client.RawPatch(types.MergePatchType, []byte(content)), client.DryRunAll)
		}
	}
	const (
		metadata = "metadata: {name: new, namespace: holding}"
		template = "metadata: {labels: {a: b}, finalizers: [%s]}, spec: {restartPolicy: %s, containers: [{name: a, image: a}]}"
		job      = "{apiVersion: batch/v1, kind: Job, " + metadata + ", spec: {template: {" + template + "}}}"
		cronJob  = "{apiVersion: batch/v1, kind: CronJob, " + metadata + ", spec: {schedule: '0 0 * * *', jobTemplate: {metadata: {finalizers: [%s]}, spec: {template: {" + template + "}}}}}"
		revision = "{apiVersion: apps/v1, kind: ControllerRevision, " + metadata + ", revision: 1, data: {spec: {template: {metadata: {finalizers: [%s]}}}}}"
		bad      = "example.com/x"
	)
	const want = "tenant templates: Deployment new must not have finalizers in its templates that are not allowed: leave out metadata.finalizers there (allowed: orphan, foregroundDeletion, operator.example.com/served)"
	testwait.For(t, "the rule to be in force", patience, func() (bool, string) {
		err := manifest(workload, "Deployment", "replicas: 1", bad)(holder)
		return err != nil && strings.Contains(err.Error(), want), fmt.Sprint(err)
	})
	for _, tc := range []struct {
		reason string
		who    client.Client
		what   func(client.Client) error
		held   bool
	}{
		{"Deployment", holder, manifest(workload, "Deployment", "replicas: 1", bad), true},
		{"ReplicaSet", holder, manifest(workload, "ReplicaSet", "replicas: 1", bad), true},
		{"DaemonSet", holder, manifest(workload, "DaemonSet", "minReadySeconds: 1", bad), true},
		{"StatefulSet", holder, manifest(workload, "StatefulSet", "serviceName: a", bad), true},
		{"one of a StatefulSet's claims", holder, manifest(workload, "StatefulSet", fmt.Sprintf(claims, bad), ""), true},
		{"a revision of a StatefulSet", holder, manifest(revision, bad), true},
		{"ReplicationController", holder, manifest("{apiVersion: v1, kind: ReplicationController, "+metadata+", spec: {selector: {a: b}, template: {"+template+"}}}", bad, "Always"), true},
		{"Job", holder, manifest(job, bad, "Never"), true},
		{"CronJob", holder, manifest(cronJob, "", bad, "Never"), true},
		{"the Jobs of a CronJob", holder, manifest(cronJob, bad, "", "Never"), true},
		{"PodTemplate", holder, manifest("{apiVersion: v1, kind: PodTemplate, "+metadata+", template: {"+template+"}}", bad, "Always"), true},
		{"one more than before", holder, patch(`{"spec":{"template":{"metadata":{"finalizers":["example.com/before","example.com/x"]}}}}`), true},
		{"the one from before, kept", holder, patch(`{"spec":{"replicas":1}}`), false},
		{"taken off", holder, patch(`{"spec":{"template":{"metadata":{"finalizers":null}}}}`), false},
		{"no finalizer", holder, manifest(workload, "StatefulSet", fmt.Sprintf(claims, ""), ""), false},
		{"none of a CronJob's", holder, manifest(cronJob, "", "", "Never"), false},
		{"a revision without", holder, manifest(revision, ""), false},
		{"one that the platform allows", holder, manifest(workload, "Deployment", "replicas: 1", "operator.example.com/served"), false},
		{"Kubernetes' own controller", controller, manifest(workload, "ReplicaSet", "replicas: 1", bad), false},
		{"an admin", admin, manifest(workload, "Deployment", "replicas: 1", bad), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			decided(t, tc.what(tc.who), tc.held, "must not have finalizers in its templates")
		})
	}
}

// Tenants put no finalizers on anything that would keep their namespaces from
// going; those who serve them do.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	makeAll(t, admin, strings.Split(holdingTenant, "---\n"))
	holder := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "holder", Groups: []string{"system:authenticated"}})
	issuer := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:certificates:holding-issuer", Groups: []string{"system:serviceaccounts"}})
	manifest := func(kind, finalizers string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Create(t.Context(), parse(t, "{"+kind+", metadata: {name: new, namespace: holding, finalizers: ["+finalizers+"]}}"), client.DryRunAll)
		}
	}
	patch := func(finalizers string) func(client.Client) error {
		return func(c client.Client) error {
			there := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: there, namespace: holding}}")
			return c.Patch(t.Context(), there, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[`+finalizers+`],"labels":{"a":"b"}}}`)), client.DryRunAll)
		}
	}
	const configMap, lease, role = "apiVersion: v1, kind: ConfigMap", "apiVersion: coordination.k8s.io/v1, kind: Lease", "apiVersion: rbac.authorization.k8s.io/v1, kind: Role"
	const want = "tenant holding: ConfigMap new must not have finalizers that are not allowed: leave out metadata.finalizers (allowed: orphan, foregroundDeletion, operator.example.com/served)"
	testwait.For(t, "the rule to be in force", patience, func() (bool, string) {
		err := manifest(configMap, "example.com/x")(holder)
		return err != nil && strings.Contains(err.Error(), want), fmt.Sprint(err)
	})
	for _, tc := range []struct {
		reason string
		who    client.Client
		what   func(client.Client) error
		held   bool
	}{
		{"none", holder, manifest(configMap, ""), false},
		{"one that nobody serves", holder, manifest(configMap, "example.com/x"), true},
		{"on a kind that a cordon leaves alone", holder, manifest(lease, "example.com/x"), true},
		{"on a kind of RBAC's", holder, manifest(role, "example.com/x"), true},
		{"beside one that is served", holder, manifest(configMap, "operator.example.com/served, example.com/x"), true},
		{"a beginning of one that is served", holder, manifest(configMap, "operator.example.com/serve"), true},
		{"one that Kubernetes serves for some kinds alone", holder, manifest(configMap, "kubernetes.io/pvc-protection"), true},
		{"one that the platform allows", holder, manifest(configMap, "operator.example.com/served"), false},
		{"Kubernetes' own", holder, manifest(configMap, "foregroundDeletion"), false},
		{"another one later", holder, patch(`"example.com/before","example.com/x"`), true},
		{"the one from before, kept", holder, patch(`"example.com/before"`), false},
		{"taken off", holder, patch(``), false},
		{"by a controller that may do so everywhere", issuer, manifest(configMap, "certificates.example.com/x"), false},
		{"by an admin", admin, manifest(configMap, "example.com/x"), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			decided(t, tc.what(tc.who), tc.held, "must not have finalizers that are not allowed")
		})
	}
	// The rule tenure-namespaces refuses it as well, and either of the two may answer.
	decided(t, holder.Patch(t.Context(), parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: holding}}"),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/x"]}}`)), client.DryRunAll), true, "finalizers")
}

const slowTenant = `---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: slow}
spec: {template: {spec: {schedulingGates: [{name: example.com/held}], restartPolicy: Never, containers: [{name: a, image: a}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: old, namespace: slow}
spec: {terminationGracePeriodSeconds: 90000, containers: [{name: a, image: a}]}
`

// A Pod of a tenant ends within a day, and leaves no Job that alone can remove its finalizer.
func TestPodsEnd(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	makeAll(t, admin, strings.Split(strings.ReplaceAll(holdingTenant, "holding", "slow")+slowTenant, "---\n"))
	holder := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "holder", Groups: []string{"system:authenticated"}})
	named := func(name string) *unstructured.Unstructured {
		return parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+name+", namespace: slow}}")
	}
	const (
		spec     = "{terminationGracePeriodSeconds: %d, restartPolicy: %s, containers: [{name: a, image: a}]}"
		metadata = "metadata: {name: new, namespace: slow}"
		held     = "seconds to end"
	)
	create := func(format string, seconds int, restart string) error {
		return holder.Create(t.Context(), parse(t, fmt.Sprintf(strings.ReplaceAll(format, "SPEC", spec), seconds, restart)), client.DryRunAll)
	}
	pod, deployment := "{apiVersion: v1, kind: Pod, "+metadata+", spec: SPEC}", "{apiVersion: apps/v1, kind: Deployment, "+metadata+", spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: SPEC}}}"
	testwait.For(t, "the rule to be in force", patience, func() (bool, string) {
		err := create(pod, 90000, "Always")
		return err != nil && strings.Contains(err.Error(), "Pod new must not give Pods more than 86400 seconds to end"), fmt.Sprint(err)
	})
	remove := func(seconds int64) error {
		return holder.Delete(t.Context(), named("old"), client.GracePeriodSeconds(seconds), client.DryRunAll)
	}
	evict := func(seconds int) error {
		eviction := parse(t, fmt.Sprintf("{apiVersion: policy/v1, kind: Eviction, metadata: {name: old, namespace: slow}, deleteOptions: {gracePeriodSeconds: %d}}", seconds))
		return holder.SubResource("eviction").Create(t.Context(), named("old"), eviction, client.DryRunAll)
	}
	patch := func(name, content string) error {
		return holder.Patch(t.Context(), named(name), client.RawPatch(types.MergePatchType, []byte(content)), client.DryRunAll)
	}
	pods := &unstructured.UnstructuredList{}
	pods.SetGroupVersionKind(named("").GroupVersionKind())
	testwait.For(t, "the Job to have a Pod", patience, func() (bool, string) {
		err := admin.List(t.Context(), pods, client.InNamespace("slow"), client.MatchingLabels{"job-name": "job"})
		return err == nil && len(pods.Items) == 1, fmt.Sprint(err)
	})
	tracked := pods.Items[0].GetName()
	const owner = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"there","uid":"a","controller":true}]}}`
	for _, tc := range []struct {
		reason string
		err    error
		says   string
	}{
		{"a Pod", create(pod, 86401, "Always"), held},
		{"a Pod that ends within a day", create(pod, 86400, "Always"), ""},
		{"a Deployment", create(deployment, 86401, "Always"), held},
		{"a Deployment whose Pods end in time", create(deployment, 60, "Always"), ""},
		{"a CronJob", create("{apiVersion: batch/v1, kind: CronJob, "+metadata+", spec: {schedule: '0 0 * * *', jobTemplate: {spec: {template: {spec: SPEC}}}}}", 86401, "Never"), held},
		{"a PodTemplate", create("{apiVersion: v1, kind: PodTemplate, "+metadata+", template: {spec: SPEC}}", 86401, "Always"), held},
		{"an older Pod gets a label", patch("old", `{"metadata":{"labels":{"a":"b"}}}`), ""},
		{"a deletion that takes years", remove(315360000), held},
		{"a deletion", remove(30), ""},
		{"a deletion of all Pods that takes years", holder.DeleteAllOf(t.Context(), named("old"), client.InNamespace("slow"), client.GracePeriodSeconds(315360000), client.DryRunAll), held},
		{"an eviction that takes years", evict(315360000), held},
		{"an eviction", evict(30), ""},
		{"a Pod of a Job gets another owner", patch(tracked, owner), "must not leave its Job"},
		{"a Pod of no Job does", patch("old", owner), ""},
		{"a Pod of a Job gets a label", patch(tracked, `{"metadata":{"labels":{"a":"b"}}}`), ""},
		{"a Pod of a Job loses its finalizer", patch(tracked, `{"metadata":{"finalizers":null}}`), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) { decided(t, tc.err, tc.says != "", tc.says) })
	}
}

// TestQuotaCounts checks that the platform's quotas still count: the API server counts when a tenant
// creates an object, and Kubernetes' controller counts first.
func TestQuotaCounts(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	const more = `---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, namespace: counting, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {hard: {count/leases.coordination.k8s.io: "2"}}
`
	makeAll(t, admin, strings.Split(strings.ReplaceAll(holdingTenant, "holding", "counting")+more, "---\n"))
	holder := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "holder", Groups: []string{"system:authenticated"}})
	lease := func(name string) *unstructured.Unstructured {
		return parse(t, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: "+name+", namespace: counting}}")
	}
	testwait.For(t, "the quota to be counted and full", patience, func() (bool, string) {
		err := holder.Create(t.Context(), lease("a"))
		if err == nil || apierrors.IsAlreadyExists(err) {
			err = holder.Create(t.Context(), lease("b"))
		}
		quota := parse(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota, namespace: counting}}")
		if getErr := admin.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); getErr != nil {
			return false, getErr.Error()
		}
		used, _, _ := unstructured.NestedString(quota.Object, "status", "used", "count/leases.coordination.k8s.io")
		return used == "2", fmt.Sprintf("used %q, %v", used, err)
	})
	if err := holder.Create(t.Context(), lease("c")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("a third is not refused by the quota: %v", err)
	}
}
