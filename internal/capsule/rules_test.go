package capsule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTranslateRules checks what becomes of spec.rules: the label that puts the rules in force,
// the limits that make room for what a rule allows, and the notes.
func TestTranslateRules(t *testing.T) {
	t.Parallel()
	translated := func(rules string) Result {
		return Translate(Input{Tenant: parse(t, "spec: {owners: [{kind: User, name: alice}], rules: ["+rules+"]}")})
	}
	var quotas []string
	for i := range 17 {
		quotas = append(quotas, fmt.Sprintf("{name: q%d, hard: {pods: 1}}", i))
	}
	audited := func(s *v1alpha1.TenantSpec) {
		s.Namespaces.Labels = map[string]string{v1beta2.LabelRules: "audit"}
	}
	for name, tc := range map[string]struct {
		reason, rules string
		refused       string
		reported      string
		want          func(*v1alpha1.TenantSpec)
	}{
		"images":     {reason: "the policies read the rules", rules: "{enforce: {action: allow, workloads: {registries: [{exp: harbor/.*, policy: [Always]}]}}}"},
		"schedulers": {reason: "the rules decide about schedulers", rules: "{enforce: {workloads: {schedulers: [{exact: [a]}]}}}", want: func(s *v1alpha1.TenantSpec) { s.Workloads.Schedulers = []string{"*"} }},
		"load balancer": {reason: "the rules decide about all addresses", rules: "{enforce: {action: allow, services: {loadBalancers: {cidrs: [10.0.0.1/24]}}}}", want: func(s *v1alpha1.TenantSpec) {
			s.Network.Services = &v1alpha1.Services{LoadBalancerIPs: []v1alpha1.AddressRange{"0.0.0.0/0", "::/0"}}
		}},
		"addresses of load balancers": {reason: "an address is a network of its own", rules: "{namespaceSelector: {matchLabels: {env: prod}}, enforce: {action: allow, services: {loadBalancers: {cidrs: [10.0.0.1, '2001:db8::1']}}}}", want: func(s *v1alpha1.TenantSpec) {
			s.Network.Services = &v1alpha1.Services{LoadBalancerIPs: []v1alpha1.AddressRange{"10.0.0.1/32", "2001:db8::1/128"}}
		}},
		"some load balancers": {reason: "elsewhere the rules allow no address", rules: "{namespaceSelector: {matchLabels: {env: prod}}, enforce: {action: allow, services: {loadBalancers: {cidrs: [10.0.0.1/24]}}}}", want: func(s *v1alpha1.TenantSpec) {
			s.Network.Services = &v1alpha1.Services{LoadBalancerIPs: []v1alpha1.AddressRange{"10.0.0.0/24"}}
		}},
		"service types": {reason: "the rules decide about all types", rules: "{enforce: {action: allow, services: {types: [ClusterIP]}}}", want: func(s *v1alpha1.TenantSpec) {
			s.Network.Services = &v1alpha1.Services{Types: []string{"ClusterIP", "LoadBalancer", "NodePort", "ExternalName"}}
		}},
		"some service types": {reason: "others in the audience of no rule keep the default", rules: "{audience: [{kind: User, name: bob}], enforce: {action: allow, services: {types: [ClusterIP, NodePort]}}}", want: func(s *v1alpha1.TenantSpec) {
			s.Network.Services = &v1alpha1.Services{Types: []string{"ClusterIP", "LoadBalancer", "NodePort"}}
		}},
		"external names": {reason: "names that a rule allows need their type", rules: "{enforce: {action: allow, services: {externalNames: {hostnames: [{exact: [a.example]}]}, nodePorts: {ports: [{from: 30000, to: 30001}]}}}}", want: func(s *v1alpha1.TenantSpec) {
			s.Network.Services = &v1alpha1.Services{Types: []string{"ClusterIP", "LoadBalancer", "ExternalName", "NodePort"}}
		}},
		"denied service types": {reason: "a rule that denies gives nothing", rules: "{enforce: {action: deny, services: {types: [NodePort]}}}"},
		"denied address":       {reason: "a rule that denies gives nothing", rules: "{enforce: {action: deny, services: {loadBalancers: {cidrs: [10.0.0.0/24]}}}}"},
		"role bindings": {reason: "for all namespaces", rules: "{permissions: {bindings: [{clusterRoleName: view, subjects: [{kind: User, name: bob}], labels: {a: b}}]}}", want: func(s *v1alpha1.TenantSpec) {
			s.RoleBindings = []v1alpha1.TenantRoleBinding{{Role: "view", Subjects: []v1alpha1.Subject{{Kind: "User", Name: "bob"}}, Labels: map[string]string{"a": "b"}}}
		}},
		"some role bindings": {reason: "with the selector", rules: "{namespaceSelector: {matchLabels: {env: prod}}, permissions: {bindings: [{clusterRoleName: view, subjects: [{kind: User, name: bob}]}]}}", want: func(s *v1alpha1.TenantSpec) {
			s.RoleBindings = []v1alpha1.TenantRoleBinding{{Role: "view", Subjects: []v1alpha1.Subject{{Kind: "User", Name: "bob"}}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}}
		}},
		"audit":                    {reason: "the webhook writes events", rules: "{enforce: {action: audit, workloads: {qosClasses: [BestEffort]}}}", want: audited},
		"unknown":                  {reason: "a field that Tenure does not know could restrict", rules: "{enforce: {workloads: {placement: {}}}}", refused: `spec.rules[0]: it is not enforced: Tenure does not understand it: unknown field "placement"`},
		"older images":             {reason: "the form of older versions of Capsule, with what to write", rules: "{enforce: {registries: [{url: harbor/.*}]}}", refused: `spec.rules[0]: it is not enforced: unknown field "registries": write the images as enforce.workloads.registries`},
		"another type":             {reason: "a value of another type is named by its field", rules: "{enforce: {workloads: {schedulers: {exact: [a]}}}}", refused: `spec.rules[0]: it is not enforced: the field enforce.workloads.schedulers cannot be a JSON value of type object`},
		"custom audience":          {reason: "the manager lists the users", rules: "{audience: [{kind: Custom, name: TenantOwner}], enforce: {}}"},
		"unknown audience":         {reason: "the rule would speak to others", rules: "{audience: [{kind: Custom, name: Everybody}], enforce: {}}", refused: "spec.rules[0].audience[0]"},
		"administrators":           {reason: "the rule would speak to others", rules: "{audience: [{kind: Custom, name: Administrator}], enforce: {metadata: [{kinds: [Namespace], labels: {a: {}}}]}}", refused: "spec.rules[0].audience[0]"},
		"resources":                {reason: "the webhook changes them", rules: "{enforce: {workloads: {targets: [pod], resources: {requests: {cpu: {policy: Default, value: 1}}, limits: {cpu: {policy: Ratio, value: '1.5'}}}}}}", want: audited},
		"no resources":             {reason: "it says nothing", rules: "{enforce: {workloads: {resources: {}}}}", refused: "spec.rules[0].enforce.workloads.resources"},
		"a resource's name":        {reason: "it is none", rules: "{enforce: {workloads: {resources: {limits: {'a b': {policy: Remove}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.limits[a b]"},
		"a Pod's resource":         {reason: "only containers have it", rules: "{enforce: {workloads: {targets: [pod], resources: {limits: {ephemeral-storage: {policy: Remove}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.limits[ephemeral-storage]"},
		"a target":                 {reason: "it has no resources", rules: "{enforce: {workloads: {targets: [pod/volumes], resources: {limits: {cpu: {policy: Remove}}}}}}", refused: "spec.rules[0].enforce.workloads.targets"},
		"a policy of requests":     {reason: "limits have it", rules: "{enforce: {workloads: {resources: {requests: {cpu: {policy: Ratio, value: 2}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.requests[cpu].policy"},
		"a default":                {reason: "it has no value", rules: "{enforce: {workloads: {resources: {requests: {cpu: {policy: Default}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.requests[cpu].value"},
		"a value":                  {reason: "nothing reads it", rules: "{enforce: {workloads: {resources: {requests: {cpu: {policy: Remove, value: 1}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.requests[cpu].value"},
		"a ratio":                  {reason: "a limit is not below its request", rules: "{enforce: {workloads: {resources: {limits: {cpu: {policy: Ratio, value: 500m}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.limits[cpu].value"},
		"a negative default":       {reason: "there is none", rules: "{enforce: {workloads: {resources: {limits: {cpu: {policy: Default, value: -1}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.limits[cpu].value"},
		"nothing to compare":       {reason: "the request is removed", rules: "{enforce: {workloads: {resources: {requests: {cpu: {policy: Remove}}, limits: {cpu: {policy: MatchRequest}}}}}}", refused: "spec.rules[0].enforce.workloads.resources.limits[cpu]"},
		"namespaces":               {reason: "the policies read the Tenant", rules: "{enforce: {metadata: [{kinds: [Namespace], labels: {a: {required: true}}}]}}"},
		"template":                 {reason: "no namespace would match", rules: "{enforce: {metadata: [{kinds: [Namespace], labels: {a: {values: [{exact: ['{{ .tenant.metadata.name }}']}]}}}]}}", refused: "spec.rules[0].enforce.metadata[0]"},
		"managed":                  {reason: "the webhook sets it, and the policies demand it", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: b}}}]}}", want: audited},
		"managed in all kinds":     {reason: "the manager reads no Secrets", rules: "{enforce: {metadata: [{kinds: ['*'], labels: {a: {managed: b}}}]}}", reported: "spec.rules[0].enforce.metadata[0].labels[a].managed: it is not set in Secrets", want: audited},
		"managed in another group": {reason: "it has no Secrets", rules: "{enforce: {metadata: [{apiGroups: [apps], kinds: ['*'], annotations: {a: {managed: 'b c'}}}]}}", want: audited},
		"managed in Secrets":       {reason: "the manager reads no Secrets", rules: "{enforce: {metadata: [{kinds: [Pod, Secret], labels: {a: {managed: b}}}]}}", refused: "spec.rules[0].enforce.metadata[0].labels[a].managed: it is not enforced: the webhook that sets it is not called for objects of the kind Secret; if something else sees to it"},
		"managed expression":       {reason: "it names no label", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {'a*': {managed: b}}}]}}", refused: "spec.rules[0].enforce.metadata[0].labels[a*].managed"},
		"managed value":            {reason: "no label has it", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: b c}}}]}}", refused: `labels[a].managed: "b c" cannot be the value of a label`},
		"managed by Capsule":       {reason: "the name has a meaning", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {projectcapsule.dev/managed-by: {managed: b}}}]}}", refused: "labels[projectcapsule.dev/managed-by].managed: Capsule and Tenure keep this name"},
		"managed twice":            {reason: "an object has one value", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: b}}}]}}, {enforce: {action: allow, metadata: [{apiGroups: ['*'], kinds: [Service, 'P*'], labels: {a: {managed: c}}}]}}", refused: `spec.rules[1].enforce.metadata[0].labels[a].managed: another rule for the same namespaces and users manages it with the value "b"`},
		"managed twice alike":      {reason: "no contradiction", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: b}}}, {kinds: [Pod], labels: {a: {managed: b}}, annotations: {a: {managed: c}}}]}}", want: audited},
		"managed for other kinds":  {reason: "no contradiction", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: b}}}, {kinds: [Service], labels: {a: {managed: c}}}, {apiGroups: [apps], kinds: ['*'], labels: {a: {managed: d}}}]}}", want: audited},
		"managed for some":         {reason: "the last rule decides", rules: "{enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: b}}}]}}, {namespaceSelector: {matchLabels: {env: prod}}, enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: c}}}]}}, {audience: [{kind: User, name: bob}], enforce: {metadata: [{kinds: [Pod], labels: {a: {managed: d}}}]}}", want: audited},
		"managed in namespaces": {reason: "the manager sets it", rules: "{namespaceSelector: {matchLabels: {env: prod}}, enforce: {metadata: [{kinds: [Namespace], labels: {a: {managed: b}}, annotations: {c: {managed: d}}}]}}", want: func(s *v1alpha1.TenantSpec) {
			s.Namespaces.Labels = map[string]string{v1beta2.LabelRules: "audit"}
			s.Namespaces.Selected = []v1alpha1.SelectedMetadata{{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}}
		}},
		"managed namespaces of some": {reason: "the manager does not know who asks", rules: "{audience: [{kind: User, name: bob}], enforce: {metadata: [{kinds: [Namespace], labels: {a: {managed: b}}}]}}", refused: "spec.rules[0].enforce.metadata[0]: it is not enforced: managed metadata of namespaces does not depend on the user"},
		"many managed namespaces":    {reason: "the CRD refuses more", rules: strings.Repeat("{enforce: {metadata: [{kinds: [Namespace], labels: {a: {managed: b}}}]}}, ", 33), refused: "spec.rules[32].enforce.metadata[0]: with spec.namespaceOptions"},
		"quota": {reason: "of all namespaces", rules: "{quota: [{name: a, hard: {pods: 1}, scopes: [BestEffort]}]}", want: func(s *v1alpha1.TenantSpec) {
			s.Quotas = []v1alpha1.TenantQuota{{Name: "capsule-rule-a", Scope: "Tenant", Hard: v1alpha1.Quantities{"pods": resource.MustParse("1")}, Scopes: []corev1.ResourceQuotaScope{"BestEffort"}}}
		}},
		"some quotas": {reason: "of the namespaces that the rule selects", rules: "{namespaceSelector: {matchLabels: {env: prod}}, quota: [{name: a, hard: {pods: 1}}]}, {quota: [{name: b, hard: {services: 2}}]}", want: func(s *v1alpha1.TenantSpec) {
			s.Quotas = []v1alpha1.TenantQuota{
				{Name: "capsule-rule-a", Scope: "Tenant", Hard: v1alpha1.Quantities{"pods": resource.MustParse("1")}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
				{Name: "capsule-rule-b", Scope: "Tenant", Hard: v1alpha1.Quantities{"services": resource.MustParse("2")}},
			}
		}},
		"a quota twice":    {reason: "one would be lost", rules: "{quota: [{name: a, hard: {pods: 1}}]}, {quota: [{name: a, hard: {pods: 2}}]}", refused: "spec.rules[1].quota[0].name"},
		"a quota's name":   {reason: "no object could have it", rules: "{quota: [{name: a.b, hard: {pods: 1}}]}", refused: "spec.rules[0].quota[0].name"},
		"many quotas":      {reason: "the CRD refuses more", rules: "{quota: [" + strings.Join(quotas, ", ") + "]}", refused: "spec.rules[0].quota[16]: at most 16"},
		"an empty quota":   {reason: "it bounds nothing", rules: "{quota: [{name: a}]}", reported: "spec.rules[0].quota[0]: without hard"},
		"expression":       {reason: "it does not compile", rules: "{enforce: {ingress: {types: [Ingress], hostnames: [{exp: '('}]}}}", refused: "spec.rules[0].enforce.ingress.hostnames[0].exp"},
		"key":              {reason: "it does not compile", rules: "{enforce: {metadata: [{kinds: [Pod], annotations: {'(': {}}}]}}", refused: "spec.rules[0].enforce.metadata[0].annotations[(]"},
		"empty expression": {reason: "it matches nothing", rules: "{enforce: {workloads: {registries: [{policy: [Always]}]}}}", refused: "spec.rules[0].enforce.workloads.registries[0]"},
		"action":           {reason: "there is none of this name", rules: "{enforce: {action: warn}}", refused: "spec.rules[0].enforce.action"},
		"a workload":       {reason: "no policy knows it", rules: "{enforce: {workloads: {targets: [pod/images], registries: [{exact: [a]}]}}}", refused: "spec.rules[0].enforce.workloads.targets[0]"},
		"a QoS class":      {reason: "no Pod has it", rules: "{enforce: {workloads: {qosClasses: [besteffort]}}}", refused: "spec.rules[0].enforce.workloads.qosClasses[0]"},
		"a type":           {reason: "no Service has it", rules: "{enforce: {services: {types: [Nodeport]}}}", refused: "spec.rules[0].enforce.services.types[0]"},
		"a kind of hosts":  {reason: "no object has it", rules: "{enforce: {ingress: {types: [VirtualService], hostnames: [{exact: [a]}]}}}", refused: "spec.rules[0].enforce.ingress.types[0]"},
		"hosts of no kind": {reason: "the policies would ignore them", rules: "{enforce: {ingress: {hostnames: [{exact: [a]}]}}}", refused: "spec.rules[0].enforce.ingress.types"},
		"a kind, no hosts": {reason: "it says nothing", rules: "{enforce: {ingress: {types: [Ingress]}}}", refused: "spec.rules[0].enforce.ingress.hostnames"},
		"metadata of none": {reason: "no object has it", rules: "{enforce: {metadata: [{labels: {a: {required: true}}}]}}", refused: "spec.rules[0].enforce.metadata[0].kinds"},
		"a kind's name":    {reason: "no object has it", rules: "{enforce: {metadata: [{kinds: [' Pod'], labels: {a: {required: true}}}]}}", refused: "spec.rules[0].enforce.metadata[0].kinds[0]"},
		"a group's name":   {reason: "no object has it", rules: "{enforce: {metadata: [{apiGroups: ['apps '], kinds: [Deployment], labels: {a: {required: true}}}]}}", refused: "spec.rules[0].enforce.metadata[0].apiGroups[0]"},
		"nobody":           {reason: "nobody has this name", rules: "{audience: [{kind: User, name: ''}], enforce: {}}", refused: "spec.rules[0].audience[0].name"},
		"mapped network":   {reason: "the policies cannot read it", rules: "{enforce: {action: deny, services: {loadBalancers: {cidrs: ['::ffff:10.0.0.0/104']}}}}", refused: "spec.rules[0].enforce.services.loadBalancers.cidrs[0]"},
		"mapped address":   {reason: "the policies cannot read it", rules: "{enforce: {action: deny, services: {loadBalancers: {cidrs: ['::ffff:10.0.0.1']}}}}", refused: "spec.rules[0].enforce.services.loadBalancers.cidrs[0]"},
		"network":          {reason: "it is none", rules: "{enforce: {services: {loadBalancers: {cidrs: [a]}}}}", refused: "spec.rules[0].enforce.services.loadBalancers.cidrs[0]"},
		"ports":            {reason: "they are the wrong way round", rules: "{enforce: {services: {nodePorts: {ports: [{from: 2, to: 1}]}}}}", refused: "spec.rules[0].enforce.services.nodePorts.ports[0]"},
		"selector":         {reason: "it is none", rules: "{namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}, enforce: {}}", refused: "spec.rules[0].namespaceSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := translated(tc.rules)
			if refusals := notes(got.Refusals()); tc.refused == "" && refusals != "" || !strings.Contains(refusals, tc.refused) {
				t.Errorf("%s: refused %q, want %q", tc.reason, refusals, tc.refused)
			}
			if reported := notes(got.IgnoredFields()); tc.reported == "" && tc.refused == "" && reported != "" || !strings.Contains(reported, tc.reported) {
				t.Errorf("%s: reported %q, want %q", tc.reason, reported, tc.reported)
			}
			if tc.refused != "" {
				return
			}
			want := v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: "User", Name: "alice", Roles: []string{"admin", "capsule-namespace-deleter"}}}}
			want.Namespaces.Labels = map[string]string{v1beta2.LabelRules: "true"}
			if tc.want != nil {
				tc.want(&want)
			}
			if diff := cmp.Diff(oil(want), got.Spec); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRulesKeepAllowedServices checks that a rule allows no type that allowedServices does not.
func TestRulesKeepAllowedServices(t *testing.T) {
	t.Parallel()
	got := Translate(Input{Tenant: parse(t, "spec: {owners: [{kind: User, name: alice}], serviceOptions: {allowedServices: {nodePort: false}}, rules: [{enforce: {action: allow, services: {types: [NodePort]}}}]}")})
	if diff := cmp.Diff([]string{"ClusterIP", "LoadBalancer", "ExternalName"}, got.Spec.Network.Services.Types); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func notes(all []Note) string {
	var texts []string
	for _, n := range all {
		texts = append(texts, n.String())
	}
	return strings.Join(texts, "; ")
}

// TestAudiences checks the users of the audiences that Capsule defines.
func TestAudiences(t *testing.T) {
	t.Parallel()
	oil := parse(t, `
spec:
  owners: [{kind: User, name: alice}, {kind: Group, name: oil}, {kind: ServiceAccount, name: "system:serviceaccount:oil-dev:gitops"}]
  rules: [{audience: [{kind: Custom, name: TenantOwner}, {kind: Custom, name: CapsuleUser}], enforce: {}}, {audience: [{kind: Custom, name: Administrator}, {kind: User, name: bob}], enforce: {}}]`)
	configuration := &v1beta2.CapsuleConfiguration{}
	configuration.Spec.UserGroups, configuration.Spec.UserNames = []string{"projectcapsule.dev"}, []string{"dave"}
	configuration.Spec.Administrators = []v1beta2.Identity{{Kind: "User", Name: "root"}}
	result := Translate(Input{Tenant: oil, Configuration: configuration})
	want := []v1beta2.RuleAudience{
		{Name: "Administrator", Users: []string{"root"}},
		{Name: "CapsuleUser", Users: []string{"alice", "dave", "system:serviceaccount:oil-dev:gitops"}, Groups: []string{"oil", "projectcapsule.dev"}},
		{Name: "TenantOwner", Users: []string{"alice", "system:serviceaccount:oil-dev:gitops"}, Groups: []string{"oil"}},
	}
	if diff := cmp.Diff(want, Audiences(oil, configuration, &result)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRules checks which rules hold in a namespace, and their templates.
func TestRules(t *testing.T) {
	t.Parallel()
	oil := parse(t, `
spec:
  rules:
  - enforce: {workloads: {qosClasses: [BestEffort]}}
  - permissions: {bindings: [{clusterRoleName: view, subjects: [{kind: User, name: bob}]}]}
  - namespaceSelector: {matchLabels: {env: prod}}
    audience: [{kind: User, name: bob}]
    enforce: {action: allow, workloads: {registries: [{exact: ['{{ .tenant.metadata.name }}/{{ .namespace.metadata.name }}/app:1'], exp: '^{{ index .namespace.metadata.labels "registry" }}/.*'}]}}
  - namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}
    enforce: {action: allow, metadata: [{apiGroups: ["", apps/v1], kinds: [ConfigMap], labels: {a: {required: true}}}]}
  - namespaceSelector: {matchLabels: {env: managed}}
    enforce: {action: allow, metadata: [{kinds: [ConfigMap], labels: {team: {managed: '{{ index .namespace.metadata.annotations "team" }}'}}}]}`)
	first := `{"enforce":{"action":"deny","workloads":{"qosClasses":["BestEffort"]}}}`
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		want                []string
		problem             string
	}{
		"oil-dev": {want: []string{first, `{"enforce":{"action":"allow","metadata":[{"apiGroups":["v1","apps/v1"],"kinds":["ConfigMap"],"labels":{"a":{"required":true}}}]}}`}},
		"oil-prod": {labels: map[string]string{"env": "prod", "registry": "harbor"}, want: []string{
			first, `{"audience":[{"kind":"User","name":"bob"}],"enforce":{"action":"allow","workloads":{"registries":[{"exact":["oil/oil-prod/app:1"],"exp":"^harbor/.*"}]}}}`,
		}},
		"oil-missing": {labels: map[string]string{"env": "prod"}, want: []string{
			first, `{"audience":[{"kind":"User","name":"bob"}],"enforce":{"action":"allow","workloads":{"registries":[{"exact":["oil/oil-missing/app:1"],"exp":"^/.*"}]}}}`,
		}},
		"oil-broken": {labels: map[string]string{"env": "prod", "registry": "("}, problem: "regular expression"},
		"oil-managed": {labels: map[string]string{"env": "managed"}, annotations: map[string]string{"team": "rig"}, want: []string{
			first, `{"enforce":{"action":"allow","metadata":[{"apiGroups":["v1","apps/v1"],"kinds":["ConfigMap"],"labels":{"a":{"required":true}}}]}}`,
			`{"enforce":{"action":"allow","metadata":[{"kinds":["ConfigMap"],"labels":{"team":{"managed":"rig"}}}]}}`,
		}},
		"oil-unmanaged": {labels: map[string]string{"env": "managed"}, annotations: map[string]string{"team": "the rig"}, problem: `the managed label team cannot have the value "the rig"`},
		"oil-json": {labels: map[string]string{"env": "prod", "registry": `x","negate":"`}, want: []string{
			first, `{"audience":[{"kind":"User","name":"bob"}],"enforce":{"action":"allow","workloads":{"registries":[{"exact":["oil/oil-json/app:1"],"exp":"^x\",\"negate\":\"/.*"}]}}}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, err := Rules(oil, &metav1.ObjectMeta{Name: name, Labels: tc.labels, Annotations: tc.annotations})
			if err != nil || tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) || tc.problem == "" {
					t.Fatalf("got %v, want %q", err, tc.problem)
				}
				return
			}
			var got []string
			for _, r := range rules {
				got = append(got, string(r.Raw))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
