package olderobjects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestRequest checks that the copy of an object has what its author wrote, and nothing else.
func TestRequest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, object, want string }{
		{
			"the API server and controllers set these fields of every object",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: b, labels: {l: x}, annotations: {note: text}, uid: u, resourceVersion: '1', generation: 2, creationTimestamp: '2026-01-01T00:00:00Z', finalizers: [f], ownerReferences: [{kind: X, name: x}], managedFields: [{manager: m}]}, spec: {replicas: 1}, status: {replicas: 1}}",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, namespace: b, labels: {l: x}, annotations: {note: text}}, spec: {replicas: 1}}",
		},
		{
			"the scheduler chose the node",
			"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: b}, spec: {nodeName: n, hostNetwork: true, ephemeralContainers: [{name: e}]}}",
			"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: b}, spec: {hostNetwork: true}}",
		},
		{
			"the addresses and ports are in use",
			"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {type: LoadBalancer, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], healthCheckNodePort: 31000, loadBalancerIP: 192.0.2.1, ports: [{port: 80, nodePort: 30080}]}}",
			"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {type: LoadBalancer, loadBalancerIP: 192.0.2.1, ports: [{port: 80}]}}",
		},
		{
			"the author chose a Service without an address",
			"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {clusterIP: None, clusterIPs: [None]}}",
			"{apiVersion: v1, kind: Service, metadata: {name: a, namespace: b}, spec: {clusterIP: None, clusterIPs: [None]}}",
		},
		{
			"the controller chose the volume",
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: b, annotations: {pv.kubernetes.io/bound-by-controller: 'yes'}}, spec: {storageClassName: fast, volumeName: v}}",
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: b, annotations: {pv.kubernetes.io/bound-by-controller: 'yes'}}, spec: {storageClassName: fast}}",
		},
		{
			"the author chose the volume",
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: b, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: v}}",
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: b, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {volumeName: v}}",
		},
		{
			"the API server makes the selector of a Job",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: b, labels: {job-name: a, l: x}}, spec: {selector: {matchLabels: {controller-uid: u}}, template: {metadata: {labels: {batch.kubernetes.io/controller-uid: u, l: x}}}}}",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: b, labels: {l: x}}, spec: {template: {metadata: {labels: {l: x}}}}}",
		},
		{
			"the author made the selector",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: b}, spec: {manualSelector: true, selector: {matchLabels: {l: x}}}}",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: b}, spec: {manualSelector: true, selector: {matchLabels: {l: x}}}}",
		},
	} {
		object := parse(t, tc.object)
		before := object.DeepCopy()
		if diff := cmp.Diff(parse(t, tc.want).Object, request(object).Object); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
		if diff := cmp.Diff(before.Object, object.Object); diff != "" {
			t.Errorf("%s: the object itself changed:\n%s", tc.reason, diff)
		}
	}
}

// denied is the error of a request that a policy refuses, and forbidden of another one.
func denied(policy, message string) error {
	return forbidden(fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %s", policy, message))
}

func forbidden(message string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "a", errors.New(message))
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	const openPort = "tenant b: Service a must not open port 31234 on every node (allowed: 30100-30199): name an allowed port (rule tenure-services)"
	for _, tc := range []struct {
		reason   string
		err      error
		warnings []string
		rules    []string
		untried  string
	}{
		{"two rules of a shared policy", denied("tenure-objects-own-rest", "tenant b: x (rule tenure-workloads); y (rule tenure-contents)"), nil, []string{"tenure-contents", "tenure-workloads"}, ""},
		{"a policy of one rule", denied("tenure-hosts-own", "tenant b: x"), nil, []string{"tenure-hosts"}, ""},
		{"the object exists", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "services"}, "a"), nil, nil, ""},
		{"a rule only warns", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "services"}, "a"), []string{
			"unknown field \"spec.x\"", "Validation failed for ValidatingAdmissionPolicy 'tenure-objects' with binding 'tenure-objects-flux': tenant b: x (rule tenure-workloads)",
		}, []string{"tenure-workloads"}, ""},
		{"the object has gone", nil, nil, nil, ""},
		{"a used-up quota comes after the rules", forbidden("exceeded quota: q, requested: pods=1"), nil, nil, ""},
		{"the platform wrote the object", denied("tenure-objects-own-rest", "tenant b: x (rule tenure-managed); y (rule tenure-workloads)"), nil, nil, ""},
		{"nobody may write in the namespace", denied("tenure-objects-own-rest", "tenant b: is cordoned (rule tenure-cordon)"), nil, nil, ""},
		{"the limit is found in a cordoned namespace too", denied("tenure-objects-own-rest", "tenant b: is cordoned (rule tenure-cordon); x (rule tenure-services)"), nil, []string{"tenure-services"}, ""},
		{"the API server chose the port", denied("tenure-objects-own-rest", openPort), nil, nil, "node ports"},
		{"a policy of others", denied("images", "no (rule tenure-workloads)"), nil, nil, "ValidatingAdmissionPolicy 'images'"},
		{"a Pod Security level", forbidden(`violates PodSecurity "restricted:latest"`), nil, nil, "violates PodSecurity"},
		{"a field that the API server refuses", apierrors.NewBadRequest("no such field"), nil, nil, "no such field"},
	} {
		rules, untried := verdict(parse(t, "{kind: Service}"), tc.err, tc.warnings)
		if !slices.Equal(rules, tc.rules) || (untried == "") != (tc.untried == "") || !strings.Contains(untried, tc.untried) {
			t.Errorf("%s: got %v and %q, want %v and %q", tc.reason, rules, untried, tc.rules, tc.untried)
		}
	}
}

func TestByPeople(t *testing.T) {
	t.Parallel()
	profile := v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{"flux-system"}, DelegatedSyncs: []v1alpha1.DelegatedSync{{Namespace: "flux-system", Name: "team"}}}
	for _, tc := range []struct {
		reason, metadata string
		want             bool
	}{
		{"kubectl", "{}", true},
		{"a sync of the tenant", "{labels: {kustomize.toolkit.fluxcd.io/namespace: team, kustomize.toolkit.fluxcd.io/name: apps}}", true},
		{"a sync that the platform runs for the tenant", "{labels: {kustomize.toolkit.fluxcd.io/namespace: flux-system, kustomize.toolkit.fluxcd.io/name: team}}", true},
		{"the platform's sync", "{labels: {kustomize.toolkit.fluxcd.io/namespace: flux-system, kustomize.toolkit.fluxcd.io/name: tenants}}", false},
		{"the platform's HelmRelease", "{labels: {helm.toolkit.fluxcd.io/namespace: flux-system, helm.toolkit.fluxcd.io/name: agent}}", false},
		{"the manager", "{labels: {tenure.dev/managed-by: manager}}", false},
		{"a controller", "{ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]}", false},
		{"an owner that is no controller", "{ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: r, uid: u}]}", true},
		{"an object that is deleted", "{deletionTimestamp: '2026-01-01T00:00:00Z'}", false},
	} {
		if got := byPeople(parse(t, "{metadata: "+tc.metadata+"}"), profile); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	}
}

func TestUsersOf(t *testing.T) {
	t.Parallel()
	users := usersOf([]discovery.Tenant{{
		Namespaces: []string{"apps", "data"},
		Accounts:   []discovery.Account{{Namespace: "flux-system", Name: "team"}, {Namespace: "apps", Name: "x"}, {Namespace: "data", Name: "x"}},
		Owners:     []discovery.Owner{{Kind: "Group", Name: "devs"}, {Kind: "User", Name: "ann"}},
	}})
	want := []rest.ImpersonationConfig{
		{UserName: "system:serviceaccount:data:x"}, {UserName: "system:serviceaccount:flux-system:team"}, {UserName: "system:serviceaccount:apps:x"},
		{UserName: "tenure-attack-member", Groups: []string{"devs", "system:authenticated"}},
	}
	if diff := cmp.Diff(want, users["data"]); diff != "" || len(users) != 2 {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	many := make([]Refusal, maxNamed+2)
	for i := range many {
		many[i] = Refusal{fmt.Sprintf("Pod b/a%d", i), []string{"tenure-workloads"}}
	}
	many[0].Rules = []string{"tenure-contents", "tenure-workloads"}
	for _, tc := range []struct {
		reason string
		report Report
		want   string
	}{
		{"nothing there", Report{}, "no objects of tenants"},
		{"all allowed", Report{Objects: 3}, "the rules allow 3 objects as they are"},
		{"nothing tried", Report{Objects: 1, Untried: 1, Reason: "no rights"}, "not counted; 1 object could not be tried, such as: no rights"},
		{"many", Report{Objects: 2000, Refused: many, Untried: 2, Reason: "no rights", More: true},
			"7 of 2000 objects break today's rules, and keep running (tenure-workloads: 7, tenure-contents: 1): " +
				"Pod b/a0 (tenure-contents, tenure-workloads), Pod b/a1 (tenure-workloads), Pod b/a2 (tenure-workloads), Pod b/a3 (tenure-workloads), Pod b/a4 (tenure-workloads), and 2 more" +
				"; 2 objects could not be tried, such as: no rights; tenants have more objects, and only 2000 were looked at"},
	} {
		if got := tc.report.String(); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tc.reason, got, tc.want)
		}
	}
}
