package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

var (
	team     = discovery.Tenant{Name: "dev-team", Namespaces: []string{"apps", "apps-preview"}}
	deployer = discovery.Account{Namespace: "apps", Name: "dev-team"}
)

func subject(kind, namespace, name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: kind, Namespace: namespace, Name: name}}
}

func TestPrivilegesIn(t *testing.T) {
	t.Parallel()
	accounts := []corev1.ServiceAccount{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "dev-team"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "operator"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "operator"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "apps-preview", Name: "default"}},
	}
	role := rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}
	operator := discovery.Account{Namespace: "apps", Name: "operator"}
	for name, tc := range map[string]struct {
		reason     string
		everywhere []rbacv1.Subject
		in         string
		bound      []rbacv1.Subject
		want       []privilegedAccount
	}{
		"nobody":           {reason: "an account without bindings has no privilege"},
		"cluster":          {"a binding in the whole cluster is one", subject("ServiceAccount", "apps", "operator"), "", nil, []privilegedAccount{{operator, "has ClusterRole/edit in the whole cluster by ClusterRoleBinding b"}}},
		"user":             {"an account can be named as a user", subject("User", "", "system:serviceaccount:apps:operator"), "", nil, []privilegedAccount{{operator, "has ClusterRole/edit in the whole cluster by ClusterRoleBinding b"}}},
		"elsewhere":        {"so is one in a namespace of somebody else's", nil, "monitoring", subject("ServiceAccount", "apps", "operator"), []privilegedAccount{{operator, "has ClusterRole/edit in monitoring by RoleBinding b"}}},
		"at home":          {"what it has in the tenant's namespaces is the tenant's", nil, "apps-preview", subject("ServiceAccount", "apps", "operator"), nil},
		"attacker":         {"what the attacker has elsewhere other attacks show", subject("ServiceAccount", "apps", "dev-team"), "", nil, nil},
		"same name abroad": {"an account of the same name elsewhere is another", subject("ServiceAccount", "monitoring", "operator"), "", nil, nil},
		"the other group":  {"a group of accounts that the attacker is not in", subject("Group", "", "system:serviceaccounts:apps-preview"), "", nil, []privilegedAccount{{discovery.Account{Namespace: "apps-preview", Name: "default"}, "has ClusterRole/edit in the whole cluster by ClusterRoleBinding b"}}},
		"the same group":   {"what the group of the attacker's namespace has, the attacker has", subject("Group", "", "system:serviceaccounts:apps"), "", nil, nil},
		"everybody":        {"what all accounts have is no privilege", subject("Group", "", "system:serviceaccounts"), "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere := []rbacv1.ClusterRoleBinding{{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: role, Subjects: tc.everywhere}}
			bindings := []rbacv1.RoleBinding{{ObjectMeta: metav1.ObjectMeta{Namespace: tc.in, Name: "b"}, RoleRef: role, Subjects: tc.bound}}
			got := privilegesIn(team, deployer, accounts, everywhere, bindings)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(privilegedAccount{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMisbindings(t *testing.T) {
	t.Parallel()
	labelled := func(name, tenant string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discovery.Label: tenant}}}
	}
	namespaces := []corev1.Namespace{labelled("apps", "dev-team"), labelled("apps-preview", "dev-team"), labelled("billing", "billing")}
	for name, tc := range map[string]struct {
		reason    string
		namespace string
		subjects  []rbacv1.Subject
		want      int
	}{
		"copied":     {"another tenant's binding that names the account", "billing", subject("ServiceAccount", "apps", "dev-team"), 1},
		"group":      {"or a group that it is in", "billing", subject("Group", "", "system:serviceaccounts"), 1},
		"same name":  {"an account of the same name in its own namespace is another", "billing", subject("ServiceAccount", "billing", "dev-team"), 0},
		"own":        {"the tenant's own namespaces are its own", "apps-preview", subject("ServiceAccount", "apps", "dev-team"), 0},
		"discovered": {"a tenant's namespace need not have a label", "shop", subject("ServiceAccount", "apps", "dev-team"), 1},
		"platform's": {"what the platform shares is its own choice", "monitoring", subject("ServiceAccount", "apps", "dev-team"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: "b"}, Subjects: tc.subjects}
			if got := len(misbindings([]discovery.Tenant{team, {Name: "shop", Namespaces: []string{"shop"}}}, team, deployer, namespaces, []rbacv1.RoleBinding{b})); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestPlatformMade(t *testing.T) {
	t.Parallel()
	made := func(name string, labels map[string]string) unstructured.Unstructured {
		u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "apps", name, nil)
		u.SetLabels(labels)
		return *u
	}
	got, unknown := platformMade([]unstructured.Unstructured{
		made("by-the-platform", map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "flux-system"}),
		made("by-a-chart", map[string]string{"helm.toolkit.fluxcd.io/namespace": "flux-system"}),
		made("by-the-tenant", map[string]string{"kustomize.toolkit.fluxcd.io/namespace": "apps-preview"}),
		made("by-the-manager", map[string]string{"tenure.dev/managed-by": "manager"}),
		made("by-hand", nil),
	}, team.Namespaces)
	var names []string
	for _, u := range got {
		names = append(names, u.GetName())
	}
	if diff := cmp.Diff([]string{"by-the-platform", "by-a-chart", "by-the-manager"}, names); diff != "" {
		t.Errorf("what the platform made (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Kustomization apps/by-hand"}, unknown); diff != "" {
		t.Errorf("what nobody knows who made (-want +got):\n%s", diff)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		args   []string
		value  string
		gate   bool
	}{
		{"nothing", nil, "", false},
		{"a flag alone is true", []string{"--flag"}, "true", false},
		{"the last one counts", []string{"--flag=a", "--flag=b"}, "b", false},
		{"a longer name is another flag", []string{"--flag-too=a"}, "", false},
		{"a gate among others", []string{"--feature-gates=Other=true,Gate=true"}, "", true},
		{"a gate of another name", []string{"--feature-gates=AnotherGate=true"}, "", false},
		{"a gate that a later flag does not mention stays", []string{"--feature-gates=Gate=true", "--feature-gates=Other=true"}, "", true},
		{"a gate that a later flag switches off", []string{"--feature-gates=Gate=true", "--feature-gates=Gate=false"}, "", false},
	} {
		if got := lastValue(tc.args, "--flag"); got != tc.value {
			t.Errorf("%s: flag %q, want %q", tc.reason, got, tc.value)
		}
		if got := gateIsOn(tc.args, "Gate"); got != tc.gate {
			t.Errorf("%s: gate %t, want %t", tc.reason, got, tc.gate)
		}
	}
}

// FuzzArguments checks that the last occurrence of a flag decides, whatever arguments precede it.
func FuzzArguments(f *testing.F) {
	f.Add("--feature-gates=Gate=false")
	f.Add("--flag")
	f.Fuzz(func(t *testing.T, arg string) {
		if !gateIsOn([]string{arg, "--feature-gates=Gate=true"}, "Gate") {
			t.Errorf("after %q the gate is off", arg)
		}
		if got := lastValue([]string{arg, "--flag=last"}, "--flag"); got != "last" {
			t.Errorf("after %q the flag is %q", arg, got)
		}
	})
}

// clusterWith is a tenant on a cluster without policies whose controllers have
// the arguments.
func clusterWith(args ...string) *Scenario {
	return clusterWithout("", args...)
}

// fakeClient returns a builder of a client with a scheme of its own: the client adds unknown kinds to its
// scheme, while other tests read theirs.
func fakeClient() *fake.ClientBuilder {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	return fake.NewClientBuilder().WithScheme(s)
}

// clusterWithout is clusterWith, and one controller has no arguments.
func clusterWithout(plain string, args ...string) *Scenario {
	builder := fakeClient()
	for _, controller := range []string{"source-controller", "kustomize-controller", "helm-controller", "notification-controller", "image-reflector-controller"} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: controller}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: args}}
		if controller == plain {
			d.Spec.Template.Spec.Containers[0].Args = nil
		}
		builder = builder.WithObjects(d)
	}
	// Whatever the tenant asks for is accepted and not made, but for the keys of clouds.
	accept := func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		if u, is := o.(*unstructured.Unstructured); is {
			if _, key, _ := unstructured.NestedString(u.Object, "stringData", "sops.azure-kv"); key {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, u.GetName(), errors.New("ValidatingAdmissionPolicy 'keys' with binding 'keys' denied request: no"))
			}
		}
		return nil
	}
	c := builder.WithInterceptorFuncs(interceptor.Funcs{Create: accept}).Build()
	return &Scenario{
		Tenant: team, Account: deployer, Namespace: "apps", Platform: "flux-system", As: c, Admin: c,
		Repository: &discovery.Repository{Source: flux.Ref{Kind: flux.GitRepository, Namespace: "apps", Name: "dev-team"}},
	}
}

// TestInsecureKubeconfig checks the arguments of a controller's Deployment: no controller that executes
// kubeconfigs runs here.
func TestInsecureKubeconfig(t *testing.T) {
	t.Parallel()
	for _, what := range []insecureFlag{insecureExec, insecureTLS} {
		for _, value := range []string{"", "=true", "=1"} {
			f := clusterWith(what.flag+value).insecureKubeconfig(t.Context(), "I13-api-exec", "exec", what)
			if f.Outcome != GotThrough {
				t.Errorf("with %s: %s %s, want it to get through", what.flag+value, f.Outcome, f.Reason)
			}
		}
		on, err := clusterWith(what.flag+"=false").whoRunsWith(t.Context(), what.flag)
		if err != nil || on != "" {
			t.Errorf("with %s=false: %q, %v, want nobody", what.flag, on, err)
		}
	}
	for reason, message := range map[string]string{
		"an outage is no refusal":           "dial tcp 127.0.0.1:6443: connect: connection refused",
		"a missing Secret is none":          `unable to read KubeConfig secret "apps/x" error: not found`,
		"nor is a certificate that expired": "tls: failed to verify certificate: x509: certificate has expired",
	} {
		if insecureExec.refused.MatchString(message) || insecureTLS.refused.MatchString(message) {
			t.Errorf("%s: %q", reason, message)
		}
	}
}

func TestOwnIdentity(t *testing.T) {
	t.Parallel()
	gate := "--feature-gates=" + objectIdentity + "=true"
	for reason, tc := range map[string]struct {
		args []string
		want Outcome
	}{
		"a controller as upstream starts it uses its own identity":    {nil, GotThrough},
		"the gate alone does so where no account is named":            {[]string{gate}, GotThrough},
		"with a default account it is never its own":                  {[]string{gate, "--default-service-account=default", "--default-decryption-service-account=default"}, Stopped},
		"a default account does nothing when the gate is not open":    {[]string{"--default-service-account=default", "--default-decryption-service-account=default"}, GotThrough},
		"a default account that is taken back is no default account ": {[]string{gate, "--default-service-account=default", "--default-service-account=", "--default-decryption-service-account="}, GotThrough},
	} {
		for _, a := range Catalogue() {
			if a.ID == "I19" {
				if f := a.Run(t.Context(), clusterWith(tc.args...)); f.Outcome != tc.want {
					t.Errorf("%s: %s %s %s, want %s", reason, a.Key(), f.Outcome, f.Reason, tc.want)
				}
			}
		}
	}
	// Each of the controllers that fetch or post has an identity of its own.
	for _, controller := range []string{"source-controller", "notification-controller", "image-reflector-controller"} {
		e := clusterWithout(controller, gate, "--default-service-account=default")
		for _, a := range Catalogue() {
			if a.Key() != "I19-api" {
				continue
			}
			if f := a.Run(t.Context(), e); f.Outcome != GotThrough || !strings.Contains(f.Evidence, controller) {
				t.Errorf("%s uses its own identity: %s %s %s", controller, f.Outcome, f.Reason, f.Evidence)
			}
		}
	}
}

// TestArtifactsOnly checks the attacks of a tenant that delivers an OCI artifact, in a fleet whose policy on
// addresses allows the tenant no Git repository: neither is stopped by this policy.
func TestArtifactsOnly(t *testing.T) {
	t.Parallel()
	create := func(_ context.Context, _ client.WithWatch, u client.Object, _ ...client.CreateOption) error {
		if u.GetObjectKind().GroupVersionKind().Kind != string(flux.GitRepository) {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "gitrepositories"}, u.GetName(), errors.New("ValidatingAdmissionPolicy 'addresses' with binding 'addresses' denied request: not allowed"))
	}
	patch := func(_ context.Context, _ client.Client, _ string, u client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
		if u.GetName() == "apps" {
			return nil
		}
		return apierrors.NewNotFound(schema.GroupResource{}, u.GetName())
	}
	own := object(sourceAPI, "OCIRepository", "apps", "apps", map[string]any{"spec": map[string]any{"url": "oci://registry.example.com/apps"}})
	c := fakeClient().WithObjects(own, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "source-controller"}}).
		WithInterceptorFuncs(interceptor.Funcs{Create: create, SubResourcePatch: patch}).Build()
	repository := discovery.Repository{Source: flux.Ref{Kind: flux.OCIRepository, Namespace: "apps", Name: "apps"}, URL: "oci://registry.example.com/apps"}
	e := &Scenario{Tenant: team, Account: deployer, Namespace: "apps", Platform: "flux-system", As: c, Admin: c, Repository: &repository}
	e.Tenant.Repositories = []discovery.Repository{repository}
	for _, a := range Catalogue() {
		if a.Key() != "I19-api" && a.Key() != "S4-api" {
			continue
		}
		if f := a.Run(t.Context(), e); f.Outcome != GotThrough || !strings.Contains(f.Evidence, "OCIRepository") {
			t.Errorf("%s: %s %s %s, want got through by the OCIRepository", a.Key(), f.Outcome, f.Reason, f.Evidence)
		}
	}
}

func TestRefusedByFlux(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		said   readiness
		want   Outcome
	}{
		{"the flag speaks", readiness{"False", "cross-namespace references are not allowed: cannot access HelmChart flux-system/x"}, Stopped},
		{"who has looked for it would have taken it", readiness{"False", `could not get Source object: HelmChart.source.toolkit.fluxcd.io "x" not found`}, GotThrough},
		{"who took it", readiness{"True", ""}, GotThrough},
		{"no answer in time", readiness{"", ""}, NotProven},
		{"an outage", readiness{"False", "could not get Source object: connection refused"}, NotProven},
	} {
		if got := judge(refusedByFlux(tc.said), "").Outcome; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

// The charts of an attack are charts, and a release of one names it.
func TestRelease(t *testing.T) {
	t.Parallel()
	e := clusterWith()
	files := charts(configMap("elsewhere", "canary"), configMap("apps", "canary"))
	for _, part := range []string{"aimed", "own"} {
		var chart struct{ APIVersion, Name, Version string }
		if err := yaml.Unmarshal([]byte(files[part+"/Chart.yaml"]), &chart); err != nil || chart.APIVersion != "v2" || chart.Name == "" || chart.Version == "" {
			t.Errorf("%s is no chart: %+v, %v", part, chart, err)
		}
	}
	u := e.release("S1-api-HelmRelease", folder("S1-api-HelmRelease")+"/aimed", nil)
	if got, _, _ := unstructured.NestedString(u.Object, "spec", "chart", "spec", "chart"); got != "./tenure-attack/s1-api-helmrelease/aimed" {
		t.Errorf("the chart is at %q", got)
	}
	if got := keyOf(helmChartOf(u)).String(); got != "apps/apps-tenure-attack-s1-api-helmrelease" {
		t.Errorf("its HelmChart is %q", got)
	}
	for _, a := range Catalogue() {
		// Helm refuses names of releases that are longer.
		if long := name(a.Key() + "-own"); len(long) > 53 {
			t.Errorf("%s makes the release %s, which is too long", a.Key(), long)
		}
	}
}

// RBAC that keeps a tenant from doing a thing at all has closed that way; a
// policy that refuses both is not known to tell them apart.
func TestRequestsClosed(t *testing.T) {
	t.Parallel()
	refuse := func(message string) func(context.Context, *Scenario) error {
		return func(context.Context, *Scenario) error { return forbidden(message) }
	}
	const right, rule = `User "x" cannot create resource "things"`, `ValidatingAdmissionPolicy 'things' denied`
	for _, tc := range []struct {
		reason     string
		aimed, own string
		want       Outcome
	}{
		{"no right at all", right, right, Stopped},
		{"a policy that refuses both", rule, rule, NotProven},
		{"one refuses the attack, another all", rule, right, NotProven},
	} {
		f := requests(request{what: "do it", aimed: refuse(tc.aimed), own: refuse(tc.own)})(t.Context(), clusterWith())
		if f.Outcome != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, f.Outcome, tc.want)
		}
	}
	e := clusterWith()
	e.As = fakeClient().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("connection refused")
		},
	}).Build()
	if f := requests(request{what: "do it", aimed: refuse(right), own: refuse(right)})(t.Context(), e); f.Outcome != NotProven {
		t.Errorf("an identity that can do nothing proves nothing: %s", f.Outcome)
	}
}

// TestRightsElsewhere checks roles in a namespace of no tenant. They let the tenant get through if they
// allow Secrets, tokens or Pods there.
func TestRightsElsewhere(t *testing.T) {
	t.Parallel()
	in := func(namespace string) discovery.Tenant {
		return discovery.Tenant{Name: "dev-team", Namespaces: []string{"apps"}, Rights: []discovery.Right{{Role: "Role/some", Namespace: namespace}, {Role: "ClusterRole/view"}}}
	}
	attacks := map[string]Attack{}
	for _, a := range Catalogue() {
		attacks[a.Key()] = a
	}
	for name, tc := range map[string]struct {
		reason, attack, place, right string
		tenant                       discovery.Tenant
		want                         string
	}{
		"tokens":        {"a token of kustomize-controller is all of the cluster", "I8-api", "flux-system", "create serviceaccounts/token", in(""), "make a token for an account of namespace flux-system"},
		"impersonation": {"so is to act as it", "I8-api", "flux-system", "impersonate serviceaccounts", in(""), "impersonate an account of namespace flux-system"},
		"Pods":          {"and a Pod that runs as it", "I8-api", "monitoring", "create deployments.apps", in("monitoring"), "run a Pod as an account of namespace monitoring, by the right to create deployments.apps"},
		"Secrets":       {"Secrets of a namespace that is not Flux's", "W2-api", "kube-system", "get secrets", in("kube-system"), "read the Secrets of namespace kube-system"},
		"groups":        {"the group system:masters may do everything", "I8-api", "", "impersonate groups", in(""), "impersonate any group"},
		"certificates":  {"an approval also needs the right to the signer", "I8-api", "", "update certificatesigningrequests.certificates.k8s.io/approval", in(""), ""},
		"at home":       {"the tenant's own namespaces are no other ones", "I8-api", "apps", "create deployments.apps", in("apps"), ""},
		"another team":  {"a team may own two tenants, and I12 is about accounts of others", "I8-api", "billing", "create deployments.apps", in("billing"), ""},
		"harmless":      {"a right that gives nothing of others", "W2-api", "kube-system", "get services", in("kube-system"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forbidden := func(verb string) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("cannot "+verb+" resource \"things\""))
			}
			e := newFakeEnv(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					if rules, is := o.(*authorizationv1.SelfSubjectRulesReview); is {
						verb, resource, _ := strings.Cut(tc.right, " ")
						plain, group, _ := strings.Cut(resource, ".")
						group, subresource, sub := strings.Cut(group, "/")
						if sub {
							plain += "/" + subresource
						}
						if tc.place == "" || rules.Spec.Namespace == tc.place {
							rules.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{plain}}}
						}
						return nil
					}
					review, is := o.(*authorizationv1.SelfSubjectAccessReview)
					if !is {
						return nil
					}
					a := review.Spec.ResourceAttributes
					resource := a.Resource
					if a.Group != "" {
						resource += "." + a.Group
					}
					if a.Subresource != "" {
						resource += "/" + a.Subresource
					}
					review.Status.Allowed = a.Namespace == tc.place && a.Verb+" "+resource == tc.right
					return nil
				},
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return forbidden("get")
				},
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return forbidden("list")
				},
				SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
					return forbidden("create")
				},
			})
			e.Tenant, e.Namespace, e.Platform = tc.tenant, "apps", "flux-system"
			e.tenants = []discovery.Tenant{{Name: "billing", Namespaces: []string{"billing"}}}
			got := attacks[tc.attack].Run(t.Context(), e)
			if tc.want == "" && got.Outcome == GotThrough || tc.want != "" && !strings.Contains(got.Evidence, tc.want) {
				t.Errorf("%s: got %s, %q, want %q", tc.reason, got.Outcome, got.Evidence, tc.want)
			}
		})
	}
}

// A single right to objects of the cluster is a way out.
func TestRightsInTheCluster(t *testing.T) {
	t.Parallel()
	attacks := map[string]Attack{}
	for _, a := range Catalogue() {
		attacks[a.Key()] = a
	}
	for _, tc := range []struct{ attack, verb, kind, want string }{
		{"I4-api", "patch", "ClusterRoleBinding", "bind an account of its own to cluster-admin, by a change of a binding"},
		{"I4-api", "create", "ClusterRole", "make a role for everything, which others can give it"},
		{"I5-api", "create", "MutatingWebhookConfiguration", "make a MutatingWebhookConfiguration"},
		{"I5-api", "create", "APIService", "make an APIService"},
	} {
		t.Run(tc.verb+" "+tc.kind, func(t *testing.T) {
			t.Parallel()
			allowed := func(verb string, o client.Object) error {
				kind := o.GetObjectKind().GroupVersionKind().Kind
				if _, is := o.(*authorizationv1.SelfSubjectAccessReview); is || kind == "ConfigMap" || verb == tc.verb && kind == tc.kind {
					return nil
				}
				return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, o.GetName(), errors.New("user \"x\" cannot "+verb+" resource \"things\""))
			}
			e := newFakeEnv(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					return allowed("create", o)
				},
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
					return allowed("patch", o)
				},
			})
			if got := attacks[tc.attack].Run(t.Context(), e); !strings.Contains(got.Evidence, tc.want) {
				t.Errorf("got %s, %q, %q, want %q", got.Outcome, got.Evidence, got.Reason, tc.want)
			}
		})
	}
}
