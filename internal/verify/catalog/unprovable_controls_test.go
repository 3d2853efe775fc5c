package catalog

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/discovery"
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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// TestDoubts lists what may hold a control that does not run here, and nothing else.
func TestDoubts(t *testing.T) {
	t.Parallel()
	hook := func(name string, policy admissionv1.FailurePolicyType, service bool) admissionv1.ValidatingWebhook {
		w := admissionv1.ValidatingWebhook{Name: name, FailurePolicy: &policy}
		if service {
			w.ClientConfig.Service = &admissionv1.ServiceReference{Name: "s", Namespace: "n"}
		}
		w.Rules = []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: []string{"pods"}}}}
		return w
	}
	outside := hook("outside.of.the.cluster", admissionv1.Ignore, false)
	outside.ClientConfig.URL = new("https://policies.example.com")
	objects := []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionv1.ValidatingWebhook{
			hook("left.out", admissionv1.Ignore, true), hook("has.to.answer", admissionv1.Fail, true), hook("by.address", admissionv1.Ignore, false),
			hook("pods."+admission.QuotaWebhookSuffix, admissionv1.Ignore, true), outside,
		}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Webhooks: []admissionv1.MutatingWebhook{{
			Name: "changes.something", FailurePolicy: new(admissionv1.Ignore), ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "s", Namespace: "n"}},
		}}},
	}
	for _, kind := range []string{"kyverno.io/ClusterPolicy", "kyverno.io/PolicyException", "policies.kyverno.io/ValidatingPolicy", "constraints.gatekeeper.sh/K8sAllowedRepos", "example.com/ClusterPolicy"} {
		objects = append(objects, crdOf(kind))
	}
	for _, manifest := range []string{
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: audits}, spec: {validationFailureAction: Audit, rules: [{validate: {}}]}}`,
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: audits-by-default}, spec: {rules: [{validate: {}}]}}`,
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: enforces}, spec: {validationFailureAction: enforce}}`,
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: by-rule}, spec: {rules: [{validate: {failureAction: Enforce}}]}}`,
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: mutates}, spec: {rules: [{mutate: {patchStrategicMerge: {}}}]}}`,
		`{apiVersion: kyverno.io/v1, kind: PolicyException, metadata: {name: excepts, namespace: n}}`,
		`{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: new}}`,
		`{apiVersion: constraints.gatekeeper.sh/v1, kind: K8sAllowedRepos, metadata: {name: denies}, spec: {match: {}}}`,
		`{apiVersion: constraints.gatekeeper.sh/v1, kind: K8sAllowedRepos, metadata: {name: warns}, spec: {enforcementAction: warn}}`,
		`{apiVersion: example.com/v1, kind: ClusterPolicy, metadata: {name: something-else}}`,
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, u)
	}
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	admin := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
	got, err := unprovableControls(t.Context(), admin, nil)
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := simulatedWebhooks(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range hooks {
		names = append(names, h.name)
	}
	if diff := cmp.Diff([]string{"webhook left.out (its controller is simulated)", "webhook outside.of.the.cluster (its address is outside of the cluster)", "webhook changes.something (its controller is simulated)"}, names); diff != "" {
		t.Errorf("webhooks that do not run (-want +got):\n%s", diff)
	}
	want := []string{
		"K8sAllowedRepos denies (Gatekeeper does not run here)",
		"ClusterPolicy by-rule, ClusterPolicy enforces, ClusterPolicy mutates and 1 more (Kyverno does not run here; if `make kyverno` has built it, its release is not ready)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what may hold a control (-want +got):\n%s", diff)
	}
}

// TestWebhookDoubts checks that a webhook that does not run here is a doubt about the kinds alone that its rules name.
func TestWebhookDoubts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason    string
		attack    Attack
		resources []string
		want      bool
	}{
		{"the kind", Attack{Via: API, Kinds: []string{"NetworkPolicy"}}, []string{"networkpolicies"}, true},
		{"another kind", Attack{Via: API, Kinds: []string{"ConfigMap"}}, []string{"prometheusrules", "pods"}, false},
		{"every kind", Attack{Via: API, Kinds: []string{"ConfigMap"}}, []string{"*"}, true},
		{"a subresource", Attack{Via: API, Kinds: []string{"Pod/ephemeralcontainers"}}, []string{"pods"}, false},
		{"all subresources", Attack{Via: API, Kinds: []string{"Pod/ephemeralcontainers"}}, []string{"pods/*"}, true},
		{"subresources of every kind", Attack{Via: API, Kinds: []string{"Pod"}}, []string{"*/*"}, true},
		{"an attack with any kind", Attack{Via: API, Kinds: []string{"*"}}, []string{"pods"}, true},
		{"an attack without kinds", Attack{Via: API}, []string{"pods"}, true},
		{"a commit that a Kustomization applies", Attack{Via: Git, Kinds: []string{"ConfigMap"}}, []string{"kustomizations"}, true},
	} {
		hook := webhookDoubt{name: "webhook w", rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: tc.resources}}}}
		tc.attack.Controls = []string{"policy"}
		f := (&Scenario{webhookDoubts: []webhookDoubt{hook}}).withDoubts(tc.attack, gotThrough("it could"))
		if got := f.Outcome == NotProven; got != tc.want {
			t.Errorf("%s: got %+v, want a doubt: %t", tc.reason, f, tc.want)
		}
	}
}

// TestWebhookNamespaces checks that a webhook that does not run here is no doubt if it selects namespaces of other tenants only.
func TestWebhookNamespaces(t *testing.T) {
	t.Parallel()
	e := &Scenario{
		Tenant:  discovery.Tenant{Name: "team", Namespaces: []string{"team"}},
		tenants: []discovery.Tenant{{Name: "team", Namespaces: []string{"team"}}, {Name: "other", Namespaces: []string{"other"}}},
	}
	for _, name := range []string{"team", "other", "platform"} {
		e.namespaces = append(e.namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}}})
	}
	of := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"of": value}}
	}
	for _, tc := range []struct {
		reason   string
		kinds    []string
		selector *metav1.LabelSelector
		want     bool
	}{
		{"no selector", []string{"ConfigMap"}, nil, true},
		{"the tenant's namespace", []string{"ConfigMap"}, of("team"), true},
		{"another tenant's namespace", []string{"ConfigMap"}, of("other"), false},
		{"no namespace", []string{"ConfigMap", "Pod/ephemeralcontainers"}, of("nobody"), false},
		{"the platform's namespace, in which the tenant may have rights", []string{"ConfigMap"}, of("platform"), true},
		{"a kind without a namespace", []string{"ConfigMap", "ClusterRole"}, of("nobody"), true},
		{"labels of namespaces, which the attack changes", []string{"Namespace/status"}, of("nobody"), true},
		{"any kind", []string{"*"}, of("nobody"), true},
	} {
		e.webhookDoubts = []webhookDoubt{{name: "webhook w", rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: []string{"*/*"}}}}, namespaces: []*metav1.LabelSelector{tc.selector}}}
		f := e.withDoubts(Attack{Via: API, Kinds: tc.kinds, Controls: []string{"policy"}}, gotThrough("it could"))
		if got := f.Outcome == NotProven; got != tc.want {
			t.Errorf("%s: got %+v, want a doubt: %t", tc.reason, f, tc.want)
		}
	}
}

// TestDryRunPolicies checks that an attack in a dry run is not proven if a policy in force for it looks at whether a request
// is a dry run.
func TestDryRunPolicies(t *testing.T) {
	t.Parallel()
	of := func(namespace string) *admissionv1.MatchResources {
		return &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": namespace}}}
	}
	match := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{Rule: admissionv1.Rule{Resources: []string{"configmaps"}}}}}}
	policy := func(expression string) client.Object {
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match, MatchConditions: []admissionv1.MatchCondition{{Name: "c", Expression: expression}},
		}}
	}
	binding := func(action admissionv1.ValidationAction, namespace string) client.Object {
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "p", ValidationActions: []admissionv1.ValidationAction{action}, MatchResources: of(namespace),
		}}
	}
	mutation := func(expression string) client.Object {
		return &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match, Variables: []admissionv1.Variable{{Name: "v", Expression: expression}},
		}}
	}
	mutates := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "m"}}
	kyverno := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: k}, spec: {validationFailureAction: Enforce, rules: [{preconditions: {all: [{key: "{{ request.dryRun }}", operator: Equals, value: false}]}}]}}`), &kyverno.Object); err != nil {
		t.Fatal(err)
	}
	configs, deep := Attack{Via: API, Kinds: []string{"ConfigMap"}, Controls: []string{"RBAC"}}, Attack{Via: API, Kinds: []string{"ConfigMap"}, Deep: true}
	for _, tc := range []struct {
		reason  string
		attack  Attack
		objects []client.Object
		want    bool
	}{
		{"a policy that leaves out dry runs", configs, []client.Object{policy("!request.dryRun"), binding(admissionv1.Deny, "team")}, true},
		{"an optional field", configs, []client.Object{policy("!request.?dryRun.orValue(false)"), binding(admissionv1.Deny, "team")}, true},
		{"an attack without a dry run", deep, []client.Object{policy("!request.dryRun"), binding(admissionv1.Deny, "team")}, false},
		{"another kind", Attack{Via: API, Kinds: []string{"Secret"}}, []client.Object{policy("!request.dryRun"), binding(admissionv1.Deny, "team")}, false},
		{"a policy that only reports", configs, []client.Object{policy("!request.dryRun"), binding(admissionv1.Audit, "team")}, false},
		{"a policy for another tenant, and an attack with any kind", Attack{Via: API, Kinds: []string{"*"}}, []client.Object{policy("!request.dryRun"), binding(admissionv1.Deny, "other")}, false},
		{"an attack with any kind", Attack{Via: API, Kinds: []string{"*"}}, []client.Object{policy("!request.dryRun"), binding(admissionv1.Deny, "team")}, true},
		{"a condition that is false", configs, []client.Object{policy("!request.dryRun && request.namespace == 'other'"), binding(admissionv1.Deny, "team")}, false},
		{"a policy for another tenant", configs, []client.Object{policy("!request.dryRun"), binding(admissionv1.Deny, "other")}, false},
		{"another field of the request", configs, []client.Object{policy("request.name != 'dryRun'"), binding(admissionv1.Deny, "team")}, false},
		{"a policy that changes objects", configs, []client.Object{mutation("request.dryRun"), mutates}, true},
		{"without a binding", configs, []client.Object{mutation("request.dryRun")}, false},
		{"a policy of Kyverno", configs, []client.Object{kyverno}, true},
	} {
		e := newFakeEnv(interceptor.Funcs{}, tc.objects...)
		e.tenants = []discovery.Tenant{e.Tenant, {Name: "other", Namespaces: []string{"other"}}}
		for _, name := range []string{"team", "other"} {
			e.namespaces = append(e.namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}}})
		}
		var err error
		if e.dryRunPolicies, err = dryRunPolicies(t.Context(), e.Admin); err != nil {
			t.Fatal(err)
		}
		f := gotThrough("it could")
		f.Sent = []sentRequest{acceptedWrite(http.MethodPost, "/api/v1/namespaces/team/configmaps", nil, "{}")}
		if got := e.withDoubts(tc.attack, f).Outcome == NotProven; got != tc.want {
			t.Errorf("%s: a doubt: %t, want %t", tc.reason, got, tc.want)
		}
	}
}

// TestDoubtsOfTenants checks that what a tenant applies to its namespace as an account without rights in
// the whole cluster is no doubt when it is assumed.
func TestDoubtsOfTenants(t *testing.T) {
	t.Parallel()
	release := func(namespace, account string) *unstructured.Unstructured {
		u := object("helm.toolkit.fluxcd.io/v2", "HelmRelease", namespace, account, map[string]any{"spec": map[string]any{"serviceAccountName": account}})
		u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "message": flux.AssumedMessage}}}
		return u
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "team", Name: "wide"}}}
	tenants := []discovery.Tenant{{Name: "team", Namespaces: []string{"team"}, Accounts: []discovery.Account{{Namespace: "team", Name: "own"}, {Namespace: "team", Name: "wide"}}}}
	admin := newFakeEnv(interceptor.Funcs{}, binding, release("team", "own"), release("team", "wide"), release("team", "other"), release("platform", "own")).Admin
	got, err := unprovableControls(t.Context(), admin, tenants)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"HelmRelease/platform/own (assumed)", "HelmRelease/team/other (assumed)", "HelmRelease/team/wide (assumed)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDoubtsBesideKyverno checks that a policy and a webhook of Kyverno are no doubts if a process
// enforces them, unless the policy needs a registry.
func TestDoubtsBesideKyverno(t *testing.T) {
	t.Parallel()
	ignore := admissionv1.Ignore
	pod := func(namespace, id string, ready bool) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "kyverno", Namespace: namespace, Labels: map[string]string{"app": "kyverno"}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Image: "reg.kyverno.io/kyverno/kyverno:v1.19.1", ContainerID: id, Ready: ready,
			}}},
		}
	}
	const process, simulated = "process://1", "simulated://uid/kyverno"
	const missing = "ClusterPolicy enforces, ClusterPolicy signed, ImageValidatingPolicy new (Kyverno does not run here; if `make kyverno` has built it, its release is not ready)"
	const hook = "webhook validate.kyverno.svc-ignore (its controller is simulated)"
	for name, tc := range map[string]struct {
		reason string
		pod    *corev1.Pod
		want   []string
	}{
		"a process":         {"It enforces all but what asks a registry.", pod("kyverno", process, true), []string{"ClusterPolicy signed, ImageValidatingPolicy new (it asks registries, which are not here)"}},
		"a simulated Pod":   {"Nothing enforces the policies.", pod("kyverno", simulated, true), []string{hook, missing}},
		"a failing process": {"Nothing enforces the policies yet.", pod("kyverno", process, false), []string{hook, missing}},
		"another namespace": {"The process enforces the policies, but it is not behind the webhook.", pod("other", process, true), []string{hook, "ClusterPolicy signed, ImageValidatingPolicy new (it asks registries, which are not here)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{
				tc.pod,
				&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kyverno-svc", Namespace: "kyverno"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "kyverno"}}},
				&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "validate.kyverno.svc-ignore", FailurePolicy: &ignore,
					ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "kyverno-svc", Namespace: "kyverno"}},
				}}},
				crdOf("kyverno.io/ClusterPolicy"), crdOf("policies.kyverno.io/ImageValidatingPolicy"), crdOf("policies.kyverno.io/ValidatingPolicy"), crdOf("policies.kyverno.io/DeletingPolicy"),
			}
			for _, manifest := range []string{
				`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: enforces}, spec: {validationFailureAction: Enforce, rules: [{validate: {}}]}}`,
				`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: signed}, spec: {validationFailureAction: Enforce, rules: [{verifyImages: [{}]}]}}`,
				`{apiVersion: policies.kyverno.io/v1, kind: ImageValidatingPolicy, metadata: {name: new}}`,
				`{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: audits}, spec: {validationActions: [Audit]}}`,
				`{apiVersion: policies.kyverno.io/v1, kind: DeletingPolicy, metadata: {name: tidies}}`,
			} {
				u := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
					t.Fatal(err)
				}
				objects = append(objects, u)
			}
			admin := fakeClient().WithObjects(objects...).Build()
			hooks, err := simulatedWebhooks(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			policies, err := unprovableControls(t.Context(), admin, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range hooks {
				got = append(got, h.name)
			}
			got = append(got, policies...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// crdOf is the definition of a kind, given as GROUP/KIND, of which the second version is
// served.
func crdOf(groupKind string) client.Object {
	group, kind, _ := strings.Cut(groupKind, "/")
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": group, "names": map[string]any{"kind": kind},
		"versions": []any{map[string]any{"name": "v1alpha1", "served": false}, map[string]any{"name": "v1", "served": true}},
	}}}
	u.SetAPIVersion("apiextensions.k8s.io/v1")
	u.SetKind("CustomResourceDefinition")
	u.SetName(kind + "." + group)
	return u
}

// TestScopesOfKinds checks that the kinds of all attacks are known as kinds with a namespace or without one.
func TestScopesOfKinds(t *testing.T) {
	t.Parallel()
	namespaced := strings.Fields("Alert AlertProvider ArtifactGenerator Bucket CSIStorageCapacity Canary ConfigMap CronJob DaemonSet " +
		"Deployment EndpointSlice Endpoints Event ExternalArtifact GRPCRoute Gateway GitRepository HTTPRoute " +
		"HelmChart HelmRelease HelmRepository HorizontalPodAutoscaler ImagePolicy ImageRepository " +
		"ImageUpdateAutomation Ingress Job Kustomization LimitRange MetricTemplate NetworkPolicy " +
		"OCIRepository PersistentVolumeClaim Pod Provider Receiver ReplicaSet ReplicationController " +
		"ResourceClaim ResourceQuota ResourceSet ResourceSetInputProvider Role RoleBinding Secret Service " +
		"ServiceAccount StatefulSet TLSRoute TenantParameters TenantResource")
	for _, a := range Catalogue() {
		for _, kind := range a.Kinds {
			kind, _, _ = strings.Cut(kind, "/")
			if slices.Contains(clusterScoped, kind) == slices.Contains(namespaced, kind) {
				t.Errorf("%s tries %s, which has to be on one of two lists: add it to clusterScoped in unprovable_controls.go if its objects are in no namespace, and otherwise to namespaced in this test", a.Key(), kind)
			}
		}
	}
}
