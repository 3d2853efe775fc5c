package lockdown

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// drift is a change of one object, and the expected result of the check.
type drift struct {
	reason, object string // the object as KIND NAME
	// path and value are a JSON patch; without a value the patch removes the field.
	path, value string
	row         string
	words       []string
}

// drifts are changes that open a rule, a right or a kind.
var drifts = []drift{
	{"an expression that is always true allows everything", "ValidatingAdmissionPolicy tenure-protected",
		"/spec/validations/0/expression", `"true"`, "tenure-protected", []string{"spec.validations[0].expression is `true`, and should be `"}},
	{"a policy that is left out when it fails", "ValidatingAdmissionPolicy tenure-protected",
		"/spec/failurePolicy", `"Ignore"`, "tenure-protected", []string{"spec.failurePolicy is `Ignore`, and should be `Fail`"}},
	{"a condition that matches nobody", "ValidatingAdmissionPolicy tenure-protected",
		"/spec/matchConditions/-", `{"name": "off", "expression": "false"}`, "tenure-protected", []string{"spec.matchConditions[off]", "should not be there"}},
	{"a policy that is blind for some kinds", "ValidatingAdmissionPolicy tenure-flux-objects",
		"/spec/matchConstraints/excludeResourceRules", `[{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]`,
		"tenure-flux-objects", []string{"spec.matchConstraints.excludeResourceRules is [", "should not be there"}},
	{"a policy for labelled objects alone", "ValidatingAdmissionPolicy tenure-flux-objects",
		"/spec/matchConstraints/objectSelector", `{"matchLabels": {"a": "b"}}`, "tenure-flux-objects", []string{"spec.matchConstraints.objectSelector"}},
	{"a validation that is gone", "ValidatingAdmissionPolicy tenure-credentials",
		"/spec/validations/0", "", "tenure-credentials", []string{"spec.validations lacks {"}},
	{"a variable that others use", "ValidatingAdmissionPolicy tenure-flux-objects",
		"/spec/variables/0/expression", `"'x'"`, "tenure-flux-objects", []string{"spec.variables[", "].expression is `'x'`"}},
	{"a binding that only audits", "ValidatingAdmissionPolicyBinding tenure-protected",
		"/spec/validationActions", `["Audit"]`, "tenure-protected", []string{"ValidatingAdmissionPolicyBinding tenure-protected: spec.validationActions lacks `Deny`"}},
	{"a binding in warn mode, which nobody chose", "ValidatingAdmissionPolicyBinding tenure-flux-objects-flux",
		"/spec/validationActions", `["Warn", "Audit"]`, "tenure-flux-objects", []string{"only warns"}},
	{"a rule that must deny in warn mode too", "ValidatingAdmissionPolicyBinding tenure-namespaces",
		"/spec/validationActions", `["Warn", "Audit"]`, "tenure-namespaces", []string{"spec.validationActions lacks `Deny`"}},
	{"a binding for other namespaces", "ValidatingAdmissionPolicyBinding tenure-flux-objects-tenure",
		"/spec/matchResources/namespaceSelector", `{"matchLabels": {"a": "b"}}`, "tenure-flux-objects", []string{"spec.matchResources.namespaceSelector"}},
	{"a binding with other parameters", "ValidatingAdmissionPolicyBinding tenure-flux-objects-tenure",
		"/spec/paramRef/parameterNotFoundAction", `"Allow"`, "tenure-flux-objects", []string{"spec.paramRef.parameterNotFoundAction is `Allow`, and should be `Deny`"}},
	{"a webhook that is gone", "MutatingWebhookConfiguration tenure-namespaces",
		"/webhooks", "", "webhook tenure-namespaces", []string{"webhooks is missing"}},
	{"a webhook that is not waited for", "MutatingWebhookConfiguration tenure-namespaces",
		"/webhooks/0/failurePolicy", `"Ignore"`, "webhook tenure-namespaces", []string{"webhooks[namespaces.tenure.dev].failurePolicy is `Ignore`"}},
	{"a webhook that leads elsewhere", "MutatingWebhookConfiguration tenure-namespaces",
		"/webhooks/0/clientConfig/service/name", `"other"`, "webhook tenure-namespaces", []string{"clientConfig.service.name is `other`"}},
	{"a right more", "ClusterRole tenure-manager",
		"/rules/-", `{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}`, "roles", []string{"ClusterRole tenure-manager: rules has {", "secrets", "should not be there"}},
	{"a verb more", "ClusterRole tenure-tenant-workloads",
		"/rules/0/verbs/-", `"escalate"`, "roles", []string{"ClusterRole tenure-tenant-workloads: rules[0].verbs has `escalate`"}},
	{"a right less", "ClusterRole tenure-manager", "/rules/0", "", "roles", []string{"rules lacks {"}},
	{"somebody more who has a role", "ClusterRoleBinding tenure-manager",
		"/subjects/-", `{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}`, "roles", []string{"ClusterRoleBinding tenure-manager: subjects[mallory]"}},
	{"a role of Flux", "ClusterRole tenure-flux-controller",
		"/rules/0/verbs", `["*"]`, "roles", []string{"ClusterRole tenure-flux-controller: rules[0].verbs"}},
	{"a role that is aggregated into another", "ClusterRole tenure-manager",
		"/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view", `"true"`, "roles", []string{"aggregate-to-view"}},
	{"a field that is not validated", "CustomResourceDefinition tenants.tenure.dev",
		"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/owners", `{"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}`,
		"kinds", []string{"CustomResourceDefinition tenants.tenure.dev: spec.versions[v1alpha1].schema"}},
	{"a status that its owners may write", "CustomResourceDefinition tenants.tenure.dev",
		"/spec/versions/0/subresources", "", "kinds", []string{"subresources is missing"}},
	{"a policy that puts nothing into shards", "MutatingAdmissionPolicy tenure-sharding",
		"/spec/failurePolicy", `"Ignore"`, "tenure-sharding", []string{"spec.failurePolicy"}},
	{"a policy that fills in no defaults", "MutatingAdmissionPolicy tenure-defaults",
		"/spec/mutations/0", "", "tenure-defaults", []string{"spec.mutations"}},
}

// optional returns a Deployment by which the check detects that an optional part is installed.
func optional(name, args, annotations string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: " + name + ", namespace: flux-system, annotations: {" + annotations + "}}, spec: {replicas: 0, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: x, args: [" + args + "]}]}}}}"
}

// TestInstalled compares installed objects on a real API server, which sets defaults.
func TestInstalled(t *testing.T) {
	t.Parallel()
	c, kube := installedCluster(t)
	t.Run("Drift", func(t *testing.T) { testDrift(t, c, kube) })
	t.Run("Warn", func(t *testing.T) { testWarn(t, c, kube) })
	t.Run("Defaults", func(t *testing.T) { testDefaults(t, c, kube) })
	t.Run("Missing", func(t *testing.T) { testMissing(t, c, kube) })
}

// testDrift checks that each change of an installed object is found, and nothing else.
func testDrift(t *testing.T, c Cluster, kube client.Client) {
	if wrong := wrongRows(t, c); len(wrong) > 0 {
		t.Fatalf("what was just installed is not as installed: %v", wrong)
	}
	for _, d := range drifts {
		restore := d.apply(t, kube)
		wrong := wrongRows(t, c)
		for _, word := range d.words {
			if !strings.Contains(wrong[d.row], word) {
				t.Errorf("%s: row %s does not say %q: %q", d.reason, d.row, word, wrong[d.row])
			}
		}
		if len(wrong) != 1 {
			t.Errorf("%s: one row is wrong, not %v", d.reason, wrong)
		}
		restore()
	}
	if wrong := wrongRows(t, c); len(wrong) > 0 {
		t.Errorf("all is restored, and still not as installed: %v", wrong)
	}
}

// testMissing checks that missing objects are reported by name.
func testMissing(t *testing.T, c Cluster, kube client.Client) {
	for row, object := range map[string]string{
		"tenure-protected":          "ValidatingAdmissionPolicyBinding tenure-protected",
		"tenure-objects":            "ValidatingAdmissionPolicy tenure-objects",
		"webhook tenure-namespaces": "MutatingWebhookConfiguration tenure-namespaces",
		"roles":                     "ClusterRole tenure-tenant",
		"kinds":                     "CustomResourceDefinition sourcegrants.tenure.dev",
	} {
		if err := kube.Delete(t.Context(), named(t, object)); err != nil {
			t.Fatal(err)
		}
		if got := wrongRows(t, c)[row]; !strings.Contains(got, object+" is missing") {
			t.Errorf("row %s does not say that %s is missing: %q", row, object, got)
		}
	}
}

// testWarn checks that warn mode, which a fleet may choose, is reported as such, and that the
// rules which must deny then need policies of their own.
func testWarn(t *testing.T, c Cluster, kube client.Client) {
	row := func(name string) Result {
		t.Helper()
		results, err := c.installed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(results, func(r Result) bool { return r.Name == name })
		if i < 0 {
			t.Fatalf("there is no row %s", name)
		}
		return results[i]
	}
	defer drift{object: "ValidatingAdmissionPolicyBinding tenure-objects-own-rest", path: "/spec/validationActions", value: `["Warn", "Audit"]`}.apply(t, kube)()
	c.Warn = true
	const always = "tenure-objects-always-own-rest"
	if got := row(always); got.OK || !strings.Contains(got.Message, "ValidatingAdmissionPolicy "+always+" is missing") {
		t.Errorf("the bindings were set to warn by hand, and the check does not miss the rules that always deny: %+v", got)
	}
	warn, err := flux.ReadObjects(config.WarnPolicies())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range warn {
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := kube.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Error(err)
			}
		}()
	}
	if got := row("tenure-objects-own-rest"); !got.OK || !strings.Contains(got.Message, "only warns, as configured") {
		t.Errorf("warn mode is not shown as what it is: %+v", got)
	}
	if got := row(always); !got.OK {
		t.Errorf("the rules that always deny are as installed, and the check says %+v", got)
	}
	restore := drift{object: "ValidatingAdmissionPolicyBinding " + always, path: "/spec/validationActions", value: `["Warn", "Audit"]`}.apply(t, kube)
	if got := row(always); got.OK || !strings.Contains(got.Message, "lacks `Deny`") {
		t.Errorf("a rule that always denies was set to warn, and the check says %+v", got)
	}
	restore()
	drift{object: "ValidatingAdmissionPolicyBinding tenure-objects-own-rest", path: "/spec/validationActions", value: `["Audit"]`}.apply(t, kube)
	if got := wrongRows(t, c)["tenure-objects-own-rest"]; !strings.Contains(got, "lacks `Deny`") {
		t.Errorf("who chose to warn did not choose to say nothing: %q", got)
	}
}

// testDefaults checks that a tenant's defaults which nothing fills in are reported.
func testDefaults(t *testing.T, c Cluster, kube client.Client) {
	rows := func() []Result {
		t.Helper()
		results, err := c.defaults(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	parameters := parsed(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: default}, spec: {tenant: team, defaultClasses: {priorityClass: low}}}")
	if err := kube.Create(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}
	if got := rows(); len(got) > 0 {
		t.Errorf("the policy is installed: got %+v", got)
	}
	policy := named(t, "MutatingAdmissionPolicy tenure-defaults")
	if err := kube.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if got := rows(); len(got) != 1 || got[0].OK || !strings.Contains(got[0].Message, "namespace default has defaults") || !strings.Contains(got[0].Fix, "--defaults") {
		t.Errorf("the policy is missing: got %+v", got)
	}
	if err := kube.Delete(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}
	if got := rows(); len(got) > 0 {
		t.Errorf("no tenant has defaults: got %+v", got)
	}
}

// TestNotInstalled checks that a cluster without Tenure has one row about it, and a cluster with a part
// of Tenure a row for each missing part.
func TestNotInstalled(t *testing.T) {
	t.Parallel()
	rows := func(objects ...client.Object) int {
		results, err := Cluster{Client: fake.NewClientBuilder().WithObjects(objects...).Build(), Namespace: "flux-system"}.installed(t.Context())
		if err != nil || len(results) == 0 || results[0].OK || results[0].Fix != lockDown {
			t.Errorf("got %v and the error %v, want a failure with the advice to run the profile", results, err)
		}
		return len(results)
	}
	if n := rows(); n != 1 {
		t.Errorf("a cluster without Tenure has %d rows about it", n)
	}
	if n := rows(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tenure-tenant"}}); n < 10 {
		t.Errorf("a cluster with a role of Tenure has %d rows", n)
	}
}

// installedCluster starts an API server with all objects that this version installs.
func installedCluster(t *testing.T) (Cluster, client.Client) {
	t.Helper()
	running := testcluster.Start(t, localcluster.Options{})
	kube, err := client.New(running.REST, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	c := Cluster{Client: kube, Discovery: discovery.NewDiscoveryClientForConfigOrDie(running.REST), Namespace: "flux-system"}
	deployments := []string{
		optional(managerName, "--capsule=true", ""), optional(proxyName, "", ""), optional("kustomize-controller-gold", "", "sharding.fluxcd.io/role: shard"),
	}
	objects := []*unstructured.Unstructured{parsed(t, "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}")}
	var controllers []*unstructured.Unstructured
	for _, d := range deployments {
		controllers = append(controllers, parsed(t, d))
	}
	expected, err := c.expected(controllers, parts{defaults: true, check: true})
	if err != nil {
		t.Fatal(err)
	}
	// Apply the webhook last: no server answers it, so that no more namespaces can be created.
	objects = append(append(objects, controllers...), expected...)
	if err := flux.ApplyManifests(t.Context(), running.REST, objects); err != nil {
		t.Fatal(err)
	}
	return c, kube
}

// wrongRows returns the messages of the failed results.
func wrongRows(t *testing.T, c Cluster) map[string]string {
	t.Helper()
	results, err := c.installed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wrong := map[string]string{}
	for _, r := range results {
		if !r.OK {
			wrong[r.Name] = r.Message
		}
	}
	return wrong
}

// apply applies the change and returns a function that reverts it.
func (d drift) apply(t *testing.T, kube client.Client) (restore func()) {
	t.Helper()
	o := named(t, d.object)
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopy()
	patch := `[{"op": "remove", "path": "` + d.path + `"}]`
	if d.value != "" {
		patch = `[{"op": "add", "path": "` + d.path + `", "value": ` + d.value + `}]`
	}
	if err := kube.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatalf("%s: %v", d.reason, err)
	}
	return func() {
		t.Helper()
		// The controller manager writes the status of kinds and policies at any time.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			now := named(t, d.object)
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
				return err
			}
			before.SetResourceVersion(now.GetResourceVersion())
			return kube.Update(t.Context(), before)
		}); err != nil {
			t.Fatalf("%s: %v", d.reason, err)
		}
	}
}

// named returns an empty object of an installed kind.
func named(t *testing.T, object string) *unstructured.Unstructured {
	t.Helper()
	kind, name, _ := strings.Cut(object, " ")
	group := "rbac.authorization.k8s.io/v1"
	switch {
	case strings.Contains(kind, "Admission"), strings.Contains(kind, "Webhook"):
		group = "admissionregistration.k8s.io/v1"
	case kind == kindCRD:
		group = "apiextensions.k8s.io/v1"
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(group)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

// TestExpectedOnce checks that the expected objects have no duplicates and are in Flux's
// namespace.
func TestExpectedOnce(t *testing.T) {
	t.Parallel()
	expected, err := Cluster{Namespace: "gitops"}.expected(nil, parts{defaults: true, check: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range expected {
		if key := ObjectName(o); seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[ObjectName(o)] = true
		if content, err := yaml.Marshal(o.Object); err != nil || o.GetNamespace() == "flux-system" || strings.HasPrefix(o.GetName(), "tenure-manager") && strings.Contains(string(content), "namespace: flux-system") {
			t.Errorf("%s is in another namespace than Flux: %v", ObjectName(o), err)
		}
	}
	if len(seen) < 50 || strings.Count(string(config.Policies()), "kind: ValidatingAdmissionPolicy\n") < 10 {
		t.Errorf("only %d objects are compared", len(seen))
	}
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a == b && ", 30)
	for _, tc := range []struct {
		reason      string
		value, than any
		want        string
	}{
		{"text keeps its quotes", `x == "y"`, nil, "`x == \"y\"`"},
		{"lists are JSON", []any{"a", int64(1)}, nil, `["a",1]`},
		{"of a long one, the part that differs", long + "false", long + "true", "…`"},
	} {
		got := excerpt(tc.value, tc.than)
		if tc.than == nil && got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
		if tc.than != nil && (!strings.HasPrefix(got, "…") || !strings.HasSuffix(got, "false`")) {
			t.Errorf("%s: got %s", tc.reason, got)
		}
	}
}
