package capsule

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// parse parses the metadata and spec of a Tenant.
func parse(t testing.TB, text string) *v1beta2.Tenant {
	t.Helper()
	tenant := &v1beta2.Tenant{}
	if err := yaml.Unmarshal([]byte(text), tenant); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if tenant.Name == "" {
		tenant.Name = "oil"
	}
	return tenant
}

func configuration(t testing.TB, text string) *v1beta2.CapsuleConfiguration {
	t.Helper()
	if text == "" {
		return nil
	}
	c := &v1beta2.CapsuleConfiguration{}
	if err := yaml.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func oil(spec v1alpha1.TenantSpec) v1alpha1.TenantSpec {
	if spec.Namespaces.PodSecurity == "" {
		spec.Namespaces.PodSecurity = "baseline"
	}
	if spec.Namespaces.Prefix == nil {
		spec.Namespaces.Prefix = new(false)
	}
	labels := map[string]string{v1alpha1.LabelCapsuleTenant: "oil"}
	for key, value := range spec.Namespaces.Labels {
		labels[key] = value
	}
	if spec.Cordoned {
		labels[v1alpha1.LabelCapsuleCordoned] = "true"
	}
	spec.Namespaces.Labels = labels
	return spec
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason        string
		tenant        string
		configuration string
		want          v1alpha1.TenantSpec
		notes         []string
	}{
		"the document's": {
			reason: "the Tenant of the Capsule document has the owner's rights, and no cluster-admin",
			tenant: `
spec:
  additionalRoleBindings:
    - clusterRoleName: cluster-admin
      subjects: [{name: gitops-reconciler, kind: ServiceAccount, namespace: oil-system}]
  owners:
    - {name: "system:serviceaccount:oil-system:gitops-reconciler", kind: ServiceAccount}`,
			configuration: `spec: {userGroups: [capsule.clastix.io, "system:serviceaccounts:oil-system"]}`,
			want: v1alpha1.TenantSpec{
				Owners:       []v1alpha1.Owner{{Kind: "ServiceAccount", Namespace: "oil-system", Name: "gitops-reconciler", Roles: []string{"admin", "capsule-namespace-deleter"}}},
				RoleBindings: []v1alpha1.TenantRoleBinding{{Role: "tenure-tenant", Subjects: []v1alpha1.Subject{{Kind: "ServiceAccount", Namespace: "oil-system", Name: "gitops-reconciler"}}}},
			},
			notes: []string{"honoured differently spec.additionalRoleBindings[0].clusterRoleName"},
		},
		"without a kind": {
			reason: "the document also leaves the kind of a service account out",
			tenant: `spec: {owners: [{name: "system:serviceaccount:my-tenant:gitops-reconciler"}]}`,
			want: v1alpha1.TenantSpec{
				Owners: []v1alpha1.Owner{{Kind: "ServiceAccount", Namespace: "my-tenant", Name: "gitops-reconciler", Roles: []string{"admin", "capsule-namespace-deleter"}}},
			},
		},
		"everything that is honoured": {
			reason: "each field arrives where it belongs",
			tenant: `
spec:
  owners:
    - {kind: User, name: alice, clusterRoles: [view, view]}
    - {kind: Group, name: oil-team, clusterRoles: [cluster-admin, tenure-tenant]}
    - {kind: User, name: "system:serviceaccount:ci:deployer", clusterRoles: [edit]}
  additionalRoleBindings:
    - clusterRoleName: view
      subjects: [{kind: Group, name: "system:authenticated", apiGroup: rbac.authorization.k8s.io}]
      labels: {a: b}
      annotations: {c: d}
  namespaceOptions:
    quota: 3
    additionalMetadata: {labels: {env: prod, pod-security.kubernetes.io/enforce: restricted}, annotations: {note: "a b"}}
    additionalMetadataList: [{labels: {team: oil}}]
    forbiddenLabels: {denied: [secret], deniedRegex: "^(a|b)/.*"}
    forbiddenAnnotations: {deniedRegex: "acme"}
    requiredMetadata: {labels: {cost: "^[0]+$|^c-.*$"}, annotations: {owner: "^team-"}}
  forceTenantPrefix: false
  cordoned: true
  preventDeletion: true
  nodeSelector: {pool: oil, arch: arm}
  resourceQuotas: {scope: Namespace, items: [{hard: {pods: 5}, scopes: [BestEffort]}, {hard: {cpu: 1500m}}]}
  limitRanges: {items: [{limits: [{type: Pod}]}]}
  networkPolicies: {items: [{podSelector: {}, policyTypes: [Ingress]}]}`,
			configuration: `spec: {forceTenantPrefix: true}`,
			want: v1alpha1.TenantSpec{
				Owners: []v1alpha1.Owner{
					{Kind: "User", Name: "alice", Roles: []string{"view"}},
					{Kind: "Group", Name: "oil-team", Roles: []string{"tenure-tenant"}},
					{Kind: "ServiceAccount", Namespace: "ci", Name: "deployer", Roles: []string{"edit"}},
				},
				RoleBindings: []v1alpha1.TenantRoleBinding{{
					Role: "view", Subjects: []v1alpha1.Subject{{Kind: "Group", Name: "system:authenticated"}},
					Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
				}},
				Namespaces: v1alpha1.TenantNamespaces{
					Quota: new(int32(3)), PodSecurity: "restricted",
					Labels:      map[string]string{"env": "prod", "team": "oil"},
					Annotations: map[string]string{"note": "a b", "scheduler.alpha.kubernetes.io/node-selector": "arch=arm,pool=oil"},
					Forbidden:   v1alpha1.ForbiddenMetadata{Labels: []v1alpha1.ValuePattern{"secret", "a/*", "b/*"}, Annotations: []v1alpha1.ValuePattern{"*acme*"}},
					Required: v1alpha1.RequiredMetadata{
						LabelExpressions:      map[string]v1alpha1.Expression{"cost": "^[0]+$|^c-.*$"},
						AnnotationExpressions: map[string]v1alpha1.Expression{"owner": "^team-"},
					},
				},
				Quotas: []v1alpha1.TenantQuota{
					{Name: "capsule-0", Scope: "Namespace"}, {Name: "capsule-1", Scope: "Namespace"},
				},
				Workloads: v1alpha1.Workloads{Nodes: &v1alpha1.Nodes{Selector: map[string]v1alpha1.LabelValue{"arch": "arm", "pool": "oil"}}},
				Cordoned:  true, Protected: true,
			},
			notes: []string{
				"honoured differently spec.owners[1].clusterRoles[0]",
				"honoured differently spec.nodeSelector",
			},
		},
		"annotations of v1beta1": {
			reason: "what older fleets say with annotations holds tenants back just the same",
			tenant: `
metadata:
  annotations:
    capsule.clastix.io/forbidden-namespace-labels: "a, b"
    capsule.clastix.io/forbidden-namespace-labels-regexp: "^c.*$"
    capsule.clastix.io/forbidden-namespace-annotations: d
    capsule.clastix.io/protected: ""
    capsule.clastix.io/cordon: "true"
    capsule.clastix.io/deny-wildcard: "true"
    clusterrolenames.capsule.clastix.io/0: view
    kubectl.kubernetes.io/last-applied-configuration: "{}"
spec: {owners: [{kind: User, name: alice, clusterRoles: [admin, capsule-namespace-deleter]}], ingressOptions: {allowWildcardHostnames: true}}`,
			want: v1alpha1.TenantSpec{
				Owners:   []v1alpha1.Owner{{Kind: "User", Name: "alice", Roles: []string{"view"}}},
				Cordoned: true, Protected: true,
				Namespaces: v1alpha1.TenantNamespaces{Forbidden: v1alpha1.ForbiddenMetadata{
					Labels: []v1alpha1.ValuePattern{"a", "b", "c*"}, Annotations: []v1alpha1.ValuePattern{"d"},
				}},
			},
		},
		"custom resources": {
			reason: "an annotation bounds their number in the tenant, of all versions together; the manager writes the annotation with the number",
			tenant: `
metadata:
  annotations:
    quota.resources.capsule.clastix.io/mysqls.example.com_v1: "3"
    quota.resources.capsule.clastix.io/mysqls.example.com_v1alpha1: "2"
    quota.resources.capsule.clastix.io/backups.db.example.com_v1: "0"
    used.resources.capsule.clastix.io/mysqls.example.com_v1: "1"`,
			want: v1alpha1.TenantSpec{Quotas: []v1alpha1.TenantQuota{{Name: "capsule-custom", Scope: "Tenant", Hard: v1alpha1.Quantities{
				"count/mysqls.example.com": resource.MustParse("2"), "count/backups.db.example.com": resource.MustParse("0"),
			}}}},
		},
		"cordoned by label": {
			reason: "older fleets cordon with a label",
			tenant: `{metadata: {labels: {capsule.clastix.io/cordon: enabled}}}`,
			want:   v1alpha1.TenantSpec{Cordoned: true},
		},
		"prefix for all": {
			reason:        "without an answer of its own, the configuration's counts",
			tenant:        `{}`,
			configuration: `spec: {forceTenantPrefix: true}`,
			want:          v1alpha1.TenantSpec{Namespaces: v1alpha1.TenantNamespaces{Prefix: new(true)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := Input{Tenant: parse(t, tc.tenant), Configuration: configuration(t, tc.configuration)}
			before := in.Tenant.DeepCopy()
			got := Translate(in)
			want := oil(tc.want)
			// Fields that the translation copies are compared with their originals.
			if q := in.Tenant.Spec.ResourceQuotas; q != nil {
				for i := range q.Items {
					want.Quotas[i] = v1alpha1.NewTenantQuota(want.Quotas[i].Name, want.Quotas[i].Scope, q.Items[i])
				}
				for _, item := range in.Tenant.Spec.LimitRanges.Items {
					want.LimitRanges = append(want.LimitRanges, v1alpha1.NewLimitRange(item))
				}
				want.NetworkPolicies = in.Tenant.Spec.NetworkPolicies.Items
			}
			if diff := cmp.Diff(want, got.Spec); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var notes []string
			for _, n := range got.Notes {
				notes = append(notes, string(n.State)+" "+n.Field)
			}
			if diff := cmp.Diff(tc.notes, notes); diff != "" {
				t.Errorf("%s: notes (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, in.Tenant); diff != "" {
				t.Errorf("the translation changed its input (-before +after):\n%s", diff)
			}
		})
	}
}

// TestRefused checks that unsupported values are refused, with the name of the field and a
// reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	many := func(n int, item string) string { return "[" + strings.Repeat(item+",", n) + "]" }
	for name, tc := range map[string]struct {
		tenant, field, message string
	}{
		"name":                  {`{metadata: {name: a.b}}`, "metadata.name", "cannot have this name"},
		"owner's group":         {`spec: {owners: [{kind: Group, name: "system:serviceaccounts:oil"}]}`, "spec.owners[0]", "Kubernetes' own"},
		"owner everybody":       {`spec: {owners: [{kind: Group, name: "system:authenticated"}]}`, "spec.owners[0]", "Kubernetes' own"},
		"owner in group's form": {`spec: {owners: [{kind: Group, name: "system:serviceaccount:a:b"}]}`, "spec.owners[0]", "Kubernetes' own"},
		"owner without kind":    {`spec: {owners: [{name: alice}]}`, "spec.owners[0]", "the kind is missing"},
		"owner without name":    {`spec: {owners: [{kind: User, name: ""}]}`, "spec.owners[0]", "the name"},
		"account without form":  {`spec: {owners: [{kind: ServiceAccount, name: gitops}]}`, "spec.owners[0]", "has the form"},
		"account of three":      {`spec: {owners: [{kind: ServiceAccount, name: "system:serviceaccount:a:b:c"}]}`, "spec.owners[0]", "has the form"},
		"no roles":              {`spec: {owners: [{kind: User, name: a, clusterRoles: []}]}`, "spec.owners[0].clusterRoles", "at least one"},
		"many roles":            {`spec: {owners: [{kind: User, name: a, clusterRoles: [a, b, c, d, e, f, g, h, i]}]}`, "spec.owners[0].clusterRoles", "at most 8"},
		"two lists of roles":    {`{metadata: {annotations: {clusterrolenames.capsule.clastix.io/0: view}}, spec: {owners: [{kind: User, name: a, clusterRoles: [edit]}]}}`, "metadata.annotations[clusterrolenames.capsule.clastix.io/0]", "other roles"},
		"roles of nobody":       {`{metadata: {annotations: {clusterrolenames.capsule.clastix.io/7: view}}}`, "metadata.annotations[clusterrolenames.capsule.clastix.io/7]", "not understood"},
		"unknown annotation":    {`{metadata: {annotations: {capsule.clastix.io/enable-node-ports: "false"}}}`, "metadata.annotations[capsule.clastix.io/enable-node-ports]", "not understood"},
		"subject's kind":        {`spec: {additionalRoleBindings: [{clusterRoleName: view, subjects: [{kind: Robot, name: a}]}]}`, "spec.additionalRoleBindings[0].subjects[0]", "Robot"},
		"subject's namespace":   {`spec: {additionalRoleBindings: [{clusterRoleName: view, subjects: [{kind: ServiceAccount, name: a, namespace: a/b}]}]}`, "spec.additionalRoleBindings[0].subjects[0]", "namespace"},
		"subject's group":       {`spec: {additionalRoleBindings: [{clusterRoleName: view, subjects: [{kind: User, name: a, apiGroup: acme.example}]}]}`, "spec.additionalRoleBindings[0].subjects[0]", "API group"},
		"no subjects":           {`spec: {additionalRoleBindings: [{clusterRoleName: view, subjects: []}]}`, "spec.additionalRoleBindings[0].subjects", "1 to 1000"},
		"other tenant":          {`spec: {namespaceOptions: {additionalMetadata: {labels: {tenure.dev/tenant: gas}}}}`, "spec.namespaceOptions.additionalMetadata.labels[tenure.dev/tenant]", "assigns the namespace"},
		"other Flux tenant":     {`spec: {namespaceOptions: {additionalMetadata: {labels: {toolkit.fluxcd.io/tenant: gas}}}}`, "spec.namespaceOptions.additionalMetadata.labels[toolkit.fluxcd.io/tenant]", "assigns the namespace"},
		"custom resources":      {`{metadata: {annotations: {quota.resources.capsule.clastix.io/mysqls.example.com: "3"}}}`, "metadata.annotations[quota.resources.capsule.clastix.io/mysqls.example.com]", "PLURAL.GROUP_VERSION"},
		"many custom resources": {`{metadata: {annotations: {quota.resources.capsule.clastix.io/mysqls.example.com_v1: many}}}`, "metadata.annotations[quota.resources.capsule.clastix.io/mysqls.example.com_v1]", "number of objects"},
		"template in note":      {`spec: {namespaceOptions: {additionalMetadata: {annotations: {t: "{{ tenant.name }} {{ x }}"}}}}`, "spec.namespaceOptions.additionalMetadata.annotations[t]", "templates"},
		"level":                 {`spec: {namespaceOptions: {additionalMetadata: {labels: {pod-security.kubernetes.io/enforce: Restricted}}}}`, "spec.namespaceOptions.additionalMetadata.labels[pod-security.kubernetes.io/enforce]", "not a level"},
		"denied asterisk":       {`spec: {namespaceOptions: {forbiddenLabels: {denied: ["a*"]}}}`, "spec.namespaceOptions.forbiddenLabels.denied[0]", "not the name"},
		"regex":                 {`spec: {namespaceOptions: {forbiddenLabels: {deniedRegex: "a("}}}`, "spec.namespaceOptions.forbiddenLabels.deniedRegex", "not a regular expression"},
		"regex of a workload":   {`{metadata: {annotations: {tenure.dev/accept-unenforced: spec.storageClasses}}, spec: {storageClasses: {allowedRegex: "a("}}}`, "spec.storageClasses.allowedRegex", "not a regular expression"},
		"one quota too many":    {`{metadata: {annotations: {quota.resources.capsule.clastix.io/mysqls.example.com_v1: "3"}}, spec: {resourceQuotas: {items: ` + many(16, "{hard: {pods: 1}}") + `}}}`, "metadata.annotations[quota.resources.capsule.clastix.io/mysqls.example.com_v1]", "are taken"},
		"many quotas":           {`spec: {resourceQuotas: {items: ` + many(17, "{hard: {pods: 1}}") + `}}`, "spec.resourceQuotas.items", "at most 16"},
		"many ranges":           {`spec: {limitRanges: {items: ` + many(17, "{limits: []}") + `}}`, "spec.limitRanges.items", "at most 16"},
		"many node labels":      {`spec: {nodeSelector: {a: "", b: "", c: "", d: "", e: "", f: "", g: "", h: "", i: "", j: "", k: "", l: "", m: "", n: "", o: "", p: "", q: ""}}`, "spec.nodeSelector", "at most 16"},
		"node label":            {`spec: {nodeSelector: {pool: "a b"}}`, "spec.nodeSelector[pool]", "not a label"},
		"many policies":         {`spec: {networkPolicies: {items: ` + many(33, "{podSelector: {}}") + `}}`, "spec.networkPolicies.items", "at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusals := Translate(Input{Tenant: parse(t, tc.tenant)}).Refusals()
			if len(refusals) != 1 || refusals[0].Field != tc.field || !strings.Contains(refusals[0].Message, tc.message) {
				t.Errorf("got %v, want one refusal of %s with %q", refusals, tc.field, tc.message)
			}
		})
	}
}

// examples has, for each path in [Fields] that is not honoured exactly, a spec with that
// field.
var examples = map[string]string{
	"spec.owners[].proxySettings[].operations": `owners: [{kind: User, name: a, proxySettings: [{kind: Nodes, operations: [List, Update]}]}]`,
	"spec.data":                              `data: {a: b}`,
	"CapsuleConfiguration spec.rbac.deleter": `rbac: {deleter: a}`,
}

// TestFieldsSpeak checks that a reported or unenforced field yields exactly one note, under
// its own path, and that an unenforced field can be accepted by that path.
func TestFieldsSpeak(t *testing.T) {
	t.Parallel()
	index := regexp.MustCompile(`\[[0-9]+\]`)
	for _, kind := range []string{"Tenant", "CapsuleConfiguration"} {
		prefix := strings.TrimPrefix(kind+" ", "Tenant ")
		for _, f := range Fields(kind) {
			// The translation reports this field at the CapsuleConfiguration, which allows the
			// promotion.
			if (f.State != Reported && f.State != Unenforced) || f.Path == "spec.permissions.allowOwnerPromotion" {
				continue
			}
			example, ok := examples[prefix+f.Path]
			if !ok {
				t.Errorf("%s%s has no example", prefix, f.Path)
				continue
			}
			notes := func(accepted string) []Note {
				text := fmt.Sprintf("{metadata: {annotations: {%s: %q}}, spec: {%s}}", AcceptAnnotation, "spec.elsewhere, "+accepted, example)
				if prefix == "" {
					return Translate(Input{Tenant: parse(t, text)}).Notes
				}
				return Translate(Input{Tenant: parse(t, "{}"), Configuration: configuration(t, text)}).Notes
			}
			got := notes("")
			if len(got) != 1 || got[0].State != f.State || !below(index.ReplaceAllString(got[0].Field, "[]"), prefix+f.Path) {
				t.Errorf("%s%s with %q: got %v, want it alone, %s", prefix, f.Path, example, got, f.State)
				continue
			}
			path := strings.TrimPrefix(got[0].Field, prefix)
			if got := notes(path); f.State == Unenforced && (len(got) != 1 || got[0].State != Reported) {
				t.Errorf("%s%s accepted: got %v, want it reported", prefix, f.Path, got)
			}
		}
	}
}

func TestProtectedNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, regex, want, message string }{
		"none":     {"nothing to protect", "", "", ""},
		"any":      {"an expression need not be a pattern", "^a[0-9]+$", "^a[0-9]+$", ""},
		"no regex": {"nobody can accept what is no expression", "a(", "", "not a regular expression"},
		"long":     {"the Tenant cannot have it", strings.Repeat("a", 513), "", "longer than 512 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1beta2.CapsuleConfiguration{}
			c.Spec.ProtectedNamespaceRegex = tc.regex
			result := Translate(Input{Tenant: parse(t, "{}"), Configuration: c})
			if got := result.Spec.Namespaces.ForbiddenNameExpression; got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			notes := result.Refusals()
			if tc.message == "" && len(notes) > 0 || tc.message != "" && (len(notes) != 1 || notes[0].State != Refused || !strings.Contains(notes[0].Message, tc.message)) {
				t.Errorf("%s: got %v, want %q", tc.reason, notes, tc.message)
			}
		})
	}
}

// TestDocument fails if docs/reference/capsule.md is not up to date.
func TestDocument(t *testing.T) {
	t.Parallel()
	have, err := os.ReadFile("../../docs/reference/capsule.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Document(), string(have)); diff != "" {
		t.Errorf("run go generate (-want +have):\n%s", diff)
	}
}

// TestTranslateWorkloads checks the translation of the limits of workloads.
func TestTranslateWorkloads(t *testing.T) {
	t.Parallel()
	names := func(expression string, allowed ...v1alpha1.ValuePattern) *v1alpha1.AllowedNames {
		return &v1alpha1.AllowedNames{Allowed: allowed, Expression: expression}
	}
	classes := func(expression string, allowed ...v1alpha1.ValuePattern) *v1alpha1.AllowedClasses {
		return &v1alpha1.AllowedClasses{AllowedNames: *names(expression, allowed...)}
	}
	selected := func(selector metav1.LabelSelector, allowed ...v1alpha1.ValuePattern) *v1alpha1.AllowedClasses {
		return &v1alpha1.AllowedClasses{AllowedNames: *names("", allowed...), Selector: &selector}
	}
	withDefault := func(of *v1alpha1.AllowedClasses, name string) *v1alpha1.AllowedClasses {
		of.Default = name
		return of
	}
	gold := metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	tiered := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}}}
	for name, tc := range map[string]struct {
		tenant  string
		want    func(*v1alpha1.TenantSpec)
		refused string
	}{
		"all fields": {
			tenant: `
containerRegistries: {allowed: [docker.io, "registry.example.com:5000/team"], allowedRegex: "^quay[.]io$"}
imagePullPolicies: [Always]
ingressOptions: {allowedClasses: {allowed: [public], allowedRegex: ^team-}, allowedHostnames: {allowed: [a.example.com], allowedRegex: "^.*[.]oil[.]example[.]com$"}}
gatewayOptions: {allowedClasses: {allowed: [shared]}}
serviceOptions: {allowedServices: {nodePort: false, externalName: false}, externalIPs: {allowed: [192.0.2.1, 198.51.100.7/24, "2001:db8::1"]}, forbiddenLabels: {denied: [a]}, forbiddenAnnotations: {deniedRegex: "^b/"}}
storageClasses: {allowed: [fast]}
priorityClasses: {allowed: [high]}
runtimeClasses: {allowedRegex: sandbox}
deviceClasses: {allowed: [gpu]}`,
			want: func(s *v1alpha1.TenantSpec) {
				s.Workloads = v1alpha1.Workloads{
					Images:          &v1alpha1.Images{Registries: []v1alpha1.ImagePattern{"docker.io/**", "registry.example.com:5000/team/**"}, RegistryExpression: "^quay[.]io$", Registry: "Required", PullPolicies: []string{"Always"}},
					PriorityClasses: classes("", "high"), RuntimeClasses: classes("sandbox"), DeviceClasses: classes("", "gpu"),
				}
				s.Network = v1alpha1.Network{
					Services: &v1alpha1.Services{
						Types: []string{"ClusterIP", "LoadBalancer"}, ExternalIPs: []v1alpha1.AddressRange{"192.0.2.1/32", "198.51.100.0/24", "2001:db8::1/128"},
						DeniedLabels: []v1alpha1.ValuePattern{"a"}, DeniedAnnotationExpression: "^b/",
					},
					Hosts: names("^.*[.]oil[.]example[.]com$", "a.example.com"), IngressClasses: classes("^team-", "public"), GatewayClasses: classes("", "shared"),
				}
				s.Storage.Classes = classes("", "fast")
			},
		},
		"a name with an asterisk allows no more than it does in Capsule": {
			tenant: `storageClasses: {allowed: ["*"]}`,
			want:   func(s *v1alpha1.TenantSpec) { s.Storage.Classes = classes("") },
		},
		"wildcards are allowed": {
			tenant: `ingressOptions: {allowWildcardHostnames: true}`,
			want:   func(s *v1alpha1.TenantSpec) { s.Network.Hosts = names("", "*") },
		},
		"a default alone is the only class": {
			tenant: `{runtimeClasses: {default: a}, storageClasses: {default: b}, priorityClasses: {default: c}, ingressOptions: {allowedClasses: {default: d}}, gatewayOptions: {allowedClasses: {default: e}}}`,
			want: func(s *v1alpha1.TenantSpec) {
				s.Workloads = v1alpha1.Workloads{RuntimeClasses: withDefault(classes("", "a"), "a"), PriorityClasses: withDefault(classes("", "c"), "c")}
				s.Network = v1alpha1.Network{IngressClasses: withDefault(classes("", "d"), "d"), GatewayClasses: withDefault(classes("", "e"), "e")}
				s.Storage.Classes = withDefault(classes("", "b"), "b")
			},
		},
		"an empty list of registries allows no image": {
			tenant: `containerRegistries: {allowed: []}`,
			want: func(s *v1alpha1.TenantSpec) {
				s.Workloads.Images = &v1alpha1.Images{RegistryExpression: "^$", Registry: "Required"}
			},
		},
		"an empty list of addresses allows none, whatever the profile allows": {
			tenant: `serviceOptions: {externalIPs: {allowed: []}}`,
			want: func(s *v1alpha1.TenantSpec) {
				s.Network.Services = &v1alpha1.Services{ExternalIPs: []v1alpha1.AddressRange{"255.255.255.255/32"}}
			},
		},
		"metadata of objects": {
			tenant: `{podOptions: {additionalMetadata: {labels: {a: b}}}, serviceOptions: {additionalMetadata: {annotations: {c: d}}}}`,
			want: func(s *v1alpha1.TenantSpec) {
				s.Workloads.Metadata = &v1alpha1.ObjectMetadata{Labels: map[string]v1alpha1.LabelValue{"a": "b"}}
				s.Network.Services = &v1alpha1.Services{Metadata: &v1alpha1.ObjectMetadata{Annotations: map[string]string{"c": "d"}}}
			},
		},
		"a template in a label":        {tenant: `podOptions: {additionalMetadata: {labels: {a: "{{ b }}"}}}`, refused: "spec.podOptions.additionalMetadata.labels[a]"},
		"a label of Tenure":            {tenant: `podOptions: {additionalMetadata: {labels: {tenure.dev/tenant: b}}}`, refused: "spec.podOptions.additionalMetadata.labels[tenure.dev/tenant]"},
		"a default that is none":       {tenant: `storageClasses: {default: "A b"}`, refused: "spec.storageClasses.default"},
		"an empty list allows nothing": {tenant: `priorityClasses: {}`, want: func(s *v1alpha1.TenantSpec) { s.Workloads.PriorityClasses = classes("") }},
		"classes are selected by labels": {
			tenant: `
ingressOptions: {allowedClasses: {matchLabels: {tier: gold}}}
gatewayOptions: {allowedClasses: {matchExpressions: [{key: tier, operator: Exists}]}}
storageClasses: {allowed: [a], matchLabels: {tier: gold}}
priorityClasses: {matchLabels: {tier: gold}, default: b}
runtimeClasses: {matchExpressions: [{key: tier, operator: Exists}]}
deviceClasses: {matchLabels: {tier: gold}}`,
			want: func(s *v1alpha1.TenantSpec) {
				s.Workloads = v1alpha1.Workloads{PriorityClasses: withDefault(selected(gold, "b"), "b"), RuntimeClasses: selected(tiered), DeviceClasses: selected(gold)}
				s.Network = v1alpha1.Network{IngressClasses: selected(gold), GatewayClasses: selected(tiered)}
				s.Storage.Classes = selected(gold, "a")
			},
		},
		"a selector is none":                 {tenant: `storageClasses: {matchExpressions: [{key: a, operator: Is}]}`, refused: "spec.storageClasses"},
		"an allowed default":                 {tenant: `storageClasses: {allowed: [a], default: a}`, want: func(s *v1alpha1.TenantSpec) { s.Storage.Classes = withDefault(classes("", "a"), "a") }},
		"a default that matches":             {tenant: `storageClasses: {allowedRegex: "^a", default: ab}`, want: func(s *v1alpha1.TenantSpec) { s.Storage.Classes = withDefault(classes("^a"), "ab") }},
		"a default that is not listed":       {tenant: `storageClasses: {allowed: [a], default: b}`, want: func(s *v1alpha1.TenantSpec) { s.Storage.Classes = withDefault(classes("", "a", "b"), "b") }},
		"a default that does not match":      {tenant: `storageClasses: {allowedRegex: ^a, default: b}`, want: func(s *v1alpha1.TenantSpec) { s.Storage.Classes = withDefault(classes("^a", "b"), "b") }},
		"a registry is no name":              {tenant: `containerRegistries: {allowed: ["https://a.example.com"]}`, refused: "spec.containerRegistries.allowed[0]"},
		"a registry without a domain":        {tenant: `containerRegistries: {allowed: [harbor]}`, refused: "spec.containerRegistries.allowed[0]"},
		"an address is none":                 {tenant: `serviceOptions: {externalIPs: {allowed: [a]}}`, refused: "spec.serviceOptions.externalIPs.allowed[0]"},
		"an expression does not compile":     {tenant: `ingressOptions: {allowedHostnames: {allowedRegex: "a("}}`, refused: "spec.ingressOptions.allowedHostnames.allowedRegex"},
		"an expression of registries either": {tenant: `containerRegistries: {allowedRegex: "a("}`, refused: "spec.containerRegistries.allowedRegex"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := &v1beta2.Tenant{}
			tenant.Name = "oil"
			if err := yaml.Unmarshal([]byte(tc.tenant), &tenant.Spec); err != nil {
				t.Fatal(err)
			}
			got := Translate(Input{Tenant: tenant})
			if refusals := got.Refusals(); tc.refused != "" {
				if len(refusals) != 1 || refusals[0].Field != tc.refused {
					t.Errorf("got %v, want %s refused", refusals, tc.refused)
				}
				return
			} else if len(refusals) > 0 {
				t.Fatalf("refused: %v", refusals)
			}
			var want v1alpha1.TenantSpec
			tc.want(&want)
			for _, diff := range []string{cmp.Diff(want.Workloads, got.Spec.Workloads), cmp.Diff(want.Network, got.Spec.Network), cmp.Diff(want.Storage, got.Spec.Storage)} {
				if diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
		})
	}
}

// TestLists checks the annotations of namespaces that list what a Tenant allows.
func TestLists(t *testing.T) {
	t.Parallel()
	tenant := &v1beta2.Tenant{}
	tenant.Name = "oil"
	if err := yaml.Unmarshal([]byte(`{containerRegistries: {allowed: [docker.io, quay.io], allowedRegex: "^a$"}, ingressOptions: {allowedClasses: {allowed: [public]}}, storageClasses: {allowedRegex: "^fast"}}`), &tenant.Spec); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"capsule.clastix.io/allowed-registries": "docker.io,quay.io", "capsule.clastix.io/allowed-registries-regexp": "^a$",
		"capsule.clastix.io/ingress-classes": "public", "capsule.clastix.io/storage-classes-regexp": "^fast",
	}
	if diff := cmp.Diff(want, Translate(Input{Tenant: tenant}).Spec.Namespaces.Annotations); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A Tenant of Capsule's that does not allow wildcards has none of the TenancyProfile's.
func TestTranslateWithoutWildcards(t *testing.T) {
	t.Parallel()
	names := func(expression string, allowed ...v1alpha1.ValuePattern) *v1alpha1.AllowedNames {
		return &v1alpha1.AllowedNames{Allowed: allowed, Expression: expression}
	}
	long := names(strings.Repeat("a", maxAllowedExpression), anything)
	for _, tc := range []struct {
		reason, spec string
		hosts, want  *v1alpha1.AllowedNames
		refused      bool
	}{
		{"no hosts", `{}`, nil, nil, false},
		{"no wildcards", `{}`, names("^a", "a.example.com", "a*"), nil, false},
		{"all hosts", `{}`, names("", "*"), names("^.*$"), false},
		{"some wildcards", `{ingressOptions: {}}`, names("^a|b$", "a.example.com", "*.b.example.com", "*c"), names(`^.*\.b\.example\.com$|^.*c$|(?:^a|b$)`, "a.example.com"), false},
		{"other fields", `{ingressOptions: {hostnameCollisionScope: Tenant}}`, names("", "*"), names("^.*$"), false},
		{"wildcards", `{ingressOptions: {allowWildcardHostnames: true}}`, names("", "*.a"), names("", "*"), false},
		{"hosts of its own", `{ingressOptions: {allowedHostnames: {allowed: [b]}}}`, names("", "*.a"), names("", "b"), false},
		{"too many", `{}`, long, nil, true},
		{"too many, which are allowed", `{ingressOptions: {allowWildcardHostnames: true}}`, long, names("", "*"), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			tenant := &v1beta2.Tenant{}
			tenant.Name = "oil"
			if err := yaml.Unmarshal([]byte(tc.spec), &tenant.Spec); err != nil {
				t.Fatal(err)
			}
			got := Translate(Input{Tenant: tenant, Hosts: tc.hosts})
			if refused := len(got.Refusals()) > 0; refused != tc.refused {
				t.Errorf("refused: %v, want %v", got.Refusals(), tc.refused)
			}
			if diff := cmp.Diff(tc.want, got.Spec.Network.Hosts); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
