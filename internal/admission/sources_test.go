package admission_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// extensions are kinds that Flux's own manifests do not have, and a tenant with what
// the platform opens on request: one namespace in a shard, and one in none.
var extensions = func() string {
	var b strings.Builder
	for _, k := range []struct{ group, version, plural, kind string }{
		{"source.extensions.fluxcd.io", "v1beta1", "artifactgenerators", "ArtifactGenerator"},
		{"fluxcd.controlplane.io", "v1", "fluxinstances", "FluxInstance"},
		{"fluxcd.controlplane.io", "v1", "fluxreports", "FluxReport"},
		{"fluxcd.controlplane.io", "v1", "resourcesets", "ResourceSet"},
		{"fluxcd.controlplane.io", "v1", "resourcesetinputproviders", "ResourceSetInputProvider"},
		{"flagger.app", "v1beta1", "canaries", "Canary"},
		{"flagger.app", "v1beta1", "metrictemplates", "MetricTemplate"},
		{"flagger.app", "v1beta1", "alertproviders", "AlertProvider"},
	} {
		fmt.Fprintf(&b, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: %[3]s, kind: %[4]s, listKind: %[4]sList}
  versions: [{name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, k.group, k.version, k.plural, k.kind)
	}
	for namespace, label := range map[string]string{"opened": "sharding.fluxcd.io/key: gold", "opened-unsharded": "team: opened"} {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {tenure.dev/tenant: opened, tenure.dev/parameters: "true", %[2]s}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: %[1]s}
spec:
  tenant: opened
  platformNamespaces: [flux-system]
  breakGlass: [firefighters]
  tenants:
    bounds: {maxObjects: 2}
    network: {services: {deniedLabels: ["denied.example.com/*"]}}
    sources: {anyChartDependencies: true, helm: ["https://charts.example.com/**", "https://*.example.org", "https://pages.example.net/team"]}
    notifications: {addresses: ["https://hooks.example.com/team/**", "https://github.example.com/api/v3"], headers: [Authorization, X-Scope]}
    flagger: {addresses: ["http://prometheus.monitoring:9090"], hosts: ["shop.example.com", "*.team.example.com"], gateways: [ingress/public]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: opened, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: opened}]
`, namespace, label)
	}
	return b.String()
}()

// opened moves a manifest to a namespace of the tenant of [extensions].
func opened(namespace, manifest string) string {
	return strings.NewReplacer("namespace: apps", "namespace: "+namespace, "serviceAccountName: dev-team", "serviceAccountName: opened").Replace(manifest)
}

func flagger(kind, spec string) string { return object("flagger.app/v1beta1", kind, spec) }

func canary(service, analysis string) string {
	return flagger("Canary", "targetRef: {apiVersion: apps/v1, kind: Deployment, name: x}, service: {port: 80"+service+"}, analysis: {interval: 1m, threshold: 1"+analysis+"}")
}

// secretWith is a Secret with one key.
func secretWith(key, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: apps}, data: {%s: '%s'}}", key, base64.StdEncoding.EncodeToString([]byte(value)))
}

// What a tenant brings along in charts, Secrets and objects of Flagger leads where
// the platform has said, in a namespace that the profile governs and in one with
// parameters of its own.
func TestWhereContentLeads(t *testing.T) {
	t.Parallel()
	_, tenant, restConfig := cluster(t)
	other := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "opened", Groups: []string{"system:authenticated"}})
	release := func(kind string) string {
		return object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, serviceAccountName: dev-team, chart: {spec: {chart: ./x, sourceRef: {kind: "+kind+", name: x}}}")
	}
	testwait.For(t, "the API server to know the tenant's rights", patience, func() (bool, string) {
		err := other.Create(t.Context(), parse(t, opened("opened", secretWith("any", "x"))), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	chart := func(kind string) string {
		return source("HelmChart", "chart: ./x, sourceRef: {kind: "+kind+", name: x}")
	}
	sharded := func(manifest string) string {
		return strings.Replace(manifest, "namespace: apps}", "namespace: apps, labels: {sharding.fluxcd.io/key: gold}}", 1)
	}
	generator := func(sources, artifacts, copies int) string {
		list := func(n int, of string) string { return "[" + strings.TrimSuffix(strings.Repeat(of+", ", n), ", ") + "]" }
		return object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", "sources: "+list(sources, "{alias: x, kind: GitRepository, name: x}")+
			", artifacts: "+list(artifacts, "{name: x, copy: "+list(copies, "{from: '@x/a', to: '@artifact/'}")+"}"))
	}
	every := func(interval string) string {
		return strings.Replace(generator(1, 1, 1), "namespace: apps}", "namespace: apps, annotations: {source.extensions.fluxcd.io/reconcileEvery: "+interval+"}}", 1)
	}
	const opensNothing, inShardOnly = "whose dependencies come from addresses that are not approved: publish the chart", "in a shard only: ask the platform team to give the namespace the label sharding.fluxcd.io/key"
	const elsewhere, flaggerOff = "Secret x must not send a Provider elsewhere in its key address (allowed: ", "needs that the platform allows Flagger for the tenant"
	long := "https://hooks.example.com/" + strings.Repeat("a", 1900)
	for _, tc := range []struct{ reason, manifest, want string }{
		{"a release out of a repository", release("GitRepository"), "HelmRelease x must not take a chart out of a GitRepository, " + opensNothing},
		{"a release out of a bucket", release("Bucket"), "HelmRelease x must not take a chart out of a Bucket, " + opensNothing},
		{"the chart itself out of a repository", chart("GitRepository"), "HelmChart x must not take a chart out of a GitRepository, " + opensNothing},
		{"the chart itself out of a bucket", chart("Bucket"), "HelmChart x must not take"},
		{"a chart of a chart host", chart("HelmRepository"), ""},
		{"a release by reference", object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "interval: 1h, serviceAccountName: dev-team, chartRef: {kind: OCIRepository, name: x}"), ""},
		{"a path of an approved host", source("HelmRepository", "url: https://charts.example.com/team/stable"), ""},
		{"a host that begins with an approved one", source("HelmRepository", "url: https://charts.example.com.evil.example.net"), "must not fetch from"},
		{"another port of an approved host", source("HelmRepository", "url: 'https://charts.example.com:8443'"), "must not fetch from"},
		{"an approved host without TLS", source("HelmRepository", "url: 'http://charts.example.com'"), "must not fetch from"},
		{"an oci repository of charts", source("HelmRepository", "type: oci, url: 'oci://registry.example.com/charts/team'"), ""},
		{"another oci repository", source("HelmRepository", "type: oci, url: 'oci://registry.example.com/other'"), "must not fetch from"},
		{"an oci address as an ordinary one", source("HelmRepository", "url: 'oci://registry.example.com/other'"), "must not fetch from"},

		{"an address outside, in a Secret", secretWith("address", "https://hooks.example.com/x?y=z\n"), ""},
		{"of one character less than a group", secretWith("address", "https://hooks.example.com/x"), ""},
		{"of one more", secretWith("address", "https://hooks.example.com/xyz"), ""},
		{"a long one", secretWith("address", long), ""},
		{"one that is too long", secretWith("address", long+long), elsewhere},
		{"what Sentry calls a DSN", secretWith("address", "https://0123abcDEF@o1.ingest.example.com/1"), ""},
		{"a Service", secretWith("address", "http://source-controller.flux-system.svc.cluster.local/"), elsewhere + "https addresses outside of the cluster); if it is for no Provider, give the key another name"},
		{"a Service behind a user", secretWith("address", "https://hooks@x.y.svc/"), elsewhere},
		{"the metadata service", secretWith("address", "http://169.254.169.254/"), elsewhere},
		{"another protocol", secretWith("address", "nats://nats.example.com:4222"), elsewhere},
		{"spaces and line breaks around it", secretWith("address", " \n https://kubernetes.default/ \r\n\t"), elsewhere},
		{"a line break in it", secretWith("address", "https://hooks.example.com/\nhttps://kubernetes.default/"), elsewhere},
		{"bytes that are no text", secretWith("address", "https://hooks.example.com/\xff\xfe"), ""},
		{"letters that look like others", secretWith("address", "https://hooks.ex\u0430mple.com/"), elsewhere},
		{"nothing", secretWith("address", ""), ""},
		{"null", "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: apps}, data: {address: null, headers: null}}", ""},
		{"as text in stringData", "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: apps}, stringData: {address: 'https://kubernetes.default/'}}", elsewhere},
		{"a Secret of another type", "{apiVersion: v1, kind: Secret, type: example.com/any, metadata: {name: x, namespace: apps}, stringData: {address: 'https://kubernetes.default/'}}", elsewhere},
		{"a proxy", secretWith("proxy", "https://proxy.example.net"), "must not make a Provider post through a proxy in its key proxy"},
		{"whom a GitHub App asks", secretWith("githubAppBaseURL", "https://kubernetes.default/"), "elsewhere in its key githubAppBaseURL"},
		{"GitHub of a company", secretWith("githubAppBaseURL", "https://github.example.com/api/v3"), ""},
		{"credentials in a header", secretWith("headers", "authorization: Bearer abc\n"), ""},
		{"a tenant's name in a header", secretWith("headers", "Authorization: x\nX-Scope-OrgID: victim\n"), "must not make a Provider send other headers in its key headers (allowed, one to a line as NAME: VALUE: Authorization)"},
		{"headers on one line", secretWith("headers", "{Authorization: x, X-Scope-OrgID: victim}"), "other headers"},
		{"a quoted name", secretWith("headers", "\"X-Scope-OrgID\": victim"), "other headers"},
		{"another kind of line break", secretWith("headers", "Authorization: x\rX-Scope-OrgID: victim"), "other headers"},
		{"one more kind", secretWith("headers", "Authorization: x\u2028X-Scope-OrgID: victim"), "other headers"},
		{"a line that goes on", secretWith("headers", "Authorization: x\n  X-Scope-OrgID: victim"), "other headers"},
		{"an anchor", secretWith("headers", "Authorization: &a x\n? *a\n: y"), "other headers"},
		{"too many headers", secretWith("headers", strings.Repeat("Authorization: x\n", 300)), "other headers"},
		{"a Secret for something else", secretWith("ADDRESS", "redis:6379"), ""},

		{"a Canary", canary("", ""), "Canary x " + flaggerOff},
		{"a MetricTemplate", flagger("MetricTemplate", "provider: {type: prometheus, address: 'http://prometheus.monitoring:9090'}, query: x"), flaggerOff},
		{"an AlertProvider", flagger("AlertProvider", "type: slack, address: 'https://hooks.example.com/x'"), flaggerOff},

		{"a generator within the bounds", generator(100, 100, 100), ""},
		{"too many sources", generator(101, 1, 1), "ArtifactGenerator x has too many sources: at most 100"},
		{"too many artifacts", generator(1, 101, 1), "has too many artifacts: at most 100"},
		{"too many copies", generator(1, 1, 101), "has too many copies in an artifact: at most 100"},
		{"a generator of what others generate", object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", "sources: [{alias: x, kind: GitRepository, name: x}, {alias: y, kind: ExternalArtifact, name: y}], artifacts: [{name: a, copy: [{from: '@x/**', to: '@artifact/'}]}]"), "may read an ExternalArtifact in spec.sources in a shard only"},
		{"a generator every second", every("1s"), "needs a longer interval in its annotation source.extensions.fluxcd.io/reconcileEvery: at least 30s, not 1s"},
		{"a generator every hour", every("1h"), ""},
		{"an artifact for another namespace", strings.Replace(generator(1, 1, 1), "artifacts: [{", "artifacts: [{namespace: tools, ", 1), "must not refer to another namespace in spec.artifacts[].namespace"},

		{"opened, without a shard: a release", opened("opened-unsharded", release("GitRepository")), "HelmRelease x may take a chart out of a GitRepository " + inShardOnly},
		{"opened, without a shard: a chart", opened("opened-unsharded", chart("Bucket")), "HelmChart x may take a chart out of a Bucket " + inShardOnly},
		{"opened, with a shard that is not the namespace's", opened("opened-unsharded", sharded(release("GitRepository"))), "tenure-shards"},
		{"opened, in a shard: a release", opened("opened", sharded(release("GitRepository"))), ""},
		{"opened, in a shard: a chart", opened("opened", sharded(chart("Bucket"))), ""},
		{"a host as a whole", opened("opened", sharded(source("HelmRepository", "url: https://charts.example.com"))), ""},
		{"a host by a star is not approved as a whole", opened("opened", sharded(source("HelmRepository", "url: https://charts.example.org"))), "must not fetch from"},
		{"nor is one by a path", opened("opened", sharded(source("HelmRepository", "url: https://pages.example.net/team"))), "must not fetch from"},

		{"an address of the list", opened("opened", secretWith("address", "https://hooks.example.com/team/x")), ""},
		{"one beside the list", opened("opened", secretWith("address", "https://hooks.example.com/other")), elsewhere + "https://hooks.example.com/team/**, https://github.example.com/api/v3)"},
		{"whom the list lets a GitHub App ask", opened("opened", secretWith("githubAppBaseURL", "https://github.example.com/api/v3")), ""},
		{"a header that was added", opened("opened", secretWith("headers", "x-scope: team\nAuthorization: x")), ""},
		{"a header that was not", opened("opened", secretWith("headers", "X-Scope-OrgID: victim")), "other headers"},

		{"Flagger: its own Services", opened("opened", canary(", hosts: [x, x.opened.svc, x.opened.svc.cluster.local], gateways: [mesh, own, opened/own]", "")), ""},
		{"Flagger: hosts and gateways of the lists", opened("opened", canary(", hosts: [shop.example.com, a.team.example.com, '*.team.example.com'], gateways: [ingress/public], gatewayRefs: [{name: public, namespace: ingress}, {name: own}]", "")), ""},
		{"Flagger: another tenant's host", opened("opened", canary(", hosts: [other.example.com]", "")), "must not take other hosts in spec.service.hosts (allowed: names of its own Services, and shop.example.com, *.team.example.com)"},
		{"Flagger: every host", opened("opened", canary(", hosts: ['*']", "")), "must not take other hosts"},
		{"Flagger: every host of a domain", opened("opened", canary(", hosts: ['*.example.com']", "")), "must not take other hosts"},
		{"Flagger: a Service of another namespace", opened("opened", canary(", hosts: [x.tools.svc.cluster.local]", "")), "must not take other hosts"},
		{"Flagger: another gateway", opened("opened", canary(", gateways: [ingress/internal]", "")), "must not use other gateways in spec.service.gateways (allowed: those of its namespace, and ingress/public)"},
		{"Flagger: another gateway by its long name", opened("opened", canary(", gateways: [internal.ingress.svc.cluster.local]", "")), "must not use other gateways"},
		{"Flagger: another gateway of the Gateway API", opened("opened", canary(", hosts: [shop.example.com], gatewayRefs: [{name: internal, namespace: ingress}]", "")), "spec.service.gatewayRefs (allowed"},
		{"Flagger: a gateway for every host", opened("opened", canary(", gatewayRefs: [{name: public, namespace: ingress}]", "")), "needs spec.service.hosts"},
		{"Flagger: a webhook in the cluster", opened("opened", canary("", ", webhooks: [{name: x, url: 'https://hooks.example.com/x'}, {name: y, url: 'http://loadtester.tools/'}]")), "must not have Flagger call other addresses in spec.analysis.webhooks[].url (allowed: http://prometheus.monitoring:9090)"},
		{"Flagger: a webhook by the older name", opened("opened", flagger("Canary", "canaryAnalysis: {webhooks: [{name: y, url: 'http://loadtester.tools/'}]}")), "spec.canaryAnalysis.webhooks[].url"},
		{"Flagger: a metrics server", opened("opened", flagger("Canary", "metricsServer: 'http://prometheus.tools:9090'")), "spec.metricsServer"},
		{"Flagger: the platform's metrics", opened("opened", canary("", ", metrics: [{name: x, query: 'up'}]")), "must not query the platform's metrics"},
		{"Flagger: ordinary metadata of its Services", opened("opened", canary(", apex: {labels: {team: a}, annotations: {team: a, metallb.io/allow-shared-ip: opened/a, external-dns.alpha.kubernetes.io/hostname: shop.example.com}}, primary: {}, canary: {labels: {team: a}}", "")), ""},
		{"Flagger: text for the configuration of a controller, by a Service of it", opened("opened", canary(", canary: {annotations: {haproxy.org/backend-config-snippet: a}}", "")), "Canary x must not have the annotation haproxy.org/backend-config-snippet, which reaches beyond the tenant"},
		{"Flagger: a policy of another namespace, by a Service of it", opened("opened", canary(", apex: {annotations: {a.example.com/policies: tools/a}}", "")), "must not have the annotation a.example.com/policies"},
		{"Flagger: the load balancer of others, by a Service of it", opened("opened", canary(", primary: {annotations: {loadbalancer.openstack.org/load-balancer-id: a}}", "")), "Canary x must not have the annotation loadbalancer.openstack.org/load-balancer-id, which shares or takes over"},
		{"Flagger: an address, by a Service of it", opened("opened", canary(", apex: {annotations: {metallb.io/loadBalancerIPs: 10.0.0.1}}", "")), "Canary x must not take the address 10.0.0.1"},
		{"Flagger: every host, by a Service of it", opened("opened", canary(", apex: {annotations: {external-dns.alpha.kubernetes.io/hostname: '*.example.com'}}", "")), "Canary x must not have host *.example.com"},
		{"Flagger: a label that the platform denies Services", opened("opened", canary(", canary: {labels: {denied.example.com/a: b}}", "")), "Canary x must not have the label denied.example.com/a: the platform denies it"},
		{"Flagger: an upstream elsewhere", opened("opened", flagger("Canary", "upstreamRef: {name: x, namespace: tools}")), "spec.upstreamRef.namespace"},
		{"Flagger: a mirror elsewhere", opened("opened", canary(", mirror: [{backendRef: {name: x, namespace: tools}}]", "")), "spec.service.mirror[].backendRef.namespace"},
		{"Flagger: an address of the list", opened("opened", flagger("MetricTemplate", "provider: {type: prometheus, address: 'http://prometheus.monitoring:9090'}, query: x")), ""},
		{"Flagger: another address", opened("opened", flagger("MetricTemplate", "provider: {type: prometheus, address: 'http://prometheus.tools:9090'}, query: x")), "spec.provider.address"},
		{"Flagger: a metrics server of another type at an address of the list", opened("opened", flagger("MetricTemplate", "provider: {type: influxdb, address: 'http://prometheus.monitoring:9090', secretRef: {name: x}}, query: x")), ""},
		{"Flagger: a metrics server that gets the token of Flagger's account", opened("opened", flagger("MetricTemplate", "provider: {type: externalmetrics, address: 'http://prometheus.monitoring:9090'}, query: x")), "must not have type externalmetrics in spec.provider, for which Flagger uses an identity of the platform's (allowed: prometheus, influxdb"},
		{"Flagger: metrics of the cloud as Flagger", opened("opened", flagger("MetricTemplate", "provider: {type: cloudwatch, region: eu-west-1}, query: x")), "must not have type cloudwatch"},
		{"Flagger: metrics of the cloud, whose project a Secret names", opened("opened", flagger("MetricTemplate", "provider: {type: stackdriver, secretRef: {name: x}}, query: x")), "must not have type stackdriver"},
		{"Flagger: an analysis in a namespace of the query", opened("opened", flagger("MetricTemplate", "provider: {type: keptn}, query: analysis/tools/x/1m")), "must not have type keptn"},
		{"Flagger: an AlertProvider within the list", opened("opened", flagger("AlertProvider", "type: slack, address: 'https://hooks.example.com/team/x'")), ""},
		{"Flagger: an AlertProvider beside it", opened("opened", flagger("AlertProvider", "type: slack, address: 'https://kubernetes.default/'")), "must not post to"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			as := tenant
			if strings.Contains(tc.manifest, "namespace: opened") {
				as = other
			}
			check(t, as.Create(t.Context(), parse(t, tc.manifest), client.DryRunAll), tc.want)
			u := parse(t, tc.manifest)
			check(t, as.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.ForceOwnership, client.FieldOwner("x"), client.DryRunAll), tc.want)
		})
	}
}

// TestContentChanges checks requests that change existing objects, by different users.
func TestContentChanges(t *testing.T) {
	t.Parallel()
	admin, tenant, restConfig := cluster(t)
	ctx := t.Context()
	named := func(manifest, name string) string { return strings.Replace(manifest, "name: x,", "name: "+name+",", 1) }
	as := func(user string, groups ...string) client.Client {
		return newClient(t, restConfig, rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:masters")})
	}
	inside := base64.StdEncoding.EncodeToString([]byte("https://kubernetes.default/"))
	old := parse(t, named(secretWith("address", "https://kubernetes.default/"), "older"))
	good := parse(t, named(secretWith("address", "https://hooks.example.com/"), "newer"))
	generator := parse(t, named(object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", "sources: [{alias: x, kind: GitRepository, name: x}], artifacts: []"), "generator"))
	for u, by := range map[client.Object]client.Client{old: admin, good: tenant, generator: tenant} {
		if err := by.Create(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(by client.Client, u client.Object, patch string) error {
		return by.Patch(ctx, u.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	const elsewhere, every = "Secret newer must not send a Provider elsewhere", `{"metadata":{"annotations":{"source.extensions.fluxcd.io/reconcileEvery":"%s"}}}`
	helm := as("system:serviceaccount:flux-system:helm-controller")
	chart := parse(t, source("HelmChart", "chart: ./x, sourceRef: {kind: GitRepository, name: x}"))
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"an address that is changed later", merge(tenant, good, `{"data":{"address":"`+inside+`"}}`), elsewhere},
		{"as text", merge(tenant, good, `{"stringData":{"address":"https://kubernetes.default/"}}`), elsewhere},
		{"a JSON patch", tenant.Patch(ctx, good.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/address","value":"`+inside+`"}]`)), client.DryRunAll), elsewhere},
		{"a key that is added later", merge(tenant, good, `{"stringData":{"proxy":"http://proxy.example.net"}}`), "through a proxy"},
		{"what was there before is left alone", merge(tenant, old, `{"metadata":{"labels":{"x":"y"}}}`), ""},
		{"and may be taken out", merge(tenant, old, `{"data":{"address":null}}`), ""},
		{"the platform may", merge(admin, good, `{"data":{"address":"`+inside+`"}}`), ""},
		{"who breaks the glass may", merge(newClient(t, restConfig, rest.ImpersonationConfig{UserName: "system:serviceaccount:apps:dev-team", Groups: []string{"firefighters", "system:authenticated"}}), good, `{"data":{"address":"`+inside+`"}}`), ""},
		{"a generator's interval by annotation", merge(tenant, generator, fmt.Sprintf(every, "1s")), "ArtifactGenerator generator needs a longer interval in its annotation"},
		{"a longer one", merge(tenant, generator, fmt.Sprintf(every, "1h")), ""},
		{"helm-controller makes no chart that the tenant may not", helm.Create(ctx, chart, client.DryRunAll), "HelmChart x must not take a chart out of a GitRepository"},
	} {
		t.Run(tc.reason, func(t *testing.T) { check(t, tc.err, tc.want) })
	}
}
