package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/flux"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTenantSchema asks a real API server what a Tenant may say. A refusal names
// the field and the reason.
func TestTenantSchema(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	const sync = "name: app, git: {url: 'https://git.example.com/acme/app'}"
	for _, tc := range []struct{ reason, name, spec, want string }{
		{"a name that namespaces can belong to", "dev-team", "", ""},
		{"one owner is enough", "dev-team", "owners: [{kind: User, name: Ann@Example.com}]", ""},
		{"all of it", "dev-team", `{owners: [{kind: Group, name: 'acme:devs'}, {kind: ServiceAccount, namespace: apps, name: ci, roles: [edit]}],
 namespaces: {create: [apps], quota: 0, prefix: true, podSecurity: restricted, labels: {team: dev, example.com/cost: "7"}, annotations: {note: any text},
  required: {labels: {env: "*"}}, forbidden: {annotations: [example.com/*]}},
 sync: [{` + sync + `, path: ./staging, substitute: {env: staging}}], roleBindings: [{role: view, subjects: [{kind: Group, name: 'system:serviceaccounts:monitoring'}]}],
 clusterRoles: [reader], quotas: [{name: pods, hard: {pods: "10"}}, {name: each, scope: Namespace, hard: {secrets: 5}}],
 limitRanges: [{limits: [{type: Container, max: {cpu: 1}}]}], networkPolicies: [{podSelector: {}}],
 policy: {bounds: {minInterval: 1m}}, cordoned: true, protected: true}`, ""},
		{"a name that no account can have", "Dev.Team", "", "metadata.name: Invalid value"},
		{"a name that no label can hold", strings.Repeat("a", 64), "", "at most 63"},
		{"the account of all Pods", "default", "", "default is the account of all Pods: choose another name"},
		{"a service account by its user name", "dev-team", "owners: [{kind: User, name: 'system:serviceaccount:apps:ci'}]", "spec.owners[0]: Invalid value: names that begin with system: are Kubernetes' own"},
		{"everybody as an owner", "dev-team", "owners: [{kind: Group, name: 'system:authenticated'}]", "spec.owners[0]: Invalid value: names that begin with system:"},
		{"a service account without a namespace", "dev-team", "owners: [{kind: ServiceAccount, name: ci}]", "spec.owners[0]: Invalid value: a ServiceAccount needs a namespace"},
		{"a user with a namespace", "dev-team", "owners: [{kind: User, name: ann, namespace: apps}]", "spec.owners[0]: Invalid value: a ServiceAccount needs a namespace"},
		{"a name that no service account can have", "dev-team", "owners: [{kind: ServiceAccount, name: My Account, namespace: apps}]", "spec.owners[0].name: Invalid value: the name of a ServiceAccount has only a-z, 0-9, hyphens and dots"},
		{"a name with dots of a service account", "dev-team", "owners: [{kind: ServiceAccount, name: ci.example.com, namespace: apps}]", ""},
		{"a namespace that no account can be in", "dev-team", "owners: [{kind: ServiceAccount, name: ci, namespace: No Such}]", "spec.owners[0].namespace: Invalid value"},
		{"a role that no binding can name", "dev-team", "owners: [{kind: User, name: ann, roles: [a/b]}]", "spec.owners[0].roles[0]: Invalid value"},
		{"a role with a colon", "dev-team", "owners: [{kind: User, name: ann, roles: ['system:aggregate-to-view', a.b]}]", ""},
		{"a role of the cluster that no binding can name", "dev-team", "clusterRoles: ['50%']", "spec.clusterRoles[0]: Invalid value"},
		{"a role for others that no binding can name", "dev-team", "roleBindings: [{role: .., subjects: [{kind: User, name: ann}]}]", "spec.roleBindings[0].role: Invalid value"},
		{"a sync in no namespace's name", "dev-team", "sync: [{namespace: Apps, " + sync + "}]", "spec.sync[0].namespace: Invalid value"},
		{"a kind that nobody is", "dev-team", "owners: [{kind: Team, name: a}]", `spec.owners[0].kind: Unsupported value: "Team"`},
		{"Kubernetes' own namespace", "dev-team", "namespaces: {create: [kube-system]}", "spec.namespaces.create: Invalid value: default and names that begin with kube-"},
		{"not a namespace's name", "dev-team", "namespaces: {create: [Apps]}", "spec.namespaces.create[0]: Invalid value"},
		{"twice", "dev-team", "namespaces: {create: [a, a]}", "spec.namespaces.create[1]: Duplicate value"},
		{"fewer than none", "dev-team", "namespaces: {quota: -1}", "spec.namespaces.quota: Invalid value"},
		{"a level that there is not", "dev-team", "namespaces: {podSecurity: none}", `spec.namespaces.podSecurity: Unsupported value: "none"`},
		{"the Pod Security level by a label", "dev-team", "namespaces: {labels: {pod-security.kubernetes.io/enforce: privileged}}", "spec.namespaces.labels: Invalid value: labels of tenure.dev and kubernetes.io"},
		{"another tenant by a label", "dev-team", "namespaces: {labels: {tenure.dev/tenant: other}}", "spec.namespaces.labels: Invalid value: labels of tenure.dev"},
		{"not a label's name", "dev-team", "namespaces: {labels: {'a b': c}}", "spec.namespaces.labels: Invalid value: a label's name"},
		{"too long for a label's value", "dev-team", "namespaces: {labels: {a: " + strings.Repeat("b", 64) + "}}", "spec.namespaces.labels: Invalid value: a label's value"},
		{"a pattern that is a regular expression", "dev-team", "namespaces: {forbidden: {labels: ['^a$']}}", "spec.namespaces.forbidden.labels[0]: Invalid value"},
		{"a sync that goes nowhere", "dev-team", "sync: [{" + sync + "}]", "spec.sync: Invalid value: a sync needs a namespace"},
		{"a sync from nowhere", "dev-team", "sync: [{name: app, namespace: apps}]", "spec.sync[0]: Invalid value: a sync comes from git or from oci"},
		{"a sync from two places", "dev-team", "sync: [{namespace: apps, " + sync + ", oci: {url: 'oci://a.example.com/b'}}]", "spec.sync[0]: Invalid value: a sync comes from git or from oci"},
		{"a password in an address", "dev-team", "sync: [{name: app, namespace: apps, git: {url: 'https://a:b@git.example.com/x'}}]", "spec.sync[0].git.url: Invalid value"},
		{"a way up in an address", "dev-team", "sync: [{name: app, namespace: apps, git: {url: 'https://git.example.com/a/../b'}}]", `"https://git.example.com/a/../b": an address has no ..`},
		{"a branch and a tag", "dev-team", "sync: [{name: app, namespace: apps, git: {url: 'https://git.example.com/a', branch: a, tag: b}}]", "spec.sync[0].git: Invalid value: give a branch or a tag"},
		{"a quota of nothing", "dev-team", "quotas: [{name: a}]", "spec.quotas[0].hard: Invalid value: a quota without a bound"},
		{"two quotas of one name", "dev-team", "quotas: [{name: a, hard: {pods: 1}}, {name: a, hard: {pods: 2}}]", "spec.quotas[1]: Duplicate value"},
		{"a role for the account with a name in each namespace", "dev-team", "roleBindings: [{role: view, subjects: [{kind: ServiceAccount, name: ci}]}]", ""},
		{"a role for a user of a namespace", "dev-team", "roleBindings: [{role: view, subjects: [{kind: User, name: ann, namespace: apps}]}]", "spec.roleBindings[0].subjects[0]: Invalid value: only a ServiceAccount has a namespace"},
		{"a role for nobody", "dev-team", "roleBindings: [{role: view, subjects: []}]", "spec.roleBindings[0].subjects: Invalid value"},
		{"a quota of less than nothing", "dev-team", "quotas: [{name: a, hard: {pods: -1}}]", "spec.quotas[0].hard: Invalid value: an amount is 0 or more"},
		{"the same as text, in each namespace", "dev-team", "quotas: [{name: a, scope: Namespace, hard: {requests.cpu: '-500m'}}]", "spec.quotas[0].hard: Invalid value: an amount is 0 or more"},
		{"a quota of nothing at all", "dev-team", "quotas: [{name: a, hard: {pods: 0, limits.memory: '0'}}]", ""},
		{"more than any cluster has", "dev-team", "quotas: [{name: a, hard: {requests.memory: '9e30'}}]", ""},
		{"a quantity that no program can read", "dev-team", "quotas: [{name: a, hard: {pods: 1e1.5}}]", "spec.quotas[0].hard.pods: Invalid value"},
		{"limits of less than nothing", "dev-team", "limitRanges: [{limits: [{type: Container, max: {cpu: -1}}]}]", "spec.limitRanges[0].limits[0].max: Invalid value: an amount is 0 or more"},
		{"defaults of less than nothing", "dev-team", "limitRanges: [{limits: [{type: Container, defaultRequest: {cpu: '-1'}}]}]", "spec.limitRanges[0].limits[0].defaultRequest: Invalid value: an amount is 0 or more"},
		{"a port that no program can read", "dev-team", "networkPolicies: [{podSelector: {}, ingress: [{ports: [{port: 99999999999}]}]}]", "spec.networkPolicies[0].ingress[0].ports[0].port: Invalid value"},
		{"the last port of a range that no program can read", "dev-team", "networkPolicies: [{podSelector: {}, egress: [{ports: [{port: 1, endPort: 99999999999}]}]}]", "must be of type integer with format int32 in spec.networkPolicies[0].egress[0].ports[0].endPort"},
		{"all the time", "dev-team", "sync: [{interval: 0s, namespace: a, " + sync + "}]", `spec.sync[0].interval: Invalid value: "0s": an interval is between 1s and 8760h`},
		{"next to never", "dev-team", "sync: [{interval: 9000h, namespace: a, " + sync + "}]", `spec.sync[0].interval: Invalid value: "9000h": an interval is between 1s and 8760h`},
		{"a duration that no program can read", "dev-team", "policy: {bounds: {maxTimeout: 99999999999999999999h}}", "spec.policy.bounds.maxTimeout: Invalid value"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			spec := tc.spec
			if !strings.HasPrefix(spec, "{") {
				spec = "{" + spec + "}"
			}
			objects, err := flux.ReadObjects(fmt.Appendf(nil, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: %s}", tc.name, spec))
			if err != nil {
				t.Fatal(err)
			}
			err = admin.Create(t.Context(), objects[0], client.DryRunAll)
			if tc.want == "" {
				if err != nil {
					t.Errorf("a Tenant that says what it may is refused: %v", err)
				}
				return
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want a refusal with %q, got %v", tc.want, err)
			}
		})
	}
}

// TestTenantWithoutSpec asks a real API server about Tenants that do not say what
// the tenant gets, as after a mistake in the word.
func TestTenantWithoutSpec(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	objects, err := flux.ReadObjects([]byte("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: no-spec}, specs: {cordoned: true}}"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "write spec: {} for a name alone"
	if err := admin.Create(t.Context(), objects[0], client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("want a refusal with %q, got %v", want, err)
	}
	create(t, admin, tenantManifest("had-a-spec", "{}"))
	had := condition(t, admin, "had-a-spec", "Ready", "InPlace", "no namespace yet")
	if err := admin.Patch(t.Context(), had, client.RawPatch(types.MergePatchType, []byte(`{"spec":null}`))); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("a spec can be taken away: want %q, got %v", want, err)
	}
}
