package discovery

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func namespace(name string, labels map[string]string) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func account(namespace, name string, labels map[string]string) client.Object {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

func binding(namespace, role, account string) client.Object {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reconciler"},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
}

func labelledBinding(namespace, role, account string, labels map[string]string) client.Object {
	b := binding(namespace, role, account)
	b.SetLabels(labels)
	b.SetName("labelled")
	return b
}

func owned(kind, namespace, name string) map[string]any {
	owner := map[string]any{"kind": kind, "name": name}
	if namespace != "" {
		owner["namespace"] = namespace
	}
	return owner
}

func tenantObject(apiVersion, name string, owners ...any) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"owners": owners}}}
	u.SetAPIVersion(apiVersion)
	u.SetKind("Tenant")
	u.SetName(name)
	return u
}

// sharing returns a tenant that delivers from the same repository as other tenants.
func sharing(namespace string) Tenant {
	return Tenant{
		Name: namespace, Namespaces: []string{namespace}, Accounts: []Account{{namespace, "deployer"}},
		Synced: true, Repositories: []Repository{{
			Source: flux.Ref{Kind: flux.GitRepository, Namespace: namespace, Name: "dev-team"},
			URL:    "https://git.example.com/acme/dev-team", Branch: "main", Path: "staging/",
			Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: namespace, Name: "sync"},
		}},
	}
}

func fluxObject(kind flux.Kind, namespace, name string, spec map[string]any) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind.GroupVersionKind())
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func discover(t *testing.T, objects ...client.Object) []Tenant {
	t.Helper()
	return discoverAll(t, objects...).Tenants
}

func discoverAll(t *testing.T, objects ...client.Object) *Found {
	t.Helper()
	// The fake client adds kinds to its scheme, so each client gets its own scheme.
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	// The fake client changes its objects, and the tests share them.
	var own []client.Object
	for _, o := range objects {
		own = append(own, o.DeepCopyObject().(client.Object))
	}
	builder := fake.NewClientBuilder().WithScheme(s).WithObjects(append(own,
		namespace("kube-system", nil), namespace("flux-system", nil), account("flux-system", "kustomize-controller", nil),
		fluxObject(flux.Kustomization, "flux-system", "flux-system", map[string]any{"serviceAccountName": "kustomize-controller"}),
	)...)
	found, err := Discover(t.Context(), builder.Build(), Choice{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	labelled := map[string]string{Label: "dev-team"}
	source := map[string]any{"url": "https://git.example.com/acme/dev-team", "ref": map[string]any{"branch": "main"}}
	sync := map[string]any{"path": "./staging", "serviceAccountName": "deployer", "sourceRef": map[string]any{"kind": "GitRepository", "name": "dev-team"}}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		want    []Tenant
	}{
		"nobody": {reason: "the platform is no tenant"},
		"labelled": {
			reason: "two namespaces with one label are one tenant, with the accounts that carry it",
			objects: []client.Object{
				namespace("apps", labelled), namespace("apps-preview", labelled), account("apps", "dev-team", labelled),
				binding("apps", "cluster-admin", "dev-team"),
			},
			want: []Tenant{{
				Name: "dev-team", Namespaces: []string{"apps", "apps-preview"},
				Accounts: []Account{{"apps", "dev-team"}}, Roles: []string{"ClusterRole/cluster-admin"},
			}},
		},
		"labelled by Tenure and Capsule": {
			reason: "each label makes a tenant, with accounts and bindings that carry it; Tenure's goes before the others",
			objects: []client.Object{
				namespace("apps", map[string]string{v1alpha1.LabelTenant: "dev-team", v1alpha1.LabelFluxTenant: "old"}),
				account("apps", "dev-team", map[string]string{v1alpha1.LabelTenant: "dev-team"}), account("apps", "other", nil),
				namespace("oil", map[string]string{v1alpha1.LabelCapsuleTenant: "oil"}), account("oil", "owner", nil),
				labelledBinding("oil", "admin", "owner", map[string]string{v1alpha1.LabelCapsuleTenant: "oil"}),
			},
			want: []Tenant{
				{Name: "dev-team", Namespaces: []string{"apps"}, Accounts: []Account{{"apps", "dev-team"}}},
				{Name: "oil", Namespaces: []string{"oil"}, Accounts: []Account{{"oil", "owner"}}, Roles: []string{"ClusterRole/admin"}},
			},
		},
		"found by its Flux objects": {
			reason: "a namespace that nobody labelled is a tenant when Flux delivers from it",
			objects: []client.Object{
				namespace("shop", nil), namespace("empty", nil), account("shop", "deployer", nil), binding("shop", "edit", "deployer"),
				fluxObject(flux.GitRepository, "shop", "dev-team", source),
				fluxObject(flux.Kustomization, "shop", "shop", sync),
			},
			want: []Tenant{{
				Name: "shop", Namespaces: []string{"shop"}, Accounts: []Account{{"shop", "deployer"}}, Roles: []string{"ClusterRole/edit"},
				Synced: true, Repositories: []Repository{{
					Source: flux.Ref{Kind: flux.GitRepository, Namespace: "shop", Name: "dev-team"},
					URL:    "https://git.example.com/acme/dev-team", Branch: "main", Path: "staging/",
					Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "shop", Name: "shop"},
				}},
			}},
		},
		"delivers from the platform's repository": {
			reason: "a source at the same address is the same repository, also on another branch",
			objects: []client.Object{
				namespace("apps", labelled), account("apps", "dev-team", labelled),
				fluxObject(flux.GitRepository, "flux-system", "fleet", map[string]any{"url": "https://git.example.com/acme/fleet", "ref": map[string]any{"branch": "main"}}),
				fluxObject(flux.Kustomization, "flux-system", "infra", map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}}),
				fluxObject(flux.GitRepository, "apps", "fleet", map[string]any{"url": "https://git.example.com/acme/fleet", "ref": map[string]any{"branch": "dev"}}),
				fluxObject(flux.Kustomization, "apps", "apps", map[string]any{"path": "./apps", "serviceAccountName": "dev-team", "sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}}),
			},
			want: []Tenant{{
				Name: "dev-team", Namespaces: []string{"apps"}, Accounts: []Account{{"apps", "dev-team"}},
				Synced: true, Repositories: []Repository{{
					Source: flux.Ref{Kind: flux.GitRepository, Namespace: "apps", Name: "fleet"},
					URL:    "https://git.example.com/acme/fleet", Branch: "dev", Path: "apps/",
					Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "apps", Name: "apps"}, OfPlatform: true,
				}},
			}},
		},
		"delivers artifacts": {
			reason: "an artifact has a tag in the place of a branch: what the source names, or Flux found",
			objects: []client.Object{
				fluxObject(flux.OCIRepository, "shop", "tagged", map[string]any{"url": "oci://images.example.com/shop", "ref": map[string]any{"tag": "v1"}}),
				fluxObject(flux.OCIRepository, "shop", "pinned", map[string]any{"url": "oci://images.example.com/shop", "ref": map[string]any{"tag": "v1", "digest": "sha256:0"}}),
				fluxObject(flux.Kustomization, "shop", "a", map[string]any{"serviceAccountName": "deployer", "sourceRef": map[string]any{"kind": "OCIRepository", "name": "tagged"}}),
				fluxObject(flux.Kustomization, "shop", "b", map[string]any{"serviceAccountName": "deployer", "sourceRef": map[string]any{"kind": "OCIRepository", "name": "pinned"}}),
				fluxObject(flux.Kustomization, "shop", "c", map[string]any{"serviceAccountName": "deployer", "sourceRef": map[string]any{"kind": "Bucket", "name": "tagged"}}),
			},
			want: []Tenant{{
				Name: "shop", Namespaces: []string{"shop"}, Accounts: []Account{{"shop", "deployer"}},
				Synced: true, Repositories: []Repository{
					{
						Source: flux.Ref{Kind: flux.OCIRepository, Namespace: "shop", Name: "tagged"},
						URL:    "oci://images.example.com/shop", Branch: "v1", Path: "/",
						Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "shop", Name: "a"},
					},
					{
						Source: flux.Ref{Kind: flux.OCIRepository, Namespace: "shop", Name: "pinned"},
						URL:    "oci://images.example.com/shop", Path: "/",
						Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "shop", Name: "b"},
					},
				},
				Unpushed: []Repository{{
					Source: flux.Ref{Kind: flux.Bucket, Namespace: "shop", Name: "tagged"}, Path: "/",
					Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "shop", Name: "c"},
					Account:       Account{"shop", "deployer"},
				}},
			}},
		},
		"found by its accounts": {
			reason:  "a labelled account makes its namespace a tenant's",
			objects: []client.Object{namespace("shop", nil), account("shop", "dev-team", labelled)},
			want:    []Tenant{{Name: "dev-team", Namespaces: []string{"shop"}, Accounts: []Account{{"shop", "dev-team"}}}},
		},
		"found by its bindings": {
			reason: "where no Flux object names an account, the labelled bindings say who the tenant is",
			objects: []client.Object{
				namespace("apps", labelled), account("apps", "owner", nil), account("apps", "other", nil),
				labelledBinding("apps", "cluster-admin", "owner", labelled), binding("apps", "view", "other"),
			},
			want: []Tenant{{
				Name: "dev-team", Namespaces: []string{"apps"},
				Accounts: []Account{{"apps", "owner"}}, Roles: []string{"ClusterRole/cluster-admin"},
			}},
		},
		"without an account": {
			reason:  "Flux falls back to the account that every namespace has",
			objects: []client.Object{namespace("apps", labelled)},
			want:    []Tenant{{Name: "dev-team", Namespaces: []string{"apps"}, Accounts: []Account{{"apps", "default"}}}},
		},
		"Tenants": {
			reason: "owners are those that the Tenant names, Tenure's before Capsule's, and one without a namespace is a tenant, too",
			objects: []client.Object{
				namespace("apps", labelled), account("apps", "dev-team", labelled),
				tenantObject("tenure.dev/v1alpha1", "dev-team", owned("User", "", "ann"), owned("ServiceAccount", "ci", "robot")),
				tenantObject("capsule.clastix.io/v1beta2", "dev-team", owned("User", "", "old")),
				tenantObject("capsule.clastix.io/v1beta2", "oil", owned("ServiceAccount", "", "system:serviceaccount:oil:owner"), owned("Group", "", "oilers")),
				tenantObject("tenure.dev/v1alpha1", "nobody"),
			},
			want: []Tenant{
				{Name: "dev-team", Namespaces: []string{"apps"}, Accounts: []Account{{"apps", "dev-team"}},
					Owners: []Owner{{Kind: "User", Name: "ann"}, {Kind: "ServiceAccount", Namespace: "ci", Name: "robot"}}},
				{Name: "oil", Owners: []Owner{{Kind: "ServiceAccount", Namespace: "oil", Name: "owner"}, {Kind: "Group", Name: "oilers"}}},
			},
		},
		"two on one repository": {
			reason: "each has the repository, by a source of its own",
			objects: []client.Object{
				fluxObject(flux.GitRepository, "one", "dev-team", source), fluxObject(flux.Kustomization, "one", "sync", sync),
				fluxObject(flux.GitRepository, "two", "dev-team", source), fluxObject(flux.Kustomization, "two", "sync", sync),
			},
			want: []Tenant{sharing("one"), sharing("two")},
		},
		"platform label": {
			reason:  "a label does not make the platform's namespace a tenant's",
			objects: []client.Object{account("flux-system", "source-controller", labelled)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := discover(t, tc.objects...)
			for i := range got {
				got[i].Shape, got[i].Rights, got[i].Unlike, got[i].Why, got[i].Holders = "", nil, nil, nil, nil
				for k := range got[i].Owners {
					got[i].Owners[k].Shape = ""
				}
				for k := range got[i].Repositories {
					got[i].Repositories[k].Account = Account{} // TestRepositoryAccounts
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOwnersShapes checks that owners with the same roles in the same namespaces have the
// same shape whatever their names are, and that the tenant has the roles of its owners.
func TestOwnersShapes(t *testing.T) {
	t.Parallel()
	to := func(name, role string, users ...string) client.Object {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}}
		for _, u := range users {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: u})
		}
		return b
	}
	found := discover(t, namespace("apps", map[string]string{Label: "dev-team"}),
		tenantObject("tenure.dev/v1alpha1", "dev-team", owned("User", "", "ann"), owned("User", "", "bob"), owned("User", "", "eve"), owned("Group", "", "ann"), owned("Group", "", "devs")),
		to("owners", "tenure:owners:dev-team", "ann", "bob", "eve"), to("more", "edit", "eve"),
	)
	owners := found[0].Owners
	for _, tc := range []struct {
		reason string
		a, b   int
		alike  bool
	}{
		{"the same role", 0, 1, true},
		{"another role besides", 0, 2, false},
		{"a group of the name of a user", 0, 3, false},
		{"two groups without a role", 3, 4, true},
	} {
		if got := owners[tc.a].Shape == owners[tc.b].Shape; got != tc.alike {
			t.Errorf("%s: %s and %s are alike: %t", tc.reason, owners[tc.a], owners[tc.b], got)
		}
	}
	want := []string{"ClusterRole/edit (everywhere)", "ClusterRole/tenure:owners:dev-team (everywhere)"}
	if diff := cmp.Diff(want, found[0].Roles); diff != "" {
		t.Errorf("the tenant's roles (-want +got):\n%s", diff)
	}
}

// TestAccountOrder checks that the first account, as which a tenant is attacked, is the one as which the
// platform has Flux apply the tenant's objects, whatever accounts the tenant's own objects name.
func TestAccountOrder(t *testing.T) {
	t.Parallel()
	label := map[string]string{Label: "team"}
	sync := by(fluxObject(flux.Kustomization, "team", "apps", map[string]any{
		"serviceAccountName": "deployer", "sourceRef": map[string]any{"kind": "GitRepository", "name": "apps"},
	}), "flux-system/flux-system")
	named := func(account string) client.Object {
		return by(fluxObject(flux.HelmRelease, "team", account, map[string]any{"serviceAccountName": account}), "team/apps")
	}
	rights := binding("team", "edit", "bound")
	rights.SetName("bound")
	found := discover(t, namespace("team", label), sync,
		named("absent"), named("bare"), account("team", "bare", nil), account("team", "bound", label), account("team", "deployer", nil),
		rights, binding("team", "admin", "deployer"))
	want := []Account{{"team", "deployer"}, {"team", "bound"}, {"team", "bare"}, {"team", "absent"}}
	if len(found) != 1 {
		t.Fatalf("found %v", found)
	}
	if diff := cmp.Diff(want, found[0].Accounts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A sync that names no account has the lockdown's.
	unnamed := by(fluxObject(flux.Kustomization, "team", "apps", map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "apps"}}), "flux-system/flux-system")
	found = discover(t, namespace("team", label), unnamed, named("absent"), account("team", "default", nil), binding("team", "edit", "default"), locked("default"))
	if diff := cmp.Diff([]Account{{"team", "default"}, {"team", "absent"}}, found[0].Accounts); diff != "" {
		t.Errorf("without an account (-want +got):\n%s", diff)
	}

	// The manager creates the sync of a Tenant. The name of its namespace is not the first one.
	ofManager := fluxObject(flux.Kustomization, "team", "apps", map[string]any{
		"serviceAccountName": "deployer", "sourceRef": map[string]any{"kind": "GitRepository", "name": "apps"},
	})
	ofManager.SetLabels(map[string]string{tenancy.LabelManaged: tenancy.ManagedValue})
	found = discover(t, namespace("team", label), namespace("team-2", label), ofManager,
		account("team", "deployer", label), account("team-2", "deployer", label), binding("team", "edit", "deployer"), binding("team-2", "edit", "deployer"))
	if diff := cmp.Diff([]Account{{"team", "deployer"}, {"team-2", "deployer"}}, found[0].Accounts); diff != "" {
		t.Errorf("of the manager (-want +got):\n%s", diff)
	}
}

// TestAccountOfSets checks that a tenant is attacked as the account of its sync, and not as the account as which
// flux-operator applies the sync from a ResourceSet that the platform keeps in the tenant's namespace; and that
// tenants that differ in names alone have one shape, whose people are known.
func TestAccountOfSets(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	for _, team := range []string{"backend", "frontend"} {
		label := map[string]string{Label: team}
		operator, people := binding(team, "admin", "flux-operator"), gives(team, "view", "Group "+team+"-developers")
		operator.SetName("operator")
		people.SetName("people")
		set := fluxObject(flux.ResourceSet, team, "apps", map[string]any{"serviceAccountName": "flux-operator"})
		sync := fluxObject(flux.Kustomization, team, "apps", map[string]any{
			"serviceAccountName": team, "sourceRef": map[string]any{"kind": "OCIRepository", "name": "apps"},
		})
		objects = append(objects, with(namespace(team, nil), map[string]string{
			Label: team, "team": team, "resourceset.fluxcd.controlplane.io/name": team, flux.LabelResourceSetNamespace: team,
		}), account(team, team, label), account(team, "flux-operator", label), binding(team, "admin", team), operator,
			by(set, "flux-system/flux-system"), setOf(sync, team), setOf(people, team))
	}
	found := discover(t, objects...)
	if len(found) != 2 || found[0].Shape != found[1].Shape {
		t.Fatalf("found %v, want two tenants of one shape", found)
	}
	for _, tenant := range found {
		if want := (Account{tenant.Name, tenant.Name}); tenant.Accounts[0] != want {
			t.Errorf("tenant %s is attacked as %s, want %s", tenant.Name, tenant.Accounts[0], want)
		}
		if people := tenant.Name + "-developers"; !slices.ContainsFunc(tenant.Holders, func(h Holder) bool { return h.Name == people }) {
			t.Errorf("tenant %s has no holder %s: %v", tenant.Name, people, tenant.Holders)
		}
	}
}

// TestUnlimitedReleases checks that a tenant has the HelmReleases that the platform wrote for it and that no account limits.
func TestUnlimitedReleases(t *testing.T) {
	t.Parallel()
	release := func(name, account, applier string, more map[string]any) client.Object {
		spec := map[string]any{"chart": map[string]any{"spec": map[string]any{"sourceRef": map[string]any{"kind": "HelmRepository", "name": "charts"}}}}
		if account != "" {
			spec["serviceAccountName"] = account
		}
		maps.Copy(spec, more)
		return by(fluxObject(flux.HelmRelease, "team", name, spec), applier)
	}
	fromPlatform := map[string]any{"chart": map[string]any{"spec": map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "namespace": "flux-system", "name": "flux-system"}}}}
	found, err := find(t, Choice{},
		namespace("team", map[string]string{Label: "team"}), account("team", "team", nil), account("team", "admin", nil), gives("team", "edit", "ServiceAccount team/team"),
		clusterBinding("admin", "cluster-admin", nil, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "admin"}),
		release("unnamed", "", "flux-system/apps", nil), release("as-admin", "admin", "flux-system/apps", nil), release("limited", "team", "flux-system/apps", nil),
		release("own", "", "team/apps", nil), release("from-platform", "", "flux-system/apps", fromPlatform),
		release("elsewhere", "", "flux-system/apps", map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "other"}}}),
	)
	if err != nil || len(found.Tenants) != 1 {
		t.Fatalf("found %v and %v", found, err)
	}
	if diff := cmp.Diff([]string{"team/as-admin", "team/unnamed"}, found.Tenants[0].UnlimitedReleases); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// setOf labels an object as flux-operator does for the ResourceSet apps of a namespace.
func setOf(o client.Object, namespace string) client.Object {
	return with(o, map[string]string{"resourceset.fluxcd.controlplane.io/name": "apps", flux.LabelResourceSetNamespace: namespace})
}

// locked returns the Deployment of kustomize-controller with a default account.
func locked(account string) client.Object {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "kustomize-controller"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "manager", Args: []string{"--default-service-account=" + account},
		}}}}},
	}
}

// TestAccountWithRights checks that a tenant is attacked as the account to which the platform gave
// rights, if its own objects name others only, and its sync names none.
func TestAccountWithRights(t *testing.T) {
	t.Parallel()
	release := by(fluxObject(flux.HelmRelease, "team", "later", map[string]any{"serviceAccountName": "builder"}), "team/apps")
	sync := by(kustomizes("team", "apps", "team/apps", ""), "flux-system/flux-system")
	own := binding("team", "view", "monitor")
	own.SetName("monitor")
	objects := []client.Object{
		namespace("team", map[string]string{Label: "team"}), sync, release, account("team", "builder", nil), account("team", "default", nil),
		account("team", "monitor", nil), by(own, "team/apps"),
	}
	for name, tc := range map[string]struct {
		reason string
		rights client.Object
		want   []Account
	}{
		"unlabelled":      {"the binding is the platform's", binding("team", "edit", "default"), []Account{{"team", "default"}, {"team", "builder"}}},
		"by the platform": {"the platform's sync applied the binding", by(binding("team", "edit", "default"), "flux-system/flux-system"), []Account{{"team", "default"}, {"team", "builder"}}},
		"by the tenant":   {"the tenant gives its own accounts rights for other purposes", by(binding("team", "edit", "default"), "team/apps"), []Account{{"team", "builder"}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := discover(t, append([]client.Object{tc.rights}, objects...)...)
			if len(found) != 1 {
				t.Fatalf("found %v", found)
			}
			if diff := cmp.Diff(tc.want, found[0].Accounts); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDeliveredAsController checks that a tenant's repository is found if a Kustomization in the platform's namespace
// delivers it with the rights of the controller.
func TestDeliveredAsController(t *testing.T) {
	t.Parallel()
	sync := func(account, kind string) client.Object {
		spec := map[string]any{"targetNamespace": "team", "sourceRef": map[string]any{"kind": kind, "name": "team"}}
		if account != "" {
			spec["serviceAccountName"] = account
		}
		return by(fluxObject(flux.Kustomization, "flux-system", "team", spec), "flux-system/root")
	}
	const root = "https://git.example.com/platform"
	for name, tc := range map[string]struct {
		reason        string
		account, kind string
		url, platform string
		want          bool
	}{
		"a repository, no account":        {"the content is the tenant's", "", "GitRepository", "https://git.example.com/team", root, true},
		"a repository, the controller's":  {"the account limits nothing", "kustomize-controller", "GitRepository", "https://git.example.com/team", root, true},
		"an artifact, no account":         {"the same by OCI", "", "OCIRepository", "oci://images.example.com/team", root, true},
		"an artifact, the controller's":   {"the same by OCI", "kustomize-controller", "OCIRepository", "oci://images.example.com/team", root, true},
		"an artifact beside the platform": {"the pipeline of the platform pushes all artifacts", "", "OCIRepository", "oci://images.example.com/team", "oci://images.example.com/platform", false},
		"a bucket, no account":            {"the same by a Bucket", "", "Bucket", "s3://team", root, true},
		"a bucket, the controller's":      {"the same by a Bucket", "kustomize-controller", "Bucket", "s3://team", root, true},
		"a bucket beside the platform":    {"the pipeline of the platform pushes to all Buckets", "", "Bucket", "s3://team", "s3://platform", false},
		"a generated artifact":            {"it may come from the platform's own repository", "", "ExternalArtifact", "", root, false},
		"a generated artifact, limited":   {"the account says whose it is", "team", "ExternalArtifact", "", root, true},
		"the platform's repository":       {"the content is the platform's", "kustomize-controller", "GitRepository", root, root, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme, _, _ := strings.Cut(tc.platform, ":")
			rootKind := map[string]flux.Kind{"https": flux.GitRepository, "oci": flux.OCIRepository, "s3": flux.Bucket}[scheme]
			found := discover(t,
				clusterBinding("controllers", "cluster-admin", nil, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "kustomize-controller"}),
				fluxObject(rootKind, "flux-system", "root", map[string]any{"url": tc.platform}),
				by(fluxObject(flux.Kustomization, "flux-system", "root", map[string]any{"sourceRef": map[string]any{"kind": string(rootKind), "name": "root"}}), "flux-system/root"),
				fluxObject(flux.Kind(tc.kind), "flux-system", "team", map[string]any{"url": tc.url}), sync(tc.account, tc.kind),
				namespace("team", map[string]string{Label: "team"}), account("team", "team", nil), gives("team", "edit", "ServiceAccount team/team"),
			)
			if len(found) != 1 {
				t.Fatalf("found %v", found)
			}
			if got := len(found[0].Deliveries()) == 1; got != tc.want || got != found[0].Synced {
				t.Errorf("%s: the tenant delivers %v, synced %t", tc.reason, found[0].Deliveries(), found[0].Synced)
			}
			if slices.ContainsFunc(found[0].Accounts, func(a Account) bool { return a.Name == "kustomize-controller" }) {
				t.Errorf("the account of the controller is among %v", found[0].Accounts)
			}
		})
	}
}

// TestSharedNamespace checks that the evidence about two tenants in one namespace says so.
func TestSharedNamespace(t *testing.T) {
	t.Parallel()
	found := discover(t, namespace("shared", nil), account("shared", "blue", map[string]string{Label: "blue"}), account("shared", "red", map[string]string{Label: "red"}))
	if len(found) != 2 || !strings.Contains(strings.Join(found[1].Why, " "), "tenants that share a namespace are not isolated") {
		t.Errorf("found %+v", found)
	}
}

// TestAddress checks that the address of a repository is what --map takes.
func TestAddress(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Repository{
		"https://git.example.com/shop#main":   {Source: flux.Ref{Kind: flux.GitRepository}, URL: "https://git.example.com/shop", Branch: "main"},
		"oci://images.example.com/shop:v1":    {Source: flux.Ref{Kind: flux.OCIRepository}, URL: "oci://images.example.com/shop", Branch: "v1"},
		"oci://images.example.com/shop":       {Source: flux.Ref{Kind: flux.OCIRepository}, URL: "oci://images.example.com/shop"},
		"https://git.example.com/other#a/b#c": {Source: flux.Ref{Kind: flux.GitRepository}, URL: "https://git.example.com/other", Branch: "a/b#c"},
	} {
		if got := r.Address(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
