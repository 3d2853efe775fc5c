package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addUnapprovedSourceAddress(register func(...Attack)) {
	source := func(apiVersion, kind string, where map[string]any) request {
		return request{
			what: "have a " + kind + " fetch from an address that nobody approved",
			aimed: creating(func(e *Scenario) *unstructured.Unstructured {
				spec := map[string]any{"interval": "1h", "suspend": true}
				for field, value := range where {
					spec[field] = value
				}
				return object(apiVersion, kind, e.Namespace, name("s9"), map[string]any{"spec": spec})
			}),
		}
	}
	register(Attack{
		ID: "S9", Via: API,
		Title:      "fetches from an address that nobody has approved, or from within the cluster, by a source of any kind",
		Controls:   []string{"policy on the addresses of sources"},
		References: []string{"flux2-multi-tenancy: tenancy policies"},
		Fix:        Fix{Advice: "allow sources of tenants by address, with a ValidatingAdmissionPolicy on GitRepository, HelmRepository, OCIRepository, Bucket, ImageRepository and ResourceSetInputProvider"},
		Run: requests(
			source(sourceAPI, "GitRepository", map[string]any{"url": "https://git.unapproved.example.net/any/thing"}),
			source(sourceAPI, "HelmRepository", map[string]any{"url": "https://charts.unapproved.example.net"}),
			source(sourceAPI, "HelmRepository", map[string]any{"type": "oci", "url": "oci://charts.unapproved.example.net/any"}),
			source(sourceAPI, "OCIRepository", map[string]any{"url": "oci://images.unapproved.example.net/any"}),
			source(sourceAPI, "Bucket", map[string]any{"endpoint": "buckets.unapproved.example.net", "bucketName": "any"}),
			source(imageAPI, "ImageRepository", map[string]any{"image": "images.unapproved.example.net/any"}),
			source(operatorAPI, "ResourceSetInputProvider", map[string]any{"type": "ExternalService", "url": "https://inputs.unapproved.example.net/any"}),
			request{what: "name a Service of the cluster as a Git host", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
				return object(sourceAPI, "GitRepository", e.Namespace, name("s9"), map[string]any{"spec": map[string]any{
					"interval": "1h", "suspend": true, "url": "http://source-controller." + e.Platform + ".svc.cluster.local/any",
				}})
			})},
		),
	})
}
