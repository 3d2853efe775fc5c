package proxy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dice makes random rights out of few words, so that rights and questions match often.
type dice struct{ *rand.Rand }

func (d dice) of(words ...string) string { return words[d.IntN(len(words))] }

func (d dice) some(words ...string) []string {
	var chosen []string
	for _, w := range words {
		if d.IntN(3) == 0 {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) == 0 {
		chosen = append(chosen, d.of(words...))
	}
	return chosen
}

var (
	diceNamespaces = []string{"dice-a", "dice-b", "dice-c"}
	diceVerbs      = []string{"get", "list", "watch", "*"}
	diceGroups     = []string{"", "apps", "*"}
	diceResources  = []string{"pods", "pods/log", "namespaces", "deployments", "*", "*/log", "pods/*"}
	diceNames      = []string{"x", "dice-a", "dice-b", "*"}
)

func (d dice) rules() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range d.IntN(3) {
		r := rbacv1.PolicyRule{Verbs: d.some(diceVerbs...), APIGroups: d.some(diceGroups...), Resources: d.some(diceResources...)}
		if d.IntN(3) == 0 {
			r.ResourceNames = d.some(diceNames...)
		}
		rules = append(rules, r)
	}
	return rules
}

func (d dice) subjects() []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for range 1 + d.IntN(2) {
		switch d.IntN(3) {
		case 0:
			subjects = append(subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: d.of("dice-user", "dice-team", "system:serviceaccount:dice-a:sa")})
		case 1:
			subjects = append(subjects, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: d.of("dice-user", "dice-team", "system:serviceaccounts:dice-b")})
		default:
			subjects = append(subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: d.of(diceNamespaces...), Name: d.of("sa", "other")})
		}
	}
	return subjects
}

func (d dice) objects() []client.Object {
	var all []client.Object
	for i := range 4 {
		name := fmt.Sprintf("dice-%d", i)
		all = append(all, &rbacv1.ClusterRole{ObjectMeta: objectMeta("", name), Rules: d.rules()})
		if i < 2 {
			all = append(all, &rbacv1.ClusterRoleBinding{ObjectMeta: objectMeta("", name), Subjects: d.subjects(),
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprintf("dice-%d", d.IntN(5))}})
		}
		for _, ns := range diceNamespaces {
			all = append(all, &rbacv1.Role{ObjectMeta: objectMeta(ns, name), Rules: d.rules()},
				&rbacv1.RoleBinding{ObjectMeta: objectMeta(ns, name), Subjects: d.subjects(),
					// Some of these roles do not exist.
					RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: d.of("Role", "ClusterRole"), Name: fmt.Sprintf("dice-%d", d.IntN(5))}})
		}
	}
	return all
}

var diceUsers = []*user.DefaultInfo{
	{Name: "dice-user", Groups: []string{"dice-team", user.AllAuthenticated}},
	{Name: "dice-user", Groups: []string{user.AllAuthenticated}},
	{Name: "dice-team", Groups: []string{"dice-user"}},
	{Name: "Dice-User", Groups: []string{"DICE-TEAM"}},
	{Name: "system:serviceaccount:dice-a:sa", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:dice-a"}},
	{Name: "system:serviceaccount:dice-b:other", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:dice-b"}},
	{Name: "dice-nobody", Groups: []string{user.SystemPrivilegedGroup}},
}

// TestRightsAreTheAPIServers compares the proxy's decisions with the API server's for
// random rights. If the proxy allows more, it has a security hole; if it allows less, it
// has a bug.
func TestRightsAreTheAPIServers(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	for _, ns := range diceNamespaces {
		apply(t, namespace(ns, "dice"))
	}
	d := dice{rand.New(rand.NewPCG(6, 36))}
	objects := d.objects()
	for _, o := range objects {
		if err := s.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	last := objects[len(objects)-1]
	testwait.For(t, "the proxy to hear of the rights", patience, func() (bool, string) {
		b := &rbacv1.RoleBinding{ObjectMeta: objectMeta(last.GetNamespace(), last.GetName())}
		_, ok := get[*rbacv1.RoleBinding](s.proxy.cache.bound, b.Namespace+"/"+b.Name)
		return ok, "the last binding is missing"
	})
	allowed := 0
	ask := func(who *user.DefaultInfo, q attributes, ns string) (bool, bool) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Name, Groups: who.Groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: q.verb, Group: q.group, Version: "v1", Resource: q.resource, Subresource: q.subresource, Name: q.name},
		}}
		if err := s.admin.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if ns == "" {
			return everywhere(s.proxy.cache, who, q), review.Status.Allowed
		}
		return within(s.proxy.cache, who, q, ns), review.Status.Allowed
	}
	for range 600 {
		who := diceUsers[d.IntN(len(diceUsers))]
		q := attributes{verb: d.of("get", "list", "watch"), group: d.of("", "apps"), resource: d.of("pods", "namespaces", "deployments"), subresource: d.of("", "", "log"), name: d.of("", "x", "dice-a", "dice-b")}
		ns := d.of("", "dice-a", "dice-b", "dice-c")
		// The API server also learns of rights by a watch.
		testwait.For(t, fmt.Sprintf("the same answer about %v %+v in %q", who, q, ns), patience, func() (bool, string) {
			got, want := ask(who, q, ns)
			if got == want && got {
				allowed++
			}
			return got == want, fmt.Sprintf("the proxy says %v, the API server %v", got, want)
		})
	}
	if allowed < 100 || allowed > 500 {
		t.Errorf("%d of 600 questions are answered with yes: they show nothing", allowed)
	}
}

// fakeGrants implements grants without a cluster.
type fakeGrants struct {
	clusterBound []*rbacv1.ClusterRoleBinding
	bound        []*rbacv1.RoleBinding
	roles        map[string][]rbacv1.PolicyRule
}

func (g fakeGrants) clusterBindings(key string) (all []*rbacv1.ClusterRoleBinding) {
	for _, b := range g.clusterBound {
		if slices.Contains(subjectKeys(b.Subjects, ""), key) {
			all = append(all, b)
		}
	}
	return all
}

func (g fakeGrants) bindings(key, namespace string) (all []*rbacv1.RoleBinding) {
	for _, b := range g.bound {
		if b.Namespace == namespace && slices.Contains(subjectKeys(b.Subjects, b.Namespace), key) {
			all = append(all, b)
		}
	}
	return all
}

func (g fakeGrants) rules(_ string, ref rbacv1.RoleRef) []rbacv1.PolicyRule {
	return g.roles[ref.Kind+" "+ref.Name]
}

// FuzzRights gives one right to one subject, and checks that no other subject has it and
// that the subject has no other right.
func FuzzRights(f *testing.F) {
	f.Add("alice", "Group", "alice", "get", "pods", "")
	f.Add("system:serviceaccount:a:b", "ServiceAccount", "b", "list", "namespaces", "a")
	f.Add("system:serviceaccount:a:b:c", "ServiceAccount", "b:c", "list", "namespaces", "a")
	f.Fuzz(func(t *testing.T, name, kind, subject, verb, resource, namespace string) {
		g := fakeGrants{
			bound: []*rbacv1.RoleBinding{{ObjectMeta: objectMeta("ns", "b"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: kind, Name: subject, Namespace: namespace}}}},
			roles: map[string][]rbacv1.PolicyRule{"Role r": {{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"x"}}}},
		}
		who := &user.DefaultInfo{Name: name, Groups: []string{"team"}}
		q := attributes{verb: verb, resource: resource, name: "x"}
		named := kind == "User" && subject == name || kind == "Group" && subject == "team" ||
			kind == "ServiceAccount" && (namespace != "" && name == "system:serviceaccount:"+namespace+":"+subject || namespace == "" && name == "system:serviceaccount:ns:"+subject)
		want := named && verb == "get" && resource == "pods"
		if got := within(g, who, q, "ns"); got != want {
			t.Errorf("want %v, got %v", want, got)
		}
		if everywhere(g, who, q) || within(g, who, q, "other") {
			t.Error("a right of one namespace holds elsewhere")
		}
	})
}

// FuzzNarrow adds a selection to a client's selector, and checks that the result selects
// nothing outside of the selection.
func FuzzNarrow(f *testing.F) {
	for _, seed := range []string{"", "a=b", "tenure.dev/tenant in (b)", "!tenure.dev/tenant", "a notin (b),c", "a,", "tenure.dev/tenant=a,tenure.dev/tenant=b", "a in (b", "a=b)", "x>1"} {
		f.Add(seed, "a", "b")
	}
	f.Fuzz(func(t *testing.T, selector, mine, theirs string) {
		query := map[string][]string{"labelSelector": {selector}}
		if err := narrow(query, Selection{Labels: oneOf("tenure.dev/tenant", []string{mine})}); err != nil {
			return
		}
		sent, err := labels.Parse(query["labelSelector"][0])
		if err != nil {
			t.Fatalf("the API server cannot read %q: %v", query["labelSelector"][0], err)
		}
		for _, set := range []labels.Set{{}, {"tenure.dev/tenant": theirs}, {"a": "b"}, {"tenure.dev/tenant": ""}, {corev1.LabelMetadataName: "kube-system"}} {
			if (set["tenure.dev/tenant"] != mine || mine == "") && sent.Matches(set) {
				t.Errorf("%q with %q selects %v", selector, mine, set)
			}
		}
	})
}

// FuzzIdentity parses impersonation headers, and checks that the result is exactly the
// named user.
func FuzzIdentity(f *testing.F) {
	f.Add("Impersonate-User", "alice", "Impersonate-Group", "system:masters")
	f.Add("Impersonate-User", "", "impersonate-user", "bob")
	f.Add("Impersonate_User", "alice", "X", "")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		h := map[string][]string{name1: {value1}}
		h[name2] = append(h[name2], value2)
		as, err := readImpersonation(h)
		if err != nil || as.checkGroups() != nil {
			return
		}
		mentioned := false
		for name := range h {
			mentioned = mentioned || strings.HasPrefix(strings.ToLower(name), "impersonate")
		}
		if as == nil {
			if mentioned {
				t.Errorf("%v is dropped", h)
			}
			return
		}
		if as.user == "" || !slices.Equal(h["Impersonate-User"], []string{as.user}) {
			t.Errorf("%v is taken for %q", h, as.user)
		}
		if slices.Contains(as.groups, user.SystemPrivilegedGroup) || !slices.Equal(as.groups, h["Impersonate-Group"]) {
			t.Errorf("%v is taken for the groups %v", h, as.groups)
		}
		if who, err := as.identity(); err == nil && (who.GetName() == "" || who.GetName() == user.Anonymous) {
			t.Errorf("%v is nobody", h)
		}
	})
}
