package ablation

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// Rows are the controls of the example fleet, in the order in which they are
// taken away. Whoever adds an attack to the catalogue adds its key to the row of
// each control that stops it, or adds a row.
func Rows() []Row {
	return []Row{
		one(flag("kustomize-controller", "--no-cross-namespace-refs"), "S1-api"),
		{
			Controls: []Control{
				layer(flag("kustomize-controller", "--default-service-account"), "flag --default-service-account of kustomize-controller"),
				layer(policy("service-account-names"), "policy that demands spec.serviceAccountName"),
			},
			Attacks: []string{"I1-api"},
		},
		one(policy("git-sources"), "S9-api"),
		one(policy("other-sources"), "S9-api"),
		one(label("pod-security.kubernetes.io/enforce"), "W3-api"),

		one(role("bind", everywhere,
			allow([]string{"get", "create", "patch", "delete"}, rbacv1.GroupName, "clusterrolebindings"),
			allow([]string{"bind"}, rbacv1.GroupName, "clusterroles")), "I4-api", "I4-git"),
		one(role("escalate", everywhere, allow([]string{"create", "escalate"}, rbacv1.GroupName, "roles")), "I4-api"),
		one(role("impersonate", within, allow([]string{"impersonate"}, "", "serviceaccounts")), "I8-api"),
		one(role("create serviceaccounts/token", within, allow([]string{"create"}, "", "serviceaccounts/token")), "I8-api"),
		one(role("patch its namespaces", within, allow([]string{"update", "patch"}, "", "namespaces")), "I6-api"),
		one(role("patch namespaces/status", within, allow([]string{"update", "patch"}, "", "namespaces/status")), "I6-api"),
		one(role("update namespaces/finalize", within, allow([]string{"update"}, "", "namespaces/finalize")), "I6-api"),
		one(role("patch the status of Flux objects", within, allow([]string{"update", "patch"}, "source.toolkit.fluxcd.io", "gitrepositories/status")), "S4-api"),
		one(role("create externalartifacts", within, allow([]string{"create"}, "source.toolkit.fluxcd.io", "externalartifacts")), "S3-api"),
		one(role("create and patch namespaces of any name", everywhere, allow([]string{"get", "create", "patch", "delete"}, "", "namespaces")), "I5-api", "I5-git", "I6-api"),
		one(role("create customresourcedefinitions", everywhere, allow([]string{"create"}, "apiextensions.k8s.io", "customresourcedefinitions")), "I5-api"),

		one(bound("in every namespace, by a ClusterRoleBinding", everywhere), "I3-api", "I3-git", "I11-api", "I11-git", "W2-api"),
		one(bound("in the platform's namespace", platform), "I3-api"),
	}
}

// Excluded says, by key, why an attack is in no row.
func Excluded() map[string]Exclusion {
	plain := Exclusion{Reason: "no control on plain Flux", Through: true}
	return map[string]Exclusion{
		"A1-api": plain,
		"A3-api": plain,
	}
}

func one(c Control, attacks ...string) Row { return Row{Controls: []Control{c}, Attacks: attacks} }

func layer(c Control, name string) Control {
	c.Layer = name
	return c
}

func allow(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources}
}
