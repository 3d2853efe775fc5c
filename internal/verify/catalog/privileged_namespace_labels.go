package catalog

func addPrivilegedNamespaceLabels(register func(...Attack)) {
	label := func(what, key string) request {
		return request{what: what, aimed: patchNamespace("", `{"metadata":{"labels":{"`+key+`":"true"}}}`)}
	}
	register(Attack{
		ID: "I18", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"Namespace"},
		Title:      "puts labels on its own namespace that grant rights elsewhere",
		Controls:   []string{"RBAC", "policy with protected label prefixes"},
		References: []string{"Kubernetes: dynamic resource allocation, admin access", "Gateway API: cross-namespace routing"},
		Fix:        Fix{Advice: "give the tenant's role no write verb on namespaces, or protect the labels that others select by with a ValidatingAdmissionPolicy", Rights: true},
		Run: requests(
			label("let its namespace attach routes to a shared gateway", "shared-gateway-access"),
			label("let its namespace claim devices with admin access", "resource.kubernetes.io/admin-access"),
			label("exempt its namespace from policies", "admission.gatekeeper.sh/ignore"),
		),
	})
}
