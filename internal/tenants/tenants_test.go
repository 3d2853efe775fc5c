package tenants

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
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

// sharing is a tenant that delivers from the repository that others deliver from
// too.
func sharing(namespace string) Tenant {
	return Tenant{
		Name: namespace, Namespaces: []string{namespace}, Accounts: []Account{{namespace, "deployer"}},
		Repositories: []Repository{{
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
	// The fake client adds kinds to its scheme, so it gets one of its own.
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects,
		namespace("kube-system", nil), namespace("flux-system", nil), account("flux-system", "kustomize-controller", nil),
		fluxObject(flux.Kustomization, "flux-system", "flux-system", map[string]any{"serviceAccountName": "kustomize-controller"}),
	)...)
	found, err := Discover(t.Context(), builder.Build())
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
		"found by its Flux objects": {
			reason: "a namespace that nobody labelled is a tenant when Flux delivers from it",
			objects: []client.Object{
				namespace("shop", nil), namespace("empty", nil), account("shop", "deployer", nil), binding("shop", "edit", "deployer"),
				fluxObject(flux.GitRepository, "shop", "dev-team", source),
				fluxObject(flux.Kustomization, "shop", "shop", sync),
			},
			want: []Tenant{{
				Name: "shop", Namespaces: []string{"shop"}, Accounts: []Account{{"shop", "deployer"}}, Roles: []string{"ClusterRole/edit"},
				Repositories: []Repository{{
					Source: flux.Ref{Kind: flux.GitRepository, Namespace: "shop", Name: "dev-team"},
					URL:    "https://git.example.com/acme/dev-team", Branch: "main", Path: "staging/",
					Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "shop", Name: "shop"},
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
				got[i].Shape = ""
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestShape(t *testing.T) {
	t.Parallel()
	team := func(name, role string, labels map[string]string) []client.Object {
		all := map[string]string{Label: name, corev1.LabelMetadataName: name}
		for k, v := range labels {
			all[k] = v
		}
		return []client.Object{namespace(name, all), account(name, name, map[string]string{Label: name}), binding(name, role, name)}
	}
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	objects := append(team("a", "edit", restricted), team("b", "edit", restricted)...)
	objects = append(objects, team("c", "admin", restricted)...)
	objects = append(objects, team("d", "edit", nil)...)
	objects = append(objects, team("e", "edit", restricted)...)
	objects = append(objects, clusterBinding("everything", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:e"}))
	objects = append(objects, team("f", "edit", restricted)...)
	objects = append(objects, ruled("f", []string{"get"})...)
	objects = append(objects, team("g", "edit", restricted)...)
	objects = append(objects, ruled("g", []string{"*"})...)
	objects = append(objects, team("h", "edit", restricted)...)
	objects = append(objects, fluxObject(flux.Kustomization, "h", "sync", map[string]any{"path": "./"}))
	objects = append(objects, team("i", "edit", restricted)...)
	objects = append(objects, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "not-i"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", MatchResources: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"i"},
			}}},
		}},
	})
	shapes := map[string]string{}
	for _, tenant := range discover(t, objects...) {
		shapes[tenant.Name] = tenant.Shape
	}
	if shapes["a"] != shapes["b"] {
		t.Error("tenants that differ by name alone must have the same shape")
	}
	for other, what := range map[string]string{
		"c": "another role", "d": "another Pod Security level", "e": "a right in the whole cluster by a group",
		"f": "a Role", "h": "a Kustomization that names no account", "i": "an admission policy that leaves it out",
	} {
		if shapes["a"] == shapes[other] {
			t.Errorf("%s must make another shape", what)
		}
	}
	if shapes["f"] == shapes["g"] {
		t.Error("Roles of one name with other rules must make another shape")
	}
}

func clusterBinding(role string, subject rbacv1.Subject) client.Object {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

// ruled is a Role in the namespace of a team, bound to its account.
func ruled(namespace string, verbs []string) []client.Object {
	b := labelledBinding(namespace, "own", namespace, nil).(*rbacv1.RoleBinding)
	b.RoleRef.Kind = "Role"
	return []client.Object{b, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}},
	}}
}
