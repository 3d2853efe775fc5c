package replication

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var namespaces = []Namespace{{Name: "alpha-prod", Labels: map[string]string{"env": "prod"}}, {Name: "alpha-dev", Labels: map[string]string{"env": "dev"}}}

// scopes is a small cluster.
func scopes(gvk schema.GroupVersionKind) Scope {
	switch gvk.Kind {
	case "ConfigMap", "Secret", "RoleBinding", "Kustomization", "TenantParameters", "TenantResource", "PodList":
		return Namespaced
	case "Namespace", "ClusterRoleBinding", "ClusterRole", "CustomResourceDefinition", "Tenant", "GlobalTenantResource", "TokenReview":
		return Cluster
	}
	return Unknown
}

func raw(items ...string) [][]byte {
	var all [][]byte
	for _, item := range items {
		all = append(all, []byte(item))
	}
	return all
}

func named(objects []Object) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.Object.GetKind()+" "+o.Object.GetNamespace()+"/"+o.Object.GetName())
	}
	return names
}

const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":null},"data":{"n":"1"}}`

func TestPlan(t *testing.T) {
	t.Parallel()
	copied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"k": "dg=="}, "status": map[string]any{"x": "y"},
		"metadata": map[string]any{
			"name": "pull", "namespace": "platform", "uid": "1", "resourceVersion": "2", "finalizers": []any{"f"},
			"labels":      map[string]any{"app": "a", "kustomize.toolkit.fluxcd.io/name": "platform", "tenure.dev/managed-by": "manager"},
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		},
	}}
	again := copied.DeepCopy()
	again.SetLabels(map[string]string{LabelReplicated: Made})
	for name, tc := range map[string]struct {
		reason   string
		entries  []Entry
		want     []string
		refusals []string
	}{
		"all namespaces": {"without a selector each namespace gets it", []Entry{{Name: "objects a", Items: raw(configMap)}},
			[]string{"ConfigMap alpha-dev/a", "ConfigMap alpha-prod/a"}, nil},
		"selected": {"a selector leaves namespaces out", []Entry{{Name: "objects a", Selector: labels.SelectorFromSet(labels.Set{"env": "prod"}), Items: raw(configMap)}},
			[]string{"ConfigMap alpha-prod/a"}, nil},
		"variables": {"a name can be different in each namespace", []Entry{{Name: "r", Variables: true, Items: raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{tenant.name}}-{{ namespace }}"}}`)}},
			[]string{"ConfigMap alpha-dev/alpha-alpha-dev", "ConfigMap alpha-prod/alpha-alpha-prod"}, nil},
		"other variables": {"what is not filled in must not be written as it is", []Entry{{Name: "r", Variables: true, Items: raw(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"{{ .env }}"}}`)}},
			nil, []string{"only {{ tenant.name }} and {{ namespace }}"}},
		"copy": {"a copy is the tenant's own", []Entry{{Name: "c", Copies: map[string][]*unstructured.Unstructured{"alpha-dev": {copied}}}},
			[]string{"Secret alpha-dev/pull"}, nil},
		"copy of a copy": {"or copies would follow copies", []Entry{{Name: "c", Copies: map[string][]*unstructured.Unstructured{"alpha-dev": {again}}}},
			nil, []string{"it is a copy itself"}},
		"twice": {"two lists must not fight", []Entry{{Name: "a", Items: raw(configMap)}, {Name: "b", Items: raw(configMap)}},
			[]string{"ConfigMap alpha-dev/a", "ConfigMap alpha-prod/a"}, []string{"gets the same object from a, item 0"}},
		"one is wrong": {"what is refused keeps nothing else back", []Entry{{Name: "a", Items: raw(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, configMap)}},
			[]string{"ConfigMap alpha-dev/a", "ConfigMap alpha-prod/a"}, []string{"kind v1/Namespace is not allowed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, refusals := Plan(Input{Tenant: "alpha", Namespaces: namespaces, Entries: tc.entries, Scope: scopes})
			if diff := cmp.Diff(tc.want, named(objects)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			told := fmt.Sprint(refusals)
			if len(tc.refusals) == 0 && len(refusals) > 0 {
				t.Errorf("%s: refused: %v", tc.reason, refusals)
			}
			for _, want := range tc.refusals {
				if !strings.Contains(told, want) {
					t.Errorf("%s: %q is not said in %s", tc.reason, want, told)
				}
			}
			for _, o := range objects {
				if o.Object.GetName() != "pull" {
					continue
				}
				want := map[string]any{
					"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{"k": "dg=="},
					"metadata": map[string]any{"name": "pull", "namespace": "alpha-dev", "labels": map[string]any{"app": "a"}},
				}
				if diff := cmp.Diff(want, o.Object.Object); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestTakeover tries to get objects out of the tenant's namespaces (I15).
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, item, want string }{
		"cluster role binding": {"cluster-scoped (CVE-2026-22872)", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"a"}}`, "kind rbac.authorization.k8s.io/v1/ClusterRoleBinding is not allowed"},
		"namespace":            {"cluster-scoped", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "kind v1/Namespace is not allowed"},
		"with a namespace":     {"a namespace does not make a kind namespaced", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","namespace":"alpha-dev"}}`, "kind v1/Namespace is not allowed"},
		"another tenant's":     {"a namespace of its own choice (CVE-2026-65835)", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"beta"}}`, "must not come into namespace beta"},
		"kube-system":          {"a system namespace", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"kube-system"}}`, "must not come into namespace kube-system"},
		"namespace of no text": {"what is no text is no namespace", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":["kube-system"]}}`, "must not come into namespace"},
		"generated name":       {"endlessly many", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`, "it needs a name"},
		"list":                 {"a list hides what is in it", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}]}`, "it is a list"},
		"typed list":           {"as any list", `{"apiVersion":"v1","kind":"PodList","metadata":{"name":"a"}}`, "it is a list"},
		"items":                {"as any list", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"items":[]}`, "it is a list"},
		"subresource":          {"what is only asked", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`, "does not store kind Eviction"},
		"path in the name":     {"a name must not lead elsewhere", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/../../kube-system"}}`, "its name"},
		"dots":                 {"a name must not lead elsewhere", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":".."}}`, "its name"},
		"tenant":               {"says what tenants may do", `{"apiVersion":"tenure.dev/v1alpha1","kind":"Tenant","metadata":{"name":"a"}}`, "grants permissions"},
		"parameters":           {"says what tenants may do", `{"apiVersion":"tenure.dev/v1alpha1","kind":"TenantParameters","metadata":{"name":"tenure"}}`, "grants permissions"},
		"itself":               {"declarations that declare", `{"apiVersion":"capsule.clastix.io/v1beta2","kind":"TenantResource","metadata":{"name":"a"}}`, "grants permissions"},
		"owner":                {"an owner makes it go", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[]}}`, "metadata.ownerReferences is not yours"},
		"finalizer":            {"a finalizer keeps it", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["x/y"]}}`, "metadata.finalizers is not yours"},
		"our label":            {"says that the manager made it", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"tenure.dev/managed-by":"manager"}}}`, "label tenure.dev/managed-by is not yours"},
		"label of no text":     {"would not be seen", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"tenure.dev/managed-by":1}}}`, "has to be text"},
		"status":               {"said by others", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"status":{}}`, "it has a status"},
		"no kind":              {"nothing can be said of it", `{"metadata":{"name":"a"}}`, "apiVersion and kind"},
		"no object":            {"nothing can be said of it", `[]`, "it is not an object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, refusals := Plan(Input{Tenant: "alpha", Namespaces: namespaces, Scope: scopes, Entries: []Entry{{Name: "a", Items: raw(tc.item)}}})
			if len(objects) > 0 || !strings.Contains(fmt.Sprint(refusals), tc.want) {
				t.Errorf("%s: got objects %v and refusals %v, want %q", tc.reason, named(objects), refusals, tc.want)
			}
		})
	}
}

func TestInventory(t *testing.T) {
	t.Parallel()
	i := Inventory{}
	for _, namespace := range []string{"b", "a"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "x", "namespace": namespace}}}
		i.Add(u, Account{Namespace: namespace, Name: "alpha"})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "x", "namespace": "a"}}}
	i.Add(u, Account{Namespace: "b", Name: "alpha"})
	want := []Kept{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "x", Account: Account{Name: "alpha"}, Namespaces: []string{"a", "b"}},
		{APIVersion: "v1", Kind: "Secret", Name: "x", Account: Account{Namespace: "b", Name: "alpha"}, Namespaces: []string{"a"}},
	}
	if diff := cmp.Diff(want, i.List()); diff != "" {
		t.Errorf("one line an object (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(i, ReadInventory(i.List())); diff != "" {
		t.Errorf("what is written is read again (-want +got):\n%s", diff)
	}
}

// FuzzPlan: nothing comes outside of the tenant's namespaces, nothing of a kind that
// has none, and nothing that says it is the manager's.
func FuzzPlan(f *testing.F) {
	f.Add(configMap, true)
	f.Add(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"{{ namespace }}"}}`, true)
	f.Add(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"{{namespace}}","labels":{"tenure.dev/x":""}}}`, false)
	f.Add(`{"apiVersion":"tenure.dev/v1alpha1","kind":"TenantParameters","metadata":{"name":"tenure"}}`, false)
	f.Fuzz(func(t *testing.T, item string, variables bool) {
		objects, refusals := Plan(Input{Tenant: "alpha", Namespaces: namespaces, Scope: scopes, Entries: []Entry{{Name: "a", Items: raw(item), Variables: variables}}})
		if len(objects) == 0 && len(refusals) == 0 {
			t.Fatal("neither made nor refused")
		}
		for _, o := range objects {
			// As the API server reads it.
			content, err := json.Marshal(o.Object.Object)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(content); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(namespaces, func(ns Namespace) bool { return ns.Name == u.GetNamespace() }) {
				t.Fatalf("in namespace %q", u.GetNamespace())
			}
			if scopes(u.GroupVersionKind()) != Namespaced || u.GroupVersionKind().Group == "tenure.dev" || u.IsList() {
				t.Fatalf("of kind %s", u.GroupVersionKind())
			}
			if u.GetName() == "" || u.GetGenerateName() != "" || len(u.GetOwnerReferences()) > 0 || len(u.GetFinalizers()) > 0 {
				t.Fatalf("metadata %v", u.Object["metadata"])
			}
			for label := range u.GetLabels() {
				if strings.HasPrefix(label, "tenure.dev/") {
					t.Fatalf("label %s", label)
				}
			}
		}
	})
}
