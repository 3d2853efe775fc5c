package admission_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var capsuleServed sync.Once

// ruled returns an owner's client of a namespace that has rules of a Capsule Tenant. The owner
// has all rights in the namespace, and no rule of a Tenant of Tenure holds in it.
func ruled(t *testing.T, name, rules string) client.Client {
	t.Helper()
	admin, _, restConfig := cluster(t)
	capsuleServed.Do(func() { serve(t, restConfig, config.CapsuleCRDs(), config.CapsulePolicies(), testcrds.GatewayAPI()) })
	for _, manifest := range []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}",
		"{apiVersion: capsule.clastix.io/v1beta2, kind: RuleStatus, metadata: {name: capsule-managed-rules, namespace: " + name + "}}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: owner, namespace: " + name + "}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]}",
	} {
		if err := admin.Create(t.Context(), parse(t, manifest)); err != nil {
			t.Fatal(err)
		}
	}
	status := unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte(rules), &status.Object); err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]any{"status": status.Object})
	if err != nil {
		t.Fatal(err)
	}
	object := parse(t, "{apiVersion: capsule.clastix.io/v1beta2, kind: RuleStatus, metadata: {name: capsule-managed-rules, namespace: "+name+"}}")
	if err := admin.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, content)); err != nil {
		t.Fatal(err)
	}
	namespace := parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	if err := admin.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"projectcapsule.dev/rules":"true"}}}`))); err != nil {
		t.Fatal(err)
	}
	owner := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated", "projectcapsule.dev"}})
	testwait.For(t, "the policies to know the kind of their parameters and the rules, and the namespace to have its account", patience, func() (bool, string) {
		err := owner.Create(t.Context(), parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: "+name+"}, spec: {containers: [{name: a, image: a}]}}"), client.DryRunAll)
		text := fmt.Sprint(err)
		return !strings.Contains(text, "failed to configure policy") && !strings.Contains(text, "no params found") && !strings.Contains(text, "cannot create resource") &&
			!strings.Contains(text, noAccount), text
	})
	return owner
}

// ruleCase is an object, and parts of the refusal; none for an object that is admitted.
type ruleCase struct {
	reason, manifest string
	want             []string
}

func checkRules(t *testing.T, owner client.Client, namespace string, cases []ruleCase) {
	t.Helper()
	refusal := func(c ruleCase) (bool, string) {
		u := parse(t, c.manifest)
		u.SetNamespace(namespace)
		err := owner.Create(t.Context(), u, client.DryRunAll)
		if len(c.want) == 0 {
			return err == nil, fmt.Sprint(err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				return false, fmt.Sprintf("got %v, want %q", err, want)
			}
		}
		return true, ""
	}
	for i, c := range cases {
		if i == 0 {
			testwait.For(t, "the rules to be in force: "+c.reason, patience, func() (bool, string) { return refusal(c) })
		}
		if ok, got := refusal(c); !ok {
			t.Errorf("%s: %s", c.reason, got)
		}
	}
}

// checkRefusals compares [capsule.Refusals] with the cases: it refuses an object if the API server does, except
// for the reasons that it leaves out.
func checkRefusals(t *testing.T, namespace string, cases []ruleCase, except ...string) {
	t.Helper()
	admin, _, _ := cluster(t)
	rules := &v1beta2.RuleStatus{}
	content := parse(t, "{apiVersion: capsule.clastix.io/v1beta2, kind: RuleStatus, metadata: {name: "+v1beta2.RulesName+", namespace: "+namespace+"}}")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(content), content); err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, rules); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		got := capsule.Refusals(&rules.Status, capsule.Request{User: "alice", Groups: []string{"projectcapsule.dev"}, Object: parse(t, c.manifest)})
		if want := len(c.want) > 0 && !slices.Contains(except, c.reason); want != (len(got) > 0) {
			t.Errorf("%s: Refusals says %q, and the API server %q", c.reason, got, c.want)
		}
	}
}

const ruledPod = "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {SPEC containers: [{name: c, image: 'IMAGE', imagePullPolicy: IfNotPresent RESOURCES}]}}"

func podOf(image, spec, resources string) string {
	return strings.NewReplacer("IMAGE", image, "SPEC", spec, "RESOURCES", resources).Replace(ruledPod)
}

// The images, schedulers and QoS classes of Pods, as Capsule's documentation of rules says.
func TestCapsuleRulesOfPods(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-pods", `
rules:
- enforce: {action: allow, workloads: {registries: [{exp: harbor/.*}]}}
- enforce: {action: deny, workloads: {targets: [pod/containers], registries: [{exp: harbor/customer/containers/.*}]}}
- enforce: {action: deny, workloads: {targets: [pod/initcontainers], registries: [{exp: harbor/customer/init/.*}]}}
- enforce: {action: deny, workloads: {targets: [pod/volumes], registries: [{exp: harbor/customer/volume/.*}]}}
- enforce: {action: audit, workloads: {registries: [{exp: audit/.*}]}}
- enforce: {action: allow, workloads: {targets: [pod/containers], registries: [{exact: ["combined/exact/app:1"], exp: combined/regex/.*}, {exp: policy/.*, policy: [Never]}]}}
- enforce: {action: deny, workloads: {schedulers: [{exact: [forbidden-scheduler, legacy-scheduler]}]}}
- enforce: {action: allow, workloads: {schedulers: [{exp: '^team-[a-z]+$'}]}}
- audience: [{kind: User, name: bob}]
  enforce: {action: deny, workloads: {registries: [{exp: .*}]}}
- audience: [{kind: Group, name: projectcapsule.dev}]
  enforce: {action: deny, workloads: {qosClasses: [Guaranteed]}}
`)
	cases := []ruleCase{
		{"a later rule denies an image", podOf("harbor/customer/containers/app:1", "", ""), []string{"containers[0]", "harbor/customer/containers/app:1", "denied", "harbor/customer/containers/.*"}},
		{"an image is allowed", podOf("harbor/platform/app:1", "", ""), nil},
		{"no rule allows an image", podOf("other/app:1", "", ""), []string{"containers[0]", "not allowed", "Allowed registries", "exp: harbor/.*"}},
		{"an audited image still needs a rule that allows it", podOf("audit/app:1", "", ""), []string{"not allowed"}},
		{"an exact value beside an expression", podOf("combined/exact/app:1", "", ""), nil},
		{"the expression beside the exact value", podOf("combined/regex/app:1", "", ""), nil},
		{"the pull policy of the rule", podOf("policy/app:1", "", ""), []string{"containers[0]", "policy/app:1", "pullPolicy=IfNotPresent", "allowed: Never"}},
		{"a rule for another list of containers", podOf("harbor/customer/init/app:1", "", ""), nil},
		{"an init container", podOf("harbor/a:1", "initContainers: [{name: i, image: 'harbor/customer/init/app:1'}],", ""), []string{"initContainers[0]", "denied"}},
		{"an image volume", podOf("harbor/a:1", "volumes: [{name: v, image: {reference: 'harbor/customer/volume/app:1'}}],", ""), []string{"volumes[0](v)", "denied"}},
		{"a denied scheduler", podOf("harbor/a:1", "schedulerName: legacy-scheduler,", ""), []string{"legacy-scheduler", "spec.schedulerName", "denied"}},
		{"an allowed scheduler", podOf("harbor/a:1", "schedulerName: team-solar,", ""), nil},
		{"no rule allows a scheduler", podOf("harbor/a:1", "schedulerName: solar,", ""), []string{"solar", "spec.schedulerName", "not allowed"}},
		{"a QoS class that is denied to a group", podOf("harbor/a:1", "", ", resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}"), []string{"Guaranteed", "denied"}},
		{"another QoS class", podOf("harbor/a:1", "", ", resources: {requests: {cpu: 1}}"), nil},
	}
	checkRules(t, owner, "ruled-pods", cases)
	checkRefusals(t, "ruled-pods", cases, "the pull policy of the rule")
}

// The types, names, addresses and ports of Services.
func TestCapsuleRulesOfServices(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-services", `
rules:
- enforce: {action: allow, services: {types: [NodePort, LoadBalancer, ExternalName]}}
- enforce: {action: allow, services: {loadBalancers: {cidrs: [10.0.0.2/32, 10.0.0.9, 10.0.1.0/24, '2001:db8::9']}}}
- enforce: {action: deny, services: {loadBalancers: {cidrs: [10.0.1.66/32, 10.0.1.67]}}}
- enforce: {action: allow, services: {externalNames: {hostnames: [{exact: [internal.git.com]}, {exp: '.*\.example\.com'}]}}}
- enforce: {action: deny, services: {externalNames: {hostnames: [{exp: 'trusted\..*|internal\..*|.*\.example\.com', negate: true}, {exact: [blocked.example.com]}]}}}
- enforce: {action: allow, services: {nodePorts: {ports: [{from: 30000, to: 30100}, {from: 30500, to: 30500}]}}}
- enforce: {action: deny, services: {nodePorts: {ports: [{from: 30090, to: 30090}]}}}
`)
	service := func(spec string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80 NODEPORT}], " + spec + "}}"
	}
	plain := func(spec string) string { return strings.ReplaceAll(service(spec), " NODEPORT", "") }
	onPort := func(port string) string {
		return strings.ReplaceAll(service("type: NodePort"), " NODEPORT", ", nodePort: "+port)
	}
	const balanced = "type: LoadBalancer, allocateLoadBalancerNodePorts: false, "
	cases := []ruleCase{
		{"a type that is not listed", plain("type: ClusterIP"), []string{"service type", "ClusterIP", "not allowed", "Allowed service types"}},
		{"an exact name", plain("type: ExternalName, externalName: internal.git.com"), nil},
		{"a name that an expression matches", plain("type: ExternalName, externalName: api.example.com"), nil},
		{"a name that is denied by what it is not", plain("type: ExternalName, externalName: api.bad.com"), []string{"externalName hostname", "api.bad.com", "denied", "not exp: trusted"}},
		{"a name that no rule allows", plain("type: ExternalName, externalName: trusted.bad.com"), []string{"spec.externalName", "not allowed", "Allowed hostnames", "exact: internal.git.com", `exp: .*\.example\.com`}},
		{"a denied name", plain("type: ExternalName, externalName: blocked.example.com"), []string{"denied", "exact: blocked.example.com"}},
		{"an address", plain(balanced + "loadBalancerIP: 10.0.1.44"), nil},
		{"an address that is its own network", plain(balanced + "loadBalancerIP: 10.0.0.9"), nil},
		{"a range with an address that is its own network", plain(balanced + "loadBalancerSourceRanges: ['10.0.0.9/32', '2001:db8::9/128']"), nil},
		{"a range around an address that is its own network", plain(balanced + "loadBalancerSourceRanges: [10.0.0.8/31]"), []string{"not allowed", "10.0.0.8/31"}},
		{"a denied address that is its own network", plain(balanced + "loadBalancerIP: 10.0.1.67"), []string{"denied", "10.0.1.67"}},
		{"a range within a network", plain(balanced + "loadBalancerSourceRanges: [10.0.1.0/25]"), nil},
		{"a range beyond a network", plain(balanced + "loadBalancerSourceRanges: [10.0.0.0/23]"), []string{"loadBalancer CIDR", "10.0.0.0/23", "spec.loadBalancerSourceRanges[0]", "Allowed CIDRs"}},
		{"an address outside", plain(balanced + "loadBalancerIP: 10.0.171.239"), []string{"spec.loadBalancerIP", "not allowed", "10.0.0.2/32", "10.0.1.0/24"}},
		{"a denied address", plain(balanced + "loadBalancerIP: 10.0.1.66"), []string{"denied", "10.0.1.66/32"}},
		{"no address", plain(balanced + "externalTrafficPolicy: Local"), []string{"requires spec.loadBalancerIP or spec.loadBalancerSourceRanges"}},
		{"a port in a range", onPort("30080"), nil},
		{"a port of its own", onPort("30500"), nil},
		{"a port outside", onPort("32080"), []string{"nodePort", "32080", "not allowed by namespace rule", "Allowed ranges", "30000-30100", "30500"}},
		{"a denied port", onPort("30090"), []string{"nodePort", "30090", "denied"}},
	}
	checkRules(t, owner, "ruled-services", cases)
	checkRefusals(t, "ruled-services", cases, "no address")
}

// An address that CEL cannot read is refused where a rule only denies addresses.
func TestCapsuleRulesOfUnreadableAddresses(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-addresses", "rules: [{enforce: {action: deny, services: {loadBalancers: {cidrs: [10.0.1.0/24]}}}}]")
	service := func(address string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}], type: LoadBalancer, loadBalancerIP: '" + address + "'}}"
	}
	checkRules(t, owner, "ruled-addresses", []ruleCase{
		{"a denied address", service("10.0.1.66"), []string{"10.0.1.66", "denied"}},
		{"another address", service("10.0.2.66"), nil},
		{"a denied address as an IPv6 address", service("::ffff:10.0.1.66"), []string{"spec.loadBalancerIP", "invalid IP or CIDR"}},
		{"a name", service("pool-a"), []string{"invalid IP or CIDR"}},
	})
}

// The hosts of Ingresses, routes and Gateways.
func TestCapsuleRulesOfHosts(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-hosts", `
rules:
- enforce: {action: allow, ingress: {types: [Ingress, HTTPRoute, Gateway], hostnames: [{exact: [internal.example.org]}, {exp: '^[a-z0-9-]+\.example\.com$'}]}}
- enforce: {action: deny, ingress: {types: [Ingress], hostnames: [{exact: [blocked.example.com]}]}}
`)
	ingress := func(spec string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x}, spec: {defaultBackend: {service: {name: a, port: {number: 80}}}, " + spec + "}}"
	}
	route := func(hosts string) string {
		return "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: x}, spec: {" + hosts + "}}"
	}
	cases := []ruleCase{
		{"a host that no rule allows", ingress("rules: [{host: api.example.com}, {host: api.example.net}]"), []string{"api.example.net", "spec.rules[1].host", "not allowed"}},
		{"allowed hosts", ingress("rules: [{host: api.example.com}, {host: internal.example.org}], tls: [{hosts: [api.example.com]}]"), nil},
		{"a host of TLS", ingress("rules: [{host: api.example.com}], tls: [{hosts: [api.example.com, legacy.example.net]}]"), []string{"legacy.example.net", "spec.tls[0].hosts[1]", "not allowed"}},
		{"a denied host", ingress("rules: [{host: blocked.example.com}]"), []string{"blocked.example.com", "denied"}},
		{"no host", ingress("rules: []"), []string{"hostname is required", "spec.rules[].host", "Ingress"}},
		{"no host of TLS", ingress("rules: [{host: api.example.com}], tls: [{secretName: x}]"), []string{"hostname is required", "spec.tls[0].hosts"}},
		{"a route", route("hostnames: [api.example.com, internal.example.org]"), nil},
		{"a route with another host", route("hostnames: [api.example.com, api.example.net]"), []string{"api.example.net", "spec.hostnames[1]", "not allowed"}},
		{"a route without a host", route(""), []string{"hostname is required", "spec.hostnames[]", "HTTPRoute"}},
		{"a kind that the rules do not name", strings.ReplaceAll(route("hostnames: [api.example.net]"), "HTTPRoute", "GRPCRoute"), nil},
	}
	checkRules(t, owner, "ruled-hosts", cases)
	checkRefusals(t, "ruled-hosts", cases)
}

// Labels and annotations of objects of all kinds.
func TestCapsuleRulesOfMetadata(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-metadata", `
rules:
- enforce:
    action: allow
    metadata:
    - apiGroups: [v1]
      kinds: [ConfigMap, "*vice"]
      labels:
        example.corp/tenant: {required: true, values: [{exact: [prod, test]}]}
        capsule.clastix.io/tenant: {required: true, values: [{exact: [other]}]}
      annotations:
        example.corp/*: {values: [{exp: '^INV-[0-9]{4}$'}, {exact: [prod]}]}
- enforce:
    action: deny
    metadata:
    - apiGroups: ["*"]
      kinds: ["*"]
      labels:
        blocked: {required: true}
        defaulted: {default: a}
        team: {values: [{exp: ^trusted-.*, negate: true}]}
- enforce:
    action: allow
    metadata:
    - apiGroups: [apps/v1]
      kinds: [Deployment]
      labels: {env: {required: true}}
    - apiGroups: ["*.k8s.io"]
      kinds: [Lease, Role]
      labels: {group: {required: true}}
    - apiGroups: ["apps/*1", "*/v9"]
      kinds: [DaemonSet, ServiceAccount]
      labels: {version: {required: true}}
- enforce:
    metadata:
    - kinds: [ServiceAccount]
      labels: {acme.projectcapsule.dev/team: {}, capsule.clastix.io/team: {}, projectcapsule.dev/tenant: {}}
`)
	configMap := func(labels, annotations string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {" + labels + "}, annotations: {" + annotations + "}}}"
	}
	const tenant = "example.corp/tenant: prod"
	checkRules(t, owner, "ruled-metadata", []ruleCase{
		{"a required label", configMap("", ""), []string{"metadata", "example.corp/tenant", "required", "metadata.labels"}},
		{"an allowed value", configMap(tenant, ""), nil},
		{"another value", configMap("example.corp/tenant: stage", ""), []string{"metadata", "example.corp/tenant", "stage", "not allowed"}},
		{"an annotation by its prefix", configMap(tenant, "example.corp/cost-center: INV-1234, example.corp/x: prod"), nil},
		{"a wrong annotation by its prefix", configMap(tenant, "example.corp/cost-center: BAD-1234"), []string{"metadata", "example.corp/cost-center", "BAD-1234", "not allowed"}},
		{"an annotation with a required label's name", configMap("", "example.corp/tenant: prod"), []string{"metadata.labels", "required"}},
		{"an empty value", configMap(tenant+", team: ''", ""), nil},
		{"a denied name with an empty value", configMap(tenant+", blocked: ''", ""), []string{" denied the request: metadata ", `metadata.labels["blocked"]`, "denied by namespace rule"}},
		{"an allow list and an empty value", configMap(tenant, "example.corp/cost-center: ''"), nil},
		{"a value that is denied by what it is not", configMap(tenant+", team: untrusted", ""), []string{"team", "untrusted", "denied"}},
		{"a value that is not denied", configMap(tenant+", team: trusted-a", ""), nil},
		{"a name that is denied with any value", configMap(tenant+", blocked: a", ""), []string{"blocked", "denied"}},
		{"a name for which a rule that denies has a default", configMap(tenant+", defaulted: a", ""), nil},
		{"a kind by a pattern", "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}]}}", []string{"example.corp/tenant", "required"}},
		{"another kind", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x}}", nil},
		{"a kind of groups by a pattern", "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: x}}", []string{`metadata label "group" is required`}},
		{"a kind of a group with versions by a pattern", "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}", []string{`metadata label "version" is required`}},
		{"a name below Capsule's domain", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, labels: {acme.projectcapsule.dev/team: a}}}", []string{"acme.projectcapsule.dev/team", "denied"}},
		{"a name of Capsule's domain without a meaning", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, labels: {capsule.clastix.io/team: a}}}", []string{"capsule.clastix.io/team", "denied"}},
		{"a name that Capsule keeps", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, labels: {projectcapsule.dev/tenant: a}}}", nil},
		{"a kind of a group", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}", []string{`metadata label "env" is required`}},
	})
	t.Run("updates", func(t *testing.T) {
		admin, _, _ := cluster(t)
		older := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: older, namespace: ruled-metadata, labels: {example.corp/tenant: prod}}}")
		if err := admin.Create(t.Context(), older); err != nil {
			t.Fatal(err)
		}
		for patch, want := range map[string]string{
			`{"data":{"a":"b"}}`: "",
			`{"metadata":{"labels":{"example.corp/tenant":"stage"}}}`: "not allowed",
			`{"metadata":{"labels":{"example.corp/tenant":null}}}`:    "required",
		} {
			err := owner.Patch(t.Context(), older.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: got %v, want %q", patch, err, want)
			}
		}
	})
}

// TestCapsuleRulesOfManagedMetadata checks the labels and annotations that rules manage. The webhook would
// set them, but no server serves it here.
func TestCapsuleRulesOfManagedMetadata(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-managed", `
rules:
- enforce:
    metadata:
    - kinds: [ConfigMap]
      labels: {team: {managed: oil}, empty: {managed: ""}}
      annotations: {note: {managed: any text}}
    - kinds: ["*"]
      labels: {all: {managed: yes-all}}
    - kinds: [Job]
      apiGroups: [batch]
      labels: {all: {managed: yes-all}}
- enforce:
    action: allow
    metadata:
    - kinds: ["Config*"]
      labels: {team: {managed: rig}, te.*: {values: [{exact: [other, oil, gas]}]}}
- audience: [{kind: User, name: bob}]
  enforce: {metadata: [{kinds: [ConfigMap], labels: {team: {managed: bob}}}]}
`)
	configMap := func(labels, annotations string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {" + labels + "}, annotations: {" + annotations + "}}}"
	}
	const labels, annotations = "team: rig, empty: '', all: yes-all", "note: any text"
	checkRules(t, owner, "ruled-managed", []ruleCase{
		{"no value", configMap("", annotations), []string{"Tenant of the namespace denied the request: ", `metadata label "`, "is managed by namespace rule, with the value"}},
		{"all values", configMap(labels, annotations), nil},
		{"the value of an earlier rule", configMap(strings.Replace(labels, "rig", "oil", 1), annotations), []string{`metadata label "team" at metadata.labels["team"] is managed by namespace rule, with the value "rig"`}},
		{"a value that another rule allows", configMap(strings.Replace(labels, "rig", "other", 1), annotations), []string{`with the value "rig"`}},
		{"a missing empty value", configMap("team: rig, all: yes-all", annotations), []string{`metadata label "empty"`, `with the value ""`}},
		{"another annotation", configMap(labels, "note: mine"), []string{`metadata annotation "note" at metadata.annotations["note"] is managed`}},
		{"another group", "{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: x}, data: {a: b}, revision: 1}", nil},
		{"a Pod", podOf("a:1", "", ""), []string{`metadata label "all"`}},
		{"a Secret, for which the webhook is not called", "{apiVersion: v1, kind: Secret, metadata: {name: x}}", nil},
		{"Endpoints, for which it is not called", "{apiVersion: v1, kind: Endpoints, metadata: {name: x}}", nil},
		{"a question", "{apiVersion: authorization.k8s.io/v1, kind: LocalSubjectAccessReview, metadata: {}, spec: {user: a, resourceAttributes: {namespace: ruled-managed, verb: get, resource: pods}}}", nil},
	})
	_, _, restConfig := cluster(t)
	admin := newClient(t, restConfig, rest.ImpersonationConfig{})
	// The controllers of Kubernetes create what a tenant's template describes with the value only, and
	// other objects without it.
	controller := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:masters"}})
	for manifest, want := range map[string]string{
		podOf("a:1", "", ""): `metadata label "all"`,
		strings.Replace(podOf("a:1", "", ""), "name: x}", "name: x, labels: {all: yes-all}}", 1):                                                                              "",
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}":                     `metadata label "all"`,
		"{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}":                         `metadata label "all"`,
		"{apiVersion: batch/v1, kind: Job, metadata: {name: x, labels: {all: yes-all}}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}": "",
		configMap("", ""): "",
	} {
		o := parse(t, manifest)
		o.SetNamespace("ruled-managed")
		if err := controller.Create(t.Context(), o, client.DryRunAll); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("a controller: %s: got %v, want %q", manifest, err, want)
		}
	}
	managed := parse(t, configMap(labels, annotations))
	pod := parse(t, strings.Replace(podOf("a:1", "", ""), "name: x}", "name: x, labels: {all: yes-all}}", 1))
	older := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: older}}")
	for _, o := range []*unstructured.Unstructured{managed, pod, older} {
		o.SetNamespace("ruled-managed")
	}
	if err := errors.Join(owner.Create(t.Context(), managed), owner.Create(t.Context(), pod), controller.Create(t.Context(), older)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, patch, want string
		of                  *unstructured.Unstructured
		by                  client.SubResourceWriter
	}{
		{"another field", `{"data":{"a":"b"}}`, "", managed, nil},
		{"another value", `{"metadata":{"labels":{"team":"gas"}}}`, `with the value "rig"`, managed, nil},
		{"no value", `{"metadata":{"labels":{"team":null}}}`, `with the value "rig"`, managed, nil},
		{"no empty value", `{"metadata":{"labels":{"empty":null}}}`, `with the value ""`, managed, nil},
		{"an object that is older than the rule", `{"data":{"a":"b"}}`, "", older, nil},
		{"another value in it", `{"metadata":{"labels":{"team":"gas"}}}`, `with the value "rig"`, older, nil},
		{"the value in it", `{"metadata":{"labels":{"team":"rig"}}}`, "", older, nil},
		{"with the status", `{"metadata":{"labels":{"all":"gas"}}}`, `with the value "yes-all"`, pod, owner.Status()},
		{"the status alone", `{"status":{"message":"x"}}`, "", pod, owner.Status()},
	} {
		patch := client.RawPatch(types.MergePatchType, []byte(tc.patch))
		var err error
		if tc.by == nil {
			err = owner.Patch(t.Context(), tc.of.DeepCopy(), patch, client.DryRunAll)
		} else {
			err = tc.by.Patch(t.Context(), tc.of.DeepCopy(), patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		}
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
		}
	}
	if err := admin.Delete(t.Context(), managed); err != nil {
		t.Errorf("the deletion: %v", err)
	}
}

// The audiences that Capsule defines.
func TestCapsuleRulesOfCustomAudiences(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-audiences", `
rules:
- audience: [{kind: Custom, name: CapsuleUser}]
  enforce: {action: deny, metadata: [{apiGroups: [v1], kinds: [ConfigMap], labels: {".*": {}}}]}
- audience: [{kind: Custom, name: TenantOwner}]
  enforce: {action: allow, metadata: [{apiGroups: [v1], kinds: [ConfigMap], labels: {mine: {values: [{exact: [a]}]}}}]}
- audience: [{kind: Custom, name: Administrator}, {kind: Custom, name: Controller}]
  enforce: {action: deny, workloads: {registries: [{exp: .*}]}}
audiences:
- {name: CapsuleUser, groups: [projectcapsule.dev]}
- {name: TenantOwner, users: [alice]}
- {name: Administrator, users: [root]}
- {name: Controller}
`)
	configMap := func(labels string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {" + labels + "}}}"
	}
	checkRules(t, owner, "ruled-audiences", []ruleCase{
		{"what Capsule's users are denied", configMap("other: a"), []string{"other", "denied by namespace rule"}},
		{"what owners are allowed", configMap("mine: a"), nil},
		{"another value than owners are allowed", configMap("mine: b"), []string{"mine", "denied"}},
		{"what others are denied", podOf("evil/a:1", "", ""), nil},
	})
}

// Labels and annotations of namespaces, by the rules of the Tenant of Capsule.
func TestCapsuleRulesOfNamespaces(t *testing.T) {
	t.Parallel()
	ruled(t, "ruled-namespaces", "rules: []")
	admin, _, _ := cluster(t)
	steam := parse(t, `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: steam}
spec:
  owners: [{kind: User, name: alice}]
  rules:
  - enforce: {action: allow, metadata: [{apiGroups: ["*"], kinds: ["*"], labels: {everywhere: {required: true}}}]}
  - enforce: {action: deny, metadata: [{kinds: ["*", Namespace], labels: {blocked: {}}, annotations: {blocked: {values: [{exp: .*}]}}}]}
  - namespaceSelector: {matchLabels: {env: prod}, matchExpressions: [{key: team, operator: NotIn, values: [sandbox]}]}
    enforce: {action: allow, metadata: [{kinds: [Namespace], labels: {owner: {required: true, values: [{exact: [a]}]}}}]}
  - audience: [{kind: User, name: bob}]
    enforce: {action: deny, metadata: [{kinds: [Namespace], labels: {allowed: {}}}]}
  - enforce: {action: deny, metadata: [{kinds: [Namespace], labels: {kept: {managed: a}, ke*: {values: [{exp: .*}]}}}]}`)
	tenant := &v1beta2.Tenant{}
	if err := errors.Join(runtime.DefaultUnstructuredConverter.FromUnstructured(steam.Object, tenant), admin.Create(t.Context(), steam)); err != nil {
		t.Fatal(err)
	}
	namespace := func(labels, annotations string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: steam-x, labels: {" + labels + "}, annotations: {" + annotations + "}}}"
	}
	for _, label := range []string{"capsule.clastix.io/tenant", "tenure.dev/tenant"} {
		mine := label + ": steam, "
		cases := []ruleCase{
			{"a denied label", namespace(mine+"blocked: a", ""), []string{"Tenant steam denied the request: metadata ", `metadata.labels["blocked"]`, "denied by namespace rule"}},
			{"a denied label without a value", namespace(mine+"blocked: ''", ""), []string{"denied by namespace rule"}},
			{"a denied annotation", namespace(mine, "blocked: a"), []string{`metadata.annotations["blocked"]`, "denied by namespace rule"}},
			{"a rule for all kinds is for no namespace", namespace(mine, ""), nil},
			{"a required label of selected namespaces", namespace(mine+"env: prod", ""), []string{"metadata", "owner", "required"}},
			{"a wrong value", namespace(mine+"env: prod, owner: b", ""), []string{"owner", "not allowed"}},
			{"the required label", namespace(mine+"env: prod, owner: a", ""), nil},
			{"a namespace that the selector leaves out", namespace(mine+"env: prod, team: sandbox", ""), nil},
			{"a rule for another audience", namespace(mine+"allowed: a", ""), nil},
			{"the managed value", namespace(mine+"kept: a", ""), nil},
			{"a value that is not managed", namespace(mine+"kept: b", ""), []string{"kept", "denied"}},
		}
		// What the webhook decides before it reserves a name is what the policy decides.
		for _, tc := range cases {
			born := parse(t, tc.manifest)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: born.GetName(), Labels: born.GetLabels(), Annotations: born.GetAnnotations()}}
			got := capsule.NamespaceRefusal(tenant, ns, "alice", nil)
			if (got == "") != (tc.want == nil) || slices.ContainsFunc(tc.want, func(w string) bool { return !strings.Contains("Tenant steam denied the request: "+got, w) }) {
				t.Errorf("%s: the webhook says %q", tc.reason, got)
			}
		}
		checkRules(t, admin, "", append(cases, ruleCase{"another tenant", namespace(label+": gas, blocked: a", ""), nil}))
	}
}

// A namespace whose rules are missing refuses what a rule could be about, and the rules are the
// manager's.
func TestCapsuleRulesAreTheManagers(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-alone", "rules: [{enforce: {action: deny, workloads: {registries: [{exp: evil/.*}]}}}]")
	checkRules(t, owner, "ruled-alone", []ruleCase{
		{"a denied image", podOf("evil/a:1", "", ""), []string{"denied by namespace rule"}},
		{"another image", podOf("good/a:1", "", ""), nil},
	})
	admin, _, _ := cluster(t)
	status := parse(t, "{apiVersion: capsule.clastix.io/v1beta2, kind: RuleStatus, metadata: {name: capsule-managed-rules, namespace: ruled-alone}}")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"rules":[]}}`))
	for what, err := range map[string]error{
		"status":   owner.Status().Patch(t.Context(), status.DeepCopy(), patch, client.DryRunAll),
		"deletion": owner.Delete(t.Context(), status.DeepCopy(), client.DryRunAll),
		"another":  owner.Create(t.Context(), parse(t, "{apiVersion: capsule.clastix.io/v1beta2, kind: RuleStatus, metadata: {name: x, namespace: ruled-alone}}"), client.DryRunAll),
	} {
		if err == nil || !strings.Contains(err.Error(), "is written by the manager only") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if err := admin.Delete(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	checkRules(t, owner, "ruled-alone", []ruleCase{{"any image", podOf("good/a:1", "", ""), []string{"no params found"}}})
	if err := admin.Create(t.Context(), parse(t, "{apiVersion: capsule.clastix.io/v1beta2, kind: RuleStatus, metadata: {name: capsule-managed-rules, namespace: ruled-alone}}")); err != nil {
		t.Errorf("the rules cannot be written again: %v", err)
	}
}

// The requests and limits of Pods: the last rule that denies or allows them decides.
func TestCapsuleRulesOfResources(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-resources", `
rules:
- enforce: {action: deny, workloads: {targets: [pod/containers], resources: {limits: {memory: {policy: Ratio, value: "1.5"}, cpu: {policy: Ratio, value: 2}}}}}
- enforce: {action: audit, workloads: {resources: {limits: {memory: {policy: Remove}}}}}
- enforce: {action: allow, workloads: {targets: [pod/containers], resources: {limits: {cpu: {policy: Ratio, value: "3"}}}}}
- enforce: {workloads: {targets: [pod/initcontainers], resources: {requests: {cpu: {policy: Remove}}, limits: {cpu: {policy: Remove}, memory: {policy: MatchRequest}, ephemeral-storage: {policy: Remove}}}}}
- enforce: {workloads: {resources: {limits: {ephemeral-storage: {policy: Preserve}}}}}
- enforce: {action: allow, workloads: {resources: {limits: {hugepages-2Mi: {policy: MatchRequest}}}}}
- audience: [{kind: User, name: bob}]
  enforce: {workloads: {resources: {limits: {memory: {policy: Remove}}}}}
`)
	of := func(container, init string) string {
		return podOf("a:1", "initContainers: [{name: i, image: 'b:1', resources: {"+init+"}}],", ", resources: {"+container+"}")
	}
	checkRules(t, owner, "ruled-resources", []ruleCase{
		{"a limit beyond the ratio", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 2Gi, cpu: 110m}", ""), []string{`workload resource limit "memory" at spec.containers[0].resources.limits["memory"] violates policy Ratio: limit 2Gi must not exceed 1536Mi (request 1Gi x ratio 1.5)`}},
		{"a limit at the ratio", of("requests: {memory: 1Gi}, limits: {memory: 1536Mi}", ""), []string{`"cpu"`, "requires a request greater than zero"}},
		{"a limit within", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 110m}", ""), nil},
		{"a later rule allows more", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 300m}", ""), nil},
		{"more than either", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 301m}", ""), []string{`limits["cpu"]`, "must not exceed 200m"}},
		{"no limit", of("requests: {memory: 1Gi, cpu: 100m}, limits: {cpu: 110m}", ""), []string{`limits["memory"]`, "limit is undefined"}},
		{"the request of an init container", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 110m}", "requests: {cpu: 1}"), []string{`workload resource request "cpu" at spec.initContainers[0].resources.requests["cpu"]`, "must be undefined for policy Remove"}},
		{"a limit that is not the request", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 110m}", "requests: {memory: 1Gi}, limits: {memory: 2Gi}"), []string{"initContainers[0]", "MatchRequest"}},
		{"a policy that a later rule ended", of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 110m}", "limits: {ephemeral-storage: 1Gi}"), nil},
	})
	pod := parse(t, of("requests: {memory: 1Gi, cpu: 100m}, limits: {memory: 1280Mi, cpu: 110m}", ""))
	pod.SetNamespace("ruled-resources")
	if err := owner.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	resize := func(limit string) error {
		patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"`+limit+`"}}}]}}`))
		return owner.SubResource("resize").Patch(t.Context(), pod.DeepCopy(), patch, client.DryRunAll)
	}
	if err := resize("301m"); err == nil || !strings.Contains(err.Error(), "must not exceed 200m") {
		t.Errorf("a resize to more than the rules allow: got %v", err)
	}
	// Once the Pod has a node, the API server asks whether that node resizes.
	if err := resize("300m"); err != nil && !strings.Contains(err.Error(), "without support for resize") {
		t.Errorf("a resize that the rules allow: got %v", err)
	}
}

// A list of allowed policies, and resources of the Pod itself, which a rule asks for.
func TestCapsuleRulesOfAllowedResources(t *testing.T) {
	t.Parallel()
	owner := ruled(t, "ruled-allowed-resources", `
rules:
- enforce: {action: allow, workloads: {targets: [pod], resources: {limits: {memory: {policy: Ratio, value: "1.5"}}}}}
- enforce: {action: allow, workloads: {targets: [pod], resources: {limits: {memory: {policy: Remove}}}}}
- enforce: {action: deny, workloads: {targets: [pod], resources: {limits: {cpu: {policy: Ratio, value: "1.5"}}}}}
`)
	of := func(resources string) string { return podOf("a:1", "resources: {"+resources+"},", "") }
	checkRules(t, owner, "ruled-allowed-resources", []ruleCase{
		{"beyond all that is allowed", of("requests: {memory: 1Gi, cpu: 500m}, limits: {memory: 2Gi, cpu: 500m}"), []string{`limits["memory"]`, "does not satisfy any allowed resource policy"}},
		{"within one of them", of("requests: {memory: 1Gi, cpu: 500m}, limits: {memory: 1Gi, cpu: 500m}"), nil},
		{"as another one", of("requests: {memory: 1Gi, cpu: 500m}, limits: {cpu: 500m}"), nil},
		{"beyond the ratio", of("requests: {memory: 1Gi, cpu: 500m}, limits: {cpu: 1}"), []string{`spec.resources.limits["cpu"]`, "must not exceed 750m"}},
		{"no resources", podOf("a:1", "", ""), []string{`spec.resources.limits["cpu"]`, "requires a request greater than zero"}},
	})
}

// The API server calls the webhook for rules for objects of the namespaces with such rules, and not
// for Secrets, which the manager may not read.
func TestAuditWebhookOfSecrets(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	if err := admin.Create(t.Context(), parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: audited, labels: {projectcapsule.dev/rules: audit}}}")); err != nil {
		t.Fatal(err)
	}
	// No server answers, so every call of the webhook fails.
	hook := admission.AuditWebhook()
	hook.Name = "audited"
	hook.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
	hook.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail)
	hook.Webhooks[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] = "audited"
	if err := admin.Create(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	create := func(kind, more string) error {
		return admin.Create(t.Context(), parse(t, "{apiVersion: v1, kind: "+kind+", metadata: {name: x, namespace: audited}"+more+"}"), client.DryRunAll)
	}
	testwait.For(t, "the webhook to be called", patience, func() (bool, string) {
		err := create("ConfigMap", "")
		return err != nil && strings.Contains(err.Error(), "failed calling webhook"), fmt.Sprint(err)
	})
	// The rules of Capsule refuse it too, if another test has installed them: these come later.
	if err := create("Secret", ", stringData: {password: secret}"); err != nil && strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a Secret: %v", err)
	}
}
