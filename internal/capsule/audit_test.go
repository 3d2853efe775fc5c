package capsule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestAudit checks which values a rule with the action audit reports, for each part of the rules.
func TestAudit(t *testing.T) {
	t.Parallel()
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {team: x}}, spec: {schedulerName: fast, initContainers: [{name: i, image: b/i}], containers: [{name: c, image: a/c, resources: {requests: {cpu: 1}}}], volumes: [{name: v, image: {reference: a/v}}]}}"
	const ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}, spec: {rules: [{host: a.example}], tls: [{secretName: s}]}}"
	service := func(spec string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {" + spec + "}}"
	}
	for name, tc := range map[string]struct {
		rule, object, old string
		want              []string
	}{
		"images": {"{action: audit, workloads: {registries: [{exp: a/.*}]}}", pod, "", []string{
			`image "a/c" at containers[0] matched audit registry rule: exp: a/.*`, `image "a/v" at volumes[0](v) matched audit registry rule: exp: a/.*`,
		}},
		"targets":         {"{action: audit, workloads: {targets: [pod/initcontainers], registries: [{exp: ./.*}]}}", pod, "", []string{`image "b/i" at initContainers[0] matched audit registry rule: exp: ./.*`}},
		"scheduler":       {"{action: audit, workloads: {schedulers: [{exact: [fast]}]}}", pod, "", []string{`scheduler "fast" at spec.schedulerName matched audit namespace rule: exact: fast`}},
		"class":           {"{action: audit, workloads: {qosClasses: [Burstable]}}", pod, "", []string{`QoS class "Burstable" at status.qosClass matched audit namespace rule: Burstable`}},
		"an update":       {"{action: audit, workloads: {qosClasses: [Burstable]}}", pod, pod, nil},
		"another action":  {"{action: deny, workloads: {qosClasses: [Burstable]}}", pod, "", nil},
		"label":           {"{action: audit, metadata: [{kinds: ['*'], labels: {te*: {values: [{exact: [x]}]}}}]}", pod, "", []string{`metadata label "x" at metadata.labels["team"] matched audit namespace rule: exact: x`}},
		"another group":   {"{action: audit, metadata: [{apiGroups: [apps], kinds: ['*'], labels: {team: {}}}]}", pod, "", nil},
		"hosts":           {"{action: audit, ingress: {types: [Ingress], hostnames: [{exact: [a.example]}]}}", ingress, "", []string{`empty hostname detected at spec.tls[0].hosts by audit namespace rule: exact: a.example`, `ingress hostname "a.example" at spec.rules[0].host matched audit namespace rule: exact: a.example`}},
		"another kind":    {"{action: audit, ingress: {types: [Gateway], hostnames: [{exact: [a.example]}]}}", ingress, "", nil},
		"routes":          {"{action: audit, ingress: {types: [HTTPRoute], hostnames: [{exact: [a.example]}]}}", "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a}}", "", []string{`empty hostname detected at spec.hostnames[] by audit namespace rule: exact: a.example`}},
		"gateways":        {"{action: audit, ingress: {types: [Gateway], hostnames: [{exact: [a.example]}]}}", "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: a}, spec: {listeners: [{hostname: a.example}]}}", "", []string{`ingress hostname "a.example" at spec.listeners[0].hostname matched audit namespace rule: exact: a.example`}},
		"service type":    {"{action: audit, services: {types: [NodePort], nodePorts: {ports: [{from: 30000, to: 30010}]}}}", service("type: NodePort, ports: [{port: 1, nodePort: 30001}]"), "", []string{`nodePort "30001" at spec.ports[0].nodePort matched audit namespace rule: 30000-30010`, `service type "NodePort" at spec.type matched audit namespace rule: NodePort`}},
		"managed":         {"{action: audit, metadata: [{kinds: [ConfigMap], labels: {a: {managed: b}, c: {managed: d}}}]}", "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {a: b, c: x}}}", "", []string{`metadata label "x" at metadata.labels["c"] matched audit namespace rule: c`}},
		"external name":   {"{action: audit, services: {externalNames: {hostnames: [{exp: audit.*}]}}}", service("type: ExternalName, externalName: audit.internal"), "", []string{`externalName hostname "audit.internal" at spec.externalName matched audit namespace rule: exp: audit.*`}},
		"addresses":       {"{action: audit, services: {loadBalancers: {cidrs: [10.0.0.0/8]}}}", service("type: LoadBalancer, loadBalancerIP: 10.1.1.1, loadBalancerSourceRanges: [11.0.0.0/8, 10.2.0.0/16]"), "", []string{`loadBalancer CIDR "10.1.1.1" at spec.loadBalancerIP matched audit namespace rule: 10.0.0.0/8`, `loadBalancer CIDR "10.2.0.0/16" at spec.loadBalancerSourceRanges[1] matched audit namespace rule: 10.0.0.0/8`}},
		"wider addresses": {"{action: audit, services: {loadBalancers: {cidrs: [10.0.0.0/16]}}}", service("type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8]"), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Request{User: "alice", Object: object(t, tc.object)}
			if tc.old != "" {
				r.Old = object(t, tc.old)
			}
			got := Audit(&v1beta2.RuleStatusStatus{Rules: []v1beta2.Unknown{unknown(t, "{enforce: "+tc.rule+"}")}}, r)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAuditAudience checks that a rule reports the requests of its audience.
func TestAuditAudience(t *testing.T) {
	t.Parallel()
	audiences := []v1beta2.RuleAudience{{Name: "TenantOwner", Users: []string{"alice"}, Groups: []string{"oil"}}}
	for audience, want := range map[string]int{
		"{kind: User, name: alice}": 1, "{kind: User, name: bob}": 0, "{kind: Group, name: sea}": 1, "{kind: Group, name: oil}": 0,
		"{kind: ServiceAccount, name: alice}": 1, "{kind: Custom, name: TenantOwner}": 1, "{kind: Custom, name: Administrator}": 0,
	} {
		rule := unknown(t, "{audience: ["+audience+"], enforce: {action: audit, metadata: [{kinds: [ConfigMap], labels: {a: {}}}]}}")
		r := Request{User: "alice", Groups: []string{"sea"}, Object: object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: b}}}")}
		if got := Audit(&v1beta2.RuleStatusStatus{Rules: []v1beta2.Unknown{rule}, Audiences: audiences}, r); len(got) != want {
			t.Errorf("%s: %v, want %d", audience, got, want)
		}
	}
}

// TestQoSClass compares the class with the one that the API server gives Pods.
func TestQoSClass(t *testing.T) {
	t.Parallel()
	const full = "{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}"
	for spec, want := range map[string]string{
		"containers: [{name: a}]":                                                       "BestEffort",
		"containers: [{name: a, resources: " + full + "}]":                              "Guaranteed",
		"containers: [{name: a, resources: " + full + "}, {name: b}]":                   "Burstable",
		"initContainers: [{name: i}], containers: [{name: a, resources: " + full + "}]": "Burstable",
		"containers: [{name: a, resources: {limits: {cpu: 1}}}]":                        "Burstable",
		"resources: " + full + ", containers: [{name: a}]":                              "Guaranteed",
	} {
		rule := unknown(t, "{enforce: {action: audit, workloads: {qosClasses: [BestEffort, Burstable, Guaranteed]}}}")
		got := Audit(&v1beta2.RuleStatusStatus{Rules: []v1beta2.Unknown{rule}}, Request{Object: object(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {"+spec+"}}")})
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
	}
}

func object(t *testing.T, content string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(content), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func unknown(t *testing.T, content string) v1beta2.Unknown {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	out := v1beta2.Unknown{}
	out.Raw = raw
	return out
}

// TestSetMetadata checks which default and managed metadata an object gets.
func TestSetMetadata(t *testing.T) {
	t.Parallel()
	rule := func(kinds, more string) string {
		return "{" + more + "enforce: {action: deny, metadata: [{kinds: [" + kinds + "], labels: {team: {default: oil}, s*: {default: other}}, annotations: {note: {default: any text}}}]}}"
	}
	const managedTeam = "{enforce: {action: audit, metadata: [{kinds: [ConfigMap], labels: {team: {managed: gas}, size: {default: s}}}, {kinds: ['Config*'], labels: {team: {managed: oil, default: x}}, annotations: {note: {managed: any text}}}]}}"
	for name, tc := range map[string]struct {
		rule, object        string
		labels, annotations map[string]string
		changed             bool
	}{
		"managed":           {managedTeam, "{apiVersion: v1, kind: ConfigMap, metadata: {}}", map[string]string{"team": "oil", "size": "s"}, map[string]string{"note": "any text"}, true},
		"managed and given": {managedTeam, "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {team: gas, size: l, a: b}, annotations: {note: mine}}}", map[string]string{"team": "oil", "size": "l", "a": "b"}, map[string]string{"note": "any text"}, true},
		"managed before":    {managedTeam, "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {team: oil, size: l}, annotations: {note: any text}}}", map[string]string{"team": "oil", "size": "l"}, map[string]string{"note": "any text"}, false},
		"others' managed":   {strings.Replace(managedTeam, "{enforce", "{audience: [{kind: User, name: bob}], enforce", 1), "{apiVersion: v1, kind: ConfigMap, metadata: {}}", nil, nil, false},
		"missing":           {rule("ConfigMap", ""), "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {a: b}}}", map[string]string{"a": "b", "team": "oil"}, map[string]string{"note": "any text"}, true},
		"given":             {rule("ConfigMap", ""), "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {team: gas}, annotations: {note: mine}}}", map[string]string{"team": "gas"}, map[string]string{"note": "mine"}, false},
		"another kind":      {rule("Secret", ""), "{apiVersion: v1, kind: ConfigMap, metadata: {}}", nil, nil, false},
		"another group":     {rule("'*'", ""), "{apiVersion: apps/v1, kind: Deployment, metadata: {}}", nil, nil, false},
		"others' rule":      {rule("ConfigMap", "audience: [{kind: User, name: bob}], "), "{apiVersion: v1, kind: ConfigMap, metadata: {}}", nil, nil, false},
		"invalid values":    {"{enforce: {metadata: [{kinds: [ConfigMap], labels: {team: {default: a b}}}]}}", "{apiVersion: v1, kind: ConfigMap, metadata: {}}", nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, tc.object)
			changed := SetMetadata(&v1beta2.RuleStatusStatus{Rules: []v1beta2.Unknown{unknown(t, tc.rule)}}, Request{User: "alice", Object: o})
			if changed != tc.changed {
				t.Errorf("changed is %t", changed)
			}
			if diff := cmp.Diff(tc.labels, o.GetLabels()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.annotations, o.GetAnnotations()); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSetMetadataOfUpdates checks that an update keeps managed metadata, and gets no default metadata.
func TestSetMetadataOfUpdates(t *testing.T) {
	t.Parallel()
	status := &v1beta2.RuleStatusStatus{Rules: []v1beta2.Unknown{unknown(t, "{enforce: {metadata: [{kinds: [ConfigMap], labels: {team: {managed: oil}, size: {default: s}}}]}}")}}
	for reason, labels := range map[string]string{"changed": "team: gas", "removed": "", "older than the rule": "old: x"} {
		r := Request{User: "alice", Object: object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {"+labels+"}}}"), Old: object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {labels: {team: oil}}}")}
		changed := SetMetadata(status, r)
		if _, defaulted := r.Object.GetLabels()["size"]; !changed || defaulted || r.Object.GetLabels()["team"] != "oil" {
			t.Errorf("%s: changed is %t, labels %v", reason, changed, r.Object.GetLabels())
		}
	}
}
