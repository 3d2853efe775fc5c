package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestLacks(t *testing.T) {
	t.Parallel()
	namespace := func(name, group, by string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{group + "/name": by, group + "/namespace": "flux-system"}}}
	}
	const kustomize, set = "kustomize.toolkit.fluxcd.io", "resourceset.fluxcd.controlplane.io"
	namespaces := []corev1.Namespace{namespace("apps", kustomize, "tenants"), namespace("other", kustomize, "others"), namespace("apps-2", set, "teams")}
	unready := func(kind flux.Kind, name, reason string, has ...contents) unreadyObject {
		return unreadyObject{Ref: flux.Ref{Kind: kind, Namespace: "flux-system", Name: name}, reason: reason, contents: has}
	}
	kustomization := func(name, reason string, has ...contents) unreadyObject {
		return unready(flux.Kustomization, name, reason, has...)
	}
	right := discovery.Right{Role: "ClusterRole/team", Namespace: "apps", Binding: "RoleBinding apps/team", Subject: "ServiceAccount apps/team", AppliedBy: flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "rights"}}
	fromSet := right
	fromSet.AppliedBy.Kind, fromSet.AppliedBy.Name = flux.ResourceSet, "bindings"
	binding := func(subject string) contents {
		return contents{from: "applies ./more", objects: []*unstructured.Unstructured{object("rbac.authorization.k8s.io/v1", "RoleBinding", "elsewhere", "more", map[string]any{
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "apps", "name": subject}},
		})}}
	}
	one := func(kind, namespace, name string, labels map[string]any) contents {
		o := object("v1", kind, namespace, name, nil)
		_ = unstructured.SetNestedMap(o.Object, labels, "metadata", "labels")
		return contents{from: "applies ./more", objects: []*unstructured.Unstructured{o}}
	}
	rights := []discovery.Right{right}
	const lacks1 = "the tenant may lack rights that the fleet gives it, since "
	const half, more = lacks1 + "Kustomization/flux-system/", lacks1 + "Kustomization/flux-system/others, which applies ./more"
	for name, tc := range map[string]struct {
		reason  string
		rights  []discovery.Right
		missing []unreadyObject
		want    string
	}{
		"ready":       {"everything is ready", nil, nil, ""},
		"namespace":   {"what applies its namespace is not ready", rights, []unreadyObject{kustomization("tenants", "is not ready")}, half + "tenants, which applies its objects, is not ready"},
		"binding":     {"nor what applies its binding", rights, []unreadyObject{kustomization("rights", "is assumed")}, half + "rights, which applies its objects, is assumed"},
		"set":         {"a ResourceSet may apply its namespace", rights, []unreadyObject{unready(flux.ResourceSet, "teams", "is assumed")}, lacks1 + "ResourceSet/flux-system/teams, which applies its objects, is assumed"},
		"set's":       {"and its binding", []discovery.Right{fromSet}, []unreadyObject{unready(flux.ResourceSet, "bindings", "is not ready")}, lacks1 + "ResourceSet/flux-system/bindings, which applies its objects, is not ready"},
		"other":       {"another one is nothing to it", rights, []unreadyObject{kustomization("others", "is not ready")}, ""},
		"kind":        {"a release of the name of its Kustomization is another object", rights, []unreadyObject{unready(flux.HelmRelease, "tenants", "is not ready")}, ""},
		"powerless":   {"without rights each may be the one that gives them", nil, []unreadyObject{kustomization("others", "is not ready")}, "the tenant has no rights here, and Kustomization/flux-system/others, which may give them, is not ready"},
		"more":        {"a second binding did not come", rights, []unreadyObject{kustomization("others", "is not ready", binding("team"))}, more + " with RoleBinding elsewhere/more, is not ready"},
		"variable":    {"the subject of a binding is a variable", rights, []unreadyObject{kustomization("others", "is not ready", binding("${account}"))}, more + " with RoleBinding elsewhere/more, is not ready"},
		"foreign":     {"a binding of another account is nothing to it", rights, []unreadyObject{kustomization("others", "is not ready", binding("other"))}, ""},
		"place":       {"a second namespace did not come", rights, []unreadyObject{kustomization("others", "is not ready", one("Namespace", "", "apps-3", map[string]any{"toolkit.fluxcd.io/tenant": "team"}))}, more + " with Namespace apps-3, is not ready"},
		"its role":    {"the role that a binding names did not come", rights, []unreadyObject{kustomization("others", "is not ready", one("ClusterRole", "", "team", nil))}, more + " with ClusterRole team, is not ready"},
		"role":        {"another role is nothing to it", rights, []unreadyObject{kustomization("others", "is not ready", one("ClusterRole", "", "prometheus", nil))}, ""},
		"aggregated":  {"a role adds to edit", rights, []unreadyObject{kustomization("others", "is not ready", one("ClusterRole", "", "x", map[string]any{"rbac.authorization.k8s.io/aggregate-to-edit": "true"}))}, more + " with ClusterRole x, is not ready"},
		"object":      {"its Tenant did not come", rights, []unreadyObject{kustomization("others", "is not ready", one("Tenant", "", "team", nil))}, more + " with Tenant team, is not ready"},
		"text":        {"a folder that does not build names its namespace", rights, []unreadyObject{kustomization("others", "is not ready", contents{from: "applies ./more", text: "namespace: apps"})}, more + ", where apps is named, is not ready"},
		"group":       {"the group of a kind is not a name", rights, []unreadyObject{kustomization("others", "is not ready", contents{from: "applies ./more", text: "apiVersion: apps/v1"})}, ""},
		"template":    {"a ResourceSet may make bindings of any account", rights, []unreadyObject{unready(flux.ResourceSet, "x", "is not ready", contents{from: "has a template", binds: true})}, lacks1 + "ResourceSet/flux-system/x, which has a template, a template of bindings, is not ready"},
		"not to read": {"a folder may have anything", rights, []unreadyObject{kustomization("others", "is not ready", contents{from: "applies ./more", unread: true})}, more + ", which cannot be read here (add --map), is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			team := discovery.Tenant{Name: "team", Namespaces: []string{"apps", "apps-2"}, Accounts: []discovery.Account{{Namespace: "apps", Name: "team"}}, Rights: tc.rights}
			got := lacks(team, namespaces, tc.missing)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// unreadyOf finds the platform's Kustomizations, HelmReleases and ResourceSets that did not
// apply everything, and ResourceSets without the inputs of their providers.
func TestUnreadyOf(t *testing.T) {
	t.Parallel()
	with := func(kind flux.Kind, name, ready, message string, spec map[string]any) client.Object {
		return object(kind.GroupVersionKind().GroupVersion().String(), string(kind), "flux-system", name, map[string]any{
			"spec":   spec,
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready, "message": message}}},
		})
	}
	inputs := func(from map[string]any) map[string]any { return map[string]any{"inputsFrom": []any{from}} }
	labelled := with(flux.ResourceSetInputProvider, "labelled", "False", "", nil)
	labelled.SetLabels(map[string]string{"of": "teams"})
	again := func(name, attempted string, observed int64) client.Object {
		o := with(flux.Kustomization, name, "Unknown", "", nil)
		o.SetGeneration(2)
		status := o.(*unstructured.Unstructured).Object["status"].(map[string]any)
		status["lastAppliedRevision"], status["lastAttemptedRevision"], status["observedGeneration"] = "main@sha1:1", attempted, observed
		return o
	}
	e := newFakeEnv(interceptor.Funcs{},
		again("again", "main@sha1:1", 2), again("changed", "main@sha1:1", 1), again("newer", "main@sha1:2", 2),
		with(flux.Kustomization, "ready", "True", "", nil), with(flux.Kustomization, "failed", "False", "", nil),
		with(flux.HelmRelease, "assumed", "True", flux.AssumedMessage, nil),
		with(flux.ResourceSet, "failed", "False", "", nil), with(flux.ResourceSet, "assumed", "True", flux.AssumedMessage, nil),
		with(flux.ResourceSetInputProvider, "teams", "False", "", nil), with(flux.ResourceSetInputProvider, "working", "True", "", nil), labelled,
		with(flux.ResourceSet, "by-name", "True", "", inputs(map[string]any{"name": "teams"})),
		with(flux.ResourceSet, "by-label", "True", "", inputs(map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"of": "teams"}}})),
		with(flux.ResourceSet, "fed", "True", "", inputs(map[string]any{"name": "working"})),
	)
	missing, err := unreadyOf(t.Context(), e.Admin, []discovery.Tenant{e.Tenant})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, u := range missing {
		got[u.String()] = u.reason
	}
	want := map[string]string{
		"Kustomization/flux-system/failed": "is not ready", "Kustomization/flux-system/changed": "is not ready", "Kustomization/flux-system/newer": "is not ready",
		"HelmRelease/flux-system/assumed": "is assumed",
		"ResourceSet/flux-system/failed":  "is not ready", "ResourceSet/flux-system/assumed": "is assumed",
		"ResourceSet/flux-system/by-name":  "takes inputs from ResourceSetInputProvider/flux-system/teams, which is not ready",
		"ResourceSet/flux-system/by-label": "takes inputs from ResourceSetInputProvider/flux-system/labelled, which is not ready",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The manifests of an object are read from its source, through the objects that the cluster
// lacks; a folder that does not build has a text.
func TestReadContents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"infra/release.yaml":        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: nested, namespace: flux-system}\nspec: {path: ./rights, sourceRef: {kind: OCIRepository, name: fleet}}\n",
		"vendor/sync.yaml":          "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: engine, namespace: flux-system}\nspec: {path: ./, sourceRef: {kind: OCIRepository, name: engine}}\n---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: engine, namespace: flux-system}\nspec: {url: 'oci://ghcr.io/Vendor/manifests/engine'}\n",
		"infra/tenant.yaml":         "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: team, namespace: apps}\nspec: {serviceAccountName: team, sourceRef: {kind: OCIRepository, name: away}}\n",
		"rights/binding.yaml":       "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: more, namespace: apps}\nsubjects: [{kind: ServiceAccount, namespace: apps, name: team}]\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		"broken/kustomization.yaml": "resources: [missing.yaml]\n# for apps\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := func(kind flux.Kind, spec map[string]any) unreadyObject {
		u := object(kind.GroupVersionKind().GroupVersion().String(), string(kind), "flux-system", "x", map[string]any{"spec": spec})
		return unreadyObject{Ref: refOf(u), reason: "is not ready", object: u}
	}
	applies := func(path, source string) unreadyObject {
		return with(flux.Kustomization, map[string]any{"path": path, "sourceRef": map[string]any{"kind": "OCIRepository", "name": source}})
	}
	values := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "values"}, Data: map[string]string{"values.yaml": "tenants: [apps]"}}
	source := func(name, url string) client.Object {
		return object("source.toolkit.fluxcd.io/v1", "OCIRepository", "flux-system", name, map[string]any{"spec": map[string]any{"url": url}})
	}
	e := newFakeEnv(interceptor.Funcs{}, values, source("fleet", "oci://ghcr.io/acme/fleet"), source("more", "oci://ghcr.io/Acme/more"),
		source("vendor", "oci://ghcr.io/vendor/engine"), source("company", "oci://registry.acme.example/vendor/engine"))
	team := discovery.Tenant{Name: "team", Namespaces: []string{"apps"}, Accounts: []discovery.Account{{Namespace: "apps", Name: "team"}}}
	for name, tc := range map[string]struct {
		reason string
		of     unreadyObject
		want   string
	}{
		"nested":    {"what it would apply would apply a binding", applies("./infra", "fleet"), "applies ./rights with RoleBinding apps/more"},
		"broken":    {"its text is read", applies("broken", "fleet"), "applies ./broken, where apps is named"},
		"unrelated": {"a path that does not exist has nothing", applies("./none", "fleet"), ""},
		"away":      {"its source is not here", applies("./infra", "away"), "applies ./infra, which cannot be read here (add --map)"},
		"same":      {"an artifact of the fleet's owner is not here", applies(".", "more"), "applies ./, which cannot be read here (add --map)"},
		"vendor":    {"an artifact of another owner on a public host says nothing of tenants", applies(".", "vendor"), ""},
		"company":   {"on another host the owner is not known", applies(".", "company"), "applies ./, which cannot be read here (add --map)"},
		"its own":   {"it would apply an artifact of another owner", applies("./vendor", "fleet"), ""},
		"chart":     {"a chart from a registry says nothing of tenants", with(flux.HelmRelease, map[string]any{"values": map[string]any{"replicas": int64(1)}}), ""},
		"values":    {"its values do", with(flux.HelmRelease, map[string]any{"values": map[string]any{"teams": []any{"apps"}}}), "installs a chart, where apps is named"},
		"map":       {"values in a ConfigMap, too", with(flux.HelmRelease, map[string]any{"valuesFrom": []any{map[string]any{"kind": "ConfigMap", "name": "values"}}}), "installs a chart, where apps is named"},
		"set":       {"a template names it", with(flux.ResourceSet, map[string]any{"inputs": []any{map[string]any{"tenant": "apps"}}}), "has a template, where apps is named"},
		"bindings":  {"a template makes bindings", with(flux.ResourceSet, map[string]any{"resourcesTemplate": "kind: RoleBinding"}), "has a template, a template of bindings"},
		"other set": {"a template of something else", with(flux.ResourceSet, map[string]any{"resourcesTemplate": "kind: ConfigMap"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing := []unreadyObject{tc.of}
			opts := Options{Root: flux.Ref{Kind: flux.OCIRepository, Namespace: "flux-system", Name: "fleet"}, Folder: dir}
			if err := readContents(t.Context(), opts, e.Admin, missing); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, missing[0].evidence(team)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A policy, a quota or a webhook of an object that is not ready may stop an attack, unless it is
// applied, refuses nothing, or is in a namespace that is not the tenant's.
func TestMissingControls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const content = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: enforced}
spec: {validationFailureAction: Enforce}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: audited}
spec: {validationFailureAction: Audit}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: missing, namespace: apps}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: applied, namespace: apps}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: database, namespace: infra}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: apps}
`
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newFakeEnv(interceptor.Funcs{}, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "applied"}})
	u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system", "policies", map[string]any{
		"spec": map[string]any{"path": ".", "sourceRef": map[string]any{"kind": "OCIRepository", "name": "fleet"}},
	})
	missing := []unreadyObject{{Ref: refOf(u), reason: "is not ready", object: u}}
	opts := Options{Root: flux.Ref{Kind: flux.OCIRepository, Namespace: "flux-system", Name: "fleet"}, Folder: dir}
	if err := readContents(t.Context(), opts, e.Admin, missing); err != nil {
		t.Fatal(err)
	}
	want := []string{"Kustomization/flux-system/policies, which applies ./ with ClusterPolicy enforced, ResourceQuota apps/missing and is not ready"}
	if diff := cmp.Diff(want, missingControls(missing, discovery.Tenant{Namespaces: []string{"apps"}})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOfTenant(t *testing.T) {
	t.Parallel()
	delegated := flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "team"}
	all := []discovery.Tenant{{Namespaces: []string{"apps"}, Repositories: []discovery.Repository{{Kustomization: delegated}}}}
	for _, tc := range []struct {
		reason string
		ref    flux.Ref
		want   bool
	}{
		{"in its namespace", flux.Ref{Kind: flux.HelmRelease, Namespace: "apps", Name: "web"}, true},
		{"delegated by the platform", delegated, true},
		{"the platform's own", flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "tenants"}, false},
		{"a release of the name of a Kustomization", flux.Ref{Kind: flux.HelmRelease, Namespace: "flux-system", Name: "team"}, false},
	} {
		if got := ofTenant(tc.ref, all); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}

// With Tenure's rules, a tenant's namespace without a tenant's label is ungoverned.
func TestUngoverned(t *testing.T) {
	t.Parallel()
	policy := func(name string) client.Object {
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	tenants := []discovery.Tenant{{Name: "a", Namespaces: []string{"a", "b"}}}
	namespaces := []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"toolkit.fluxcd.io/tenant": "a"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "infra"}},
	}
	for reason, tc := range map[string]struct {
		policy string
		want   []string
	}{
		"Tenure's rules":       {"tenure-objects", []string{"b"}},
		"a policy of somebody": {"quota", nil},
	} {
		got, err := ungoverned(t.Context(), newFakeEnv(interceptor.Funcs{}, policy(tc.policy)).Admin, tenants, namespaces)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// Capsule gives the owners of a Tenant rights, and writes a status.
func TestUnreadTenants(t *testing.T) {
	t.Parallel()
	tenant := func(name string, fields map[string]any) client.Object {
		return object("capsule.clastix.io/v1beta2", "Tenant", "", name, fields)
	}
	e := newFakeEnv(interceptor.Funcs{}, tenant("served", map[string]any{"status": map[string]any{"state": "Active"}}), tenant("unread", nil))
	got, err := unreadTenants(t.Context(), e.Admin)
	if err != nil || len(got) != 1 || !strings.Contains(got["unread"], "Capsule Tenant unread") {
		t.Errorf("found %v (%v)", got, err)
	}
}
