package admission_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The tests of this file change what holds for everybody, so they are not
// parallel: the others wait for them.

// becomes waits until creating an object ends as wanted: the API server learns of
// a change of rules and parameters after a moment.
func becomes(t *testing.T, reason string, c client.Client, manifest, want string) {
	t.Helper()
	testwait.For(t, reason, patience, func() (bool, string) {
		err := c.Create(t.Context(), parse(t, manifest), client.DryRunAll)
		return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want), fmt.Sprint(err)
	})
}

// profile reads the profile and returns what puts it back.
func profile(t *testing.T, admin client.Client) (*unstructured.Unstructured, func()) {
	t.Helper()
	p := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}}")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	before := p.DeepCopy().Object["spec"]
	return p, func() {
		ctx := context.WithoutCancel(t.Context())
		again := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}}")
		err := admin.Get(ctx, client.ObjectKeyFromObject(again), again)
		again.Object["spec"] = before
		if apierrors.IsNotFound(err) {
			err = admin.Create(ctx, again)
		} else if err == nil {
			err = admin.Update(ctx, again)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithoutProfile checks that the API server refuses requests for tenants without a profile, and no
// other requests.
func TestWithoutProfile(t *testing.T) {
	admin, tenant, restConfig := cluster(t)
	good := kustomization("serviceAccountName: dev-team")
	p, restore := profile(t, admin)
	if err := admin.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	becomes(t, "a tenant to be refused", tenant, good, "no params found for policy binding")
	for _, tc := range []struct {
		reason string
		err    error
	}{
		{"the admin's own namespace", admin.Create(t.Context(), parse(t, strings.Replace(good, "namespace: apps", "namespace: tools", 1)), client.DryRunAll)},
		{"a tenant with parameters of its own", hostile(t, restConfig).Create(t.Context(), parse(t, in("hostile-own", good)), client.DryRunAll)},
		{"a tenant's object that no rule is about", tenant.Create(t.Context(), parse(t, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: x, namespace: apps}}"), client.DryRunAll)},
	} {
		check(t, tc.err, "")
	}
	restore()
	becomes(t, "the tenant to be served again", tenant, good, "")
}

// TestWarn checks that with validationActions that warn, the API server warns a tenant and does not refuse
// the request.
func TestWarn(t *testing.T) {
	admin, _, restConfig := cluster(t)
	warnings := &collected{}
	config := rest.CopyConfig(restConfig)
	config.WarningHandlerWithContext = warnings
	tenant := newClient(t, config, rest.ImpersonationConfig{UserName: "system:serviceaccount:apps:dev-team", Groups: []string{"system:authenticated"}})
	set := func(actions string) {
		t.Helper()
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: admission.Shared + "-flux"}}
		if err := admin.Patch(t.Context(), b, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"validationActions":[`+actions+`]}}`))); err != nil {
			t.Fatal(err)
		}
	}
	bad := strings.Replace(kustomization(""), "interval: 1h", "interval: 1s", 1)
	set(`"Warn","Audit"`)
	becomes(t, "the tenant to be warned only", tenant, bad, "")
	if want := "tenant dev-team: Kustomization x needs spec.serviceAccountName, one of: dev-team, preview (rule tenure-accounts); " +
		"Kustomization x needs a longer spec.interval: at least 30s, not 1s (rule tenure-bounds)"; !strings.Contains(strings.Join(warnings.messages, "\n"), want) {
		t.Errorf("the warnings are %q, want %q", warnings.messages, want)
	}
	pod := "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: apps}, spec: {serviceAccountName: dev-team, containers: [{name: x, image: x}]}}"
	check(t, tenant.Create(t.Context(), parse(t, pod), client.DryRunAll), "tenure-pods")
	set(`"Deny"`)
	becomes(t, "the tenant to be refused again", tenant, bad, "tenure-accounts")
}

// warnedObjects are objects of the platform in the namespaces of TestWarnObjects.
const warnedObjects = owningTenant + `---
apiVersion: v1
kind: ServiceAccount
metadata: {name: owning, namespace: NAMESPACE}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: isolation, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
spec: {podSelector: {}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: managed, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
spec: {replicas: 0, selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: agent}]}}}
`

// In warn mode the rules that compensate for rights which RBAC cannot narrow deny, although
// they share a policy with rules that only warn. Without the policies of warn mode, they would
// warn too.
func TestWarnObjects(t *testing.T) {
	admin, _, restConfig := cluster(t)
	set := func(actions ...admissionregistrationv1.ValidationAction) {
		t.Helper()
		var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
		selector, err := labels.Parse(admission.WarnSelector)
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.List(t.Context(), &bindings, client.MatchingLabelsSelector{Selector: selector}); err != nil || len(bindings.Items) == 0 {
			t.Fatalf("%d bindings: %v", len(bindings.Items), err)
		}
		for _, b := range bindings.Items {
			b.Spec.ValidationActions = actions
			if err := admin.Update(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
	}
	namespaces := map[string]string{"warned-own": `tenure.dev/tenant: owning, tenure.dev/parameters: "true"`, "warned-profile": "toolkit.fluxcd.io/tenant: owning"}
	for namespace, given := range namespaces {
		makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", namespace, "LABELS", given,
			"ownerAccounts: [owner]}", "ownerAccounts: [owner], tenants: {kubeConfigs: [generated]}}").Replace(warnedObjects), "---\n"))
	}
	makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", "warned-cordoned", "LABELS", `tenure.dev/tenant: owning, tenure.dev/parameters: "true"`,
		"ownerAccounts: [owner]}", "cordoned: true}").Replace(owningTenant), "---\n"))
	// each calls a function with the requests of a tenant, by what they do, and the rules that
	// refuse them.
	each := func(do func(reason, rule string, send func() error)) {
		for namespace := range namespaces {
			tenant := inNamespace(t, restConfig, namespace, "owning")
			create := func(manifest string) func() error {
				u := parse(t, manifest)
				u.SetNamespace(namespace)
				return func() error { return tenant.Create(t.Context(), u.DeepCopy(), client.DryRunAll) }
			}
			remove := func(apiVersion, kind, name string) func() error {
				u := parse(t, "{apiVersion: "+apiVersion+", kind: "+kind+", metadata: {name: "+name+", namespace: "+namespace+"}}")
				return func() error { return tenant.Delete(t.Context(), u.DeepCopy(), client.DryRunAll) }
			}
			const (
				rights = "rbac.authorization.k8s.io/v1"
				pod    = "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {serviceAccountName: ACCOUNT, containers: [{name: x, image: x}]}}"
				token  = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, annotations: {kubernetes.io/service-account.name: ACCOUNT}}}"
			)
			for _, tc := range []struct {
				reason, rule string
				send         func() error
			}{
				{"deletes the platform's NetworkPolicy", "managed", remove("networking.k8s.io/v1", "NetworkPolicy", "isolation")},
				{"deletes the platform's Role", "managed", remove(rights, "Role", "managed")},
				{"forges the label of the manager", "managed", create("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {tenure.dev/managed-by: manager}}}")},
				{"keeps a token of Flux's account", "tokens", create(strings.Replace(token, "ACCOUNT", "owning", 1))},
				{"keeps a token of the owner's account", "owner-accounts", create(strings.Replace(token, "ACCOUNT", "owner", 1))},
				{"runs a Pod as Flux's account", "pods", create(strings.Replace(pod, "ACCOUNT", "owning", 1))},
				{"runs a Pod as the owner's account", "owner-pods", create(strings.Replace(pod, "ACCOUNT", "owner", 1))},
				{"gives rights to everybody", "bindings", create("{apiVersion: " + rights + ", kind: RoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: 'system:authenticated'}]}")},
				{"gives Flux a cloud's credentials", "decryption-secrets", create("{apiVersion: v1, kind: Secret, metadata: {name: x}, stringData: {sops.azure-kv: 'clientId: x'}}")},
				{"writes the platform's keys", "signature-keys", create("{apiVersion: v1, kind: Secret, metadata: {name: tenure-keys-cosign}}")},
			} {
				do(namespace+": "+tc.reason, "(rule tenure-"+tc.rule+")", tc.send)
			}
			// The rule tenure-accounts refuses these, too, and the API server names one rule.
			do(namespace+": has Flux apply as the owner's account", "(rule tenure-", create("{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: 1h, timeout: 5m, prune: true, serviceAccountName: owner, sourceRef: {kind: GitRepository, name: x}}}"))
			do(namespace+": has Helm install as the owner's account", "(rule tenure-", create("{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: x}, spec: {interval: 1h, timeout: 5m, serviceAccountName: owner, chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}}}"))
			if namespace == "warned-own" {
				do("writes a kubeconfig that Flux may use", "(rule tenure-kubeconfigs)", create("{apiVersion: v1, kind: Secret, metadata: {name: generated}}"))
				do("deletes the platform's Deployment", "(rule tenure-managed)", remove("apps/v1", "Deployment", "agent"))
				cordoned := inNamespace(t, restConfig, "warned-cordoned", "owning")
				do("changes something while it is cordoned", "(rule tenure-cordon)", func() error {
					return cordoned.Create(t.Context(), parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: warned-cordoned}}"), client.DryRunAll)
				})
			}
		}
	}
	refused := func(reason, rule string, send func() error) {
		t.Helper()
		if err := send(); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: got %v, want a refusal by %s", reason, err, rule)
		}
	}
	const service = "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: warned-own}, spec: {externalIPs: [192.0.2.1], ports: [{port: 80}]}}"
	tenant := inNamespace(t, restConfig, "warned-own", "owning")
	becomes(t, "the rules to refuse", tenant, service, "(rule tenure-services)")
	objects, err := flux.ReadObjects(config.WarnPolicies())
	if err != nil {
		t.Fatal(err)
	}
	// The other tests of this server have no policies of warn mode.
	t.Cleanup(func() {
		for _, o := range objects {
			if err := client.IgnoreNotFound(admin.Delete(context.WithoutCancel(t.Context()), o)); err != nil {
				t.Error(err)
			}
		}
	})
	testcluster.Apply(t, restConfig, testcluster.WithoutControllers, config.WarnPolicies())
	set(admissionregistrationv1.Warn, admissionregistrationv1.Audit)
	becomes(t, "a rule that may warn to warn", tenant, service, "")
	each(func(reason, rule string, send func() error) {
		testwait.For(t, "the policies of warn mode refuse: "+reason, patience, func() (bool, string) {
			err := send()
			return err != nil && strings.Contains(err.Error(), admission.ObjectsAlways) && strings.Contains(err.Error(), rule), fmt.Sprint(err)
		})
	})

	// The control: without these policies, the rules only warn.
	for _, o := range objects {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	each(func(reason, _ string, send func() error) {
		testwait.For(t, "accepted without the policies of warn mode: "+reason, patience, func() (bool, string) {
			err := send()
			return err == nil, fmt.Sprint(err)
		})
	})
	set(admissionregistrationv1.Deny)
	becomes(t, "the rules to refuse again", tenant, service, "(rule tenure-services)")
	each(refused)
}

type collected struct{ messages []string }

// HandleWarningHeaderWithContext keeps a warning of the API server.
func (c *collected) HandleWarningHeaderWithContext(_ context.Context, _ int, _, message string) {
	c.messages = append(c.messages, message)
}

// The largest profile that the schema allows stays within what the API server
// lets a policy cost, and the message says the beginning of it.
func TestLargestProfile(t *testing.T) {
	admin, tenant, _ := cluster(t)
	p, restore := profile(t, admin)
	var many []any
	for i := range 63 {
		// Dots and stars are what a pattern becomes longer by.
		host := fmt.Sprintf("https://%02d.", i)
		many = append(many, host+strings.Repeat("*.", (512-len(host)-len("example.com/*"))/2)+"example.com/*")
	}
	many = append(many, "https://last.example.com/*")
	address := func(host string) string {
		host = "https://" + host + "/"
		return source("GitRepository", "url: '"+host+strings.Repeat("a", 256-len(host))+"'")
	}
	if err := unstructured.SetNestedSlice(p.Object, many, "spec", "tenants", "sources", "git"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	becomes(t, "the last of the patterns to be in force", tenant, address("last.example.com"), "")
	refused := tenant.Create(t.Context(), parse(t, address("last.example.net")), client.DryRunAll)
	check(t, refused, "must not fetch from https://last.example.net/aaa")
	check(t, refused, "(allowed: https://00.*.*.")
	restore()
	becomes(t, "the profile to be what it was", tenant, source("GitRepository", "url: https://git.example.com/acme/app"), "")
}

// A bound below the timeout that helm-controller has by itself holds for releases that
// name none, too.
func TestTimeoutOfReleases(t *testing.T) {
	admin, tenant, _ := cluster(t)
	p, restore := profile(t, admin)
	if err := admin.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tenants":{"bounds":{"maxTimeout":"1m"}}}}`))); err != nil {
		t.Fatal(err)
	}
	release := func(timeout string) string {
		return "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: x, namespace: apps}, spec: {interval: 1h" + timeout +
			", serviceAccountName: dev-team, chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}}}"
	}
	becomes(t, "the bound to be in force", tenant, release(""), "HelmRelease x needs spec.timeout, at most 1m: without it, it waits for 5m")
	check(t, tenant.Create(t.Context(), parse(t, release(", timeout: 2m")), client.DryRunAll), "needs a shorter spec.timeout")
	check(t, tenant.Create(t.Context(), parse(t, release(", timeout: 1m")), client.DryRunAll), "")
	restore()
	becomes(t, "a release without timeout to be accepted again", tenant, release(""), "")
}

// Each rule about what a tenant brings along is what stops it: without the rule, it is
// accepted.
func TestWithoutContentRules(t *testing.T) {
	admin, tenant, _ := cluster(t)
	for name, broken := range map[string]string{
		"charts":               object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, serviceAccountName: dev-team, chart: {spec: {chart: ./x, sourceRef: {kind: GitRepository, name: x}}}"),
		"flagger":              canary(", hosts: ['*'], gateways: [ingress/public]", ", webhooks: [{name: x, url: 'http://loadtester.tools/'}]"),
		"bounds":               object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", "sources: ["+strings.Repeat("{alias: x, kind: GitRepository, name: x}, ", 101)+"], artifacts: []"),
		"notification-secrets": secretWith("address", "http://169.254.169.254/"),
		"resource-sets":        object("fluxcd.controlplane.io/v1", "ResourceSet", "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]"),
	} {
		rule := admission.Prefix + name
		becomes(t, rule+" to refuse", tenant, broken, rule)
		restore := without(t, admin, rule)
		becomes(t, "it to be accepted without "+rule, tenant, broken, "")
		restore()
		becomes(t, rule+" to refuse again", tenant, broken, rule)
	}
}

// without takes a rule away where the profile holds, and returns what puts it back.
func without(t *testing.T, admin client.Client, rule string) func() {
	t.Helper()
	var p admissionregistrationv1.ValidatingAdmissionPolicy
	i := slices.IndexFunc(admission.Rules(), func(r admission.Rule) bool { return r.Name == rule })
	r := admission.Rules()[i]
	key := client.ObjectKey{Name: r.Policy()}
	change := func(change func()) {
		t.Helper()
		// The controller manager writes the policy's status at any time.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := admin.Get(t.Context(), key, &p); err != nil {
				return err
			}
			change()
			return admin.Update(t.Context(), &p)
		}); err != nil {
			t.Fatal(err)
		}
	}
	var before admissionregistrationv1.ValidatingAdmissionPolicySpec
	change(func() {
		before = *p.Spec.DeepCopy()
		if !r.Without(&p) {
			p.Spec.Validations[0].Expression = "true"
		}
	})
	return func() { change(func() { p.Spec = before }) }
}
