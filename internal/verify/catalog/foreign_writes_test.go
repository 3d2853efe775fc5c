package catalog

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
)

// mapped is a client that knows the scopes of some kinds.
type mapped struct{ client.WithWatch }

func (mapped) RESTMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Secret", "ConfigMap", "Pod", "Service"} {
		m.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	return m
}

// TestChangesOfOthers checks which rights in the whole cluster change objects of others. The fake API server admits the
// dry runs of the tenant.
func TestChangesOfOthers(t *testing.T) {
	t.Parallel()
	secret := func(namespace, name string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for name, tc := range map[string]struct {
		reason  string
		rule    authorizationv1.ResourceRule
		objects []client.Object
		want    string
	}{
		"update":            {"a right to update needs no right to create", roleRule("", "secrets", "update"), []client.Object{secret("other", "key")}, "update Secret other/key"},
		"patch":             {"nor does one to patch", roleRule("", "secrets", "patch"), []client.Object{secret("team", "own"), secret("other", "key")}, "patch Secret other/key"},
		"delete":            {"or to delete", roleRule("", "secrets", "delete"), []client.Object{secret("other", "key")}, "delete Secret other/key"},
		"create":            {"nobody has such an object yet", roleRule("", "pods", "create"), nil, "create pods in the whole cluster"},
		"everything":        {"stars cover namespaced objects", roleRule("*", "*", "*"), nil, "patch *.* in the whole cluster"},
		"a subresource":     {"an eviction deletes a Pod", roleRule("", "pods/eviction", "create"), nil, "create pods/eviction in the whole cluster"},
		"a shell":           {"I8 and W2 are about commands", roleRule("", "pods/exec", "create"), nil, ""},
		"one of others":     {"an object with this name is in a namespace of others", roleRule("", "secrets", "update", "key"), []client.Object{secret("other", "key")}, "update Secret other/key"},
		"one of its own":    {"only the tenant has an object with this name", roleRule("", "secrets", "update", "own"), []client.Object{secret("team", "own")}, ""},
		"a name to create":  {"a request to create has no name", roleRule("", "secrets", "create", "key"), []client.Object{secret("other", "key")}, ""},
		"reads":             {"reading changes nothing", roleRule("", "secrets", "get"), []client.Object{secret("other", "key")}, ""},
		"a Lease":           {"a Lease is the program's that uses its name", roleRule("coordination.k8s.io", "leases", "update"), nil, ""},
		"cluster-scoped":    {"other attacks are about objects of the cluster", roleRule("", "nodes", "patch"), nil, ""},
		"a kind of nobody":  {"the cluster does not serve the kind", roleRule("example.com", "things", "create"), nil, ""},
		"a rule about URLs": {"no resource", authorizationv1.ResourceRule{Verbs: []string{"create"}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := withRules(VictimNamespace, []authorizationv1.ResourceRule{tc.rule}, tc.objects...)
			e.Admin = mapped{e.Admin}
			all, err := e.changesEverywhere(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, r := range all {
				got += r.what
				if f := judge(r.aimed(t.Context(), e), ""); f.Outcome != GotThrough {
					t.Errorf("%s: the request ends with %+v", tc.reason, f)
				}
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A binding in the namespace of Kubernetes' components lets a tenant change what all tenants use.
func TestChangesSystem(t *testing.T) {
	t.Parallel()
	dns := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}}
	for place, want := range map[string]string{"kube-system": "patch ConfigMap kube-system/corednspatch configmaps in namespace kube-system", "monitoring": ""} {
		e := withRules(place, []authorizationv1.ResourceRule{
			roleRule("", "configmaps", "patch", "coredns"), roleRule("", "configmaps", "patch", "of-the-provider"), roleRule("coordination.k8s.io", "leases", "update", "team"),
		}, dns)
		e.Admin, e.Tenant.Rights = mapped{e.Admin}, []discovery.Right{{Role: "Role/some", Namespace: place}}
		all, err := e.changesEverywhere(t.Context())
		got := ""
		for _, r := range all {
			got += r.what
		}
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", place, got, err, want)
		}
	}
}

// A tenant with a right to create any kind of Flux in the namespace of Flux is out.
func TestCreatesElsewhere(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		"gitrepositories.source.toolkit.fluxcd.io":       "create GitRepository in namespace flux-system",
		"imageupdateautomations.image.toolkit.fluxcd.io": "create ImageUpdateAutomation in namespace flux-system",
		"alerts.notification.toolkit.fluxcd.io":          "create Alert in namespace flux-system",
		"things.example.com":                             "",
	} {
		plain, group, _ := strings.Cut(resource, ".")
		e := withRules("flux-system", []authorizationv1.ResourceRule{roleRule(group, plain, "create")})
		all, err := e.createsElsewhere(t.Context())
		got := ""
		for _, r := range all {
			got += r.what
		}
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", resource, got, err, want)
		}
	}
}

// A tenant creates a value that the platform's sync reads if it is there.
func TestCreatesOptionalValue(t *testing.T) {
	t.Parallel()
	sync := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system", "vars", map[string]any{"spec": map[string]any{
		"postBuild": map[string]any{"substituteFrom": []any{map[string]any{"kind": "ConfigMap", "name": "overrides", "optional": true}}},
	}})
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "overrides"}}
	for reason, tc := range map[string]struct {
		rule    authorizationv1.ResourceRule
		objects []client.Object
		want    int
	}{
		"it is not there":                  {roleRule("", "configmaps", "create"), []client.Object{sync}, 1},
		"it is there":                      {roleRule("", "configmaps", "create"), []client.Object{sync, there}, 0},
		"it is there, and may be changed":  {roleRule("", "configmaps", "patch"), []client.Object{sync, there}, 1},
		"a name in a right to create":      {roleRule("", "configmaps", "create", "overrides"), []client.Object{sync}, 0},
		"a right to change what is absent": {roleRule("", "configmaps", "update"), []client.Object{sync}, 0},
	} {
		all, err := withRules("flux-system", []authorizationv1.ResourceRule{tc.rule}, tc.objects...).editsElsewhere(t.Context())
		if err != nil || len(all) != tc.want {
			t.Errorf("%s: got %d requests, %v, want %d", reason, len(all), err, tc.want)
		}
	}
}

// The right to bind a role is a right to all that this role allows.
func TestBindsMore(t *testing.T) {
	t.Parallel()
	role := func(name, resource string) client.Object {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"create"}}}}
	}
	bind := func(names ...string) authorizationv1.ResourceRule {
		return roleRule(rbacv1.GroupName, "clusterroles", "bind", names...)
	}
	for reason, tc := range map[string]struct {
		rules []authorizationv1.ResourceRule
		want  string
	}{
		"the role has more rights":         {[]authorizationv1.ResourceRule{bind("pods", "team")}, "bind ClusterRole pods, which has rights that it lacks, in its own namespace"},
		"the tenant has all of its rights": {[]authorizationv1.ResourceRule{bind("team")}, ""},
		"the role does not exist":          {[]authorizationv1.ResourceRule{bind("gone")}, ""},
		"it may bind nothing":              {nil, ""},
	} {
		e := withRules("team", append(tc.rules, roleRule("", "configmaps", "*")), role("pods", "pods"), role("team", "configmaps"))
		all, err := e.bindsMore(t.Context())
		got := ""
		for _, r := range all {
			got += r.what
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", reason, got, err, tc.want)
		}
	}
}

// The right to escalate a role is of use only with the right to change this role.
func TestWidensByName(t *testing.T) {
	t.Parallel()
	rule := func(verb string, names ...string) authorizationv1.ResourceRule {
		return roleRule(rbacv1.GroupName, "clusterroles", verb, names...)
	}
	for reason, tc := range map[string]struct {
		rules []authorizationv1.ResourceRule
		want  Outcome
	}{
		"the same role":     {[]authorizationv1.ResourceRule{rule("escalate", "a"), rule("update", "a")}, GotThrough},
		"another role":      {[]authorizationv1.ResourceRule{rule("escalate", "a"), rule("update", "b")}, Stopped},
		"every role":        {[]authorizationv1.ResourceRule{rule("escalate"), rule("update", "b")}, GotThrough},
		"a role, named":     {[]authorizationv1.ResourceRule{rule("escalate", "a"), rule("patch")}, GotThrough},
		"a name to create":  {[]authorizationv1.ResourceRule{rule("escalate", "a"), rule("create")}, Stopped},
		"no right to write": {[]authorizationv1.ResourceRule{rule("escalate")}, Stopped},
	} {
		got := judge(widens(t.Context(), withRules(VictimNamespace, tc.rules), "clusterroles", "clusterrolebindings"), "")
		if got.Outcome != tc.want {
			t.Errorf("%s: got %+v, want %s", reason, got, tc.want)
		}
	}
}

// A right to one node, or to one Secret of Kubernetes' components, is a way out.
func TestReadsByName(t *testing.T) {
	t.Parallel()
	for want, tc := range map[string]struct {
		place string
		rule  authorizationv1.ResourceRule
	}{
		"read and run commands through a node's kubelet, by the right to create nodes/proxy worker": {VictimNamespace, roleRule("", "nodes/proxy", "create", "worker")},
		"read a Secret of Kubernetes' components, by the right to get secrets cloud":                {"kube-system", roleRule("", "secrets", "get", "cloud")},
	} {
		refused := withRulesAlone(tc.place, []authorizationv1.ResourceRule{tc.rule})
		refused.Tenant.Rights = []discovery.Right{{Role: "Role/some", Namespace: tc.place}}
		if f := attackOf(t, "W2-api").Run(t.Context(), refused); !strings.Contains(f.Evidence, want) {
			t.Errorf("got %s %q %q, want %q", f.Outcome, f.Evidence, f.Reason, want)
		}
	}
}

// Without a right elsewhere, the attacks about such rights are stopped; with one, they get through.
func TestRightsOfRoles(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		attack, place string
		rules         []authorizationv1.ResourceRule
		want          Outcome
	}{
		{"I3-api", VictimNamespace, nil, Stopped},
		{"I3-api", VictimNamespace, []authorizationv1.ResourceRule{roleRule("*", "*", "delete")}, GotThrough},
		{"I4-api", "team", nil, Stopped},
	} {
		e := withRulesAlone(tc.place, tc.rules)
		e.Root = flux.Ref{Kind: flux.GitRepository, Namespace: "flux-system", Name: "flux-system"}
		if f := attackOf(t, tc.attack).Run(t.Context(), e); f.Outcome != tc.want {
			t.Errorf("%s with %v: got %+v, want %s", tc.attack, tc.rules, f, tc.want)
		}
	}
}
