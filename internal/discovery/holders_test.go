package discovery

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gives returns a RoleBinding, or a ClusterRoleBinding without a namespace, of a ClusterRole to a subject
// that is given as KIND NAME or ServiceAccount NAMESPACE/NAME.
func gives(namespace, role, to string) client.Object {
	kind, name, _ := strings.Cut(to, " ")
	s := rbacv1.Subject{Kind: kind, Name: name}
	if kind == rbacv1.ServiceAccountKind {
		s.Namespace, s.Name, _ = strings.Cut(name, "/")
	}
	ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: role}
	made := metav1.ObjectMeta{Namespace: namespace, Name: role + "-" + strings.NewReplacer(":", "-", "/", "-").Replace(name)}
	if namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: made, RoleRef: ref, Subjects: []rbacv1.Subject{s}}
	}
	return &rbacv1.RoleBinding{ObjectMeta: made, RoleRef: ref, Subjects: []rbacv1.Subject{s}}
}

// with adds labels to an object.
func with(o client.Object, labels map[string]string) client.Object {
	o.SetLabels(labels)
	return o
}

func TestHolders(t *testing.T) {
	t.Parallel()
	ofTeam, ofOther := map[string]string{Label: "team"}, map[string]string{Label: "other"}
	byChart := map[string]string{"helm.toolkit.fluxcd.io/name": "agent", "helm.toolkit.fluxcd.io/namespace": "team"}
	byPlatform := map[string]string{"kustomize.toolkit.fluxcd.io/name": "flux-system", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	byTeam := map[string]string{"kustomize.toolkit.fluxcd.io/name": "team", "kustomize.toolkit.fluxcd.io/namespace": "team"}
	chart := func(account string) client.Object {
		spec := map[string]any{"chart": map[string]any{"spec": map[string]any{"sourceRef": map[string]any{"kind": "HelmRepository", "name": "agent"}}}}
		if account != "" {
			spec["serviceAccountName"] = account
		}
		return with(fluxObject(flux.HelmRelease, "team", "agent", spec), byPlatform)
	}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		// want are the identities that team is also attacked as, each with the bindings that add rights.
		want []string
	}{
		"one account": {reason: "it is the first"},
		"an account of CI": {
			reason:  "a Pod may run as it, and its token may be anywhere",
			objects: []client.Object{account("team", "ci", nil), gives("", "secrets", "ServiceAccount team/ci")},
			want:    []string{"ServiceAccount team/ci: ClusterRoleBinding secrets-team-ci"},
		},
		"an account with another role": {
			reason:  "the binding that both have is no reason",
			objects: []client.Object{account("team", "ci", nil), gives("team", "edit", "ServiceAccount team/ci"), gives("team", "impersonate", "ServiceAccount team/ci")},
			want:    []string{"ServiceAccount team/ci: RoleBinding team/impersonate-team-ci"},
		},
		"the account of a second sync": {
			reason: "the tenant's commits are applied as it",
			objects: []client.Object{
				account("team", "infra", nil), gives("", "webhooks", "User system:serviceaccount:team:infra"),
				with(fluxObject(flux.Kustomization, "team", "infra", map[string]any{"serviceAccountName": "infra"}), byPlatform),
			},
			want: []string{"ServiceAccount team/infra: ClusterRoleBinding webhooks-system-serviceaccount-team-infra"},
		},
		"equal rights": {
			reason:  "what one can do, the other can do",
			objects: []client.Object{account("team", "ci", nil), gives("team", "edit", "ServiceAccount team/ci"), gives("team", "edit", "Group developers")},
		},
		"two with equal rights": {
			reason:  "both are there; the attacks take one",
			objects: []client.Object{gives("team", "admin", "Group a"), gives("team", "admin", "Group b"), gives("team", "admin", "User c")},
			want:    []string{"Group a: RoleBinding team/admin-a", "Group b: RoleBinding team/admin-b", "User c: RoleBinding team/admin-c"},
		},
		"a group that is also bound everywhere": {
			reason:  "the role edit in the whole cluster is too much for a team",
			objects: []client.Object{gives("team", "view", "Group developers"), gives("", "edit", "Group developers")},
			want:    []string{"Group developers: ClusterRoleBinding edit-developers, RoleBinding team/view-developers"},
		},
		"people who are not bound in the namespace": {
			reason:  "no binding says that they belong to the tenant",
			objects: []client.Object{gives("", "edit", "Group developers"), gives("", "secrets", "User anna")},
		},
		"people of several teams": {
			reason:  "they look after namespaces of many",
			objects: []client.Object{gives("team", "admin", "Group sre"), gives("other", "admin", "Group sre"), gives("monitoring", "view", "User bo"), gives("team", "admin", "User bo")},
		},
		"administrators": {
			reason:  "they are the platform's people",
			objects: []client.Object{gives("team", "admin", "Group admins"), gives("", "cluster-admin", "Group admins")},
		},
		"groups of Kubernetes": {
			reason: "the first account is in these groups, too",
			objects: []client.Object{
				gives("team", "view", "Group system:authenticated"), gives("team", "view", "Group system:serviceaccounts:team"), account("team", "default", nil),
				gives("team", "admin", "Group system:masters"),
			},
		},
		"a group of accounts of another namespace": {
			reason:  "its accounts may do there what the first may not",
			objects: []client.Object{namespace("team-2", map[string]string{Label: "team", "level": "low"}), account("team-2", "default", nil), gives("team-2", "edit", "Group system:serviceaccounts:team-2")},
			want:    []string{"ServiceAccount team-2/default: RoleBinding team-2/edit-system-serviceaccounts-team-2"},
		},
		"the same role in a namespace like the first": {
			reason:  "an attack ends there as it does in the first",
			objects: []client.Object{namespace("team-2", ofTeam), account("team-2", "ci", nil), gives("team-2", "edit", "ServiceAccount team-2/ci")},
		},
		"bound in a namespace of another tenant": {
			reason:  "an account belongs to the tenant of its namespace",
			objects: []client.Object{account("team", "ci", nil), gives("other", "edit", "ServiceAccount team/ci")},
			want:    []string{"ServiceAccount team/ci: RoleBinding other/edit-team-ci"},
		},
		"an account of another namespace": {
			reason:  "another tenant's or nobody's account does not become this tenant's by a binding",
			objects: []client.Object{account("other", "ci", nil), gives("team", "admin", "ServiceAccount other/ci"), account("monitoring", "agent", nil), gives("team", "admin", "ServiceAccount monitoring/agent")},
		},
		"an account with cluster-admin": {
			reason:  "the platform put it there; I2 tries to act as it",
			objects: []client.Object{account("team", "platform", nil), gives("", "cluster-admin", "ServiceAccount team/platform")},
		},
		"an account with cluster-admin that applies the tenant's repository": {
			reason: "the tenant's commits have all rights",
			objects: []client.Object{
				account("team", "infra", nil), gives("", "cluster-admin", "ServiceAccount team/infra"),
				fluxObject(flux.GitRepository, "team", "infra", map[string]any{"url": "https://git.example.com/team/infra"}),
				with(fluxObject(flux.Kustomization, "team", "infra", map[string]any{"serviceAccountName": "infra", "sourceRef": map[string]any{"kind": "GitRepository", "name": "infra"}}), byPlatform),
			},
			want: []string{"ServiceAccount team/infra: ClusterRoleBinding cluster-admin-team-infra"},
		},
		"an account of the platform's chart": {
			reason:  "the chart made it for its own Pods; I2 tries to act as it",
			objects: []client.Object{chart(""), with(account("team", "agent", nil), byChart), gives("", "nodes", "ServiceAccount team/agent")},
		},
		"an account as which the platform's chart is installed": {
			reason:  "the tenant did not write what is installed as it",
			objects: []client.Object{chart("installer"), account("team", "installer", nil), gives("", "nodes", "ServiceAccount team/installer")},
		},
		"people whom the tenant bound": {
			reason:  "a tenant cannot make the platform's people its own",
			objects: []client.Object{with(gives("team", "edit", "Group ops"), byTeam), gives("", "secrets", "Group ops")},
		},
		"callers without credentials": {
			reason:  "the tenant can send such requests, too",
			objects: []client.Object{gives("", "secrets", "User system:anonymous")},
			want:    []string{"User system:anonymous: ClusterRoleBinding secrets-system-anonymous"},
		},
		"their group": {
			reason:  "the anonymous user is in it",
			objects: []client.Object{gives("other", "view", "Group system:unauthenticated")},
			want:    []string{"User system:anonymous: RoleBinding other/view-system-unauthenticated"},
		},
		"an account that does not exist": {
			reason:  "nothing has its token",
			objects: []client.Object{gives("", "secrets", "ServiceAccount team/gone")},
		},
		"an owner": {
			reason: "owners attack by themselves",
			objects: []client.Object{
				tenantObject("tenure.dev/v1alpha1", "team", owned("User", "", "anna")), gives("team", "admin", "User anna"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := discover(t, append(tc.objects,
				namespace("team", ofTeam), account("team", "team", ofTeam), gives("team", "edit", "ServiceAccount team/team"),
				namespace("other", ofOther), account("other", "other", ofOther), gives("other", "edit", "ServiceAccount other/other"), namespace("monitoring", nil),
			)...)
			team := found[slices.IndexFunc(found, func(t Tenant) bool { return t.Name == "team" })]
			var got []string
			for _, h := range team.Holders {
				var bindings []string
				for _, r := range h.Beyond(team.Holder("system:serviceaccount:team:team")) {
					bindings = append(bindings, r.Binding)
				}
				if len(bindings) > 0 && !h.Platform {
					slices.Sort(bindings)
					got = append(got, h.String()+": "+strings.Join(bindings, ", "))
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPeopleOfPlatform checks that the namespaces without a tenant name the people who have rights there.
func TestPeopleOfPlatform(t *testing.T) {
	t.Parallel()
	byPlatform := map[string]string{"kustomize.toolkit.fluxcd.io/name": "flux-system", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	got := map[string]string{}
	for _, p := range discoverAll(t,
		namespace("media", nil), with(fluxObject(flux.HelmRelease, "media", "app", map[string]any{}), byPlatform), gives("media", "edit", "Group developers"), gives("media", "edit", "Group admins"),
		namespace("mail", nil), with(fluxObject(flux.HelmRelease, "mail", "app", map[string]any{}), byPlatform), gives("mail", "edit", "ServiceAccount mail/app"),
		namespace("tools", nil), gives("tools", "view", "User anna"),
		namespace("empty", nil), gives("empty", "edit", "Group system:authenticated"),
		gives("", "cluster-admin", "Group admins"), gives("flux-system", "view", "Group developers"), gives("kube-system", "view", "Group developers"),
		namespace("team", map[string]string{Label: "team"}), account("team", "team", nil), gives("team", "edit", "Group team"),
	).Platform {
		got[p.Namespace] = p.Why
	}
	want := map[string]string{
		"media": "HelmRelease media/app comes from the platform's own repository and names no account; people have rights there: Group developers with ClusterRole/edit",
		"mail":  "HelmRelease mail/app comes from the platform's own repository and names no account",
		"tools": "Flux delivers nothing there, and people have rights: User anna with ClusterRole/view",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMadeByCharts checks that the account and the people to whom a chart of the platform gives a namespace that
// it makes are the tenant's, also if another chart installs this chart, and that a chart of another author makes
// none.
func TestMadeByCharts(t *testing.T) {
	t.Parallel()
	by := func(name string) map[string]string {
		return map[string]string{"helm.toolkit.fluxcd.io/name": name, "helm.toolkit.fluxcd.io/namespace": "teams"}
	}
	byPlatform := map[string]string{"kustomize.toolkit.fluxcd.io/name": "flux-system", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	release := func(name, account string, labels map[string]string) client.Object {
		spec := map[string]any{"chart": map[string]any{"spec": map[string]any{"sourceRef": map[string]any{"kind": "HelmRepository", "name": "charts"}}}}
		if account != "" {
			spec["serviceAccountName"] = account
		}
		return with(fluxObject(flux.HelmRelease, "teams", name, spec), labels)
	}
	for reason, tc := range map[string]struct {
		releases []client.Object
		account  string
		people   bool
	}{
		"a Kustomization of the platform applies the release": {[]client.Object{release("team", "", byPlatform)}, "team", true},
		"a chart of the platform installs the release":        {[]client.Object{release("team", "", by("all")), release("all", "", byPlatform)}, "team", true},
		"nobody of the platform installs the release":         {[]client.Object{release("team", "", nil)}, "default", false},
		"charts that install each other":                      {[]client.Object{release("team", "", by("all")), release("all", "", by("team"))}, "default", false},
		"an account limits what the chart makes":              {[]client.Object{release("team", "installer", byPlatform)}, "default", false},
	} {
		found := discover(t, append(tc.releases,
			with(namespace("team", nil), by("team")), with(account("team", "team", nil), by("team")),
			with(gives("team", "edit", "ServiceAccount team/team"), by("team")), with(gives("team", "admin", "Group developers"), by("team")),
			with(fluxObject(flux.HelmRelease, "team", "info", map[string]any{}), by("team")),
		)...)
		i := slices.IndexFunc(found, func(t Tenant) bool { return t.Name == "team" })
		if i < 0 {
			t.Errorf("%s: no tenant team", reason)
			continue
		}
		people := slices.ContainsFunc(found[i].Holders, func(h Holder) bool { return h.Name == "developers" })
		if platform := found[i].Holder("system:serviceaccount:team:team").Platform; found[i].Accounts[0] != (Account{"team", tc.account}) || people != tc.people || platform {
			t.Errorf("%s: accounts %v, developers %v, account of the platform %v", reason, found[i].Accounts, people, platform)
		}
	}
}

// TestOnlyPeople checks that the rights of people count if the tenant's account has none, and there is nobody else.
func TestOnlyPeople(t *testing.T) {
	t.Parallel()
	tenant := func(role string) Tenant {
		return discover(t, namespace("team", map[string]string{Label: "team"}), account("team", "default", nil), gives("team", role, "Group developers"))[0]
	}
	edit, view := tenant("edit"), tenant("view")
	for _, found := range []Tenant{edit, view} {
		if len(found.Holders) != 1 || found.Holders[0].Within(found.Holder(found.Accounts[0].User())) {
			t.Errorf("account %s has the rights of %v", found.Accounts[0], found.Holders)
		}
	}
	if edit.Shape == view.Shape {
		t.Errorf("people with edit and with view give a tenant the same shape %s", edit.Shape)
	}
}

// TestHoldersShape checks that tenants whose further identities have other rights have other shapes.
func TestHoldersShape(t *testing.T) {
	t.Parallel()
	shape := func(objects ...client.Object) string {
		t.Helper()
		found := discover(t, append(objects, namespace("team", map[string]string{Label: "team"}), account("team", "team", map[string]string{Label: "team"}), gives("team", "edit", "ServiceAccount team/team"))...)
		return found[0].Shape
	}
	alone, admins := shape(), shape(gives("team", "admin", "Group a"))
	for what, tc := range map[string]struct {
		got, want string
		equal     bool
	}{
		"the role of the account":    {shape(gives("team", "edit", "Group a")), alone, true},
		"a further role":             {admins, alone, false},
		"a further role, other name": {shape(gives("team", "admin", "Group b")), admins, true},
		"another further role":       {shape(gives("team", "view", "Group b")), admins, false},
	} {
		if (tc.got == tc.want) != tc.equal {
			t.Errorf("%s: shapes %s and %s, want equal: %t", what, tc.got, tc.want, tc.equal)
		}
	}
}

// A policy that knows the names of accounts may exempt one of them, so an account with the same rights is not the same.
func TestDistinguishedHolders(t *testing.T) {
	t.Parallel()
	policy := func(expression string) []client.Object {
		return []client.Object{
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConditions: []admissionv1.MatchCondition{{Name: "c", Expression: expression}},
				ParamKind:       &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
				Variables: []admissionv1.Variable{
					{Name: "robots", Expression: "['system:serviceaccount:team:robot']"}, {Name: "others", Expression: "['system:serviceaccount:ops:ops']"},
					{Name: "user", Expression: "request.userInfo.username"}, {Name: "kind", Expression: "object.kind"},
				},
			}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "p", ParamRef: &admissionv1.ParamRef{Name: "exemptions", Namespace: "policies"},
			}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "exemptions", Namespace: "policies"}, Data: map[string]string{"robots": "system:serviceaccount:ops:ops system:serviceaccount:team:robot"}},
		}
	}
	for reason, tc := range map[string]struct {
		expression string
		within     bool
	}{
		"no policy names it":             {"request.userInfo.username != 'system:serviceaccount:ops:ops'", true},
		"a policy names it":              {"request.userInfo.username != 'system:serviceaccount:team:robot'", false},
		"by a part of its name":          {"!request.userInfo.username.endsWith(':robot')", false},
		"by a pattern":                   {"!request.userInfo.username.matches('^system:.*:ro[a-z]+$')", false},
		"a policy names the first alone": {"request.userInfo.username == 'system:serviceaccount:team:team'", false},
		"a policy about both":            {"request.userInfo.groups.exists(g, g == 'system:serviceaccounts:team')", true},
		"a name in an object":            {"object.metadata.name != 'robot'", true},
		"a variable lists it":            {"request.userInfo.username in variables.robots", false},
		"another variable lists it":      {"request.userInfo.username in variables.others", true},
		"a variable is its name":         {"variables.user == 'system:serviceaccount:team:robot'", false},
		"a variable is something else":   {"variables.kind == 'system:serviceaccount:team:robot'", true},
		"a parameter lists it":           {"request.userInfo.username in params.data.robots.split(' ')", false},
		"a parameter of something else":  {"object.metadata.name in params.data.robots.split(' ')", true},
		"Kyverno excludes it":            {"kyverno", false},
	} {
		more := policy(tc.expression)
		if tc.expression == "kyverno" {
			more = []client.Object{manifest(t, `
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: k}
spec: {rules: [{exclude: {any: [{subjects: [{kind: ServiceAccount, namespace: team, name: robot}]}]}}]}`)}
		}
		found := discover(t, append(more,
			namespace("team", map[string]string{Label: "team"}), account("team", "team", map[string]string{Label: "team"}), account("team", "robot", nil),
			gives("team", "edit", "ServiceAccount team/team"), gives("team", "edit", "ServiceAccount team/robot"))...)
		first, robot := found[0].Holder("system:serviceaccount:team:team"), found[0].Holder("system:serviceaccount:team:robot")
		if got := robot.Within(first); got != tc.within || len(robot.Beyond(first)) > 0 {
			t.Errorf("%s: got %t, policies %q and %q, want %t", reason, got, robot.Policies, first.Policies, tc.within)
		}
	}
}
