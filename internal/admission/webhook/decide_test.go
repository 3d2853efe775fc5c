package webhook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func tenant(change func(*v1alpha1.Tenant)) *v1alpha1.Tenant {
	t := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev-team"}, Spec: v1alpha1.TenantSpec{
		Owners: []v1alpha1.Owner{
			{Kind: "User", Name: "alice"}, {Kind: "Group", Name: "devs"}, {Kind: "ServiceAccount", Namespace: "apps", Name: "dev-team"},
		},
		Namespaces: v1alpha1.TenantNamespaces{
			Quota: new(int32(3)), PodSecurity: "baseline", Prefix: new(false),
			Labels:      map[string]string{"team": "dev", "istio-injection": "enabled"},
			Annotations: map[string]string{"cost": "42"},
			Required:    v1alpha1.RequiredMetadata{Labels: map[string]v1alpha1.ValuePattern{"env": "dev-*"}},
			Forbidden:   v1alpha1.ForbiddenMetadata{Labels: []v1alpha1.ValuePattern{"secret*"}, Annotations: []v1alpha1.ValuePattern{"*.example.com/*"}},
		},
	}}
	if change != nil {
		change(t)
	}
	return t
}

func wanted(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "dev-1"}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

func annotated(ns *corev1.Namespace, key, value string) *corev1.Namespace {
	ns.Annotations = map[string]string{key: value}
	return ns
}

func admitted(name string, ago time.Duration) reservations.Admission {
	return reservations.Admission{Name: name, Request: types.UID("of-" + name), At: now.Add(-ago)}
}

func TestDecideRefuses(t *testing.T) {
	t.Parallel()
	profile := &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{
		PlatformNamespaces: []string{"flux-system", "monitoring"}, NamespaceMetadata: v1alpha1.NamespaceMetadata{Labels: []v1alpha1.ValuePattern{"listed/*"}}, ProtectedNamespaces: []v1alpha1.ValuePattern{"prod-*", "a-.b"},
	}}
	alice := []string{"User\n\nalice"}
	finalized := wanted("my-web")
	finalized.Finalizers = []string{"example.com/x"}
	for _, tc := range []struct {
		reason   string
		tenant   *v1alpha1.Tenant
		owner    []string
		ns       *corev1.Namespace
		existing []string
		want     string
	}{
		{"an owner", nil, alice, wanted("my-web"), nil, ""},
		{"somebody else", nil, []string{"User\n\nmallory"}, wanted("my-web"), nil, "tenant dev-team: you are not one of its owners: ask the platform team to make you one, or put the name of a tenant of yours into the label tenure.dev/tenant"},
		{"in mixed case", nil, []string{"User\n\nAlice"}, wanted("my-web"), nil, "you are not one of its owners"},
		{"a user with the name of a group", nil, []string{"User\n\ndevs"}, wanted("my-web"), nil, "you are not one of its owners"},
		{"a tenant that is cordoned", tenant(func(t *v1alpha1.Tenant) { t.Spec.Cordoned = true }), alice, wanted("my-web"), nil, "it is cordoned"},
		{"one that is being deleted", tenant(func(t *v1alpha1.Tenant) { t.DeletionTimestamp = &metav1.Time{Time: now} }), alice, wanted("my-web"), nil, "it is being deleted"},
		{"a name that the API server chooses", nil, alice, wanted(""), nil, "needs metadata.name"},
		{"a name of Kubernetes'", nil, alice, wanted("kube-x"), nil, "which is the platform's"},
		{"a namespace of the platform's", nil, alice, wanted("monitoring"), nil, "which is the platform's"},
		{"a protected name", nil, alice, wanted("prod-web"), nil, "which the platform keeps (prod-*)"},
		{"a dot of a pattern is a dot", nil, alice, wanted("a-xb"), nil, ""},
		{"a pattern is for all of a name", nil, alice, wanted("my-prod-web"), nil, ""},
		{"a name without the prefix", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Prefix = nil }), alice, wanted("dev-teams"), nil, "must have a name that begins with dev-team-"},
		{"a name that is the prefix", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Prefix = nil }), alice, wanted("dev-team"), nil, "must have a name that begins with dev-team-"},
		{"a name with it", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Prefix = nil }), alice, wanted("dev-team-web"), nil, ""},
		{"a name that the manager creates", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Create = []string{"my-web"} }), alice, wanted("my-web"), nil, "since the manager creates it"},
		{"another tenant for Capsule", nil, alice, wanted("my-web", "tenure.dev/tenant", "dev-team", "capsule.clastix.io/tenant", "other"), nil, "must not name another tenant, other, in the label capsule.clastix.io/tenant"},
		{"finalizers", nil, alice, finalized, nil, "must not have owners or finalizers"},
		{"another value of the tenant's label", nil, alice, wanted("my-web", "team", "ops"), nil, `must not have the label team with the value "ops": leave it out, or give it the tenant's value, "dev"`},
		{"the same value", nil, alice, wanted("my-web", "team", "dev", "istio-injection", "enabled"), nil, ""},
		{"another level of Pod Security", nil, alice, wanted("my-web", "pod-security.kubernetes.io/enforce", "privileged"), nil, `tenant's value, "baseline"`},
		{"a protected label", nil, alice, wanted("my-web", "resource.kubernetes.io/admin-access", "x"), nil, "must not have the label resource.kubernetes.io/admin-access, which the platform decides on"},
		{"a label that nobody lists", nil, alice, wanted("my-web", "control-plane", "x"), nil, "must not have the label control-plane, which is not among those that owners choose: leave it out, or ask the platform team to list it in spec.namespaces.allowed of the Tenant (allowed: listed/*)"},
		{"one that the profile lists", nil, alice, wanted("my-web", "listed/x", "y"), nil, ""},
		{"one that the Tenant lists", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Allowed.Labels = []v1alpha1.ValuePattern{"control-plane"} }), alice, wanted("my-web", "control-plane", "x"), nil, ""},
		{"what Kubernetes decides by, listed or not", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Allowed.Labels = []v1alpha1.ValuePattern{"*"} }), alice, wanted("my-web", "resource.kubernetes.io/admin-access", "x"), nil, "which the platform decides on"},
		{"a top-level domain", nil, alice, wanted("com"), nil, "which programs in Pods take for the end of an internet address: choose one with a hyphen, such as dev-team-com"},
		{"one in other letters", nil, alice, wanted("xn--p1ai"), nil, "the end of an internet address"},
		{"a name that the Tenant's expression matches", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.ForbiddenNameExpression = "[-.]web[0-9]?$" }), alice, wanted("my-web"), nil, "must not have this name: those that match [-.]web[0-9]?$ are forbidden"},
		{"a name that it does not match", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.ForbiddenNameExpression = "[-.]web[0-9]?$" }), alice, wanted("my-webs"), nil, ""},
		{"an expression that is none", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.ForbiddenNameExpression = "(" }), alice, wanted("my-web"), nil, "the expression for forbidden names is invalid"},
		{"a forbidden label", nil, alice, wanted("my-web", "secretive", "x"), nil, "must not have the label secretive: those that match secret* are forbidden"},
		{"a forbidden annotation", nil, alice, annotated(wanted("my-web"), "a.example.com/x", "y"), nil, "those that match *.example.com/* are forbidden"},
		{"a name that a forbidden expression matches", tenant(func(t *v1alpha1.Tenant) {
			t.Spec.Namespaces.Allowed.Labels, t.Spec.Namespaces.Forbidden.LabelExpression = []v1alpha1.ValuePattern{"*"}, "^x[0-9]"
		}), alice, wanted("my-web", "x1", "y"), nil, "must not have the label x1: those that match ^x[0-9] are forbidden"},
		{"another name", tenant(func(t *v1alpha1.Tenant) {
			t.Spec.Namespaces.Allowed.Labels, t.Spec.Namespaces.Forbidden.LabelExpression = []v1alpha1.ValuePattern{"*"}, "^x[0-9]"
		}), alice, wanted("my-web", "x", "y"), nil, ""},
		{"an expression that nobody can check", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Forbidden.LabelExpression = "(" }), alice, wanted("my-web", "listed/x", "y"), nil, "those that match ( are forbidden"},
		{"a required value by expression", tenant(func(t *v1alpha1.Tenant) {
			t.Spec.Namespaces.Required.AnnotationExpressions = map[string]v1alpha1.Expression{"budget": "^INV-[0-9]{4}$"}
		}), alice, annotated(wanted("my-web"), "budget", "INV-12"), nil, `must not have the annotation budget with the value "INV-12": it has to match ^INV-[0-9]{4}$`},
		{"one that matches", tenant(func(t *v1alpha1.Tenant) {
			t.Spec.Namespaces.Required.AnnotationExpressions = map[string]v1alpha1.Expression{"budget": "^INV-[0-9]{4}$"}
		}), alice, annotated(wanted("my-web"), "budget", "INV-1234"), nil, ""},
		{"a selected label with another value", tenant(func(t *v1alpha1.Tenant) {
			t.Spec.Namespaces.Selected = []v1alpha1.SelectedMetadata{{Labels: map[string]string{"of": "{{ namespace }}"}}}
		}), alice, wanted("my-web", "of", "other"), nil, `the tenant's value, "my-web"`},
		{"a required label with another value", nil, alice, wanted("my-web", "env", "prod"), nil, `must not have the label env with the value "prod": it has to match dev-*`},
		{"no required label", nil, alice, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "my-web"}}, nil, "needs the label env with a value that matches dev-*"},
		{"a name that Kubernetes does not allow", nil, alice, wanted("my-Web"), nil, `namespace "my-Web" is invalid: metadata.name: Invalid value`},
		{"a label's value that Kubernetes does not allow", nil, alice, wanted("my-web", "listed/x", "a b"), nil, "is invalid: metadata.labels: Invalid value"},
		{"all that it may have", nil, alice, wanted("my-web"), []string{"c", "a", "b"}, "tenant dev-team: has 3 of 3 namespaces (a, b, c); delete one or ask the platform team"},
		{"one that counts already", nil, alice, wanted("a-b"), []string{"a-b", "b", "c"}, ""},
		{"none at all", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Quota = new(int32(0)) }), alice, wanted("my-web"), nil, "has 0 of 0 namespaces; delete one"},
		{"no bound", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Quota = nil }), alice, wanted("my-web"), []string{"a", "b", "c"}, ""},
		{"more than a message holds", tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Quota = new(int32(1)) }), alice, wanted("my-web"), strings.Split("abcdefghijkl", ""), "(a, b, c, d, e, f, g, h, i, j and 2 more)"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			if tc.tenant == nil {
				tc.tenant = tenant(nil)
			}
			_, err := webhook.Decide(webhook.Situation{Tenant: tc.tenant, Profile: profile, Owner: tc.owner, Existing: tc.existing, Now: now}, tc.ns)
			if got := fmt.Sprint(err); err == nil && tc.want != "" || err != nil && (tc.want == "" || !strings.Contains(got, tc.want)) {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestDecideDomainNames decides about names that could be top-level domains where the profile
// allows them.
func TestDecideDomainNames(t *testing.T) {
	t.Parallel()
	profile := &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{DomainNames: v1alpha1.DomainNamesAllowed, PlatformNamespaces: []string{"platform"}}}
	for _, tc := range []struct {
		reason, name, want string
		prefix             bool
	}{
		{"a name without a hyphen", "tools", "", false},
		{"one of a tenant that demands its prefix", "tools", "must have a name that begins with dev-team-", true},
		{"a domain in other letters", "xn--p1ai", "the end of an internet address", false},
		{"the platform's", "platform", "which is the platform's", false},
		{"Kubernetes' own", "default", "which is the platform's", false},
		{"the end of the addresses of Services", "svc", "which is the platform's", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			of := tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Prefix = new(tc.prefix) })
			_, err := webhook.Decide(webhook.Situation{Tenant: of, Profile: profile, Owner: []string{"User\n\nalice"}, Now: now}, wanted(tc.name))
			if got := fmt.Sprint(err); err == nil && tc.want != "" || err != nil && (tc.want == "" || !strings.Contains(got, tc.want)) {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestDecideBirth(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, level string
		want          map[string]string
	}{
		{"born with what holds it back", "restricted", map[string]string{
			"env": "dev-1", "team": "dev", "istio-injection": "enabled", "tenure.dev/tenant": "dev-team", "tenure.dev/made-by": "owner",
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
		}},
		{"and not with what gives rights, which the manager adds", "privileged", map[string]string{
			"env": "dev-1", "team": "dev", "istio-injection": "enabled", "tenure.dev/tenant": "dev-team", "tenure.dev/made-by": "owner",
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			ns := wanted("my-web")
			d, err := webhook.Decide(webhook.Situation{
				Tenant:  tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.PodSecurity = tc.level }),
				Profile: &v1alpha1.TenancyProfile{}, Owner: []string{"Group\n\ndevs"}, Request: "r", Now: now,
			}, ns)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, d.Namespace.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"cost": "42", "tenure.dev/admission": "r"}, d.Namespace.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wanted("my-web"), ns); diff != "" {
				t.Errorf("what was asked for has changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideCounts(t *testing.T) {
	t.Parallel()
	born := tenant(func(t *v1alpha1.Tenant) { t.UID, t.Generation = "u", 7 })
	fresh := reservations.Admission{Name: "my-web", Request: "r", At: now}
	for _, tc := range []struct {
		reason   string
		reserved reservations.Reservations
		existing []string
		want     []reservations.Admission
		refusal  string
	}{
		{"the first one", reservations.Reservations{}, nil, []reservations.Admission{fresh}, ""},
		{"beside others", reservations.Reservations{Admitted: []reservations.Admission{admitted("a", time.Second)}}, []string{"b"}, []reservations.Admission{admitted("a", time.Second), fresh}, ""},
		{"again, while the first request may not be over", reservations.Reservations{Admitted: []reservations.Admission{admitted("my-web", time.Second)}}, []string{"a", "b"}, []reservations.Admission{admitted("my-web", time.Second), fresh}, ""},
		{"all, of which one may be there and one is on the way", reservations.Reservations{Names: []string{"a"}, Admitted: []reservations.Admission{admitted("b", time.Second)}}, []string{"a", "c"}, nil, "tenant dev-team: has 3 of 3 namespaces (a, b, c)"},
		{"one that counts, where there are too many", reservations.Reservations{Names: []string{"my-web"}}, []string{"a", "b", "c"}, nil, "has 4 of 3 namespaces"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			before := tc.reserved
			d, err := webhook.Decide(webhook.Situation{
				Tenant: born, Profile: &v1alpha1.TenancyProfile{}, Owner: []string{"User\n\nalice"}, Reserved: tc.reserved, Existing: tc.existing, Request: "r", Now: now,
			}, wanted("my-web"))
			if got := fmt.Sprint(err); err != nil && (tc.refusal == "" || !strings.Contains(got, tc.refusal)) || err == nil && tc.refusal != "" {
				t.Fatalf("got %s\nwant %s", got, tc.refusal)
			}
			if tc.refusal != "" {
				return
			}
			want := reservations.Reservations{Tenant: "u", Generation: 7, Names: tc.reserved.Names, Admitted: tc.want}
			if diff := cmp.Diff(want, d.Reserved); diff != "" {
				t.Errorf("ledger (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.reserved); diff != "" {
				t.Errorf("the given reservations have changed (-want +got):\n%s", diff)
			}
			if got := d.Namespace.Annotations[reservations.Mark]; got != "r" {
				t.Errorf("the namespace has the mark %q", got)
			}
		})
	}
}

func TestOwnerKeys(t *testing.T) {
	t.Parallel()
	owners := webhook.TenantKeys(tenant(nil))
	for _, tc := range []struct {
		reason string
		user   authenticationv1.UserInfo
		want   bool
	}{
		{"a user", authenticationv1.UserInfo{Username: "alice"}, true},
		{"a member of a group", authenticationv1.UserInfo{Username: "bob", Groups: []string{"x", "devs"}}, true},
		{"a service account", authenticationv1.UserInfo{Username: "system:serviceaccount:apps:dev-team"}, true},
		{"one of the same name elsewhere", authenticationv1.UserInfo{Username: "system:serviceaccount:other:dev-team"}, false},
		{"names that read the same when joined", authenticationv1.UserInfo{Username: "system:serviceaccount:apps-dev:team"}, false},
		{"a user with an account's name", authenticationv1.UserInfo{Username: "dev-team"}, false},
		{"a group with a user's name", authenticationv1.UserInfo{Username: "bob", Groups: []string{"alice"}}, false},
		{"mixed case", authenticationv1.UserInfo{Username: "ALICE", Groups: []string{"Devs"}}, false},
		{"a name with the parts of another", authenticationv1.UserInfo{Username: "\n\nalice"}, false},
		{"nobody", authenticationv1.UserInfo{}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			got := slices.ContainsFunc(webhook.OwnerKeys(tc.user), func(k string) bool { return slices.Contains(owners, k) })
			if got != tc.want {
				t.Errorf("owns: %v, want %v", got, tc.want)
			}
		})
	}
}

// FuzzDecide: whatever is asked for, what may be made is the tenant's, and there
// are never more than the quota.
func FuzzDecide(f *testing.F) {
	f.Add("web", "team", "dev", int32(3), "a,b", "c")
	f.Add("kube-x", "tenure.dev/tenant", "other", int32(0), "", "")
	f.Fuzz(func(t *testing.T, name, key, value string, quota int32, existing, on string) {
		owned := tenant(func(t *v1alpha1.Tenant) { t.Spec.Namespaces.Quota = &quota })
		var before reservations.Reservations
		for a := range strings.SplitSeq(on, ",") {
			before = before.Admit(admitted(a, 0))
		}
		had := strings.Split(existing, ",")
		d, err := webhook.Decide(webhook.Situation{Tenant: owned, Profile: &v1alpha1.TenancyProfile{}, Owner: []string{"User\n\nalice"}, Reserved: before, Existing: had, Now: now}, wanted(name, key, value))
		if err != nil {
			return
		}
		if d.Namespace.Name != name || d.Namespace.Labels["tenure.dev/tenant"] != "dev-team" || strings.HasPrefix(name, "kube-") {
			t.Errorf("made %v", d.Namespace)
		}
		if all := d.Reserved.Counted(had); !d.Reserved.Counted(nil)[name] || len(all) > int(quota) {
			t.Errorf("%d namespaces of %d, %q among them: %v", len(all), quota, name, all)
		}
	})
}
