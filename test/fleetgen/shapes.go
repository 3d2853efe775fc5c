package fleetgen

import "fmt"

// NarrowRules are a role for tenants that do without everything an attack could
// use: rights on what a team deploys, and no more.
const NarrowRules = `[{apiGroups: ["", apps], resources: [configmaps, secrets, services, deployments], verbs: ["*"]}, ` +
	`{apiGroups: [kustomize.toolkit.fluxcd.io, source.toolkit.fluxcd.io, helm.toolkit.fluxcd.io], resources: [kustomizations, gitrepositories, helmreleases, helmrepositories, helmcharts], verbs: ["*"]}]`

// strict is a policy that only some tenants are under, by a label.
const strict = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: team}
rules: ` + NarrowRules + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: strict}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [kustomize.toolkit.fluxcd.io], apiVersions: ["*"], resources: [kustomizations], operations: [CREATE, UPDATE]}]}
  matchConditions: [{name: not-deleted, expression: "!has(object.metadata.deletionTimestamp)"}]
  validations: [{expression: "has(object.spec.serviceAccountName)", message: name your account}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: strict}
spec: {policyName: strict, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {tier: strict}}}}
`

// ChartHost is where the charts of [Shapes] are.
const ChartHost = "https://charts.example.com"

// ShapesPlatform is the platform that the tenants of [Shapes] need.
func ShapesPlatform() Platform { return Platform{Flags: Lockdown(), Manifests: strict} }

// Shapes makes n tenants of five shapes, one after the other: a narrow role under
// Pod Security; cluster-admin in its namespace; Kubernetes' role edit with a
// HelmRelease of its own; no label, a Role of its own, and the root of its
// repository; and a policy of its tier with a quota. chart is the name of a chart
// at [ChartHost].
func Shapes(n int, chart string) []Tenant {
	restricted := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	var tenants []Tenant
	for i := range n {
		t := Tenant{Name: fmt.Sprintf("team-%03d", i), Label: true}
		switch i % 5 {
		case 0:
			t.Role, t.Labels = "team", restricted
		case 1:
			t.Role = "cluster-admin"
		case 2:
			t.Role, t.Labels, t.Rules = "edit", restricted, NarrowRules
			t.Files = map[string]string{"deploy/release.yaml": release(t.Name, chart)}
		case 3:
			t.Label, t.Rules, t.Sync = false, NarrowRules, "path: ./, prune: true, targetNamespace: "+t.Name
		case 4:
			t.Role, t.Labels = "team", map[string]string{"tier": "strict"}
			t.Platform = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: bounds, namespace: " + t.Name + "}\nspec: {hard: {configmaps: \"200\"}}\n"
		}
		tenants = append(tenants, t)
	}
	return tenants
}

func release(name, chart string) string {
	return fmt.Sprintf(`apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts}
spec: {interval: 1h, url: %s}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: app}
spec:
  interval: 1h
  serviceAccountName: %s
  chart: {spec: {chart: %s, sourceRef: {kind: HelmRepository, name: charts}}}
`, ChartHost, name, chart)
}
