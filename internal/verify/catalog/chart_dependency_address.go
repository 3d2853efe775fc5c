package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addChartDependencyAddress(register func(...Attack)) {
	release := func(kind string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return e.suspendedRelease("s13", func(spec map[string]any) {
				spec["chart"].(map[string]any)["spec"].(map[string]any)["sourceRef"].(map[string]any)["kind"] = kind
			})
		}
	}
	chart := func(kind string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object(sourceAPI, "HelmChart", e.Namespace, name("s13"), map[string]any{"spec": map[string]any{
				"interval": "1h", "suspend": true, "chart": "./any", "sourceRef": map[string]any{"kind": kind, "name": "any"},
			}})
		}
	}
	var all []request
	for _, kind := range []string{"GitRepository", "Bucket"} {
		all = append(all,
			request{what: "install a chart out of a " + kind + " of its own, whose dependencies source-controller fetches from any address", aimed: creating(release(kind)), own: creating(release("HelmRepository"))},
			request{what: "have a chart made out of a " + kind + " of its own", aimed: creating(chart(kind)), own: creating(chart("HelmRepository"))},
		)
	}
	register(Attack{
		ID: "S13", Via: API,
		Kinds:      []string{"HelmChart", "HelmRelease"},
		Title:      "makes source-controller fetch from any address with the dependencies of its chart",
		Controls:   []string{"policy on the sources of charts"},
		References: []string{"Flux: Helm charts from Git and buckets"},
		Fix:        Fix{Advice: "refuse GitRepositories and Buckets as the source of tenants' HelmReleases and HelmCharts with a ValidatingAdmissionPolicy: charts come from approved Helm hosts and OCI registries"},
		Run:        requests(all...),
	})
}
