package admission_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// adversaries are a tenant with cluster-admin in its namespaces, one of which has parameters of its own,
// and a user with the right to write in every namespace.
var adversaries = `
apiVersion: v1
kind: Namespace
metadata: {name: hostile, labels: {toolkit.fluxcd.io/tenant: hostile}}
---
apiVersion: v1
kind: Namespace
metadata: {name: hostile-own, labels: {tenure.dev/tenant: hostile, tenure.dev/parameters: "true"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: hostile-lost, labels: {tenure.dev/tenant: hostile, tenure.dev/parameters: "true"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: hostile-capsule, labels: {capsule.clastix.io/tenant: hostile}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: hostile-own}
spec:
  tenant: hostile
  platformNamespaces: [flux-system, platform-two]
  delegatedSyncs: [{tenant: hostile, namespace: flux-system, name: delegated}]
  breakGlass: [firefighters]
  exemptions:
    - {rule: tenure-sources, namespace: hostile-own, kind: GitRepository, name: legacy, reason: moves next month}
  tenants:
    kubeConfigs: [generated]
    sources: {git: ["https://own.example.com/**"], providers: [generic, azure]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: hostile, namespace: hostile}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: helper, namespace: hostile}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: hostile-namespaces}
rules: [{apiGroups: [""], resources: [namespaces, namespaces/status, namespaces/finalize], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hostile-namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: hostile-namespaces}
subjects: [{kind: User, name: labeler}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: platform, namespace: hostile, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {hard: {pods: "5"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: released, namespace: hostile, labels: {helm.toolkit.fluxcd.io/name: base, helm.toolkit.fluxcd.io/namespace: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: platform, namespace: hostile, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {interval: 1h, prune: true, suspend: true, serviceAccountName: hostile, sourceRef: {kind: GitRepository, name: x}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: mine, namespace: hostile}
spec: {interval: 1h, prune: true, suspend: true, serviceAccountName: hostile, sourceRef: {kind: GitRepository, name: x}}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: hostile, annotations: {kubernetes.io/service-account.name: helper}}
type: kubernetes.io/service-account-token
` + bindingsOfHostile

var bindingsOfHostile = func() string {
	var b strings.Builder
	for _, ns := range []string{"hostile", "hostile-own", "hostile-lost", "hostile-capsule"} {
		fmt.Fprintf(&b, `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hostile, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: hostile, namespace: hostile}]
`, ns)
	}
	return b.String()
}()

// hostile is the tenant of [adversaries].
func hostile(t *testing.T, restConfig *rest.Config) client.Client {
	t.Helper()
	return newClient(t, restConfig, rest.ImpersonationConfig{
		UserName: "system:serviceaccount:hostile:hostile",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:hostile", "system:authenticated"},
	})
}

// in moves a manifest to a namespace of the hostile tenant's, under its account.
func in(namespace, manifest string) string {
	return strings.NewReplacer("namespace: apps", "namespace: "+namespace, "serviceAccountName: dev-team", "serviceAccountName: hostile").Replace(manifest)
}

// TestCreateByAdversary creates objects as a hostile tenant, by every request that writes an object.
func TestCreateByAdversary(t *testing.T) {
	t.Parallel()
	_, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	const mine = "serviceAccountName: hostile"
	repository := func(url string) string {
		return source("GitRepository", "url: '"+url+"'")
	}
	controller := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:masters"}})
	pod := func(spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: apps}, spec: {" + spec + ", containers: [{name: x, image: x}]}}"
	}
	message := func(template string) string {
		return object("image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation", "interval: 1h, sourceRef: {kind: GitRepository, name: app}, git: {commit: {author: {email: a@example.com}, messageTemplate: "+
			strconv.Quote(strings.ReplaceAll(template, "`", `"`))+"}}")
	}
	oidc := func(fields string) string {
		return notification("v1", "Receiver", "type: generic-oidc, resources: [{kind: GitRepository, name: x}], oidcProviders: [{issuerURL: 'https://tokens.example.com', "+fields+"}]")
	}
	for _, tc := range []struct {
		reason, manifest, want string
		by                     client.Client
	}{
		{"a name that the API server chooses", strings.Replace(kustomization(""), "name: x", "generateName: gen-", 1), "tenant hostile: Kustomization gen-", nil},
		{"and the message has what is wrong", strings.Replace(kustomization(""), "name: x", "generateName: gen-", 1), " needs spec.serviceAccountName, one of: hostile, preview", nil},
		{"an empty account", kustomization("serviceAccountName: ''"), "needs spec.serviceAccountName", nil},
		{"an account with spaces", kustomization("serviceAccountName: 'hostile '"), "needs spec.serviceAccountName", nil},
		{"an account in capitals", kustomization("serviceAccountName: Hostile"), "needs spec.serviceAccountName", nil},
		{"no spec at all", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x, namespace: apps}}", "Kustomization x needs a spec", nil},
		{"a cluster by ConfigMap", kustomization(mine + ", kubeConfig: {configMapRef: {name: mine}}"), "must not choose another cluster", nil},
		{"decryption without a key", kustomization(mine + ", decryption: {provider: sops}"), "needs a key of its own in spec.decryption.secretRef", nil},
		{"decryption with its key", kustomization(mine + ", decryption: {provider: sops, secretRef: {name: mine}}"), "", nil},
		{"decryption as another account", kustomization(mine + ", decryption: {provider: sops, serviceAccountName: default}"), "must not decrypt as another account", nil},
		{"decryption as another account, with a key", kustomization(mine + ", decryption: {provider: sops, secretRef: {name: mine}, serviceAccountName: default}"), "must not decrypt as another account", nil},
		{"decryption as its own account", kustomization(mine + ", decryption: {provider: sops, serviceAccountName: hostile}"), "", nil},
		{"an expression with lists in lists in lists", kustomization(mine + `, dependsOn: [{name: other, readyExpr: "[1].all(a, [1].all(b, [1].all (c, true)))"}]`), "needs a simpler expression in spec.dependsOn[].readyExpr", nil},
		{"an expression that makes lists", kustomization(mine + `, healthCheckExprs: [{apiVersion: v1, kind: Service, current: "[1].map(a, [1]).size() > 0"}]`), "needs a simpler expression in spec.healthCheckExprs[].current", nil},
		{"one that makes texts", kustomization(mine + `, healthCheckExprs: [{apiVersion: v1, kind: Service, current: "true", failed: "data.x.replace('a', data.x) == ''"}]`), "needs a simpler expression in spec.healthCheckExprs[].failed", nil},
		{"one with a comment within a call", kustomization(mine + `, healthCheckExprs: [{apiVersion: v1, kind: Service, current: "true", inProgress: "[1].map //\n (a, a) == []"}]`), "needs a simpler expression in spec.healthCheckExprs[].inProgress", nil},
		{"a long expression", kustomization(mine + ", dependsOn: [{name: other, readyExpr: \"" + strings.Repeat("dep.x + ", 129) + "dep.x == ''\"}]"), "needs a simpler expression in spec.dependsOn[].readyExpr", nil},
		{"an expression of Flux's documentation", kustomization(mine + `, dependsOn: [{name: other, readyExpr: "dep.status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True') && dep.status.observedGeneration == dep.metadata.generation && has (self.spec) && self.metadata.name in ( ['x'] )"}]`), "", nil},
		{"an expression of a release", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, timeout: 5m, serviceAccountName: hostile, dependsOn: [{name: other, readyExpr: '[1].map(a, a) == []'}], chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}"), "needs a simpler expression in spec.dependsOn[].readyExpr", nil},
		{"a commit message of Flux's documentation", message("Automated image update\n\nAutomation name: {{ .AutomationObject }}\n\nFiles:\n{{ range $filename, $_ := .Changed.FileChanges -}}\n- {{ $filename }}\n{{ end -}}\n\nObjects:\n" +
			"{{ range $resource, $changes := .Changed.Objects -}}\n- {{ $resource.Kind }} {{ $resource.Name }}\n  Changes:\n{{- range $_, $change := $changes }}\n    - {{ $change.OldValue }} -> {{ $change.NewValue }}\n{{ end -}}\n{{ end -}}"), "", nil},
		{"a commit message with functions", message("{{ if .Changed.Changes }}{ {{ .Values.cluster | trunc 5 | default `x` | upper }} {{ now | date `2006-01-02` }}{{ else }}{{ index .Values `a` }}{{ end }}{{range .Updated.Images}}{{println .}}{{end}} {"), "", nil},
		{"a commit message that repeats a text", message("{{ repeat 9 `x` }}"), "needs a simpler template in spec.git.commit.messageTemplate", nil},
		{"a commit message that calls itself", message("{{ define `x` }}{{ template `x` }}{{ end }}"), "needs a simpler template", nil},
		{"a commit message that counts", message("{{ range 9 }}{{ end }}"), "needs a simpler template", nil},
		{"a commit message that counts in a variable", message("{{ $n := 9 }}{{ range $n }}{{ end }}"), "needs a simpler template", nil},
		{"a commit message with its list in its list", message("{{ range $a, $b := .Changed.Objects }}{{ range $.Changed.Objects }}x{{ end }}{{ end }}"), "needs a simpler template", nil},
		{"a commit message with two lists of a variable", message("{{ range $a, $b := .Changed.Objects }}{{ range $b }}{{ range $c, $d := $b }}x{{ end }}{{ end }}{{ end }}"), "needs a simpler template", nil},
		{"a commit message with the list in each of its elements", message("{{ range $a, $b := .Changed.Objects }}{{ range $b }}{{ $b }}{{ end }}{{ end }}"), "needs a simpler template", nil},
		{"a commit message with text in a text", message("{{ print `a\\` }} {{ repeat ` 9 }}"), "needs a simpler template", nil},
		{"a commit message with a function in a comment", message("{{/* }} */}}{{ repeat 9 `x` }}"), "needs a simpler template", nil},
		{"a long commit message", message(strings.Repeat("x", 1025)), "needs a simpler template", nil},
		{"an expression of a Receiver", notification("v1", "Receiver", "type: generic-hmac, secretRef: {name: x}, resourceFilter: '[1].map(a, a) == []', resources: [{kind: GitRepository, name: x}]"), "needs a simpler expression in spec.resourceFilter", nil},
		{"an expression for one resource", notification("v1", "Receiver", "type: generic-hmac, secretRef: {name: x}, resources: [{kind: GitRepository, name: x, filter: '[1].map(a, a) == []'}]"), "needs a simpler expression in spec.resources[].filter", nil},
		{"an expression about a token", oidc("validations: [{message: x, expression: '[1].map(a, a) == []'}]"), "needs a simpler expression in spec.oidcProviders[].validations[].expression", nil},
		{"a variable about a token", oidc("validations: [{message: x, expression: 'true'}], variables: [{name: a, expression: '[1].map(a, a)'}]"), "needs a simpler expression in spec.oidcProviders[].variables[].expression", nil},
		{"a variable of a variable", oidc("validations: [{message: x, expression: 'true'}], variables: [{name: a, expression: claims.sub}, {name: b, expression: '[.vars.a, vars.a]'}]"), "without + and without vars", nil},
		{"a variable that is longer than the token", oidc("validations: [{message: x, expression: 'true'}], variables: [{name: a, expression: claims.sub + claims.sub}]"), "without + and without vars", nil},
		{"the expressions of Flux's documentation", oidc(`validations: [{message: x, expression: "vars.owner == 'acme' && claims.ref.startsWith('refs/heads/')"}], variables: [{name: owner, expression: "claims.repository.split('/')[0]"}]`), "Receiver x must not have type generic-oidc (allowed: generic-hmac", nil},
		{"a status of a commit", notification("v1beta3", "Provider", "type: github, address: 'https://git.example.com/acme/x', secretRef: {name: x}, commitStatusExpr: \"[1].map(a, 'x').join()\""), "needs a simpler expression in spec.commitStatusExpr", nil},
		{"waiting as long as its interval", kustomization(mine + ", wait: true"), "needs spec.timeout, at most 15m", nil},
		{"waiting for health checks as long", kustomization(mine + ", healthChecks: [{apiVersion: v1, kind: Service, name: x}]"), "needs spec.timeout", nil},
		{"waiting for what it deletes as long", kustomization(mine + ", deletionPolicy: WaitForTermination"), "needs spec.timeout", nil},
		{"waiting for a while", kustomization(mine + ", wait: true, timeout: 5m"), "", nil},
		{"a timeout in many small units", kustomization(mine + ", timeout: 10m10m"), "needs a shorter spec.timeout", nil},
		{"a timeout that no integer holds", kustomization(mine + ", timeout: 99999999999999h"), `variable "bounds" fails`, nil},
		{"an interval of nothing", strings.Replace(kustomization(mine), "interval: 1h", "interval: 0s", 1), "needs a longer spec.interval", nil},
		{"retries of a release every second", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, serviceAccountName: hostile, install: {strategy: {name: RetryOnFailure, retryInterval: 1s}}, chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}"), "needs a longer spec.install.strategy.retryInterval", nil},
		{"a namespace that is null", strings.Replace(kustomization(mine), "name: x}}", "name: x, namespace: null}}", 1), "", nil},
		{"an alert on every namespace", notification("v1beta3", "Alert", "providerRef: {name: x}, eventSources: [{kind: Kustomization, name: '*', namespace: '*'}]"), "spec.eventSources[].namespace", nil},

		{"an image of another registry, by default", object("image.toolkit.fluxcd.io/v1", "ImageRepository", "interval: 1h, image: acme/app"), "must not fetch from oci://acme/app", nil},
		{"a source of 4,000 characters", repository("https://git.example.com/acme/" + strings.Repeat("a", 4000)), "must not fetch from https://git.example.com/acme/aaa", nil},
		{"letters that look like others", repository("https://git.ex\u0430mple.com/acme/app"), "must not fetch from", nil},
		{"an IPv6 host", repository("https://[::1]/acme/app"), "must not fetch from https://[::1]/acme/app (allowed: ", nil},
		{"a host that ends in a dot", repository("https://git.example.com./acme/app"), "must not fetch from", nil},
		{"a host in capitals", repository("https://GIT.example.com/acme/app"), "must not fetch from", nil},
		{"a proxy of its own", source("GitRepository", "url: https://git.example.com/acme/app, proxySecretRef: {name: mine}"), "must not fetch through a proxy", nil},
		{"submodules", source("GitRepository", "url: https://git.example.com/acme/app, recurseSubmodules: true"), "must not set spec.recurseSubmodules", nil},
		{"another repository in it", source("GitRepository", "url: https://git.example.com/acme/app, include: [{repository: {name: other}}]"), "may include other repositories in spec.include in a shard only", nil},
		{"nothing in it", source("GitRepository", "url: https://git.example.com/acme/app, include: []"), "", nil},
		{"credentials from an address of its own", source("Bucket", "endpoint: s3.example.com, bucketName: acme-dev, region: eu, sts: {provider: ldap, endpoint: 'https://x.example.net'}"), "must not get credentials from an address", nil},
		{"a bucket with a line break", source("Bucket", "endpoint: s3.example.com, bucketName: \"acme-\\nx\", region: eu"), "must not fetch from s3.example.com/acme- x (ask", nil},

		{"a Provider's proxy", notification("v1beta3", "Provider", "type: slack, address: 'https://hooks.example.com/x', proxy: 'http://proxy.example.net'"), "must not post through a proxy of its own in spec.proxy", nil},
		{"a Provider's proxy in a Secret", notification("v1beta3", "Provider", "type: slack, address: 'https://hooks.example.com/x', proxySecretRef: {name: x}"), "spec.proxySecretRef", nil},
		{"the cloud's topic as the controller", notification("v1beta3", "Provider", "type: googlepubsub, channel: topic, username: x"), "must not have type googlepubsub, which falls back to an identity of the platform's: spec.tenants.sources.providers of the profile has no gcp", nil},
		{"a topic with a Secret", notification("v1beta3", "Provider", "type: googlepubsub, channel: topic, secretRef: {name: x}"), "must not have type googlepubsub, which", nil},
		{"a hub with a Secret", notification("v1beta3", "Provider", "type: azureeventhub, channel: hub, secretRef: {name: x}"), "must not have type azureeventhub, which falls back to an identity of the platform's: spec.tenants.sources.providers of the profile has no azure", nil},
		{"a cloud's repository with a Secret", notification("v1beta3", "Provider", "type: azuredevops, commitStatusExpr: 'x', address: 'https://dev.azure.com/a/b/_git/c', secretRef: {name: x}"), "must not have type azuredevops, which", nil},
		{"a cloud's repository where the cloud is allowed", in("hostile-own", notification("v1beta3", "Provider", "type: azuredevops, commitStatusExpr: 'x', address: 'https://dev.azure.com/a/b/_git/c', secretRef: {name: x}")), "", nil},
		{"another cloud's topic there", in("hostile-own", notification("v1beta3", "Provider", "type: googlepubsub, channel: topic, secretRef: {name: x}")), "must not have type googlepubsub, which", nil},
		{"a Service in capitals", notification("v1beta3", "Provider", "type: generic, address: 'https://x.y.SVC/'"), "must not post to", nil},
		{"a Service with a dot at the end", notification("v1beta3", "Provider", "type: generic, address: 'https://x.y.svc./'"), "must not post to", nil},
		{"a Service behind a user", notification("v1beta3", "Provider", "type: generic, address: 'https://hooks.example.com@x.y.svc/'"), "must not post to", nil},
		{"an IPv6 address", notification("v1beta3", "Provider", "type: generic, address: 'https://[::1]/'"), "must not post to", nil},
		{"the metadata service in decimals", notification("v1beta3", "Provider", "type: generic, address: 'https://2852039166/'"), "must not post to", nil},
		{"a backslash", notification("v1beta3", "Provider", "type: generic, address: 'https://hooks.example.com\\@x.y.svc/'"), "must not post to", nil},

		{"the older field of Pods", pod("serviceAccount: hostile"), "a Pod must not run as hostile", nil},
		{"a Pod that a workload makes", pod("serviceAccountName: hostile"), "a Pod must not run as hostile", controller},
		{"a Pod as another account", pod("serviceAccountName: default"), "", nil},

		{"a kubeconfig that is generated", "{apiVersion: v1, kind: Secret, metadata: {name: generated, namespace: hostile-own}}", "only the platform writes it", nil},
		{"a quota that says it is the platform's", "{apiVersion: v1, kind: ResourceQuota, metadata: {name: x, namespace: apps, labels: {kustomize.toolkit.fluxcd.io/namespace: flux-system}}}", "must not say in its labels", nil},
		{"a ConfigMap of its own Kustomization", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: apps, labels: {kustomize.toolkit.fluxcd.io/namespace: hostile}}}", "", nil},
		{"rules of its own", "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: hostile-lost}, spec: {tenant: hostile}}", "TenantParameters tenure sets the limits", nil},

		{"by its own parameters", in("hostile-own", repository("https://own.example.com/a/b")), "", nil},
		{"what the profile allows is not added", in("hostile-own", repository("https://git.example.com/acme/app")), "tenant hostile: GitRepository x must not fetch from https://git.example.com/acme/app (allowed: https://own.example.com/**)", nil},
		{"the generated kubeconfig", in("hostile-own", kustomization(mine+", kubeConfig: {secretRef: {name: generated}}")), "", nil},
		{"another kubeconfig", in("hostile-own", kustomization(mine+", kubeConfig: {secretRef: {name: other}}")), "allowed Secrets: generated", nil},
		{"exempt by its own parameters", in("hostile-own", strings.Replace(repository("https://any.example.net/x"), "name: x", "name: legacy", 1)), "", nil},
		{"without its parameters nothing goes", in("hostile-lost", kustomization(mine)), "no params found", nil},
		{"nor is anything looked at that no rule is about", "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: x, namespace: hostile-lost}}", "", nil},
		{"a namespace of Capsule's", in("hostile-capsule", kustomization("")), "tenant hostile: Kustomization x needs spec.serviceAccountName", nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			as := tenant
			if tc.by != nil {
				as = tc.by
			}
			manifest := in("hostile", tc.manifest)
			check(t, as.Create(t.Context(), parse(t, manifest), client.DryRunAll), tc.want)
			if tc.by == nil && !strings.Contains(manifest, "generateName") {
				u := parse(t, manifest)
				check(t, as.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("x"), client.DryRunAll), tc.want)
			}
		})
	}
}

// TestChangeByAdversary changes existing objects as a hostile tenant.
func TestChangeByAdversary(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := hostile(t, restConfig)
	ctx := t.Context()
	labeler := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "labeler", Groups: []string{"system:authenticated"}})
	named := func(apiVersion, kind, name string) *unstructured.Unstructured {
		return parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: hostile}}", apiVersion, kind, name))
	}
	sync := named("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "platform")
	mine := named("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "mine")
	quota := named("v1", "ResourceQuota", "platform")
	released := named("v1", "ConfigMap", "released")
	secret := named("v1", "Secret", "token")
	// Kubernetes takes the Secret of an account away that it has not heard of yet.
	testwait.For(t, "the Secret to have its token", patience, func() (bool, string) {
		found := secret.DeepCopy()
		err := admin.Get(ctx, client.ObjectKeyFromObject(secret), found)
		if apierrors.IsNotFound(err) {
			found = secret.DeepCopy()
			found.SetAnnotations(map[string]string{corev1.ServiceAccountNameKey: "helper"})
			found.Object["type"] = string(corev1.SecretTypeServiceAccountToken)
			err = admin.Create(ctx, found)
		}
		token, _, _ := unstructured.NestedString(found.Object, "data", corev1.ServiceAccountTokenKey)
		return err == nil && token != "", fmt.Sprint(err)
	})
	patch := func(u *unstructured.Unstructured, kind types.PatchType, patch string) error {
		return tenant.Patch(ctx, u.DeepCopy(), client.RawPatch(kind, []byte(patch)), client.DryRunAll)
	}
	merge := func(u *unstructured.Unstructured, content string) error {
		return patch(u, types.MergePatchType, content)
	}
	applied := func(u *unstructured.Unstructured, spec map[string]any) error {
		u = u.DeepCopy()
		u.Object["spec"] = spec
		return tenant.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("x"), client.DryRunAll)
	}
	applyAnnotation := func(u *unstructured.Unstructured) error {
		u = u.DeepCopy()
		u.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": "now"})
		return tenant.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("x"), client.DryRunAll)
	}
	namespace := func(name, subresource, content string) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p := client.RawPatch(types.MergePatchType, []byte(content))
		if subresource == "" {
			return labeler.Patch(ctx, ns, p, client.DryRunAll)
		}
		return labeler.SubResource(subresource).Patch(ctx, ns, p, client.DryRunAll)
	}
	finalize := func(name string) error {
		ns := &corev1.Namespace{}
		if err := labeler.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
			return err
		}
		ns.Spec.Finalizers = nil
		return labeler.SubResource("finalize").Update(ctx, ns, client.DryRunAll)
	}
	const belongs, whose = "belongs to the platform", "assign it to a tenant"
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"a JSON patch of the platform's sync", patch(sync, types.JSONPatchType, `[{"op":"replace","path":"/spec/suspend","value":false}]`), belongs},
		{"a JSON patch that takes a label off", patch(sync, types.JSONPatchType, `[{"op":"remove","path":"/metadata/labels/kustomize.toolkit.fluxcd.io~1namespace"}]`), belongs},
		{"taking it over by server-side apply", applied(sync, map[string]any{"interval": "1h", "prune": false, "serviceAccountName": "hostile", "sourceRef": map[string]any{"kind": "GitRepository", "name": "y"}}), belongs},
		{"and a quota", applied(quota, map[string]any{"hard": map[string]any{"pods": "500"}}), "ResourceQuota platform belongs to the platform"},
		{"becoming an owner of what a quota says, by an apply of the same", applied(quota, map[string]any{"hard": map[string]any{"pods": "5"}}), "ResourceQuota platform belongs to the platform"},
		{"and of a sync", applied(sync, map[string]any{"prune": true}), belongs},
		{"taking the owners out", patch(quota, types.JSONPatchType, `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`), belongs},
		{"a strategic merge of a quota", patch(quota, types.StrategicMergePatchType, `{"spec":{"hard":{"pods":"500"}}}`), belongs},
		{"what a release of the platform made", merge(released, `{"data":{"x":"y"}}`), belongs},
		{"all of a kind at once", tenant.DeleteAllOf(ctx, mine.DeepCopy(), client.InNamespace("hostile"), client.DryRunAll), "Kustomization platform belongs to the platform"},
		{"asking Flux to leave it alone", merge(sync, `{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/reconcile":"disabled"}}}`), belongs},
		{"and a quota", merge(quota, `{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/ssa":"Ignore"}}}`), belongs},
		// Two rules refuse it, and either of them may answer.
		{"a finalizer that keeps it", merge(sync, `{"metadata":{"finalizers":["example.com/mine"]}}`), "Kustomization platform "},
		{"an owner that takes it along", merge(quota, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"6c54c8a5-7a3f-4a19-a4ce-9d2a8e2a4f50"}]}}`), belongs},
		{"a request to reconcile", merge(sync, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`), ""},
		{"a request by an apply", applyAnnotation(sync), ""},
		{"finalizers of its own object", merge(mine, `{"metadata":{"finalizers":["example.com/mine"]}}`), "must not have finalizers that are not allowed"},
		{"its own object as the platform's", merge(mine, `{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/namespace":"flux-system"}}}`), "must not say in its labels"},
		{"its own object without an account", patch(mine, types.JSONPatchType, `[{"op":"remove","path":"/spec/serviceAccountName"}]`), "needs spec.serviceAccountName"},
		{"a token Secret turned to another account", merge(secret, `{"metadata":{"annotations":{"kubernetes.io/service-account.name":"hostile"}}}`), "a token of hostile"},

		{"a namespace of its own making", labeler.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh", Labels: map[string]string{"toolkit.fluxcd.io/tenant": "hostile"}}}, client.DryRunAll), whose},
		{"one whose name is chosen", labeler.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "fresh-", Labels: map[string]string{"tenure.dev/tenant": "hostile"}}}, client.DryRunAll), whose},
		{"one of nobody's", labeler.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}, client.DryRunAll), ""},
		{"taking over one of nobody's", namespace("tools", "", `{"metadata":{"labels":{"capsule.clastix.io/tenant":"hostile"}}}`), whose},
		{"taking over one of the system's", namespace("kube-system", "", `{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":"hostile"}}}`), whose},
		{"switching to parameters", namespace("hostile", "", `{"metadata":{"labels":{"tenure.dev/parameters":"true"}}}`), whose},
		{"leaving the tenancy", namespace("hostile", "", `{"metadata":{"labels":null}}`), whose},
		{"a label without meaning to us", namespace("hostile", "", `{"metadata":{"labels":{"x":"y"}}}`), whose},
		{"a finalizer", namespace("hostile", "", `{"metadata":{"finalizers":["example.com/mine"]}}`), whose},
		{"its status", namespace("hostile", "status", `{"status":{"conditions":[{"type":"NamespaceDeletionContentFailure","status":"False"}]}}`), whose},
		{"labels through its status", namespace("hostile", "status", `{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":"other"}}}`), whose},
		{"finalizing it", finalize("hostile"), whose},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			check(t, tc.err, tc.want)
			if tc.err != nil && strings.Contains(tc.err.Error(), "\n") {
				t.Errorf("the message has several lines: %v", tc.err)
			}
		})
	}
	if err := tenant.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(sync), sync); err != nil {
		t.Errorf("a dry run has changed something: %v", err)
	}
}
