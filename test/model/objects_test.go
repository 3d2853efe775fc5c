package model

import (
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// profiled and parametrised are namespaces of the tenant, the second with TenantParameters;
// foreign is a namespace of another tenant.
const profiled, parametrised, foreign = "profiled", "parametrised", "foreign"

// A change sets a field to one of several values. The value nil removes the field, and a
// function generates a value.
type change struct {
	at     []string
	values []any
}

func oneOf(at []string, values ...any) change { return change{at, values} }

func at(fields ...string) []string { return fields }

// A template is the manifest of an object that the tenant may create, without a namespace,
// with a list of changes.
type template struct {
	manifest string
	changes  []change
}

var (
	durationsOf = []any{"10s", "29s", "30s", "1m", "15m", "15m1s", "1h", "0.5m", "0.4m", "1440m"}
	namespaces  = []any{profiled, parametrised, foreign, "flux-system", ""}
	// gitAddresses are approved addresses, and addresses that look like approved ones.
	gitAddresses = []any{
		"https://git.example.com/acme/shop", "https://git.example.com/acme/shop.git", "https://git.example.com/acme", "https://git.example.com/acme/",
		"https://git.example.com/acme/a/b", "https://git.example.com/other/shop", "http://git.example.com/acme/shop", "https://git.example.com:8443/acme/shop",
		"https://git.example.com.evil.example.net/acme/shop", "https://evil.example.net/https://git.example.com/acme/shop", "https://user@git.example.com/acme/shop",
		"https://git.example.com@evil.example.net/acme/shop", "https://git.example.com/acme/../other", "https://git.example.com/acme/%2e%2e", "https://git.example.com/acme/..",
		"https://git.example.com/acme/.", "https://git.example.com//acme/shop", "https://git.example.com/acme/shop?x=/../..", "https://git.example.com/acme/shop#x", "https://git.example.com/acme/%2e%2e%2fother",
		"ssh://git@git.example.com/acme/a/b/c", "ssh://git.example.com/acme/shop", "ssh://git@git.example.com/other/shop", "ssh://git@git.example.com/acme/../other", "ssh://git@git.example.com/acme", "ssh://git@git.example.com:22/acme/shop",
	}
	ociAddresses = []any{
		"oci://registry.example.com/acme/app", "oci://registry.example.com/acme/a/b", "oci://registry.example.com/other/app", "oci://registry.example.com/charts/a/b", "oci://evil.example.net/acme/app",
		"oci://registry.example.com:5000/acme/app", "oci://registry.example.com/acme/../other", "oci://registry.example.com/acme",
	}
	helmAddresses = append([]any{
		"https://charts.example.com", "https://charts.example.com/", "https://charts.example.com/a/b", "http://charts.example.com", "https://charts.example.com:8443", "https://charts.example.com.evil.example.net",
		"https://evil.example.net/charts.example.com", "https://user@charts.example.com", "https://charts.example.com@evil.example.net",
	}, ociAddresses...)
	outsideAddresses = []any{
		"https://hooks.example.com/x", "https://hooks.example.com:8443/x", "http://hooks.example.com/x", "https://10.96.0.1/x", "https://kubernetes.default.svc/api", "https://source-controller.flux-system.svc.cluster.local/x",
		"https://localhost/x", "https://app/x", "https://app.dev-team/x", "https://[::1]/x", "https://169.254.169.254/latest", "https://2130706433/x", "https://hooks.example.com@kubernetes.default.svc/x", "https://KUBERNETES.DEFAULT.SVC/x",
		"https://kubernetes.default.svc./x", "https://0x7f.0x0.0x0.0x1/x", "https://metadata.google.internal/x",
	}
	accounts = []any{tenant, "preview", "default", "app", "kustomize-controller"}
	shard    = oneOf(at("metadata", "labels"), map[string]any{"sharding.fluxcd.io/key": "shard1"}, map[string]any{"sharding.fluxcd.io/key": ""}, map[string]any{"app": "shop"})
	// owners changes the labels of ownership and the finalizers.
	owners = []change{
		oneOf(at("metadata", "labels"),
			map[string]any{"app": "shop"}, map[string]any{"tenure.dev/managed-by": "manager"},
			map[string]any{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
			map[string]any{"helm.toolkit.fluxcd.io/name": "tenants", "helm.toolkit.fluxcd.io/namespace": "flux-system"},
			map[string]any{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": profiled}),
		oneOf(at("metadata", "finalizers"), []any{"example.com/allowed"}, []any{"example.com/hold"}, []any{"example.com/allowed", "example.com/hold"}),
	}
)

// workload returns the changes of the Pod spec at a path.
func workload(prefix ...string) []change {
	in := func(field string) []string { return append(append([]string{}, prefix...), field) }
	return []change{
		oneOf(in("serviceAccountName"), accounts[:4]...),
		oneOf(in("serviceAccount"), accounts[:4]...),
		oneOf(in("hostNetwork"), true, false),
	}
}

var templates = []template{
	{"{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: 10m, prune: true, serviceAccountName: dev-team, sourceRef: {kind: GitRepository, name: shop}}}", []change{
		oneOf(at("spec", "serviceAccountName"), append([]any{nil, ""}, accounts...)...), oneOf(at("spec", "interval"), durationsOf...), oneOf(at("spec", "retryInterval"), durationsOf...),
		oneOf(at("spec", "timeout"), durationsOf...), oneOf(at("spec", "wait"), true, false), oneOf(at("spec", "sourceRef", "namespace"), namespaces...), oneOf(at("spec", "sourceRef", "kind"), "GitRepository", "OCIRepository", "Bucket"),
		oneOf(at("spec", "dependsOn"), []any{map[string]any{"name": "a"}}, []any{map[string]any{"name": "a", "namespace": foreign}}, []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "namespace": profiled}}, dependency),
		oneOf(at("spec", "healthCheckExprs"), healthCheck),
		oneOf(at("spec", "kubeConfig"), map[string]any{"secretRef": map[string]any{"name": "remote"}}, map[string]any{"secretRef": map[string]any{"name": "other"}}, map[string]any{"configMapRef": map[string]any{"name": "remote"}}),
		oneOf(at("spec", "decryption"), map[string]any{"provider": "sops"}, map[string]any{"provider": "sops", "secretRef": map[string]any{"name": "age"}}),
		oneOf(at("spec", "targetNamespace"), namespaces[:4]...), shard,
	}},
	{"{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: x}, spec: {interval: 10m, serviceAccountName: dev-team, chart: {spec: {chart: app, sourceRef: {kind: HelmRepository, name: charts}}}}}", []change{
		oneOf(at("spec", "serviceAccountName"), append([]any{nil}, accounts...)...), oneOf(at("spec", "interval"), durationsOf...), oneOf(at("spec", "timeout"), durationsOf...),
		oneOf(at("spec", "chart", "spec", "sourceRef", "kind"), "HelmRepository", "GitRepository", "Bucket"), oneOf(at("spec", "chart", "spec", "sourceRef", "namespace"), namespaces...), oneOf(at("spec", "chart", "spec", "interval"), durationsOf...),
		oneOf(at("spec", "install"), map[string]any{"timeout": "16m"}, map[string]any{"timeout": "5m"}), oneOf(at("spec", "upgrade"), map[string]any{"timeout": "1h"}, map[string]any{"timeout": "5m"}),
		oneOf(at("spec", "kubeConfig"), map[string]any{"secretRef": map[string]any{"name": "remote"}}, map[string]any{"secretRef": map[string]any{"name": "other"}}),
		oneOf(at("spec", "dependsOn"), []any{map[string]any{"name": "a", "namespace": foreign}}, []any{map[string]any{"name": "a"}}, dependency), oneOf(at("spec", "storageNamespace"), namespaces[:4]...), shard,
	}},
	{"{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: x}, spec: {interval: 10m, serviceAccountName: preview, chartRef: {kind: OCIRepository, name: app}}}", []change{
		oneOf(at("spec", "chartRef", "namespace"), namespaces...), oneOf(at("spec", "chartRef", "kind"), "OCIRepository", "HelmChart"),
	}},
	{"{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: x}, spec: {interval: 10m, url: 'https://git.example.com/acme/shop', ref: {branch: main}}}", []change{
		oneOf(at("spec", "url"), gitAddresses...), oneOf(at("spec", "url"), address), oneOf(at("spec", "provider"), "generic", "azure", "github"), oneOf(at("spec", "interval"), durationsOf...), oneOf(at("spec", "timeout"), durationsOf...), shard,
	}},
	{"{apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, metadata: {name: x}, spec: {interval: 10m, url: 'oci://registry.example.com/acme/app'}}", []change{
		oneOf(at("spec", "url"), ociAddresses...), oneOf(at("spec", "url"), address), oneOf(at("spec", "provider"), "generic", "aws", "azure", "gcp"), oneOf(at("spec", "interval"), durationsOf...), shard,
	}},
	{"{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: x}, spec: {interval: 10m, url: 'https://charts.example.com'}}", []change{
		oneOf(at("spec", "url"), helmAddresses...), oneOf(at("spec", "url"), address), oneOf(at("spec", "provider"), "generic", "aws"), oneOf(at("spec", "type"), "default", "oci"), oneOf(at("spec", "interval"), durationsOf...), shard,
	}},
	{"{apiVersion: source.toolkit.fluxcd.io/v1, kind: Bucket, metadata: {name: x}, spec: {interval: 10m, endpoint: s3.example.com, bucketName: acme-shop, region: eu}}", []change{
		oneOf(at("spec", "endpoint"), "s3.example.com", "s3.example.com:9000", "minio.flux-system.svc", "S3.example.com"), oneOf(at("spec", "bucketName"), "acme-shop", "other", "acme-", "acme"), oneOf(at("spec", "region"), "eu", "us", nil), oneOf(at("spec", "provider"), "generic", "aws"),
	}},
	{"{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmChart, metadata: {name: x}, spec: {interval: 10m, chart: app, sourceRef: {kind: HelmRepository, name: charts}}}", []change{
		oneOf(at("spec", "sourceRef", "kind"), "HelmRepository", "GitRepository", "Bucket"), oneOf(at("spec", "interval"), durationsOf...), shard,
	}},
	{"{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, metadata: {name: x}, spec: {}}", nil},
	{"{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Provider, metadata: {name: x}, spec: {type: generic, address: 'https://hooks.example.com/x'}}", []change{
		oneOf(at("spec", "address"), outsideAddresses...), oneOf(at("spec", "address"), address), oneOf(at("spec", "type"), "generic", "slack", "googlepubsub", "azureeventhub"),
	}},
	{"{apiVersion: notification.toolkit.fluxcd.io/v1beta3, kind: Alert, metadata: {name: x}, spec: {providerRef: {name: x}, eventSources: [{kind: Kustomization, name: '*'}]}}", []change{
		oneOf(at("spec", "eventSources"), []any{map[string]any{"kind": "Kustomization", "name": "*", "namespace": "flux-system"}}, []any{map[string]any{"kind": "Kustomization", "name": "a"}, map[string]any{"kind": "GitRepository", "name": "*", "namespace": foreign}}, []any{map[string]any{"kind": "HelmRelease", "name": "a", "namespace": profiled}}),
	}},
	{"{apiVersion: notification.toolkit.fluxcd.io/v1, kind: Receiver, metadata: {name: x}, spec: {type: github, secretRef: {name: x}, resources: [{kind: GitRepository, name: shop}]}}", []change{
		oneOf(at("spec", "type"), "generic", "generic-hmac", "github", "gitlab", "harbor", "dockerhub", "quay", "gcr", "nexus", "acr", "bitbucket", "cdevents"),
		oneOf(at("spec", "resources"), []any{map[string]any{"kind": "GitRepository", "name": "a", "namespace": "flux-system"}}, []any{map[string]any{"kind": "GitRepository", "name": "a", "namespace": profiled}}),
	}},
	{"{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImageRepository, metadata: {name: x}, spec: {interval: 10m, image: registry.example.com/acme/app}}", []change{
		oneOf(at("spec", "image"), "registry.example.com/acme/app", "registry.example.com/acme/a/b", "registry.example.com/other/app", "evil.example.net/acme/app", "app"), oneOf(at("spec", "provider"), "generic", "aws"), oneOf(at("spec", "interval"), durationsOf...),
	}},
	{"{apiVersion: image.toolkit.fluxcd.io/v1, kind: ImagePolicy, metadata: {name: x}, spec: {imageRepositoryRef: {name: app}, policy: {semver: {range: '*'}}}}", []change{
		oneOf(at("spec", "imageRepositoryRef", "namespace"), namespaces...),
	}},
	{"{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: b}}", owners},
	{"{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}]}}", owners},
	{"{apiVersion: v1, kind: ServiceAccount, metadata: {name: x}}", owners},
	{"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: x}, spec: {podSelector: {}}}", owners},
	{"{apiVersion: v1, kind: ResourceQuota, metadata: {name: x}, spec: {hard: {pods: '100'}}}", nil},
	{"{apiVersion: v1, kind: LimitRange, metadata: {name: x}, spec: {limits: []}}", nil},
	{"{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure}, spec: {tenant: dev-team}}", nil},
	{"{apiVersion: v1, kind: Secret, metadata: {name: x}, stringData: {password: x}}", append([]change{
		oneOf(at("metadata", "name"), "remote", "x", "other"),
		oneOf(at("stringData"), map[string]any{"proxy": "https://hooks.example.com"}, map[string]any{"headers": "Authorization: x"}, map[string]any{"headers": "X-Forwarded-For: x"}, map[string]any{"headers": "authorization: x\nHost: y"}),
	}, append(addressesOf("address"), addressesOf("githubAppBaseURL")...)...)},
	{"{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, annotations: {kubernetes.io/service-account.name: app}}}", []change{
		oneOf(at("metadata", "annotations"), map[string]any{"kubernetes.io/service-account.name": tenant}, map[string]any{"kubernetes.io/service-account.name": "preview"}, map[string]any{"kubernetes.io/service-account.name": "app"}),
	}},
	{"{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: a, image: a}]}}", workload("spec")},
	{"{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}", workload("spec", "template", "spec")},
	{"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}", workload("spec", "template", "spec")},
	{"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {serviceName: x, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}", workload("spec", "template", "spec")},
	{"{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}", workload("spec", "template", "spec")},
	{"{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}", workload("spec", "jobTemplate", "spec", "template", "spec")},
	{"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-flux-view}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ann}]}", []change{
		oneOf(at("roleRef", "name"), "tenure-flux-view", "tenure-tenant", "admin", "edit", "cluster-admin"),
		oneOf(at("subjects"), subject("Group", "system:authenticated"), subject("Group", "system:unauthenticated"), subject("Group", "system:serviceaccounts"), subject("Group", "system:serviceaccounts:"+profiled),
			subject("Group", "system:serviceaccounts:"+parametrised), subject("Group", "system:serviceaccounts:"+foreign), subject("Group", "developers"), subject("User", "system:anonymous")),
	}},
	{"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: x}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}", []change{
		oneOf(at("rules"), rule("", "secrets", "get"), rule("*", "*", "*"), rule("", "pods", "*"), rule("", "resourcequotas", "delete"), rule("", "serviceaccounts", "impersonate"), rule("apps", "deployments", "patch"), rule("rbac.authorization.k8s.io", "roles", "escalate")),
	}},
}

// address joins parts of approved and other addresses at random.
func address(random *rand.Rand) any {
	pick := func(parts ...string) string { return parts[random.IntN(len(parts))] }
	made := pick("https://", "https://", "https://", "ssh://git@", "oci://", "oci://", "http://", "HTTPS://", "https:/", "ssh://") +
		pick("", "", "", "", "", "git@", "git:x@", "git.example.com@", "git.example.com%40", "@") +
		pick("git.example.com", "git.example.com", "charts.example.com", "registry.example.com", "evil.example.net", "git.example.com.evil.example.net", "xgit.example.com",
			"GIT.example.com", "git.example.com.", "git%2eexample.com", "git.example.com,evil.example.net", "127.0.0.1", "[::1]", "kubernetes.default.svc", "hooks.example.com", "example", "1.2", "a.b-c", "a.b.c9") +
		pick("", "", "", "", ":443", ":22", ":", ":0443")
	for range random.IntN(4) {
		made += "/" + pick("acme", "acme", "acme", "shop", "charts", "other", "..", ".", "%2e%2e", "%2F", "", "ACME", "a%20b", "shop.git", "*", "~", "a;b", "acme%2fshop")
	}
	return made + pick("", "", "", "", "/", "?x=1", "?", "#x", "#", "?/../../other", "\\x")
}

// expression joins random parts of expressions. Some parts call functions that the rules refuse.
func expression(random *rand.Rand) string {
	parts := []string{
		"dep.x == 'a'", "size(dep.x) > 1", "has ( dep.y )", "dep.x in ( ['a'] )", "dep.x.all(e, e == 1)", "dep.x.filter\n(e, e.z).exists(f, f)", "dep.x.map(a, a) == []",
		"dep.x.mapped", "dep.x.replace('a', 'b') == ''", "dep.all == 1", "'map(' == dep.x", "'https://x' == ''", "\"ä(\" == ''", "dep.x.exists_one(e, true)", "dep.x.orValue(1) == 1",
		"dep.split('a').last() == ''", "string(dep.x).matches('^a$')", "cel.bind(x, 1, x) == 1", "dep.x.\t\f map\r(a, a) == []", "_in(1)", "dep.x.sizes(1)", "true",
	}
	made := parts[random.IntN(len(parts))]
	for range random.IntN(3) {
		made += " && " + parts[random.IntN(len(parts))]
	}
	if random.IntN(10) == 0 {
		made += strings.Repeat(" ", random.IntN(1100))
	}
	return made
}

func dependency(random *rand.Rand) any {
	return []any{map[string]any{"name": "a", "readyExpr": expression(random)}}
}

func healthCheck(random *rand.Rand) any {
	check := map[string]any{"apiVersion": "v1", "kind": "Service", "current": expression(random)}
	if field := []string{"current", "inProgress", "failed"}[random.IntN(3)]; random.IntN(2) == 0 {
		check[field] = expression(random)
	}
	return []any{check}
}

func subject(kind, name string) []any {
	return []any{map[string]any{"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name}}
}

func rule(group, resource, verb string) []any {
	return []any{map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": []any{verb}}}
}

// addressesOf returns changes that set a key of a Secret to an address.
func addressesOf(key string) []change {
	var values []any
	for _, a := range outsideAddresses {
		values = append(values, map[string]any{key: a})
	}
	return []change{oneOf(at("stringData"), values...)}
}

// ordinary returns the object of the manifest.
func (t template) ordinary() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(t.manifest), &o.Object); err != nil {
		panic(t.manifest + ": " + err.Error())
	}
	return o
}

// object generates an object from a template, with up to three changes, in one of the
// namespaces. It also returns the index of the template.
func object(random *rand.Rand) (int, *unstructured.Unstructured) {
	i := random.IntN(len(templates))
	t := templates[i]
	o := t.ordinary()
	o.SetNamespace([]string{profiled, parametrised, profiled, parametrised, profiled, parametrised, foreign}[random.IntN(7)])
	if len(t.changes) == 0 {
		return i, o
	}
	for range random.IntN(4) {
		c := t.changes[random.IntN(len(t.changes))]
		value := c.values[random.IntN(len(c.values))]
		if made, ok := value.(func(*rand.Rand) any); ok {
			value = made(random)
		}
		if value == nil {
			unstructured.RemoveNestedField(o.Object, c.at...)
			continue
		}
		if err := unstructured.SetNestedField(o.Object, value, c.at...); err != nil {
			panic(err)
		}
	}
	return i, o
}
