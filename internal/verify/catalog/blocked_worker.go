package catalog

func addBlockedWorker(register func(...Attack)) {
	register(Attack{
		ID: "A3", Via: API,
		Kinds:    everyInterval,
		Title:    "holds a worker of a controller for a day, by an object of any kind",
		Controls: []string{"policy with an upper bound on spec.timeout"},
		Fix:      Fix{Advice: "bound spec.timeout of tenants' Flux objects of every kind from above with a ValidatingAdmissionPolicy"},
		Slow:     true,
		Run: durations("a3", "1440m", map[string][]string{
			"":            {"timeout"},
			"HelmRelease": {"install.timeout", "upgrade.timeout", "test.timeout", "rollback.timeout", "uninstall.timeout"},
		}),
	})
}
