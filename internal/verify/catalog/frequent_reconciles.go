package catalog

func addFrequentReconciles(register func(...Attack)) {
	register(Attack{
		ID: "A1", Via: API,
		Kinds:    everyInterval,
		Title:    "asks for a reconciliation every second, of an object of any kind",
		Controls: []string{"policy with a lower bound on spec.interval"},
		Fix:      Fix{Advice: "bound spec.interval of tenants' Flux objects of every kind from below with a ValidatingAdmissionPolicy"},
		Slow:     true,
		Run: durations("a1", "1s", map[string][]string{
			"":              {"interval"},
			"Kustomization": {"retryInterval"},
			"HelmRelease":   {"chart.spec.interval", "install.strategy.retryInterval", "upgrade.strategy.retryInterval"},
		}),
	})
}
