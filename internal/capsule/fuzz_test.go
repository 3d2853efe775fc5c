package capsule

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// FuzzTranslate checks that a translation never grants more than Capsule's Tenant does.
func FuzzTranslate(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"oil"},"spec":{"owners":[{"kind":"User","name":"alice"},{"name":"system:serviceaccount:a:b"}],"cordoned":true}}`,
		`{"metadata":{"name":"oil","annotations":{"clusterrolenames.capsule.clastix.io/0":"view"}},"spec":{"owners":[{"kind":"Group","name":"g"}]}}`,
		`{"metadata":{"name":"oil"},"spec":{"additionalRoleBindings":[{"clusterRoleName":"cluster-admin","subjects":[{"kind":"User","name":"u"}]}],"namespaceOptions":{"quota":2,"forbiddenLabels":{"deniedRegex":"^a.*"}}}}`,
		`{"metadata":{"name":"oil"},"spec":{"containerRegistries":{"allowed":["r"]},"resourceQuotas":{"items":[{}]},"networkPolicies":{"items":[{}]}}}`,
	} {
		f.Add([]byte(seed), "")
	}
	f.Add([]byte(`{"metadata":{"name":"oil"},"spec":{"owners":[{"kind":"User","name":"alice","proxySettings":[{"kind":"Nodes","operations":["List","Update"]}]},{"kind":"User","name":"bob","proxySettings":[{"kind":"Nodes","operations":["Delete"]}]}]}}`), "")
	f.Add([]byte(`{}`), "^kube-")
	f.Fuzz(func(t *testing.T, text []byte, protected string) {
		tenant := &v1beta2.Tenant{}
		if json.Unmarshal(text, tenant) != nil {
			return // the API server would reject it
		}
		configuration := &v1beta2.CapsuleConfiguration{}
		configuration.Spec.ProtectedNamespaceRegex = protected
		result := Translate(Input{Tenant: tenant, Configuration: configuration})
		again := Translate(Input{Tenant: tenant, Configuration: configuration})
		if !equality.Semantic.DeepEqual(result, again) {
			t.Error("the same input gives two results")
		}
		checkRights(t, tenant, result.Spec)
		if len(result.Refusals()) == 0 {
			checkBounds(t, tenant, result.Spec)
		}
	})
}

// checkRights compares the roles and cluster resources that the spec grants with the grants of
// Capsule's Tenant.
func checkRights(t *testing.T, tenant *v1beta2.Tenant, spec v1alpha1.TenantSpec) {
	t.Helper()
	granted := map[string]bool{}
	grant := func(who, role string) {
		granted[who+"\n"+role] = true
		if role == "cluster-admin" {
			granted[who+"\ntenure-tenant"] = true
		}
	}
	for i, o := range tenant.Spec.Owners {
		roles := o.ClusterRoles
		if roles == nil {
			roles = []string{"admin", "capsule-namespace-deleter"}
		}
		if older, ok := tenant.Annotations["clusterrolenames.capsule.clastix.io/"+string(rune('0'+i))]; ok && i < 10 {
			roles = strings.Split(strings.ReplaceAll(older, " ", ""), ",")
		}
		for _, role := range roles {
			if o.Kind == "Group" {
				grant("Group "+o.Name, role)
				continue
			}
			grant("user "+o.Name, role)
		}
	}
	for _, b := range tenant.Spec.AdditionalRoleBindings {
		for _, s := range b.Subjects {
			grant("binding "+s.Kind+" "+s.Namespace+" "+s.Name, b.ClusterRoleName)
		}
	}
	for _, o := range spec.Owners {
		who := "user " + o.Name
		switch o.Kind {
		case "Group":
			who = "Group " + o.Name
		case "ServiceAccount":
			who = "user system:serviceaccount:" + o.Namespace + ":" + o.Name
		}
		for _, role := range o.Roles {
			if role == "cluster-admin" || (!granted[who+"\n"+role] && len(tenant.Spec.Owners) <= 10) {
				t.Errorf("%s gets %s, which Capsule's Tenant does not give", who, role)
			}
		}
	}
	for _, b := range spec.RoleBindings {
		for _, s := range b.Subjects {
			exact := granted["binding "+s.Kind+" "+s.Namespace+" "+s.Name+"\n"+b.Role]
			if s.Kind != "ServiceAccount" && !exact {
				// RBAC ignores the namespace of users and groups.
				exact = slices.ContainsFunc(tenant.Spec.AdditionalRoleBindings, func(c v1beta2.AdditionalRoleBinding) bool {
					return slices.ContainsFunc(c.Subjects, func(o rbacv1.Subject) bool { return o.Kind == s.Kind && o.Name == s.Name }) &&
						(c.ClusterRoleName == b.Role || (c.ClusterRoleName == "cluster-admin" && b.Role == "tenure-tenant"))
				})
			}
			if b.Role == "cluster-admin" || (!exact && b.Role != "") {
				t.Errorf("%s %s gets %s, which Capsule's Tenant does not give", s.Kind, s.Name, b.Role)
			}
		}
	}
	for _, r := range spec.ClusterResources {
		for _, s := range r.Subjects {
			name := s.Name
			if s.Kind == "ServiceAccount" {
				name = "system:serviceaccount:" + s.Namespace + ":" + s.Name
			}
			if !slices.ContainsFunc(tenant.Spec.Owners, func(o v1beta2.Owner) bool {
				return o.Name == name && slices.ContainsFunc(o.ProxySettings, func(p v1beta2.OwnerProxySetting) bool {
					return strings.EqualFold(p.Kind, r.Resources[0]) && slices.Contains(p.Operations, "List")
				})
			}) || len(r.Resources) != 1 || slices.ContainsFunc(r.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" }) {
				t.Errorf("%v sees %v, which Capsule's Tenant does not give", s, r)
			}
		}
		if len(r.Subjects) == 0 {
			t.Errorf("%v is for the tenant's accounts, too", r)
		}
	}
	if len(spec.ClusterRoles) > 0 || len(spec.Sync) > 0 || !equality.Semantic.DeepEqual(spec.Policy, v1alpha1.TenantPolicy{}) || len(spec.Namespaces.Create) > 0 {
		t.Errorf("Capsule's Tenant cannot give what is in %+v", spec)
	}
}

// checkBounds checks that the spec keeps all restrictions of Capsule's Tenant.
func checkBounds(t *testing.T, tenant *v1beta2.Tenant, spec v1alpha1.TenantSpec) {
	t.Helper()
	in := tenant.Spec
	if (in.Cordoned && !spec.Cordoned) || (in.PreventDeletion && !spec.Protected) || (in.ForceTenantPrefix != nil && *in.ForceTenantPrefix && !spec.Namespaces.Prefixed()) {
		t.Errorf("a switch is lost: %+v", spec)
	}
	if in.ResourceQuotas != nil {
		bounds := slices.DeleteFunc(slices.Clone(in.ResourceQuotas.Items), func(q corev1.ResourceQuotaSpec) bool { return len(q.Hard) == 0 })
		got := slices.DeleteFunc(slices.Clone(spec.Quotas), func(q v1alpha1.TenantQuota) bool { return strings.HasPrefix(q.Name, quotaOfRule) })
		if len(got) != len(bounds) {
			t.Errorf("%d quotas, want %d", len(got), len(bounds))
		}
	}
	if in.NetworkPolicies != nil && len(spec.NetworkPolicies) != len(in.NetworkPolicies.Items) {
		t.Errorf("%d network policies, want %d", len(spec.NetworkPolicies), len(in.NetworkPolicies.Items))
	}
	for key, value := range spec.Namespaces.Labels {
		if strings.HasPrefix(key, "tenure.dev/") || (strings.HasSuffix(key, "/tenant") && strings.Contains(key, "capsule.clastix.io") && value != tenant.Name) {
			t.Errorf("the namespaces get label %s=%s", key, value)
		}
	}
	options := in.NamespaceOptions
	if options == nil {
		return
	}
	if options.Quota != nil && (spec.Namespaces.Quota == nil || *spec.Namespaces.Quota > *options.Quota) {
		t.Error("the quota is lost")
	}
	if f := options.ForbiddenLabels; f != nil {
		for _, name := range f.Denied {
			if !slices.ContainsFunc(spec.Namespaces.Forbidden.Labels, func(p v1alpha1.ValuePattern) bool { return Matches(p, name) }) {
				t.Errorf("label %q is not forbidden", name)
			}
		}
	}
}

// FuzzPatterns checks that the patterns match exactly the names that the expression matches.
func FuzzPatterns(f *testing.F) {
	for _, seed := range []string{
		"", "a", "^a", "a$", "^a$", "^(a|b)$", "a|^b", "^kube-.*", "(enforce|warn|audit)", `pod-security.kubernetes.io\/(enforce|warn)`,
		"^a?b$", "^[ab]c", ".*", "(?i)a", "a+", "(^a|b$)", "a^b", "x*", "^.*$", "(?m)^a$", "a(", "^$", `\bfoo`, "[^a]", "a{2}",
	} {
		f.Add(seed, "kube-a", uint64(1))
	}
	f.Fuzz(func(t *testing.T, expression, name string, seed uint64) {
		patterns, err := Patterns(expression)
		if err != nil {
			return
		}
		re := regexp.MustCompile(expression)
		names := []string{name}
		// Add names that are similar to the patterns.
		random := rand.New(rand.NewPCG(seed, 1))
		for _, p := range patterns {
			for _, fill := range []string{"", "a", "b-", "kube-a"} {
				text := strings.ReplaceAll(string(p), "*", fill)
				names = append(names, text, text+"x", "x"+text)
				if len(text) > 0 {
					i := random.IntN(len(text))
					names = append(names, text[:i]+text[i+1:], strings.ToUpper(text))
				}
			}
		}
		for _, n := range names {
			if n == "" || !regexp.MustCompile(`^[A-Za-z0-9._/-]+$`).MatchString(n) {
				continue
			}
			got := slices.ContainsFunc(patterns, func(p v1alpha1.ValuePattern) bool { return Matches(p, n) })
			if want := re.MatchString(n); got != want {
				t.Errorf("%q as %q: matches %q: %t, want %t", expression, patterns, n, got, want)
			}
		}
	})
}
