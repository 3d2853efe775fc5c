package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// countedView returns a cache of two tenants, one of them only by Flux's label. Each tenant
// has a namespace and an owner or a service account. A further namespace has no tenant.
func countedView(t *testing.T) *authorizationCache {
	t.Helper()
	v, err := newAuthorizationCache(&rest.Config{Host: "http://127.0.0.1:1"}, false)
	if err != nil {
		t.Fatal(err)
	}
	put(t, v.clusterRoles, &rbacv1.ClusterRole{ObjectMeta: objectMeta("", "read"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods", "namespaces"}}}})
	put(t, v.tenants, &v1alpha1.Tenant{ObjectMeta: objectMeta("", "a"), Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: "Group", Name: "team-a"}}}})
	put(t, v.profiles, &v1alpha1.TenancyProfile{ObjectMeta: objectMeta("", "default"), Spec: v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{"flux-system"}}})
	for name, set := range map[string]map[string]string{
		"a-1": {v1alpha1.LabelTenant: "a"}, "b-1": {v1alpha1.LabelFluxTenant: "b"}, "b-2": {v1alpha1.LabelFluxTenant: "b"}, "shared": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: objectMeta("", name)}
		ns.Labels = set
		put(t, v.namespaces, ns)
	}
	return v
}

func put(t *testing.T, informer cache.SharedIndexInformer, o client.Object) {
	t.Helper()
	kept, err := trim(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := informer.GetIndexer().Add(kept); err != nil {
		t.Fatal(err)
	}
}

func readers(namespace string, set map[string]string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{ObjectMeta: objectMeta(namespace, "b"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "read"}, Subjects: subjects}
	b.Labels = set
	return b
}

// TestCounted checks that a binding that a tenant can write counts only for the members of
// the tenant and for the users that it names. For all other users, it adds no namespace to
// a list and ends no watch.
func TestCounted(t *testing.T) {
	t.Parallel()
	everybody := rbacv1.Subject{Kind: "Group", Name: user.AllAuthenticated}
	byFlux := map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for _, tc := range []struct {
		reason string
		of     *rbacv1.RoleBinding
		want   string // the users that see the namespace
	}{
		{"a tenant's, for everybody", readers("a-1", nil, everybody), "a a-owner"},
		{"of one by Flux's label", readers("b-1", nil, everybody), "b"},
		{"a tenant's, for a group of two who are not its own", readers("b-1", nil, rbacv1.Subject{Kind: "Group", Name: "guests"}), ""},
		{"a tenant's, by name", readers("b-1", nil, rbacv1.Subject{Kind: "User", Name: "ann"}), "ann"},
		{"a tenant's, for another's account", readers("b-1", nil, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "a-1", Name: "x"}), "a"},
		{"by name beside a group", readers("b-1", nil, rbacv1.Subject{Kind: "User", Name: "ann"}, everybody), "ann b"},
		{"the manager's", readers("b-1", map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}, everybody), "a a-owner ann b ben"},
		{"of a Kustomization of the platform", readers("b-1", byFlux, everybody), "a a-owner ann b ben"},
		{"of a HelmRelease of the platform", readers("b-1", map[string]string{"helm.toolkit.fluxcd.io/namespace": "flux-system"}, everybody), "a a-owner ann b ben"},
		{"of a Kustomization of the tenant", readers("b-1", map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "b-1"}, everybody), "b"},
		{"with a label that says something else", readers("b-1", map[string]string{tenancy.LabelManaged: "b"}, everybody), "b"},
		{"in a namespace that is no tenant's", readers("shared", nil, everybody), "a a-owner ann b ben"},
		{"in a namespace that is not known yet", readers("later", byFlux, everybody), "a a-owner ann b ben"},
		{"so, and perhaps a tenant's", readers("later", nil, everybody), ""},
	} {
		v := countedView(t)
		put(t, v.bound, tc.of)
		v.recordChange(nil, versioned(tc.of))
		var seen, ended []string
		for _, who := range []struct {
			name string
			info user.Info
		}{
			{"a", &user.DefaultInfo{Name: "system:serviceaccount:a-1:x", Groups: []string{user.AllAuthenticated}}},
			{"a-owner", &user.DefaultInfo{Name: "otto", Groups: []string{"team-a", user.AllAuthenticated}}},
			{"ann", &user.DefaultInfo{Name: "ann", Groups: []string{"guests", user.AllAuthenticated}}},
			{"b", &user.DefaultInfo{Name: "system:serviceaccount:b-2:x", Groups: []string{user.AllAuthenticated}}},
			{"ben", &user.DefaultInfo{Name: "ben", Groups: []string{"guests", user.AllAuthenticated}}},
		} {
			if v.visibleNamespacesOf(who.info).names[tc.of.Namespace] {
				seen = append(seen, who.name)
			}
			if v.history.since(who.info, v.tenantsOf(who.info), 1, time.Now(), false) {
				ended = append(ended, who.name)
			}
			got := v.granted(who.info, attributes{verb: "list", resource: "pods"})
			if got[tc.of.Namespace] != v.visibleNamespacesOf(who.info).names[tc.of.Namespace] {
				t.Errorf("%s: %s may list the pods there: %v", tc.reason, who.name, got)
			}
		}
		if diff := cmp.Diff(tc.want, strings.Join(seen, " ")); diff != "" {
			t.Errorf("%s: who sees it (-want +got):\n%s", tc.reason, diff)
		}
		for _, name := range seen {
			if !strings.Contains(" "+strings.Join(ended, " ")+" ", " "+name+" ") {
				t.Errorf("%s: %s sees it, and does not list again", tc.reason, name)
			}
		}
		if strings.Contains(strings.Join(ended, " "), "ben") && !strings.Contains(tc.want, "ben") {
			t.Errorf("%s: somebody has to list again who sees nothing of it", tc.reason)
		}
	}
}

func versioned(b *rbacv1.RoleBinding) *rbacv1.RoleBinding {
	b = b.DeepCopy()
	b.ResourceVersion = "100"
	return b
}

// TestManyNames checks that a tenant that names many users makes only these users list
// again, and that users whom another tenant has named lately still have to list again.
func TestManyNames(t *testing.T) {
	t.Parallel()
	v := countedView(t)
	ann := &user.DefaultInfo{Name: "ann", Groups: []string{user.AllAuthenticated}}
	missed := func(name string) bool {
		return v.history.since(&user.DefaultInfo{Name: name, Groups: []string{user.AllAuthenticated}}, nil, 1, time.Now(), false)
	}
	v.recordChange(nil, versioned(readers("a-1", nil, rbacv1.Subject{Kind: "User", Name: ann.Name})))
	var many []rbacv1.Subject
	for i := range maxMarks + 1 {
		many = append(many, rbacv1.Subject{Kind: "User", Name: fmt.Sprint("user-", i)})
	}
	v.recordChange(nil, versioned(readers("b-1", nil, many...)))
	if missed("ben") {
		t.Error("somebody has to list again whom nobody has named")
	}
	if !missed("ann") || !missed("user-0") {
		t.Error("whom a tenant has named is not told so")
	}
	v.recordChange(nil, versioned(readers("b-1", nil, many[maxNamed:]...)))
	v.recordChange(nil, versioned(readers("b-1", nil, many[:1]...)))
	if missed("ben") || !missed("ann") || !missed("user-0") {
		t.Error("what a tenant does again and again changes what others are told")
	}
	if got := len(v.history.named); got > maxNamed+1 {
		t.Errorf("%d of the named are remembered", got)
	}
}
