package attack

func init() {
	register(Attack{
		ID: "A3", Via: API,
		Title:    "holds a worker of the controller for a day",
		Controls: []string{"policy with an upper bound on spec.timeout"},
		Fix:      Fix{Advice: "bound spec.timeout of tenants' Flux objects from above with a ValidatingAdmissionPolicy"},
		Run: requests(request{
			what:  "set spec.timeout to 24h with spec.wait",
			aimed: creating(withTimes("a3", "10m", "24h")),
			own:   creating(withTimes("a3", "10m", "1m")),
		}),
	})
}
