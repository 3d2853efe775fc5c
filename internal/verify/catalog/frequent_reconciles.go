package catalog

func addFrequentReconciles(register func(...Attack)) {
	register(Attack{
		ID: "A1", Via: API,
		Kinds:    everyInterval,
		Title:    "sets an interval of one second in a Flux object of any kind",
		Controls: []string{"policy with a lower bound on spec.interval"},
		Fix:      Fix{Advice: "set a minimum for spec.interval of tenants' Flux objects of every kind with a ValidatingAdmissionPolicy"},
		Slow:     true,
		Run: durations("a1", "1s", map[string][]string{
			"":              {"interval"},
			"Kustomization": {"retryInterval"},
			"HelmRelease":   {"chart.spec.interval", "install.strategy.retryInterval", "upgrade.strategy.retryInterval"},
		}),
	})
}
