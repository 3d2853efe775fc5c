package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addInternalNotificationAddress(register func(...Attack)) {
	provider := func(address func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("notification.toolkit.fluxcd.io/v1beta3", "Provider", e.Namespace, name("n4"), map[string]any{"spec": map[string]any{
				"type": "generic", "address": address(e),
			}})
		}
	}
	outside := func(*Scenario) string { return "https://" + sinkHost + "/hook" }
	through := func(field string, proxy any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := provider(outside)(e)
			_ = unstructured.SetNestedField(u.Object, proxy, "spec", field)
			return u
		}
	}
	// Where no address but approved ones is allowed, this is refused as well.
	own := creating(provider(outside))
	register(Attack{
		ID: "N4", Via: API,
		Kinds:    []string{"Provider"},
		Title:    "has notifications sent to an address within the cluster",
		Controls: []string{"policy on the addresses of Providers"},
		Fix:      Fix{Advice: "allow addresses of tenants' Providers by host, with a ValidatingAdmissionPolicy on spec.address and spec.proxySecretRef"},
		Run: requests(
			request{what: "name a Service of the platform as the address of a Provider", own: own, aimed: creating(provider(func(e *Scenario) string {
				return "http://source-controller." + e.Platform + ".svc.cluster.local/"
			}))},
			request{what: "name the API server as the address of a Provider", own: own, aimed: creating(provider(func(*Scenario) string {
				return "https://kubernetes.default.svc/"
			}))},
			request{what: "have a Provider post through a proxy that a Secret of its own names", own: own,
				aimed: ifServed("proxySecretRef", through("proxySecretRef", map[string]any{"name": "any"}), provider(outside))},
			request{what: "have a Provider post through a proxy of its own", own: own,
				aimed: ifServed("proxy", through("proxy", "http://proxy.unapproved.example.net/"), provider(outside))},
		),
	})
}
