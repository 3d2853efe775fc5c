package admission_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// patience keeps a test from hanging on a busy machine.
const patience = 2 * time.Minute

// The cluster of the tests: a tenant with cluster-admin in its namespace apps,
// which is what the documents give it, a namespace of the admin's, and a profile.
const fixture = `
apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: tools}
---
apiVersion: v1
kind: Namespace
metadata: {name: apps, labels: {toolkit.fluxcd.io/tenant: dev-team}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: dev-team, namespace: apps}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dev-team-reconciler, namespace: apps, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: dev-team, namespace: apps}]
---
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  platformNamespaces: [flux-system, platform-two, monitoring]
  delegatedSyncs: [{tenant: hostile, namespace: flux-system, name: delegated}]
  protectedNamespaces: [protected-*]
  breakGlass: [firefighters]
  platformImages: ["registry.example.com/tools/flagger@sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"]
  exemptions:
    - {rule: tenure-sources, namespace: apps, kind: GitRepository, name: legacy, reason: moves next month}
  tenants:
    accounts: {reconcilers: [preview]}
    sources:
      git: ["https://git.example.com/acme/*", "ssh://git@git.example.com/acme/**"]
      helm: ["https://charts.example.com", "oci://registry.example.com/charts/**"]
      oci: ["oci://registry.example.com/acme/*"]
      buckets: [{endpoint: s3.example.com, bucketName: acme-*, region: eu}]
    workloads: {deviceClasses: {selector: {matchLabels: {tier: gold}}}}
`

// older are bindings from before the rules, to roles that only the manager takes.
const older = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: older-credentials, namespace: apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-credentials-copy}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: older-credentials}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-credentials-copy}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: older-replicator, namespace: apps, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: REPLICATOR}
subjects: [{kind: ServiceAccount, name: dev-team, namespace: apps}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: older-replicator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: REPLICATOR}
`

var prepared sync.Once

// cluster returns clients of an admin and of the tenant, on a cluster where the
// policies are in force.
func cluster(t *testing.T) (admin, tenant client.Client, restConfig *rest.Config) {
	t.Helper()
	c := testcluster.Shared(t)
	admin = newClient(t, c.REST, rest.ImpersonationConfig{})
	prepared.Do(func() { prepare(t, c.REST) })
	return admin, newClient(t, c.REST, rest.ImpersonationConfig{
		UserName: "system:serviceaccount:apps:dev-team",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:apps", "system:authenticated"},
	}), c.REST
}

func newClient(t *testing.T, restConfig *rest.Config, as rest.ImpersonationConfig) client.Client {
	t.Helper()
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Impersonate = as
	restConfig.Wrap(refusals.wrap)
	if restConfig.WarningHandlerWithContext == nil {
		restConfig.WarningHandlerWithContext = rest.NoWarnings{}
	}
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func prepare(t *testing.T, restConfig *rest.Config) {
	t.Helper()
	testcluster.Apply(t, restConfig, testcluster.WithoutControllers, config.FluxComponents(), config.FluxImageComponents(), config.CRDs(), []byte(fixture), []byte(strings.ReplaceAll(older, "REPLICATOR", tenancy.ReplicatorRole)), []byte(adversaries), []byte(extensions), []byte(signing), []byte(owners), testcrds.NetworkPolicyAPI("v1alpha2"), config.Policies())
	tenant := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:apps:dev-team", Groups: []string{"system:authenticated"}})
	const forged = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: hostile-own, labels: {tenure.dev/managed-by: manager}}}`
	governed := hostile(t, restConfig)
	testwait.For(t, "every policy is in force", patience, func() (bool, string) {
		if err := governed.Create(t.Context(), parse(t, forged), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "tenure-managed") {
			return false, fmt.Sprint(err)
		}
		// Those of the first and of the last policy that was made.
		for rule, broken := range map[string]string{
			"tenure-accounts":   `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x, namespace: apps}, spec: {interval: 1h, prune: true, sourceRef: {kind: GitRepository, name: x}}}`,
			"tenure-parameters": `{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: apps}, spec: {tenant: dev-team}}`,
			"tenure-tokens":     `{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, namespace: apps, annotations: {kubernetes.io/service-account.name: dev-team}}}`,
		} {
			if err := tenant.Create(t.Context(), parse(t, broken), client.DryRunAll); err == nil || !strings.Contains(err.Error(), rule) {
				return false, fmt.Sprint(err)
			}
		}
		return true, ""
	})
}

// parseOrPanic is for manifests that are written in a test.
func parseOrPanic(manifest string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		panic(manifest + ": " + err.Error())
	}
	return u
}

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	return u
}

// object writes the manifest of an object in namespace apps.
func object(apiVersion, kind, spec string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: x, namespace: apps}, spec: {%s}}", apiVersion, kind, spec)
}

func kustomization(spec string) string {
	return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "interval: 1h, prune: true, sourceRef: {kind: GitRepository, name: x}, "+spec)
}

func source(kind, spec string) string {
	return object("source.toolkit.fluxcd.io/v1", kind, "interval: 1h, "+spec)
}

func notification(version, kind, spec string) string {
	return object("notification.toolkit.fluxcd.io/"+version, kind, spec)
}

// to writes the manifest of a Provider that posts to an address.
func to(address string) string {
	return notification("v1beta3", "Provider", "type: generic, address: '"+address+"'")
}

// TestCreate checks which objects a tenant may create, and the messages of refusals; an empty message means
// that the API server accepts the object.
func TestCreate(t *testing.T) {
	t.Parallel()
	_, tenant, _ := cluster(t)
	const mine = "serviceAccountName: dev-team"
	for _, tc := range []struct{ reason, manifest, want string }{
		{"its own account", kustomization(mine), ""},
		{"an account of the list", kustomization("serviceAccountName: preview"), ""},
		{"no account", kustomization(""), "tenant dev-team: Kustomization x needs spec.serviceAccountName, one of: dev-team, preview"},
		{"another account", kustomization("serviceAccountName: default"), "needs spec.serviceAccountName"},
		{"another cluster", kustomization(mine + ", kubeConfig: {secretRef: {name: mine}}"), "must not choose another cluster in spec.kubeConfig (allowed Secrets: none)"},
		{"another namespace's source", object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "interval: 1h, prune: true, serviceAccountName: dev-team, sourceRef: {kind: GitRepository, name: x, namespace: flux-system}"), "must not refer to another namespace in spec.sourceRef.namespace: leave it out, or name apps"},
		{"its own namespace by name", object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "interval: 1h, prune: true, serviceAccountName: dev-team, sourceRef: {kind: GitRepository, name: x, namespace: apps}"), ""},
		{"a dependency of its own", kustomization(mine + ", dependsOn: [{name: one}, {name: two, namespace: apps}]"), ""},
		{"one of two dependencies of another's", kustomization(mine + ", dependsOn: [{name: one}, {name: two, namespace: tools}]"), "spec.dependsOn[].namespace"},
		{"a short interval", object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "interval: 1s, prune: true, serviceAccountName: dev-team, sourceRef: {kind: GitRepository, name: x}"), "needs a longer spec.interval: at least 30s, not 1s"},
		{"a short retry", kustomization(mine + ", retryInterval: 1s"), "needs a longer spec.retryInterval: at least 30s"},
		{"a long timeout", kustomization(mine + ", timeout: 10h"), "needs a shorter spec.timeout: at most 15m, not 10h"},
		{"a release's chart of another namespace", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, serviceAccountName: dev-team, chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x, namespace: tools}}}"), "spec.chart.spec.sourceRef.namespace"},
		{"a release without an account", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}"), "HelmRelease x needs spec.serviceAccountName"},
		{"a release", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, serviceAccountName: dev-team, chart: {spec: {chart: x, sourceRef: {kind: HelmRepository, name: x}}}"), ""},

		{"an allowed repository", source("GitRepository", "url: https://git.example.com/acme/app.git"), ""},
		{"over SSH, below", source("GitRepository", "url: ssh://git@git.example.com/acme/team/app"), ""},
		{"another organisation", source("GitRepository", "url: https://git.example.com/other/app"), "must not fetch from https://git.example.com/other/app (allowed: https://git.example.com/acme/*, ssh://git@git.example.com/acme/**)"},
		{"deeper than the pattern", source("GitRepository", "url: https://git.example.com/acme/team/app"), "must not fetch from"},
		{"dots in the path", source("GitRepository", "url: https://git.example.com/acme/../other"), "must not fetch from"},
		{"a dot of the pattern is a dot", source("GitRepository", "url: https://gitxexample.com/acme/app"), "must not fetch from"},
		{"the host as a user name", source("GitRepository", "url: https://git.example.com@evil.example.net/acme/app"), "must not fetch from"},
		{"an encoded slash", source("GitRepository", "url: https://git.example.com/acme/x%2f..%2fother"), "must not fetch from"},
		{"another scheme", source("GitRepository", "url: http://git.example.com/acme/app"), "must not fetch from"},
		{"a cloud's identity", source("GitRepository", "url: https://git.example.com/acme/app, provider: azure"), "must not have provider azure (allowed: generic)"},
		{"an allowed chart repository", source("HelmRepository", "url: https://charts.example.com/"), ""},
		{"another chart repository", source("HelmRepository", "url: https://charts.example.net"), "must not fetch from"},
		{"an allowed artifact", source("OCIRepository", "url: oci://registry.example.com/acme/app"), ""},
		{"without TLS", source("OCIRepository", "url: oci://registry.example.com/acme/app, insecure: true"), "must not set spec.insecure"},
		{"an allowed bucket", source("Bucket", "endpoint: s3.example.com, bucketName: acme-dev, region: eu"), ""},
		{"another bucket", source("Bucket", "endpoint: s3.example.com, bucketName: other, region: eu"), "must not fetch from s3.example.com/other"},
		{"another region", source("Bucket", "endpoint: s3.example.com, bucketName: acme-dev, region: us"), "must not fetch from s3.example.com/acme-dev"},
		{"an image of the registry", object("image.toolkit.fluxcd.io/v1", "ImageRepository", "interval: 1h, image: registry.example.com/acme/app"), ""},
		{"another image", object("image.toolkit.fluxcd.io/v1", "ImageRepository", "interval: 1h, image: registry.example.net/acme/app"), "must not fetch from oci://registry.example.net/acme/app"},
		{"another namespace's images", object("image.toolkit.fluxcd.io/v1", "ImagePolicy", "imageRepositoryRef: {name: x, namespace: tools}, policy: {semver: {range: '>=1'}}"), "spec.imageRepositoryRef.namespace"},
		{"an artifact of its own making", source("ExternalArtifact", ""), "can be made and changed by the platform only"},

		{"an alert on its own", notification("v1beta3", "Alert", "providerRef: {name: x}, eventSources: [{kind: Kustomization, name: '*'}]"), ""},
		{"an alert on another namespace", notification("v1beta3", "Alert", "providerRef: {name: x}, eventSources: [{kind: Kustomization, name: '*', namespace: tools}]"), "spec.eventSources[].namespace"},
		{"a receiver for another namespace", notification("v1", "Receiver", "type: github, secretRef: {name: x}, resources: [{kind: GitRepository, name: x, namespace: tools}]"), "spec.resources[].namespace"},
		{"a receiver without authentication", notification("v1", "Receiver", "type: generic, secretRef: {name: x}, resources: [{kind: GitRepository, name: x}]"), "must not have type generic (allowed: generic-hmac, github"},
		{"a receiver whose token Flux does not compare", notification("v1", "Receiver", "type: cdevents, secretRef: {name: x}, resources: [{kind: GitRepository, name: x}]"), "must not have type cdevents"},
		{"a receiver", notification("v1", "Receiver", "type: github, secretRef: {name: x}, resources: [{kind: GitRepository, name: x}]"), ""},
		{"an address outside", notification("v1beta3", "Provider", "type: slack, address: 'https://hooks.slack.example.com/services/x'"), ""},
		{"a Service", notification("v1beta3", "Provider", "type: generic, address: 'https://source-controller.flux-system.svc'"), "must not post to"},
		{"a Service by its full name", notification("v1beta3", "Provider", "type: generic, address: 'https://x.y.svc.cluster.local/'"), "must not post to"},
		{"a bare name", notification("v1beta3", "Provider", "type: generic, address: 'https://kubernetes'"), "must not post to"},
		{"a name of the search path", to("https://kubernetes.default/"), "must not post to https://kubernetes.default/ (allowed: https addresses outside of the cluster)"},
		{"with a port and without a path", to("https://kubernetes.default:443"), "must not post to"},
		{"of a namespace of the platform's", to("https://notify.flux-system:9001/x"), "must not post to"},
		{"of one with a digit", to("https://notify.team1/"), "must not post to"},
		{"of one with a hyphen", to("https://notify.platform-two/"), "must not post to"},
		{"of one that looks like a name of the world", to("https://notify.monitoring/x"), "must not post to"},
		{"of one with a port", to("https://notify.monitoring:9001"), "must not post to"},
		{"a Pod", to("https://10-0-0-1.victim.pod/"), "must not post to"},
		{"a cluster's name", to("https://x.y.svc.cluster"), "must not post to"},
		{"a bare local name", to("https://x.localhost:1/"), "must not post to"},
		{"a user", to("https://x@hooks.example.com/"), "must not post to"},
		{"a dot at the end", to("https://hooks.example.com./"), "must not post to"},
		{"half of a name in another alphabet", to("https://hooks.xn--/"), "must not post to"},
		{"a port", to("https://hooks.example.com:8443/x?y=z"), ""},
		{"a name in another alphabet", to("https://hooks.xn--p1ai/x"), ""},
		{"a name that has one of the cluster's in it", to("https://default.svc.example.com/default"), ""},
		{"a name that ends like the platform's", to("https://hooks.example.premonitoring"), ""},
		{"an IP address", notification("v1beta3", "Provider", "type: generic, address: 'https://10.0.0.1/'"), "must not post to"},

		{"a Pod as the reconciler", "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: apps}, spec: {serviceAccountName: dev-team, containers: [{name: x, image: x}]}}", "a Pod must not run as dev-team"},
		{"a Secret for the reconciler's token", "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: apps, annotations: {kubernetes.io/service-account.name: dev-team}}, type: kubernetes.io/service-account-token}", "a token of dev-team"},
		{"a Secret for another token", "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: apps, annotations: {kubernetes.io/service-account.name: default}}, type: kubernetes.io/service-account-token}", ""},
		{"a Secret", "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: apps}}", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			check(t, tenant.Create(t.Context(), parse(t, tc.manifest), client.DryRunAll), tc.want)
		})
	}
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted, want %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("got the message\n  %v\nwant\n  %s", err, want)
	}
}

// TestChange checks which existing objects a tenant may change. The owner of the object decides.
func TestChange(t *testing.T) {
	t.Parallel()
	admin, tenant, restConfig := cluster(t)
	ctx := t.Context()
	made := func(manifest string, platform bool) *unstructured.Unstructured {
		u := parse(t, manifest)
		if platform {
			u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		}
		if err := admin.Create(ctx, u); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(ctx), u) })
		return u
	}
	named := func(manifest, name string) string { return strings.Replace(manifest, "name: x,", "name: "+name+",", 1) }
	sync := made(named(kustomization("serviceAccountName: dev-team"), "sync"), true)
	own := made(named(kustomization("serviceAccountName: dev-team"), "own"), false)
	quota := made("{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota, namespace: apps}, spec: {hard: {count/configmaps: 100}}}", true)
	ownQuota := made("{apiVersion: v1, kind: ResourceQuota, metadata: {name: own-quota, namespace: apps}, spec: {hard: {count/configmaps: 100}}}", false)
	binding := parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: dev-team-reconciler, namespace: apps}}")
	namespace := parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: apps}}")
	flux := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:kustomize-controller", Groups: []string{"system:masters"}})
	fire := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "jane", Groups: []string{"firefighters", "system:masters"}})
	alerts := parse(t, named(object("flagger.app/v1beta1", "AlertProvider", "type: slack, address: 'https://hooks.example.com/x'"), "alerts"))
	if err := fire.Create(ctx, alerts); err != nil {
		t.Fatal(err)
	}
	patch := func(c client.Client, u *unstructured.Unstructured, patch string) error {
		return c.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	statusOf := func(c client.Client, u *unstructured.Unstructured, patch string) error {
		return c.SubResource("status").Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	status := func(c client.Client) error { return statusOf(c, own, `{"status":{"lastAppliedRevision":"x"}}`) }
	const used = `{"status":{"hard":{"count/configmaps":"100"},"used":{"count/configmaps":"0"}}}`
	token := func(account string) error {
		u := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: account}}
		return tenant.SubResource("token").Create(ctx, u, &authenticationv1.TokenRequest{},
			client.DryRunAll)
	}
	system := func(name string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}})
	}
	const belongs = "belongs to the platform"
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"its own object", patch(tenant, own, `{"spec":{"path":"./x"}}`), ""},
		{"the platform's sync", patch(tenant, sync, `{"spec":{"path":"./x"}}`), belongs},
		{"suspending it", patch(tenant, sync, `{"spec":{"suspend":true}}`), belongs},
		{"taking its labels off", patch(tenant, sync, `{"metadata":{"labels":null}}`), belongs},
		{"deleting it", tenant.Delete(ctx, sync.DeepCopy(), client.DryRunAll), belongs},
		{"asking for a reconciliation", patch(tenant, sync, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`), ""},
		{"the platform changes it", patch(admin, sync, `{"spec":{"path":"./x"}}`), ""},
		{"its role binding", patch(tenant, binding, `{"subjects":[]}`), belongs},
		{"what is used of the platform's quota", statusOf(tenant, quota, used), "ResourceQuota quota belongs to the platform"},
		{"the labels of the quota by its status", statusOf(tenant, quota, `{"metadata":{"labels":null}}`), "ResourceQuota quota belongs to the platform"},
		{"the API server counts", statusOf(system("system:apiserver"), quota, used), ""},
		{"Kubernetes counts again", statusOf(system("system:serviceaccount:kube-system:resourcequota-controller"), quota, used), ""},
		{"so it does without accounts of its own", statusOf(system("system:kube-controller-manager"), quota, used), ""},
		{"the platform changes the quota's status", statusOf(flux, quota, used), ""},
		{"the status of a quota of its own", statusOf(tenant, ownQuota, used), ""},
		{"the status of its own object", status(tenant), "has a status that only Flux writes"},
		{"Flux writes the status", status(flux), ""},
		{"a rule holds for the admin's objects in a tenant's namespace too", patch(admin, own, `{"spec":{"interval":"1s"}}`), "needs a longer spec.interval"},
		{"but not for who breaks the glass", patch(fire, own, `{"spec":{"interval":"1s"}}`), ""},
		{"an exempt object", admin.Create(ctx, parse(t, named(source("GitRepository", "url: https://old.example.net/x"), "legacy")), client.DryRunAll), ""},
		{"an object that is exempt from another rule", admin.Create(ctx, parse(t, strings.Replace(named(source("GitRepository", "url: https://old.example.net/x"), "legacy"), "interval: 1h", "interval: 1s", 1)), client.DryRunAll),
			"tenant dev-team: GitRepository legacy needs a longer spec.interval: at least 30s, not 1s (rule tenure-bounds)"},
		{"the admin's own namespace", admin.Create(ctx, parse(t, strings.Replace(source("GitRepository", "url: https://any.example.net/x"), "namespace: apps", "namespace: tools", 1)), client.DryRunAll), ""},
		{"a token of the account that Flux applies as", token("dev-team"), "a token of dev-team, which Flux applies as, can be made by the platform only"},
		{"a token of another account", token("default"), ""},
		{"an object of Flagger", patch(tenant, alerts, `{"spec":{"channel":"a"}}`), "needs that the platform allows Flagger for the tenant"},
		{"labels of its namespace", patch(tenant, namespace, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), "assign it to a tenant"},
		{"the admin changes them", patch(admin, namespace, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{"policies.md": admission.Document(), "coverage.md": admission.CoverageDocument()} {
		written, err := os.ReadFile("../../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(written)); diff != "" {
			t.Errorf("docs/reference/%s is not up to date, run make generate (-want +got):\n%s", page, diff)
		}
	}
	manifests, err := admission.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(manifests), string(config.Policies())); diff != "" {
		t.Errorf("config/admission is not up to date, run make generate (-want +got):\n%s", diff)
	}
	warn, err := admission.WarnManifests()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(warn), string(config.WarnPolicies())); diff != "" {
		t.Errorf("config/admission/warn.yaml is not up to date, run make generate (-want +got):\n%s", diff)
	}
	rules, err := admission.CapsuleManifests()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(config.CapsulePolicies()), string(rules)) {
		t.Error("config/capsule/rules.yaml is not up to date, run make generate")
	}
}
