package discovery

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// by labels an object as applied by a Kustomization.
func by(o client.Object, applier string) client.Object {
	namespace, name, _ := strings.Cut(applier, "/")
	o.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": namespace})
	return o
}

// kustomizes returns a Kustomization from a Git repository.
func kustomizes(namespace, name, source, account string) client.Object {
	from, of, _ := strings.Cut(source, "/")
	spec := map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "namespace": from, "name": of}}
	if account != "" {
		spec["serviceAccountName"] = account
	}
	return fluxObject(flux.Kustomization, namespace, name, spec)
}

func repository(namespace, name, url string) client.Object {
	return fluxObject(flux.GitRepository, namespace, name, map[string]any{"url": url})
}

// platformObjects returns a platform with Flux in flux-system, whose root Kustomization
// applies itself.
func platformObjects() []client.Object {
	return []client.Object{
		namespace("flux-system", nil), account("flux-system", "kustomize-controller", nil),
		repository("flux-system", "flux-system", "https://git.example.com/acme/fleet.git"), repository("flux-system", "teams", "https://git.example.com/acme/teams"),
		by(kustomizes("flux-system", "flux-system", "flux-system/flux-system", ""), "flux-system/flux-system"),
		by(kustomizes("flux-system", "apps", "flux-system/flux-system", ""), "flux-system/flux-system"),
	}
}

func find(t *testing.T, choice Choice, objects ...client.Object) (*Found, error) {
	t.Helper()
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	var own []client.Object
	for _, o := range append(objects, platformObjects()...) {
		own = append(own, o.DeepCopyObject().(client.Object))
	}
	return Discover(t.Context(), fake.NewClientBuilder().WithScheme(s).WithObjects(own...).Build(), choice)
}

// fromSet labels an object as flux-operator does for a ResourceSet in a namespace.
func fromSet(o client.Object, namespace string) client.Object {
	o.SetLabels(map[string]string{flux.LabelResourceSetNamespace: namespace})
	return o
}

// TestEvidence checks that Discover distinguishes unlabelled namespaces of the platform
// from unlabelled namespaces of tenants.
func TestEvidence(t *testing.T) {
	t.Parallel()
	const apps = "flux-system/apps"
	release := func(namespace, name, account string, source map[string]any) client.Object {
		spec := map[string]any{"chart": map[string]any{"spec": map[string]any{"sourceRef": source}}}
		if account != "" {
			spec["serviceAccountName"] = account
		}
		return fluxObject(flux.HelmRelease, namespace, name, spec)
	}
	hosted := map[string]any{"kind": "HelmRepository", "name": "charts"}
	fromGit := map[string]any{"kind": "GitRepository", "name": "own"}
	admin := func(binding, user, name string) client.Object {
		return clusterBinding(binding, "cluster-admin", nil, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: user, Name: name})
	}
	lockdown := locked("flux")
	remote := kustomizes("x", "app", "flux-system/flux-system", "")
	remoteAlone, remoteTeam := kustomizes("x", "app", "flux-system/flux-system", ""), kustomizes("x", "app", "flux-system/teams", "deployer")
	for _, k := range []client.Object{remote, remoteAlone, remoteTeam} {
		k.(runtime.Unstructured).UnstructuredContent()["spec"].(map[string]any)["kubeConfig"] = map[string]any{"secretRef": map[string]any{"name": "other"}}
	}
	delivers := func(source, target string, inventory ...string) client.Object {
		k := kustomizes("flux-system", "team", "flux-system/"+source, "")
		content := k.(runtime.Unstructured).UnstructuredContent()
		if target != "" {
			content["spec"].(map[string]any)["targetNamespace"] = target
		}
		var entries []any
		for _, id := range inventory {
			entries = append(entries, map[string]any{"id": id, "v": "v1"})
		}
		content["status"] = map[string]any{"inventory": map[string]any{"entries": entries}}
		return k
	}
	asAdmin := delivers("teams", "", "x_web_apps_Deployment")
	asAdmin.(runtime.Unstructured).UnstructuredContent()["spec"].(map[string]any)["serviceAccountName"] = "team"
	for name, tc := range map[string]struct {
		reason           string
		objects          []client.Object
		tenant, platform string
	}{
		"applications of the platform": {
			reason:  "what the platform applied, from its own repository, as the controller",
			objects: []client.Object{by(kustomizes("x", "app", "flux-system/flux-system", ""), apps)}, platform: "Kustomization x/app comes from the platform's own repository and names no account",
		},
		"what they apply in turn": {
			reason: "a release that such a Kustomization applied",
			objects: []client.Object{
				by(kustomizes("x", "app", "flux-system/flux-system", ""), apps), by(release("y", "chart", "", hosted), "x/app"),
			},
			platform: "Kustomization x/app comes from the platform's own repository and names no account; HelmRelease y/chart comes from the platform's own repository and names no account",
		},
		"another address of the platform's repository": {
			reason:   "the same repository by a source in the namespace",
			objects:  []client.Object{by(repository("x", "fleet", "https://git.example.com/acme/fleet"), apps), by(kustomizes("x", "app", "x/fleet", ""), apps)},
			platform: "Kustomization x/app comes from the platform's own repository and names no account",
		},
		"an account": {
			reason:  "an account limits what it may do",
			objects: []client.Object{by(kustomizes("x", "app", "flux-system/flux-system", "deployer"), apps)}, tenant: "Kustomization x/app applies as account x/deployer",
		},
		"an account with cluster-admin": {
			reason:  "the platform means it to be an admin, whatever the repository",
			objects: []client.Object{by(kustomizes("x", "app", "flux-system/teams", "admin"), apps), admin("infra", "x", "admin")}, platform: "Kustomization x/app applies as account x/admin, which has cluster-admin by ClusterRoleBinding infra",
		},
		"cluster-admin of its own": {
			reason:  "who binds itself to cluster-admin does not become the platform by it",
			objects: []client.Object{by(kustomizes("x", "app", "flux-system/teams", "admin"), apps), by(admin("mine", "x", "admin"), "x/app")}, tenant: "Kustomization x/app applies as account x/admin",
		},
		"the lockdown's account": {
			reason:  "what names no account applies as the default account",
			objects: []client.Object{lockdown, by(kustomizes("x", "app", "flux-system/flux-system", ""), apps)}, tenant: "Kustomization x/app applies as account x/flux",
		},
		"the lockdown's account with cluster-admin": {
			reason:  "as flux-operator's fleets have it for infrastructure",
			objects: []client.Object{lockdown, by(kustomizes("x", "app", "flux-system/teams", ""), apps), admin("infra", "x", "flux")}, platform: "Kustomization x/app applies as account x/flux, which has cluster-admin by ClusterRoleBinding infra",
		},
		"another repository": {
			reason:  "whoever may push there decides what is applied",
			objects: []client.Object{by(kustomizes("x", "app", "flux-system/teams", ""), apps)}, tenant: "Kustomization x/app delivers from GitRepository/flux-system/teams, which is not the platform's own repository",
		},
		"a chart from another repository": {
			reason:  "so does a chart in Git",
			objects: []client.Object{by(release("x", "app", "", fromGit), apps)}, tenant: "HelmRelease x/app delivers from GitRepository/x/own, which is not the platform's own repository",
		},
		"applied by a ResourceSet of the platform": {
			reason:  "flux-operator applied it for the platform, and its account limits it",
			objects: []client.Object{fromSet(kustomizes("x", "app", "flux-system/teams", "deployer"), "flux-system")}, tenant: "Kustomization x/app applies as account x/deployer",
		},
		"applied by a ResourceSet of a tenant": {
			reason:  "a ResourceSet in another namespace is not the platform's",
			objects: []client.Object{fromSet(kustomizes("x", "app", "flux-system/flux-system", ""), "x")}, tenant: "Kustomization x/app was not applied by the platform",
		},
		"applied by a ResourceSet that the platform keeps there": {
			reason: "the platform wrote the objects in the ResourceSet, also in one that another ResourceSet applied",
			objects: []client.Object{
				fromSet(fluxObject(flux.ResourceSet, "x", "", nil), "y"), by(fluxObject(flux.ResourceSet, "y", "", nil), apps),
				fromSet(kustomizes("x", "app", "flux-system/teams", "deployer"), "x"),
			},
			tenant: "Kustomization x/app applies as account x/deployer",
		},
		"made by somebody": {
			reason:  "what the platform's Flux did not apply, others made",
			objects: []client.Object{kustomizes("x", "app", "flux-system/flux-system", "")}, tenant: "Kustomization x/app was not applied by the platform",
		},
		"applied by a tenant": {
			reason: "what a tenant applied does not become the platform's by its source",
			objects: []client.Object{
				by(kustomizes("x", "app", "flux-system/teams", "deployer"), apps), by(kustomizes("y", "app", "flux-system/flux-system", ""), "x/app"),
			},
			tenant: "Kustomization x/app applies as account x/deployer; Kustomization y/app was not applied by the platform",
		},
		"one of two": {
			reason: "one object that is a tenant's is enough",
			objects: []client.Object{
				by(kustomizes("x", "app", "flux-system/flux-system", ""), apps), by(kustomizes("x", "team", "flux-system/teams", ""), apps),
			},
			tenant: "Kustomization x/team delivers from GitRepository/flux-system/teams, which is not the platform's own repository",
		},
		"another cluster": {
			reason:  "as the hub of a fleet does: the platform decides what is applied",
			objects: []client.Object{by(remote, apps)}, platform: "Kustomization x/app delivers from the platform's own repository into another cluster",
		},
		"another repository into another cluster": {
			reason: "what it does there is not seen", objects: []client.Object{by(remoteTeam, apps)}, tenant: "Kustomization x/app delivers into another cluster",
		},
		"made by somebody, into another cluster": {
			reason: "the platform did not apply it", objects: []client.Object{remoteAlone}, tenant: "Kustomization x/app delivers into another cluster",
		},
		"a repository alone": {
			reason: "somebody may deliver from it", objects: []client.Object{by(repository("x", "own", "https://git.example.com/acme/own"), apps)}, tenant: "GitRepository x/own is not the platform's own repository",
		},
		"repositories for others": {
			reason: "a namespace with nothing but sources that others use",
			objects: []client.Object{
				by(repository("x", "own", "https://git.example.com/acme/own"), apps), by(kustomizes("y", "app", "x/own", "deployer"), apps),
			},
			platform: "GitRepository x/own serves other namespaces only", tenant: "Kustomization y/app applies as account y/deployer",
		},
		"a target of another repository": {
			reason:  "nobody gives a team the rights of the controller on purpose",
			objects: []client.Object{by(delivers("teams", "x"), apps)}, tenant: "Kustomization flux-system/team delivers from GitRepository/flux-system/teams, which is not the platform's own repository, into namespace x",
		},
		"what it applies in turn": {
			reason: "the team's objects are not the platform's",
			objects: []client.Object{
				by(delivers("teams", "x"), apps), by(kustomizes("y", "app", "flux-system/flux-system", ""), "flux-system/team"),
			},
			tenant: "Kustomization flux-system/team delivers from GitRepository/flux-system/teams, which is not the platform's own repository, into namespace x; Kustomization y/app was not applied by the platform",
		},
		"a target of the platform's repository": {
			reason:  "the platform decides what is applied",
			objects: []client.Object{by(delivers("flux-system", "x"), apps)},
		},
		"another repository for all namespaces": {
			reason:   "only people know whose it is",
			objects:  []client.Object{by(delivers("teams", "", "x_web_apps_Deployment", "_y__Namespace", "_all_rbac.authorization.k8s.io_ClusterRole"), apps)},
			platform: "Kustomization flux-system/team delivers into it and names no account, from GitRepository/flux-system/teams, which is not the platform's own repository: whoever may push there may do everything; Kustomization flux-system/team delivers into it and names no account, from GitRepository/flux-system/teams, which is not the platform's own repository: whoever may push there may do everything",
		},
		"another repository as an admin": {
			reason:   "the same, by an account of the team's",
			objects:  []client.Object{by(asAdmin, apps), admin("team", "flux-system", "team")},
			platform: "Kustomization flux-system/team delivers into it and applies as account flux-system/team, which has cluster-admin by ClusterRoleBinding team, from GitRepository/flux-system/teams, which is not the platform's own repository: whoever may push there may do everything",
		},
		"a target of cluster-admin": {
			reason: "the platform delivers there, by an account of its own",
			objects: []client.Object{
				admin("infra", "flux-system", "infra"), fluxObject(flux.Kustomization, "flux-system", "infra", map[string]any{
					"serviceAccountName": "infra", "targetNamespace": "x", "sourceRef": map[string]any{"kind": "GitRepository", "name": "teams"},
				}),
			},
			platform: "Kustomization flux-system/infra delivers into it as account flux-system/infra, which has cluster-admin by ClusterRoleBinding infra",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := find(t, Choice{}, tc.objects...)
			if err != nil {
				t.Fatal(err)
			}
			var tenants, platform []string
			for _, found := range found.Tenants {
				tenants = append(tenants, found.Why...)
			}
			for _, p := range found.Platform {
				platform = append(platform, p.Why)
			}
			if diff := cmp.Diff([]string{tc.tenant, tc.platform}, []string{strings.Join(tenants, "; "), strings.Join(platform, "; ")}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestChoice checks that a choice by name, label or source overrides the evidence.
func TestChoice(t *testing.T) {
	t.Parallel()
	objects := []client.Object{
		namespace("shop-1", map[string]string{"acme.example/team": "shop"}), namespace("shop-2", map[string]string{"acme.example/team": "shop"}),
		namespace("istio", map[string]string{Label: "mesh"}), namespace("web", nil),
		by(kustomizes("web", "app", "flux-system/teams", "deployer"), "flux-system/apps"),
	}
	for name, tc := range map[string]struct {
		reason  string
		choice  string
		want    string
		problem string
	}{
		"nothing":    {"labels and accounts say it", "", "tenants mesh: istio, web: web; platform", ""},
		"by label":   {"the label's value is the tenant", "tenants: [label=acme.example/team]", "tenants mesh: istio, shop: shop-1 shop-2, web: web; platform", ""},
		"by value":   {"one value only", "tenants: [label=acme.example/team=s*p]\nplatform: [namespace=web]", "tenants mesh: istio, shop: shop-1 shop-2; platform web", ""},
		"by name":    {"a choice goes before a label", "platform: [namespace=ist*]", "tenants web: web; platform istio", ""},
		"by source":  {"by what is delivered there", "platform: ['source=https://git.example.com/acme/*']", "tenants mesh: istio; platform web", ""},
		"named":      {"a name without a label is the tenant's", "tenants: [namespace=shop-1]", "tenants mesh: istio, shop-1: shop-1, web: web; platform", ""},
		"both":       {"nobody is both", "tenants: [namespace=web]\nplatform: [namespace=w*]", "", "namespace web is chosen as a tenant's by namespace=web and as the platform's by namespace=w*"},
		"no pattern": {"a slip is an error", "tenants: [shop]", "", `"shop" is no selector of namespaces: write namespace=NAME`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lists struct{ Tenants, Platform []string }
			if err := yaml.UnmarshalStrict([]byte(tc.choice), &lists); err != nil {
				t.Fatal(err)
			}
			choice, err := NewChoice(lists.Tenants, lists.Platform)
			var found *Found
			if err == nil {
				found, err = find(t, choice, objects...)
			}
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var tenants, platform []string
			for _, found := range found.Tenants {
				tenants = append(tenants, " "+found.Name+": "+strings.Join(found.Namespaces, " "))
			}
			for _, p := range found.Platform {
				platform = append(platform, " "+p.Namespace)
			}
			if got := "tenants" + strings.Join(tenants, ",") + "; platform" + strings.Join(platform, ","); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// FuzzParseSelector checks that the text of a parsed selector is the parsed text.
func FuzzParseSelector(f *testing.F) {
	for _, text := range []string{"namespace=a*", "label=k", "label=k=v", "source=https://*", "namespace=", "=", "label==", "label=k=(", "other=x", "namespace=\xd4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelector(text)
		switch {
		case err != nil && !errors.Is(err, ErrSelector):
			t.Errorf("%q: %v", text, err)
		case err == nil && s.String() != text:
			t.Errorf("%q became %q", text, s)
		}
	})
}

// TestLabelOfPlatform checks which namespaces with Flux's label are the platform's.
func TestLabelOfPlatform(t *testing.T) {
	t.Parallel()
	const apps = "flux-system/apps"
	label := func(tenant string) map[string]string { return map[string]string{"toolkit.fluxcd.io/tenant": tenant} }
	delivery := func(account string) client.Object {
		return by(kustomizes("x", "app", "flux-system/flux-system", account), apps)
	}
	ownTeam := namespace("infra", label("team"))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "team"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "team"}},
	}
	for name, tc := range map[string]struct {
		reason   string
		objects  []client.Object
		platform bool
	}{
		"nobody":                  {"nobody can act there as the team", []client.Object{delivery("")}, true},
		"an account with a label": {"flux create tenant makes one", []client.Object{delivery(""), account("x", "team", label("team"))}, false},
		"a binding":               {"the team has rights", []client.Object{delivery(""), binding}, false},
		"a delivery by account":   {"an account limits it", []client.Object{delivery("team")}, false},
		"cluster-admin": {
			"a team whose account may do everything escapes, and is not the platform",
			[]client.Object{delivery("team"), clusterBinding("all", "cluster-admin", nil, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "x", Name: "team"})}, false,
		},
		"another repository": {"whoever may push there decides what is applied", []client.Object{by(kustomizes("x", "app", "flux-system/teams", ""), apps)}, false},
		"nothing":            {"a tenant that nothing is delivered for yet", nil, false},
		"the platform's team": {
			"the label of a namespace of the platform, with a binding that a chart brings",
			[]client.Object{delivery(""), binding, ownTeam, account("infra", "kustomize-controller", nil)}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := find(t, Choice{}, append(tc.objects, namespace("x", label("team")))...)
			if err != nil {
				t.Fatal(err)
			}
			isPlatform := len(found.Tenants) == 0 && len(found.Platform) > 0
			if isPlatform != tc.platform || isPlatform && !strings.Contains(found.Platform[0].Why, "label toolkit.fluxcd.io/tenant=team") {
				t.Errorf("%s: got the tenants %v and the platform's %v", tc.reason, found.Tenants, found.Platform)
			}
		})
	}
}
